"""Summary request that runs while the conversation continues."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from longrein.agent.session_part import SessionPart
from longrein.events import AskFailed, Replied


class SummaryRequest(SessionPart):
    """At most one summary request in the background; its outcome waits here until the loop
    appends it to the log.
    """

    rank = 60

    def __init__(self) -> None:
        self._task: asyncio.Task[Replied | AskFailed] | None = None
        self._seq = 0
        self._reserved_usd = 0.0

    @property
    def running(self) -> bool:
        """True while a request has no outcome in the log."""
        return self._task is not None

    def start(
        self, attempt: Coroutine[Any, Any, Replied | AskFailed], seq: int, reserved_usd: float
    ) -> None:
        """Run `attempt`, the answer to `Asked` `seq`, in the background; wake the loop when it
        is done.
        """
        self._task = asyncio.ensure_future(attempt)
        self._seq = seq
        self._reserved_usd = reserved_usd
        self._task.add_done_callback(lambda _task: self.session.poke())

    async def collect(self) -> None:
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            self.session.append(task.result())

    async def close(self) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Cancel the request and record what it may have cost."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        task, self._task = self._task, None
        gone = AskFailed(self._seq, "cancelled", "no longer needed", assumed_usd=self._reserved_usd)
        self.session.append(gone if task.cancelled() else task.result())
