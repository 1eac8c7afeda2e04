"""A session that plays a scripted turn: real entries and a real fold, without a model.

A turn is a coroutine that may be interrupted.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from prompt_toolkit.data_structures import Size

from longrein.agent import (
    Answer,
    CommandRun,
    Compact,
    FromSubagent,
    InboxMessage,
    Output,
    PendingMessage,
    ReplyDelta,
    Rewind,
    RewindPreview,
    SessionUpdate,
    SetMode,
    SetModel,
    StopSubagent,
    StopTask,
    SubagentView,
    UserMessage,
)
from longrein.frontends.terminal.event_lines import Line, plain
from longrein.frontends.terminal.markdown_blocks import Block
from longrein.frontends.terminal.view_model import ViewModel
from longrein.models import CallDelta, TextDelta
from longrein.tools import TaskView
from longrein_context import KeptStates, advance, fold
from longrein_context.events import (
    AnyEvent,
    Asked,
    Entry,
    Interrupted,
    ModeSet,
    Opened,
    PermissionAnswered,
    PermissionAsked,
    PrefixSet,
    Reminded,
    Replied,
    Rewound,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    Text,
    ToolCall,
    ToolEnded,
    ToolSpec,
    ToolStarted,
    ToolTraits,
    TurnEnded,
    Usage,
    UserSpoke,
    text_of,
)

SESSION = "0c5c0c0e-0000-4000-8000-000000000001"
KINDS = {"Read": "read", "Grep": "search", "Glob": "search", "Bash": "shell", "Agent": "agent"}
PREFIX = PrefixSet(
    "start",
    "mock",
    "small",
    "scripted",
    "You are a test.",
    tuple(ToolSpec(name, "", {}, ToolTraits(kind=kind)) for name, kind in KINDS.items()),
)
Turn = Callable[["ScriptedSession", str], Awaitable[None]]


async def endless() -> None:
    """Wait until it is cancelled."""
    await asyncio.Event().wait()


class ScriptedSession:
    """A session whose turns are coroutines."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.id = SESSION
        self.entries: list[Entry] = []
        self.log = KeptStates(lambda first, last: self.entries[first - 1 : last])
        self.state = fold([])
        self.pending: list[PendingMessage] = []
        self.busy = False
        self.told: list[InboxMessage] = []
        self._news: deque[SessionUpdate] = deque()
        self._wake = asyncio.Event()
        self._words: asyncio.Queue[InboxMessage] = asyncio.Queue()
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.closed = False
        self.views: dict[str, SubagentView] = {}
        """Subagents by session."""
        self.foreground: asyncio.Event | None = None
        """Set when the running command is sent to the background."""
        self.preview = RewindPreview()
        self._child_seq = 0
        self.left = self.cancelled = ""
        self.append(
            Opened(1, SESSION, "n0", ("/work",), "/work"),
            PREFIX,
        )

    # --- The port ---------------------------------------------------------------------------------

    def tell(self, word: InboxMessage) -> Awaitable[None]:
        self.told.append(word)
        match word:
            case UserMessage(to=""):
                self.pending.append(PendingMessage(len(self.told), word.how, text_of(word.parts)))
                self._words.put_nowait(word)
            case UserMessage():
                self.pending.append(
                    PendingMessage(len(self.told), word.how, text_of(word.parts), word.to)
                )
            case Answer():
                self._answers.put_nowait(word)
            case SetMode(mode):
                self.append(ModeSet(mode))
            case SetModel(model):
                self.append(PrefixSet("model", *model.split("/"), "scripted", "You are a test."))
            case Rewind(to):
                self.append(Rewound(to))
            case StopTask(task):
                self.end_task(task, "killed", cause="stopped by the user")
            case StopSubagent(child):
                self.end_child(child, "interrupted", "half of it")
            case Compact():
                pass
            case _:
                self._words.put_nowait(word)
        return asyncio.sleep(0)

    async def preview_rewind(
        self, to: int, *, overwrite: bool = False, conversation: bool = True
    ) -> RewindPreview:
        return self.preview

    stop_reason = "interrupted by the user"

    def interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def unqueue(self, number: int = 0) -> str:
        found = [one for one in self.pending if number in (0, one.id)]
        if not found:
            return ""
        self.pending.remove(found[-1])
        return found[-1].text

    def agents(self) -> Sequence[SubagentView]:
        return list(self.views.values())

    def tasks(self) -> Sequence[TaskView]:
        return [
            TaskView(name, now.ended.state if now.ended else now.started.state, now.started.command)
            for name, now in self.state.tasks.items()
        ]

    def background(self) -> bool:
        if self.foreground is None or self.foreground.is_set():
            return False
        self.foreground.set()
        return True

    async def run_command(self, command: str, call: str) -> CommandRun:
        """`sleep` prints a line and waits; any other command prints its own words."""
        status, output = "ok", f"ran {command}"
        if command.startswith("sleep"):
            self.hear(Output(call, b"begun\n"))
            try:
                await endless()
            except asyncio.CancelledError:
                status, output = "interrupted", "begun"
        self.append(Reminded("user_command", f"the user ran {command}", command, output))
        return CommandRun(command, output, status)

    def cancel(self, call: str) -> None:
        self.cancelled = call
        self.interrupt()

    def stay(self, how: str, limit_s: float = 0.0, *, promoted: bool = True) -> None:
        raise NotImplementedError

    async def leave(self, policy: str) -> Sequence[TaskView]:
        assert not self.busy
        await asyncio.sleep(0.05)
        self.left = policy
        return ()

    async def follow(self, seq: int = 0, *, streaming: bool = True) -> AsyncIterator[SessionUpdate]:
        while not self.closed or self._news:
            while self._news:
                yield self._news.popleft()
            self._wake.clear()
            await self._wake.wait()

    async def run(self, *, once: bool) -> None:
        while True:
            word = await self._words.get()
            if isinstance(word, UserMessage) and self._take(word):
                await self._play(word)

    async def close(self, reason: str = "other") -> None:
        self.closed = True
        self.interrupt()
        self._wake.set()

    def _take(self, word: UserMessage) -> bool:
        text = text_of(word.parts)
        found = next((p for p in self.pending if p.text == text and not p.to), None)
        if found is not None:
            self.pending.remove(found)
        return found is not None

    async def _play(self, word: UserMessage) -> None:
        self.busy = True
        self.append(UserSpoke(word.parts, word.how))
        self._task = asyncio.ensure_future(self._turn(self, text_of(word.parts)))
        try:
            await self._task
            self.end("done")
        except asyncio.CancelledError:
            if self.closed:
                raise
            for call in list(self.state.calls):
                self.append(
                    ToolEnded(call, self.state.calls[call].call.name, "interrupted", (Text("cut"),))
                )
            if self.state.asked is not None:
                self.append(Replied(self.state.asked_seq, (Text(self.streamed),), "interrupted"))
            self.append(Interrupted("[interrupted by the user]"))
            self.end("interrupted")
        self._task = None

    def end(self, reason: str) -> None:
        self.busy = False
        self.append(TurnEnded(reason))

    # --- Events of turns --------------------------------------------------------------------------

    def append(self, *events: AnyEvent) -> int:
        for event in events:
            entry = Entry(len(self.entries) + 1, time.time_ns() // 1000, event)
            self.entries.append(entry)
            self.state = advance(self.state, entry, self.log)
            self.hear(entry)
        return len(self.entries)

    def hear(self, heard: SessionUpdate) -> None:
        self._news.append(heard)
        self._wake.set()

    def ask(self) -> int:
        self.streamed = ""
        return self.append(Asked("turn", len(self.entries), 2))

    async def stream(self, text: str, *, step: int = 7, pause_s: float = 0.0) -> int:
        """Ask and stream `text`; gives the seq of the request, which is still open."""
        asked = self.ask()
        for at in range(0, len(text), step):
            self.stream_piece(asked, text[at : at + step])
            await asyncio.sleep(pause_s)
        return asked

    def stream_piece(self, asked: int, text: str) -> None:
        self.streamed += text
        self.hear(ReplyDelta(asked, [TextDelta(text)]))

    async def say(self, text: str, **how: Any) -> None:
        self.end_reply(await self.stream(text, **how))

    def end_reply(self, asked: int) -> None:
        """End the reply of what was streamed."""
        usage = Usage(1_000, 9_000, 0, 300)
        self.append(Replied(asked, (Text(self.streamed),), "end", usage, cost_usd=0.0123))

    async def call(self, name: str, arguments: dict[str, Any], text: str = "") -> str:
        """A reply with one call; gives its id."""
        asked = await self.stream(text)
        self.hear(ReplyDelta(asked, [CallDelta(0, name)]))
        call = ToolCall(f"c{asked}.0", name, arguments)
        parts: Sequence[Any] = [Text(text), call] if text else [call]
        self.append(
            Replied(asked, tuple(parts), "calls", Usage(1_000, 9_000, 0, 300), cost_usd=0.0123)
        )
        return call.id

    async def permit(
        self, call: str, name: str, shown: str, reason: str, suggestion: str = ""
    ) -> Answer:
        self.append(PermissionAsked(call, name, shown, reason, suggestion))
        answer = await self._answers.get()
        self.append(
            PermissionAnswered(
                call, answer.verdict, answer.by, answer.scope, answer.rule, answer.message
            )
        )
        return answer

    async def act(self, call: str, name: str, status: str = "ok", text: str = "done") -> None:
        self.append(ToolStarted(call, name), ToolEnded(call, name, status, (Text(text),), 0))

    # --- Background tasks and subagents -----------------------------------------------------------

    def start_task(self, task: str, command: str, **how: Any) -> None:
        self.append(TaskStarted(task, command, **how, path=f"/tmp/{task}.out"))

    def end_task(self, task: str, state: str = "done", **how: Any) -> None:
        self.append(TaskEnded(task, state, **how))

    def start_child(self, child: str, kind: str, description: str, **how: Any) -> str:
        """Gives its label."""
        label = f"a{len(self.entries) + 1}"
        self.append(
            SubagentStarted(child, kind, description=description, task=f"do: {description}", **how)
        )
        self.views[child] = SubagentView(label, child, kind, description, "running")
        return label

    def of_child(self, child: str, *events: AnyEvent) -> None:
        view = self.views[child]
        for event in events:
            self._child_seq += 1
            self.hear(FromSubagent(child, view.label, view.kind, Entry(self._child_seq, 0, event)))

    def show_child(self, child: str, **now: Any) -> None:
        self.views[child] = msgspec.structs.replace(self.views[child], **now)

    async def child_permit(
        self, child: str, call: str, name: str, shown: str, suggestion: str = ""
    ) -> Answer:
        self.show_child(child, state="asking")
        self.of_child(child, PermissionAsked(call, name, shown, "no rule allows it", suggestion))
        answer = await self._answers.get()
        self.show_child(child, state="running")
        self.of_child(
            child, PermissionAnswered(call, answer.verdict, answer.by, answer.scope, answer.rule)
        )
        return answer

    def deliver_to(self, child: str) -> None:
        """The subagent takes what waits for it."""
        for one in [one for one in self.pending if one.to == child]:
            self.pending.remove(one)
            self.of_child(child, UserSpoke((Text(one.text),), "steer"))

    def end_child(self, child: str, status: str = "done", report: str = "", **how: Any) -> None:
        if self.views[child].state in ("running", "asking", "queued"):
            self.show_child(child, state=status)
            self.append(SubagentEnded(child, status, report, **how))


class NullScreen:
    """A screen that nobody looks at."""

    size = Size(rows=24, columns=80)
    panel_has_focus = is_lent = False
    vim_mode = ""

    class app:
        is_running = False
        is_done = True

    def focus(self, *, panel: bool) -> None:
        pass

    def reset_vim_mode(self) -> None:
        pass

    def redraw(self) -> None:
        pass

    def commit(self, rows: Sequence[str]) -> None:
        pass


def texts(rows: Iterable[Line]) -> list[str]:
    return [plain(row).rstrip() for row in rows]


def apply(view: ViewModel, *heard: AnyEvent | SessionUpdate | float) -> list[str]:
    """Apply events, as entries from 1, updates and pauses in seconds; gives what is printed,
    without empty lines.
    """
    now_s, seq, rows = 0.0, 0, list[str]()
    for update in heard:
        if isinstance(update, float):
            now_s += update
            continue
        seq += not isinstance(update, SessionUpdate)
        pieces = view.apply(
            update if isinstance(update, SessionUpdate) else Entry(seq, 0, update), now_s
        )
        rows += [
            (piece.text if isinstance(piece, Block) else plain(piece)).rstrip() for piece in pieces
        ]
    return [row for row in rows if row]
