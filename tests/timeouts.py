"""Time limits of the tests. They end hung tests; no verdict depends on how long something took."""

from collections.abc import Iterator
from typing import Any

HANG_S = 60.0
"""Limit of a wait that usually takes a second or less."""
GONE_S = 25.0
"""Limit of a wait until processes are gone; shorter than any `sleep` that stands for an endless
command.
"""


def growing_limits(first: int | float) -> Iterator[Any]:
    """Yield `first` and its doubles, ten of them.

    For a test in which something must happen before a limit that is also waited for: it tries again
    until the machine was fast enough, so that its verdict does not depend on the load.
    """
    yield from (first * 2**n for n in range(10))
