"""Signal handlers of the event loop, and the end of a frontend's tasks."""

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a headless run with 128 + their number."""


@contextmanager
def signal_handlers(handlers: dict[int, Callable[[], object]]) -> Iterator[None]:
    """Call a handler on each signal that is received in the block. Needs the main thread and a
    running loop.
    """
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their ends; raise the first exception that is no cancellation."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
            raise error
