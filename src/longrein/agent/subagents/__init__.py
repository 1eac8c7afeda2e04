"""Subagents: who may be started, how they run beside their parent, what they may spend, and when one is stuck.

Nothing is imported here: the loop below uses `progress`, and what runs a subagent uses the loop.
"""
