"""Subagents: which may be started, how they run, what they may spend, and how they report.

Nothing is imported here: the main loop names parts of this package, and the package uses the loop.
"""
