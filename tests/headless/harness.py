"""A scripted session, and `play`, which runs the headless frontend on it with a real pipe as
stdout.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from longrein.agent import (
    Answer,
    Continue,
    FromSubagent,
    InboxMessage,
    PendingMessage,
    ReplyDelta,
    RetryPause,
    SessionUpdate,
    SubagentView,
    UserMessage,
    UserNotice,
)
from longrein.agent import Output as More
from longrein.agent.extension_part import ControlHandler
from longrein.app import App
from longrein.app.run_context import RunContext
from longrein.frontends.headless import BufferedOutput, OutputOptions, run_headless
from longrein.options import Options
from longrein.settings_schema import Settings
from longrein.tools import SkillInfo, TaskView
from longrein_context import Budget, Report, State, report
from longrein_context.events import (
    AnyEvent,
    Asked,
    Entry,
    Image,
    Interrupted,
    LongreinError,
    PermissionAsked,
    Replied,
    Text,
    ToolCall,
    ToolEnded,
    TurnEnded,
    Usage,
)

from .schema import validate

SESSION = "0192d0c8-0000-7000-8000-000000000001"
SECOND_US = 1_000_000


class Hang:
    """A step that waits until the turn is interrupted."""


class Raise:
    """A step at which the loop raises."""

    def __init__(self, error: LongreinError) -> None:
        self.error = error


Step = AnyEvent | ReplyDelta | RetryPause | UserNotice | FromSubagent | More | Hang | Raise
HANG = Hang()


class ScriptedSession:
    """A session that plays scripted turns. Entries are one second apart; a question waits for
    its answer.
    """

    def __init__(
        self, turns: Sequence[Sequence[Step]], *, seq: int = 0, open_turn: bool = False
    ) -> None:
        self.id = SESSION
        self.state = State(session=SESSION, seq=seq, turn_open=open_turn, cwd="/w/caffè")
        self.pending: Sequence[PendingMessage] = ()
        self.busy = False
        self.said: list[InboxMessage] = []
        self.closed = False
        self.over = asyncio.Event()
        """Set when a turn has been played."""
        self.turns_left = list(turns)
        self._heard: asyncio.Queue[SessionUpdate | None] = asyncio.Queue()
        self._interrupted = asyncio.Event()
        self._answered = asyncio.Event()
        self._waiting = int(open_turn)

    async def tell(self, word: InboxMessage) -> None:
        self.said.append(word)
        await asyncio.sleep(0)
        if isinstance(word, Answer):
            self._answered.set()
        elif isinstance(word, UserMessage):
            self._waiting += 1
        else:
            assert isinstance(word, Continue)

    stop_reason = "interrupted by the user"

    def interrupt(self) -> None:
        if self.busy:
            self._interrupted.set()

    def stay(self, how: str, limit_s: float = 0.0, *, promoted: bool = True) -> None:
        assert how in ("exit", "drain", "steer")

    def agents(self) -> Sequence[SubagentView]:
        return ()

    def tasks(self) -> Sequence[TaskView]:
        return ()

    async def leave(self, policy: str) -> Sequence[TaskView]:
        assert policy == "keep"
        return ()

    async def follow(self, seq: int = 0, *, streaming: bool = True) -> AsyncIterator[SessionUpdate]:
        while (heard := await self._heard.get()) is not None:
            yield heard

    async def run(self, *, once: bool) -> None:
        assert once
        while self._waiting:
            self._waiting -= 1
            self.busy = True
            await self._play(self.turns_left.pop(0))
            self.busy = False
            self.over.set()
            await asyncio.sleep(0)

    async def _play(self, turn: Sequence[Step]) -> None:
        for step in turn:
            await asyncio.sleep(0)
            match step:
                case Raise(error=error):
                    raise error
                case Hang():
                    await self._interrupted.wait()
                case ReplyDelta() | RetryPause() | UserNotice() | FromSubagent() | More():
                    self._heard.put_nowait(step)
                case _:
                    self.append(step)
            match step:
                case PermissionAsked() | FromSubagent(heard=Entry(event=PermissionAsked())):
                    await self._answered.wait()
                    self._answered.clear()
            if self._interrupted.is_set():
                self._interrupted.clear()
                self.append(Interrupted("[interrupted by the user]"))
                self.append(TurnEnded("interrupted"))
                return

    def append(self, event: AnyEvent) -> None:
        self.state.seq += 1
        self._heard.put_nowait(Entry(self.state.seq, self.state.seq * SECOND_US, event))

    async def close(self, reason: str = "other") -> None:
        if not self.closed:
            self.closed = True
            self._heard.put_nowait(None)


# --- Events of turns ------------------------------------------------------------------------------


def asked(reach: int = 0) -> Asked:
    return Asked("turn", reach, 1)


def answered(to: int, *parts: Any, stop: str = "", cost: float = 0.25) -> Replied:
    """A reply to request `to` of 10 tokens in and 5 out."""
    made = tuple(Text(p) if isinstance(p, str) else p for p in parts)
    calls = any(isinstance(p, ToolCall) for p in made)
    return Replied(
        to, made, stop or ("calls" if calls else "end"), Usage(10, 20, 30, 5), (), cost, "small-1"
    )


def call(asked_seq: int, index: int, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"c{asked_seq}.{index}", name, arguments)


def ended(
    call_id: str, name: str, text: str, status: str = "ok", elapsed_ms: int = 12
) -> ToolEnded:
    return ToolEnded(call_id, name, status, (Text(text),), elapsed_ms)


def usage(input_tokens: int, output_tokens: int, written: int, read: int) -> dict[str, int]:
    """Usage as a line gives it."""
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
    }


DONE = TurnEnded("done")


# --- Running --------------------------------------------------------------------------------------


class OpenedSession:
    """An `AppSession` around a scripted session."""

    model = "mock/small"
    budget = Budget(200_000, 8_192)
    key_source = "MOCK_API_KEY"
    sandbox = "none"
    tool_names = ("Read", "Bash")
    subagent_types = ()

    def __init__(self, session: ScriptedSession, notes: Sequence[str] = ()) -> None:
        place = str(Path(os.devnull))
        self.app = App(RunContext(Options(), Settings(), {}, place, place, place, ()), print)
        self.app.version = "0.1.0"
        self.session = session
        self.notes = notes

    def find_skills(self) -> Sequence[SkillInfo]:
        return ()

    slash_commands = connections = find_skills

    def control_requests(self) -> dict[str, ControlHandler]:
        return {}

    def context_report(self) -> Report:
        return report(self.session.state, self.budget)

    async def read_history(self, _work: object) -> Sequence[object]:
        return ()  # nothing was used

    def keep_media(self, data: bytes, media: str) -> Image:
        return Image("b" * 64, media, len(data))


class RunResult:
    """Exit code, stdout, stderr and session of a run."""

    def __init__(self, code: int, out: bytes, err: list[str], session: ScriptedSession) -> None:
        self.code, self.out, self.err, self.session = code, out, err, session

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Lines of stdout, each checked against its schema."""
        lines = [json.loads(line) for line in self.out.decode("utf-8").splitlines()]
        for line in lines:
            validate(line)
        return lines

    @property
    def kinds(self) -> str:
        """Kinds of the lines, without `system/`."""
        return " ".join(validate(line).removeprefix("system/") for line in self.lines)


async def play(
    turns: Sequence[Sequence[Step]],
    options: OutputOptions | str = "stream-json",
    *,
    prompt: str = "do it",
    typed: Sequence[bytes] | None = None,
    session: ScriptedSession | None = None,
    notes: Sequence[str] = (),
) -> RunResult:
    """Run headless over `turns` with stdout a real pipe; `typed` are lines of stdin."""
    session = session or ScriptedSession(turns)
    options = OutputOptions(options) if isinstance(options, str) else options  # type: ignore[arg-type]
    reading, writing = os.pipe()
    err: list[str] = []
    collected = asyncio.create_task(asyncio.to_thread(_read_all, reading))
    try:
        code = await run_headless(
            OpenedSession(session, notes),
            prompt=(Text(prompt),) if prompt else (),
            options=options,
            out=BufferedOutput(writing),
            err=err.append,
            lines=None if typed is None else _each(typed),
        )
    finally:
        os.close(writing)
        out = await collected
    assert session.closed
    assert not session.turns_left, "turns were left over"
    return RunResult(code, out, err, session)


def _read_all(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        return file.read()


async def _each(lines: Sequence[bytes]) -> AsyncIterator[bytes]:
    for line in lines:
        await asyncio.sleep(0)
        yield line
