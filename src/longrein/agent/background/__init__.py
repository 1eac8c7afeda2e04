"""Background tasks: start, output, stall detection and the notice of the end.

Nothing is imported here, so that `agent.ports` can name the task pool without a cycle.
"""
