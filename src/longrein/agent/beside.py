"""One summary request beside the work. What comes of it waits here until the loop drains it into the log."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from longrein.events import AnyEvent, AskFailed, Replied


class _Host(Protocol):
    """What it needs of the session."""

    def append(self, *events: AnyEvent) -> int: ...
    def poke(self) -> None: ...


class Beside:
    """At most one request runs beside the conversation."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Replied | AskFailed] | None = None
        self._seq, self._reserved_usd = 0, 0.0

    @property
    def running(self) -> bool:
        """Whether a request was made whose outcome is not in the log yet."""
        return self._task is not None

    def start(
        self, host: _Host, attempt: Coroutine[Any, Any, Replied | AskFailed], seq: int, reserved_usd: float
    ) -> None:
        """Let `attempt`, the answer to `Asked` `seq`, go on by itself; the loop is woken when it has come."""
        self._task, self._seq, self._reserved_usd = asyncio.ensure_future(attempt), seq, reserved_usd
        self._task.add_done_callback(lambda _task: host.poke())

    def collect(self, host: _Host) -> None:
        """Append what has come."""
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            host.append(task.result())

    async def stop(self, host: _Host) -> None:
        """Give up the request that runs; what it may have cost is written down."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        task, self._task = self._task, None
        gone = AskFailed(self._seq, "cancelled", "no longer needed", assumed_usd=self._reserved_usd)
        host.append(gone if task.cancelled() else task.result())
