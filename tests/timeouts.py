"""Time limits of the tests. They end what hangs; no verdict depends on how long something took."""

HANG_S = 60.0
"""A wait for something that usually takes a second or less; what takes longer has hung."""
GONE_S = 25.0
"""A wait until processes are gone; shorter than any `sleep` that stands for one that never ends by itself."""
