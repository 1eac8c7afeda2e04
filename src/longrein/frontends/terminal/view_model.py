"""The view model of one session: a fold of its updates, used by the screen and by the plain terminal.

Finished pieces are returned once, to be printed; everything else can be drawn at any time. Knows no terminal.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from longrein.agent import FromSubagent, Output, ReplyDelta, RetryPause, SessionUpdate, TaskOver, UserNotice
from longrein.context import State
from longrein.events import (
    Asked,
    AskFailed,
    ChildEnded,
    ChildStarted,
    Cleared,
    Entry,
    GoalChanged,
    Interrupted,
    ModeSet,
    PermissionAnswered,
    PermissionAsked,
    PrefixSet,
    Reminded,
    Replied,
    Restored,
    Rewound,
    Summarized,
    TaskEnded,
    TaskStarted,
    Text,
    TodoSet,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UserSpoke,
    text_of,
    unwrapped,
)
from longrein.frontends.reports.goals import goal_line
from longrein.frontends.terminal import event_lines
from longrein.frontends.terminal.approvals import Question
from longrein.frontends.terminal.event_lines import FileText, Line, change_lines, line
from longrein.frontends.terminal.markdown import Block, Splitter
from longrein.frontends.terminal.task_rows import BackgroundActivity
from longrein.frontends.text_format import escape, escape_line, key_argument
from longrein.models import CallDelta, TextDelta, ThinkingDelta

Phase = Literal["idle", "thinking", "writing", "calling", "running", "waiting", "retrying", "compacting"]
Piece = Line | Block
Group = Literal["", "user", "text", "call", "note", "answer"]

EMPTY: Line = ()
REPLAYED_MAX = 2_000
"""Newest entries of an old log that are replayed. Older ones are taken from the folded state."""
OUTPUT_BYTES_MAX = 4_000
"""Bytes of a running call's output that are kept to show its last line."""


class CallRow(msgspec.Struct):
    """A tool call that has not ended."""

    name: str
    argument: str
    arguments: dict[str, object] | None
    change: list[Line]
    status: str = "waiting"
    since_s: float = 0.0
    output: bytes = b""


class Prompt(msgspec.Struct, frozen=True):
    """A user's message, as a target of /rewind."""

    seq: int
    text: str


