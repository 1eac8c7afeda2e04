"""Work that waits for a disk or reckons for long, in a thread of its own, so that the loop goes on.

Not the loop's own pool, which has few threads: there a slow disk would make everything else wait in line.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """What `work()` gives, or raises; `work` must end by itself, and soon.

    Cancelled, it waits for the end all the same and gives it, so that what was done to a file can be told; the task's
    `cancelling()` says that somebody wanted it to stop.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    Thread(target=_work, args=(work, loop, done), name="longrein-aside", daemon=True).start()
    while not done.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([done])
    return done.result()


def _work(work: Callable[[], T], loop: asyncio.AbstractEventLoop, done: "asyncio.Future[T]") -> None:
    try:
        result = work()
    except BaseException as error:  # whatever it is, it is the caller's
        _tell(loop, done.set_exception, error)
    else:
        _tell(loop, done.set_result, result)


def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[[T], None], value: T) -> None:
    try:
        loop.call_soon_threadsafe(tell, value)
    except RuntimeError:
        return  # the loop is gone, and whoever waited with it
