"""Background tasks: from the command that goes on by itself to the notice of its end.

Nothing is imported here: the parts above name the pool, and what runs a command names the parts.
"""