class ViewModel:
    """State of the display of one session. `now_s` is monotonic seconds."""

    def __init__(self, file_text: FileText | None = None) -> None:
        self._file_text = file_text
        self._splitter: Splitter | None = None
        self._streamed: list[str] = []
        self._purposes: dict[int, str] = {}
        """Purpose of each unanswered request, by its seq."""
        self._early: list[ReplyDelta] = []
        """Deltas of a request whose `Asked` has not arrived yet."""
        self._group: Group = ""
        self._thought: list[str] = []
        self._in_turn = False
        """Whether a turn is open; `/compact` alone opens none."""
        self.phase: Phase = "idle"
        self.since_s = 0.0
        """Start of the phase."""
        self.turn_since_s = 0.0
        self.writing_call = ""
        """Name of the call that the model is writing."""
        self.calls: dict[str, CallRow] = {}
        self._key_arguments: dict[str, str] = {}
        """Tool name -> argument to show of its calls, where the tool states one."""
        self._questions: dict[str, Question] = {}
        self.activity = BackgroundActivity()
        """Background tasks and subagents."""
        self.steps = 0
        """Requests of this turn so far."""
        self.pausing: RetryPause | None = None
        """Reason of the current retry; kept until the model answers."""
        self.pause_until_s = 0.0
        self.prompts: list[Prompt] = []
        self.live = False
        """Whether updates happen now; False while an old log is replayed."""

    @property
    def busy(self) -> bool:
        """Whether a turn or a compaction runs."""
        return self.phase != "idle"

    @property
    def questions(self) -> list[Question]:
        """Calls that wait for permission, in order; those of subagents follow."""
        return [*self._questions.values(), *self.activity.questions.values()]

    def remove_question(self, question: Question) -> None:
        """Remove an answered question before its entry arrives, so that the next one can be shown."""
        if question.session:
            self.activity.questions.pop(question.key, None)
        else:
            self._questions.pop(question.asked.call, None)

    def thinking_line(self) -> str:
        """The last line of the streamed reasoning."""
        text = "".join(self._thought[-200:]).rstrip()
        return escape_line(text.rpartition("\n")[2])

    def tail(self, lines: int) -> str:
        """The last `lines` lines of the unfinished block, escaped."""
        return escape(self._splitter.tail(lines)) if self._splitter else ""

    @property
    def tail_gap(self) -> bool:
        """Whether an empty line stands above the tail."""
        return self._splitter is None or self._splitter.gap or self._group != "text"

    def go_live(self, *, busy: bool, now_s: float) -> None:
        """Switch from replaying to live updates. `busy` is False when the last turn was cut off."""
        self.live = True
        if not busy:
            self._in_turn = False
            self._enter("idle", now_s)

    def resume(self, state: State) -> int:
        """Take prompts, tasks and subagents of an old log from its state.

        Returns the seq of the last entry that need not be replayed; 0 when all must be.
        """
        skipped = max(0, state.seq - REPLAYED_MAX)
        self.prompts = [Prompt(word.seq, word.text) for word in state.words if word.origin != "steer"]
        self.prompts = [prompt for prompt in self.prompts if prompt.seq <= skipped]
        for child in state.children.values():
            if child.seq <= skipped:
                self.activity.apply(Entry(child.seq, child.at, child.started))
        for task in state.tasks.values():
            if task.seq <= skipped and not 0 < task.ended_seq <= skipped:
                self.activity.apply(Entry(task.seq, task.at, task.started))
        return skipped

    def apply(self, heard: SessionUpdate, now_s: float) -> list[Piece]:
        """Apply one update and return the pieces that it finishes, to be printed once."""
        self.activity.now_s = now_s if self.live else None
        match heard:
            case Entry():
                return self._entry(heard, now_s)
            case ReplyDelta():
                return self._stream(heard, now_s)
            case Output(call=call, data=data):
                if row := self.calls.get(call):
                    row.output = (row.output + data)[-OUTPUT_BYTES_MAX:]
                return []
            case RetryPause():
                self.pausing, self.pause_until_s = heard, now_s + heard.delay_s
                self._enter("retrying", now_s)
                return []
            case UserNotice(text=text):
                return self.spaced("note", [event_lines.notice_line(text)])
            case TaskOver(ended=ended):
                return self.spaced("call", self.activity.end_task(ended))
            case FromSubagent():
                entry = heard.heard
                is_message = isinstance(entry, Entry) and isinstance(entry.event, UserSpoke)
                return self.spaced("user" if is_message else "note", self.activity.apply_subagent(heard))

    def _enter(self, phase: Phase, now_s: float) -> None:
        if phase != self.phase:
            if self.phase == "idle":
                self.turn_since_s = now_s
            self.phase, self.since_s = phase, now_s

    def spaced(self, group: Group, rows: Sequence[Piece]) -> list[Piece]:
        """`rows` with an empty line above them when another group begins."""
        if not rows:
            return []
        gap = group != self._group or group in ("user", "answer")
        self._group = group
        return [EMPTY, *rows] if gap else list(rows)

    # --- Entries -----------------------------------------------------------------------------------------------------

    def _entry(self, entry: Entry, now_s: float) -> list[Piece]:
        match entry.event:
            case UserSpoke() | Reminded(kind="wake"):
                return self._begin_turn(entry, now_s)
            case Asked() | Replied() | AskFailed():
                return self._request(entry, now_s)
            case PermissionAsked() | PermissionAnswered() | ToolStarted() | ToolEnded():
                self.activity.apply(entry)
                return self._call(entry, now_s)
            case TurnEnded() | Interrupted():
                return [*self.finish_reply(), *self.spaced("note", self._end_turn(entry.event, now_s))]
            case Rewound() as rewound:
                self.prompts = [prompt for prompt in self.prompts if prompt.seq <= rewound.to]
                return self.spaced("note", event_lines.rewound_lines(rewound))
            case TaskStarted() | TaskEnded() | ChildStarted() | ChildEnded():
                return self.spaced("call", self.activity.apply(entry))
            case PrefixSet() as prefix:
                specs = (*prefix.tools, *prefix.deferred)
                self._key_arguments |= {spec.name: spec.traits.key_argument for spec in specs if spec.traits}
                return self.spaced("note", _other_lines(entry))
            case _:
                return self.spaced("note", _other_lines(entry))

    def _begin_turn(self, entry: Entry, now_s: float) -> list[Piece]:
        """Begin a turn with a message or a wake, or add a steering message to the open turn."""
        is_steering = isinstance(entry.event, UserSpoke) and entry.event.origin == "steer" and self._in_turn
        if not is_steering:
            self.steps = 0
        self._in_turn = True
        self._enter("thinking", now_s)
        match entry.event:
            case UserSpoke() as spoke:
                if not is_steering:
                    self.prompts.append(Prompt(entry.seq, text_of(spoke.parts)))
                note = f"delivered at step {self.steps + 1}" if is_steering else ""
                return self.spaced("user", event_lines.user_lines(spoke, note))
            case Reminded(source=source):
                return self.spaced("note", [event_lines.wake_line(source)])
            case _:
                return []

    def _end_turn(self, ended: TurnEnded | Interrupted, now_s: float) -> list[Line]:
        if isinstance(ended, Interrupted):
            return []  # TurnEnded follows
        self.calls.clear()
        self._questions.clear()
        self.pausing = None
        self._in_turn = False
        self._enter("idle", now_s)
        return event_lines.ended_turn(ended)

    def _request(self, entry: Entry, now_s: float) -> list[Piece]:
        match entry.event:
            case Asked() as asked:
                return self._begin_request(entry.seq, asked, now_s)
            case Replied() as reply:
                if self._purposes.pop(reply.asked, "turn") == "summary":
                    return self._end_summary([], now_s)
                self._end_retries(now_s)
                return self._replied(reply, now_s)
            case AskFailed() as failed:
                if self._purposes.pop(failed.asked, "turn") == "summary":
                    return self._end_summary(event_lines.failed_summary(failed), now_s)
                self.pausing = None
                shown = bool(self._streamed)
                rest = self.finish_reply()
                self._enter("thinking" if self._in_turn else "idle", now_s)
                return [*rest, *self.spaced("note", event_lines.failed_request(failed, shown=shown))]
            case _:
                return []

    def _begin_request(self, seq: int, asked: Asked, now_s: float) -> list[Piece]:
        self._purposes[seq] = asked.purpose
        is_turn = asked.purpose == "turn"
        self._in_turn = self._in_turn or is_turn
        self.steps += is_turn
        if not is_turn and asked.reason != "ahead":  # a summary in the background does not change the phase
            self.pausing = None
            self._enter("compacting", now_s)
        elif is_turn and self.pausing is None:
            self._enter("thinking", now_s)
        deltas, self._early = self._early, []
        return [piece for streaming in deltas for piece in self._stream(streaming, now_s)]

    def _end_summary(self, rows: Sequence[Line], now_s: float) -> list[Piece]:
        if self.phase == "compacting":
            self._enter("thinking" if self._in_turn else "idle", now_s)
        return self.spaced("note", rows)

    def _end_retries(self, now_s: float) -> None:
        """Leave the retry phase: the model answers."""
        if self.pausing is not None:
            self.pausing = None
            self._enter("thinking", now_s)

    def _replied(self, reply: Replied, now_s: float) -> list[Piece]:
        text = "".join(part.text for part in reply.parts if isinstance(part, Text))
        streamed = "".join(self._streamed)
        missing = text[len(streamed) :] if text.startswith(streamed) else ""
        rows = [*self._text(missing), *self.finish_reply()]
        if reply.stop == "interrupted":
            return rows
        for part in reply.parts:
            if isinstance(part, ToolCall):
                call = unwrapped(part)
                change = change_lines(call.name, call.arguments, self._file_text if self.live else None)
                self.calls[part.id] = CallRow(
                    call.name, self._key_argument(call.name, call.arguments), call.arguments, change
                )
        if self.calls:
            self._enter("running", now_s)
        if reply.stop in ("length", "refusal"):
            why = "cut by the output limit" if reply.stop == "length" else "refused by the model"
            rows += self.spaced("note", [line(("warn", f"the reply was {why}"))])
        return rows

    # --- Calls -------------------------------------------------------------------------------------------------------

    def _call(self, entry: Entry, now_s: float) -> list[Piece]:
        match entry.event:
            case PermissionAsked() as asked:
                row = self.calls.get(asked.call)
                self._questions[asked.call] = Question(asked, row.arguments if row else None)
                self._set_status(asked.call, "asking", now_s)
                self._enter("waiting", now_s)
                return []
            case PermissionAnswered() as answer:
                self._questions.pop(answer.call, None)
                self._set_status(answer.call, "waiting", now_s)
                self._enter("waiting" if self._questions else "running", now_s)
                row = self.calls.get(answer.call)
                return self.spaced("call", event_lines.answered_lines(answer, row.name if row else ""))
            case ToolStarted(call=call, arguments=arguments):
                self._set_status(call, "running", now_s)
                self._enter("waiting" if self._questions else "running", now_s)
                if arguments is not None and (row := self.calls.get(call)):
                    row.argument = self._key_argument(row.name, arguments)
                return []
            case ToolEnded() as end:
                return self._end_call(end, now_s)
            case _:
                return []

    def _key_argument(self, tool: str, arguments: dict[str, Any] | None) -> str:
        return key_argument(arguments, self._key_arguments.get(tool, ""))

    def _end_call(self, end: ToolEnded, now_s: float) -> list[Piece]:
        self._questions.pop(end.call, None)
        row = self.calls.pop(end.call, None)
        if not self.calls:
            self._enter("thinking", now_s)
        stated = self._key_arguments.get(end.name, "")
        rows = event_lines.ended_lines(end, row.arguments if row else None, row.change if row else (), stated)
        return self.spaced("call", rows)

    def _set_status(self, call: str, status: str, now_s: float) -> None:
        if row := self.calls.get(call):
            row.status, row.since_s = status, now_s

    # --- Streamed reply ----------------------------------------------------------------------------------------------

    def _stream(self, streaming: ReplyDelta, now_s: float) -> list[Piece]:
        purpose = self._purposes.get(streaming.asked)
        if purpose is None:
            self._early.append(streaming)
            return []
        rows: list[Piece] = []
        if purpose == "summary":
            return rows
        self._end_retries(now_s)
        for delta in streaming.deltas:
            match delta:
                case TextDelta(text=text):
                    self._enter("writing", now_s)
                    self._streamed.append(text)
                    rows += self._text(text)
                case ThinkingDelta(text=text):
                    self._enter("thinking", now_s)
                    self._thought.append(text)
                case CallDelta(name=name):
                    self._enter("calling", now_s)
                    self.writing_call = name or self.writing_call
        return rows

    def _text(self, text: str) -> list[Piece]:
        if not text:
            return []
        self._splitter = self._splitter or Splitter()
        return self._blocks(self._splitter.feed(text))

    def finish_reply(self) -> list[Piece]:
        """Return the remaining blocks of a reply and reset the streaming state."""
        left = self._splitter.finish() if self._splitter else []
        self._splitter, self._streamed, self._thought, self.writing_call = None, [], [], ""
        return self._blocks(left)

    def _blocks(self, blocks: Sequence[Block]) -> list[Piece]:
        rows: list[Piece] = []
        for block in blocks:
            if block.gap or self._group != "text":
                rows.append(EMPTY)
            self._group = "text"
            rows.append(block)
        return rows


def _other_lines(entry: Entry) -> list[Line]:
    match entry.event:
        case Cleared() | Summarized() as compaction:
            return event_lines.compaction_lines(compaction)
        case Restored() as restored:
            return [event_lines.restored_line(restored)]
        case Reminded(kind="compact_refused", state=why):
            return [event_lines.notice_line(f"nothing was compacted: {why}")]
        case TodoSet(todos=todos):
            return event_lines.todo_lines(todos)
        case GoalChanged(goal=goal):
            return [line(("dim", "goal "), goal_line(goal))]
        case ModeSet(mode=mode):
            return [line(("dim", f"mode: {escape_line(mode)}"))]
        case PrefixSet(reason="model", provider=provider, model=model):
            return [line(("dim", f"model: {escape_line(provider)}/{escape_line(model)}"))]
        case _:
            return []
