"""Harness for a session of real parts in a temporary folder: SQLite, files, processes; only the
model is scripted.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from types import UnionType
from typing import Any

from lab.support.spawner import spawner_in
from longrein.agent import (
    Answer,
    Dependencies,
    InboxMessage,
    Limits,
    OpenSession,
    UserMessage,
    open_session,
)
from longrein.agent.background.task_control import BackgroundControl
from longrein.agent.checkpoints import SessionCheckpoints
from longrein.agent.hooks import HookTable, SessionHooks
from longrein.agent.messages import UserNotice
from longrein.agent.model_hooks import handler_of
from longrein.agent.session_part import (
    BackgroundTasks,
    Checkpoints,
    PartFactory,
    SessionPart,
    Subagents,
)
from longrein.agent.subagents.runner import SubagentRunner
from longrein.agent.task_slots import TaskPool
from longrein.config.hook_files import HookFile, expanded_headers, parse_hooks
from longrein.models import Delta, Model
from longrein.permissions import Rules
from longrein.settings_schema import SandboxOptions
from longrein.store import HistoryReader, Log, Reader, open_log
from longrein.testing.harness import Approver, results, said, story
from longrein.testing.scripted_model import BUDGET, ScriptedModel, call, says
from longrein.tools import builtin_tools
from longrein.workspace import open_workspace
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.sandbox import SessionSandbox
from longrein_context import Request
from longrein_context.events import (
    SCHEMA_VERSION,
    Entry,
    HookAnswered,
    Opened,
    PermissionAsked,
    PrefixSet,
    Text,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    text_of,
)

Script = ScriptedModel
SESSION = "00000000-0000-4000-8000-00000000beef"
TOUCH = call("Bash", command="touch ran.txt")
ALLOW = {"Bash": "allow", "Write": "allow"}
NO_RULES = Rules()


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


class WaitingClock(Clock):
    """A clock that waits, so that no command goes to the background."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class DiskHarness:
    """A folder with a work tree and a state folder.

    With `checkpoints` sessions keep copies of the work tree; `confined` runs commands in a sandbox
    under a supervisor. After `run`: what the user saw, was asked, and the log. `made` is the call
    of `play_call`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        checkpoints: bool = False,
        confined: bool = False,
        made: ToolCall = TOUCH,
    ) -> None:
        self.tree = folder / "tree"
        self.state = folder / "state"
        self.tree.mkdir(exist_ok=True)
        self.clock = WaitingClock() if confined else Clock()
        self.spawner: Any = spawner_in(folder / "spool")
        self.sandbox: SessionSandbox | None = None
        self.keeps_checkpoints, self.made = checkpoints, made
        self.notices: list[str] = []
        self.approver = Approver()
        self.table = HookTable()
        if confined:
            self._confine(folder)

    def _confine(self, folder: Path) -> None:
        from tests.workspace.conftest import supervised  # most tests start no supervisor

        for name in ("session", "home"):
            (folder / name).mkdir(exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder / "home")}
        self.spawner = supervised(folder / "session", environment, [str(self.tree)])
        self.sandbox = SessionSandbox(
            SandboxOptions(),
            folder=str(folder / "session"),
            home=str(folder / "home"),
            state_dir=str(folder / "state"),
            environ=os.environ,
            roots=[str(self.tree)],
        )

    def opener(self) -> SessionCheckpoints:
        store = CheckpointStore(str(self.state / "kept"), dict(os.environ))
        return SessionCheckpoints(store, 64 << 20)

    def deps(self, model: Model, log: object, **more: object) -> Dependencies:
        given = more.pop("more_tools", ())
        parts: dict[type[SessionPart], PartFactory] = {Subagents: SubagentRunner}
        parts |= more.pop("parts", {})  # type: ignore[arg-type]
        if self.keeps_checkpoints:
            (self.state / "kept").mkdir(exist_ok=True)
            parts[Checkpoints] = self.opener
        if self.sandbox is not None:
            pool = TaskPool(self.spawner)
            parts[BackgroundTasks] = lambda: BackgroundControl(pool)
            more.setdefault("sandbox", self.sandbox)
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
            archive=HistoryReader(str(self.state), SESSION),
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

    def ends(self) -> list[int]:
        """Seqs of the ends of turns."""
        return [entry.seq for entry in self.entries() if isinstance(entry.event, TurnEnded)]

    def load(self, hooks: dict[str, Any], *, is_own: bool = True, **options: Any) -> HookTable:
        """Read a table of hooks as from a settings file."""
        read = json.loads(json.dumps(hooks))
        file = HookFile("settings.json", "settings.json", is_own=is_own)
        found, notes = parse_hooks(read, file, str(self.tree))
        assert notes == [], notes
        handlers = [
            handler_of(hook, expanded_headers(hook, {"KEY": "k1", "OTHER": "no"})) for hook in found
        ]
        return HookTable(handlers, env={"CLAUDE_PROJECT_DIR": str(self.tree)}, **options)

    async def run(
        self,
        hooks: dict[str, Any] | HookTable,
        model: ScriptedModel,
        *prompts: str | InboxMessage,
        answers: Any = None,
        create: bool = True,
        **more: Any,
    ) -> OpenSession:
        """Play `prompts`; questions are answered from `answers`."""
        self.table = hooks if isinstance(hooks, HookTable) else self.load(hooks)
        self.approver = Approver(answers)
        more.setdefault("rules", NO_RULES)
        async with self.session(model, create=create, hooks=self.table, **more) as session:
            listening = asyncio.ensure_future(self._listen(session))
            async with self.approver.answering(session):
                for prompt in prompts:
                    session.tell(
                        UserMessage((Text(prompt),)) if isinstance(prompt, str) else prompt
                    )
                    await session.run(once=True)
            await asyncio.sleep(0)
            listening.cancel()
        return session

    async def play_call(
        self,
        hooks: dict[str, Any] | HookTable,
        *replies: Any,
        made: Sequence[ToolCall] = (),
        **more: Any,
    ) -> ScriptedModel:
        """Play a reply with calls, `replies` and the end of the turn."""
        model = ScriptedModel(says(*(made or (self.made,))), *replies, says("done"))
        await self.run(hooks, model, "go", **{"answers": ALLOW, **more})
        return model

    async def _listen(self, session: OpenSession) -> None:
        async for heard in session.follow(0, streaming=False):
            if isinstance(heard, UserNotice):
                self.notices.append(heard.text)

    def of(self, kind: type | UnionType) -> list[Any]:
        """All events of a type in the log."""
        return events_of(self.entries(), kind)

    @property
    def answered(self) -> list[tuple[str, str]]:
        """(event, decision) of each answer in the log."""
        return [(one.event, one.decision) for one in self.of(HookAnswered)]

    @property
    def started(self) -> list[str]:
        """Names of the tools that ran."""
        return [one.name for one in self.of(ToolStarted)]

    @property
    def results(self) -> list[str]:
        """`status: text` of each result."""
        return [f"{one.status}: {text_of(one.parts)}" for one in self.of(ToolEnded)]


def events_of(entries: Iterable[Entry], kind: type | UnionType) -> list[Any]:
    """Events of a type among entries."""
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


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
    "events_of",
    "question",
    "results",
    "said",
    "says",
    "story",
    "turn",
]
