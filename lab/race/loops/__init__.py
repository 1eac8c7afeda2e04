"""Message loops of the race. Each module has `POLICIES`: name of a policy -> coroutine that
plays a session.
"""
