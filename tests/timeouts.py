"""Time limits of the tests, and waits within them. They end hung tests; no verdict depends on how
long something took.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

from lab.support.idle_watch import IdleWatch

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
    """Wait until `happened()` is true; fail after `limit_s` seconds, or once all that this test has
    started sleeps.
    """
    end = time.monotonic() + limit_s
    watch = IdleWatch()
    while not happened():
        assert time.monotonic() < end, f"it did not happen in time: {source(happened)}"
        assert not watch.is_idle(), f"all sleep, and it has not happened: {source(happened)}"
        time.sleep(0.001)


async def until(happened: Callable[[], object]) -> None:
    """Let the event loop go on until `happened()` is true; fail after `HANG_S` seconds, or once the
    loop has nothing to do and all processes sleep.
    """
    end = time.monotonic() + HANG_S
    watch = IdleWatch()
    while not happened():
        assert time.monotonic() < end, f"it did not happen in time: {source(happened)}"
        assert not watch.is_idle(timers()), f"nothing goes on, and no {source(happened)}"
        await asyncio.sleep(0.001)


def timers() -> object:
    """Return what the running loop is going to do, which changes while a task goes on."""
    loop: Any = asyncio.get_running_loop()
    if loop._ready:
        return object()
    return sorted(timer.when() for timer in loop._scheduled if not timer.cancelled())


def source(happened: Callable[[], object]) -> str:
    """Return where a condition stands and its text, as far as it is known."""
    try:
        lines, first = inspect.getsourcelines(happened)
    except (OSError, TypeError):
        return repr(happened)
    return f"line {first}: " + " ".join(line.strip() for line in lines)
