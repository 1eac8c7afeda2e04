"""What background tasks need of the session they belong to, and one way of waiting."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from longrein.agent.tasks.options import TaskOptions
from longrein.context import State
from longrein.events import AnyEvent
from longrein.store import Log
from longrein.tools import Archive, Blobs, ToolOptions
from longrein.workspace import Workspace

T = TypeVar("T")
UNCUT_S = 5.0
"""How long a cancellation waits for what must not stay half done."""


class Clock(Protocol):
    """See `agent.Clock`."""

    def wall_us(self) -> int: ...
    def mono_s(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class Crew(Protocol):
    """The parts of `agent.Crew` that are used here."""

    @property
    def clock(self) -> Clock: ...
    @property
    def workspace(self) -> Workspace: ...
    @property
    def options(self) -> ToolOptions: ...
    @property
    def task_options(self) -> TaskOptions: ...
    @property
    def archive(self) -> Archive | None: ...
    def redact(self, text: str, /) -> str: ...


class Host(Protocol):
    """One open session."""

    id: str
    state: State
    log: Log
    closed: bool

    @property
    def process_session(self) -> str: ...
    @property
    def crew(self) -> Crew: ...
    @property
    def blobs(self) -> Blobs: ...
    def append(self, *events: AnyEvent) -> int: ...
    def commit(self, *, flush: bool) -> "asyncio.Future[None]": ...
    def poke(self) -> None: ...
    def notice(self, text: str) -> None: ...


async def uncut(work: Coroutine[Any, Any, T]) -> T:
    """Do `work` to its end, also when the wait is cancelled: what came of it takes the cancellation's place.

    For what must not stay half done, such as a task that is in the log and not yet kept. Only a stuck disk makes a
    cancellation wait long; after `UNCUT_S` it is obeyed.
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
