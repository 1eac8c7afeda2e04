"""Time limits of the tests. They end hung tests; no verdict depends on how long something took."""

HANG_S = 60.0
"""Limit of a wait that usually takes a second or less."""
GONE_S = 25.0
"""Limit of a wait until processes are gone; shorter than any `sleep` that stands for an endless
command.
"""
