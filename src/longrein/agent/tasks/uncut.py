"""One way of waiting: for what must not stay half done, such as a task that is in the log and not yet kept."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
UNCUT_S = 5.0
"""How long a cancellation waits for what must not stay half done."""


async def uncut(work: Coroutine[Any, Any, T]) -> T:
    """Do `work` to its end, also when the wait is cancelled: what came of it takes the cancellation's place.

    Only a stuck disk makes a cancellation wait long; after `UNCUT_S` it is obeyed.
    """
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait((doing,), timeout=UNCUT_S)
        if not doing.done():
            doing.cancel()
        if doing.cancelled() or not doing.done():
            raise
        return doing.result()
