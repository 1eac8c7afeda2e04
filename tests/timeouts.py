"""Time limits of the tests, and waits within them. They end hung tests; no verdict depends on how
long something took.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

HANG_S = 240.0
"""Limit of a wait for what happens unless something hangs: a machine under load may take a hundred
times as long as a quiet one. Shorter than the limit of a whole test, so that the wait is named.
"""
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


def wait_until(happened: Callable[[], object], limit_s: float = HANG_S) -> None:
    """Wait until `happened()` is true; fail after `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.001)


async def until(happened: Callable[[], object]) -> None:
    """Let the event loop go on until `happened()` is true; fail after `HANG_S` seconds."""
    async with asyncio.timeout(HANG_S):
        while not happened():  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.001)
