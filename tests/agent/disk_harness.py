"""Harness for a session of real parts in a temporary folder: SQLite, files, processes; only the
model is scripted.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path

from longrein.agent import (
    Answer,
    Dependencies,
    InboxMessage,
    Limits,
    OpenSession,
    UserMessage,
    open_session,
)
from longrein.agent.hooks import SessionHooks
from longrein.agent.session_part import PartFactory, SessionPart, Subagents
from longrein.agent.subagents.runner import SubagentRunner
from longrein.context import Request
from longrein.events import (
    SCHEMA_VERSION,
    Entry,
    Opened,
    PermissionAsked,
    PrefixSet,
    Text,
)
from longrein.models import Delta, Model
from longrein.permissions import Rules
from longrein.store import Log, Reader, open_log
from longrein.testing.harness import results, said, story
from longrein.testing.scripted_model import BUDGET, ScriptedModel, call, says
from longrein.tools import builtin_tools
from longrein.workspace import PlainSpawner, open_workspace

Script = ScriptedModel
SESSION = "00000000-0000-4000-8000-00000000beef"


class Clock:
    """A clock that keeps the order of events and hardly waits; it records each sleep."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000
        self.slept: list[float] = []

    def wall_us(self) -> int:
        self.now += 1000
        return self.now

    def mono_s(self) -> float:
        return self.wall_us() / 1e6

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0.005)


class UncheckedModel(ScriptedModel):
    """Takes any request, and passes on the usage as it is."""

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        self.requests.append(request)
        yield [self._next(request)]


class DiskHarness:
    """A folder with a work tree and a state folder."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.state = folder / "state"
        self.tree.mkdir(exist_ok=True)
        self.clock = Clock()
        self.spawner = PlainSpawner()

    def deps(self, model: Model, log: object, **more: object) -> Dependencies:
        given = more.pop("more_tools", ())
        parts: dict[type[SessionPart], PartFactory] = {Subagents: SubagentRunner}
        parts |= more.pop("parts", {})  # type: ignore[arg-type]
        if "hooks" in more:
            table = more.pop("hooks")
            parts[SessionHooks] = lambda: SessionHooks(table)  # type: ignore[arg-type]
        tools = {tool.spec.name: tool for tool in (*builtin_tools(), *given)}  # type: ignore[misc]
        return Dependencies(
            clock=self.clock,
            jitter=lambda: 0.5,
            workspace=open_workspace(
                (str(self.tree),), spawner=self.spawner, environment=dict(os.environ), keep_env=()
            ),
            tools=tools,
            model=model,
            open_model=lambda name: model,
            prefix=lambda m, reason: PrefixSet(
                reason,
                m.provider,
                m.model,
                m.wire,
                "Be good.",
                tuple(t.spec for t in tools.values()),
                ("# here",),
            ),
            history=lambda first, last: Reader(str(self.state), SESSION).entries(first - 1, last),
            rules=more.pop("rules", Rules(allow=("Bash(*)", "Write", "Edit"), base=str(self.tree))),  # type: ignore[arg-type]
            parts=parts,
            **more,  # type: ignore[arg-type]
        )

    @asynccontextmanager
    async def session(
        self, model: Model, *, create: bool = True, **more: object
    ) -> AsyncIterator[OpenSession]:
        log = await open_log(str(self.state), SESSION, create=create, wall_us=self.clock.wall_us)
        opened = (
            Opened(SCHEMA_VERSION, SESSION, "n0nce", (str(self.tree),), str(self.tree))
            if not log.entries
            else None
        )
        mode = str(more.pop("mode", "" if "rules" in more else "bypassPermissions"))
        session = open_session(log, self.deps(model, log, **more), opened=opened, mode=mode)
        try:
            yield session
        finally:
            await session.close()

    async def play(
        self, model: Model, *prompts: str | InboxMessage, create: bool = True, **more: object
    ) -> OpenSession:
        """Send each of `prompts` and run the turns to their end."""
        async with self.session(model, create=create, **more) as session:
            for prompt in prompts:
                await turn(session, prompt)
        return session

    def entries(self) -> list[Entry]:
        return list(Reader(str(self.state), SESSION).entries())


async def turn(session: OpenSession, *messages: str | InboxMessage) -> None:
    """Send messages and run the turn to its end."""
    for message in messages:
        session.tell(UserMessage((Text(message),)) if isinstance(message, str) else message)
    await session.run(once=True)


async def question(session: OpenSession, after: PermissionAsked | None = None) -> PermissionAsked:
    """Wait for a permission question, another one than `after`."""
    async for heard in session.follow():
        if (
            isinstance(heard, Entry)
            and isinstance(heard.event, PermissionAsked)
            and heard.event != after
        ):
            return heard.event
    raise AssertionError("nothing was asked")


class FlushTrackingLog:
    """A log that records the last flushed seq."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.flushed = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def append(
        self,
        entries: Sequence[Entry],
        *,
        flush: bool,
        take: Sequence[int] = (),
        beside: Sequence[object] = (),
    ) -> "Future[None]":
        written = self._log.append(entries, flush=flush, take=take, beside=beside)  # type: ignore[arg-type]
        last = entries[-1].seq if entries else self.flushed
        if flush:
            written.add_done_callback(lambda _: setattr(self, "flushed", last))
        return written


__all__ = [
    "BUDGET",
    "Answer",
    "DiskHarness",
    "Limits",
    "Script",
    "call",
    "question",
    "results",
    "said",
    "says",
    "story",
    "turn",
]
