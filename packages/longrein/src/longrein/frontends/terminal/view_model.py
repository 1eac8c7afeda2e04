"""The view model of one session: a fold of its updates, used by the screen and by the plain
terminal.

Finished pieces are returned once, to be printed; everything else can be drawn at any time. Knows no
terminal.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, assert_never

import msgspec

from longrein.agent import NETWORK_CALL, ReplyDelta, RetryPause, SessionUpdate
from longrein.frontends.localization import translate
from longrein.frontends.terminal import event_lines
from longrein.frontends.terminal.approvals import Question
from longrein.frontends.terminal.call_groups import CallGroups, looks
from longrein.frontends.terminal.call_lines import ended_lines
from longrein.frontends.terminal.event_lines import (
    ContextNow,
    FileText,
    Line,
    change_lines,
    line,
)
from longrein.frontends.terminal.markdown_blocks import Block, Splitter
from longrein.frontends.terminal.task_rows import BackgroundActivity
from longrein.models import CallDelta, TextDelta, ThinkingDelta
from longrein.steps import (
    BreakStep,
    CallStep,
    CompactionStep,
    FileStep,
    NoticeStep,
    Projection,
    PromptStep,
    QuestionStep,
    RequestStep,
    SettingStep,
    Step,
    StreamStep,
    SubagentStep,
    TaskStep,
    TextStep,
    ThinkingStep,
    TurnEndStep,
)
from longrein.steps.human_text import activity_text, escape, escape_line, key_argument
from longrein.steps.turn_work import TurnWork
from longrein_context import Price, State
from longrein_context.events import (
    ATTACHED,
    Asked,
    AskFailed,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    Text,
    UserSpoke,
    text_of,
    unwrapped,
    without_attachments,
)

Phase = Literal[
    "idle", "thinking", "writing", "calling", "running", "waiting", "retrying", "compacting"
]
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
        self._now_s = 0.0
        self._splitter: Splitter | None = None
        self._streamed: list[str] = []
        self._projection = Projection()
        self._group: Group = ""
        self._thought: list[str] = []
        self._in_turn = False
        """True while a turn is open; `/compact` alone opens none."""
        self.phase: Phase = "idle"
        self.turn_since_s = 0.0
        self.writing_call = ""
        self.calls: dict[str, CallRow] = {}
        self._key_arguments: dict[str, str] = {}
        """Tool name -> argument to show of its calls, where the tool states one."""
        self._questions: dict[str, Question] = {}
        self.activity = BackgroundActivity()
        self.groups = CallGroups()
        self.draws_live_rows = True
        """False where nothing but finished lines is shown."""
        self._work = TurnWork()
        self.steps = 0
        """Requests of this turn so far."""
        self.pausing: RetryPause | None = None
        """Reason of the current retry; kept until the model answers."""
        self.pause_until_s = 0.0
        self.heard_s = 0.0
        """Time of the last entry or delta of this session."""
        self.reply_began = False
        """True if the present request has been answered in part."""
        self.prompts: list[Prompt] = []
        self.rewound = 0
        """Entry of the last rewind; 0 for none."""
        self.context_now: Callable[[], tuple[State, Price | None]] | None = None
        """State and prices now; None where nobody tells them."""
        self._last_tokens = 0
        """Size of the last request, or after the last compaction."""
        self._summary_usd = 0.0
        """Money of summary requests since the last compaction."""
        self.silent_modes: set[str] = set()
        """Modes chosen with a key: the footer shows them, so no line is printed."""
        self.user_commands: dict[str, CallRow] = {}
        """Commands of the user (`!`) that run now."""
        self.commands_shown: list[str] = []
        """Commands of the user that the screen prints itself at their end, before their entry
        comes.
        """
        self.mode_wanted = ""
        """The last of them, until it is in force: a reply may have to end first."""
        self.live = False
        """True if updates happen now; False while an old log is replayed."""

    @property
    def busy(self) -> bool:
        return self.phase != "idle"

    @property
    def questions(self) -> list[Question]:
        """Calls that wait for permission, in order; those of subagents follow."""
        return [*self._questions.values(), *self.activity.questions.values()]

    def remove_question(self, question: Question) -> None:
        """Remove an answered question before its entry arrives, so that the next one can be
        shown.
        """
        if question.session:
            self.activity.questions.pop(question.key, None)
        else:
            self._questions.pop(question.asked.call, None)

    def thinking_line(self) -> str:
        return escape_line("".join(self._thought[-200:]).rstrip().rpartition("\n")[2])

    def tail(self, lines: int) -> str:
        """The last `lines` lines of the unfinished block, escaped."""
        return escape(self._splitter.tail(lines)) if self._splitter else ""

    @property
    def tail_gap(self) -> bool:
        """Return True if an empty line stands above the tail."""
        return self._splitter is None or self._splitter.gap or self._group != "text"

    @property
    def call_gap(self) -> bool:
        """Return True if an empty line stands above a running call."""
        return self._group != "call"

    def go_live(self, *, busy: bool, now_s: float) -> list[Piece]:
        """Switch from replaying to live updates; return what is still to be printed.

        `busy` is False when the last turn was cut off.
        """
        self.live, self._now_s = True, now_s
        if not busy:
            self._in_turn = False
            self._enter("idle")
        return self.close_groups()

    def resume(self, state: State) -> int:
        """Take prompts, tasks and subagents of an old log from its state.

        Returns the seq of the last entry that need not be replayed; 0 when all must be.
        """
        skipped = max(0, state.seq - REPLAYED_MAX)
        if state.prefix is not None:
            self._projection.learn_tools(state.prefix)
        self.prompts = [
            Prompt(word.seq, word.text.partition("\n" + ATTACHED)[0])
            for word in state.words
            if word.origin != "steer" and word.seq <= skipped
        ]
        known = [Entry(one.seq, one.at, one.started) for one in state.children.values()]
        known += [
            Entry(task.seq, task.at, task.started)
            for task in state.tasks.values()
            if not 0 < task.ended_seq <= skipped
        ]
        for entry in known:
            for step in self._projection.read(entry) if entry.seq <= skipped else ():
                self.activity.apply(step)
        self._in_turn = skipped > 0  # a steering message that comes first belongs to a turn
        return skipped

    def apply(self, heard: SessionUpdate, now_s: float) -> list[Piece]:
        """Apply one update and return the pieces that it finishes, to be printed once."""
        self._now_s = now_s
        self.activity.now_s = now_s if self.live else None
        if isinstance(heard, Entry | ReplyDelta):
            self.heard_s, self.reply_began = now_s, isinstance(heard, ReplyDelta)
        pieces: list[Piece] = []
        for step in self._projection.read(heard):
            if step.seq and not step.agent.session:  # live updates cost nothing
                self._work.add(step)
            pieces += self._subagent(step) if step.agent.session else self._step(step)
        return pieces

    def _subagent(self, step: Step) -> list[Piece]:
        group: Group = "user" if isinstance(step, PromptStep) else "note"
        rows = self.activity.apply(step)
        if not self.draws_live_rows and (act := activity_text(step)):
            rows.append(line(f"  {escape_line(step.agent.label)} {act}"))
        return self.spaced(group, rows)

    def _enter(self, phase: Phase) -> None:
        if phase != self.phase:
            if self.phase == "idle":
                self.turn_since_s = self._now_s
            self.phase = phase

    def spaced(self, group: Group, rows: Sequence[Piece]) -> list[Piece]:
        """`rows` with an empty line above them when another group begins; open groups of calls
        first.
        """
        if not rows:
            return []
        if before := self.close_groups():
            return [*before, *self.spaced(group, rows)]
        gap = group != self._group or group in ("user", "answer")
        self._group = group
        return [EMPTY, *rows] if gap else list(rows)

    def close_groups(self) -> list[Piece]:
        """Return the lines of open groups of calls, to be printed before anything else."""
        return self.spaced("call", self.groups.take())

    # --- Steps ------------------------------------------------------------------------------------

    def _step(self, step: Step) -> list[Piece]:  # noqa: C901, PLR0911, PLR0912 - as many steps
        match step:
            case PromptStep(message=message):
                return self._user_spoke(step.seq, message)
            case StreamStep(purpose="turn"):
                return self._stream(step)
            case RequestStep():
                return self._request(step)
            case QuestionStep() | CallStep():
                self.activity.apply(step)
                return self._call(step)
            case TaskStep():
                return self.spaced("call", self.activity.apply(step))
            case SubagentStep():
                return self._own_subagent(step)
            case TurnEndStep():
                rows = [*self.finish_reply(), *self.close_groups()]
                return [*rows, *self.spaced("note", self._end_turn(step))]
            case NoticeStep(kind="interrupt"):
                return self.finish_reply()  # the end of the turn follows
            case NoticeStep(kind="longrein", text=text):
                return self.spaced("note", [event_lines.notice_line(text)])
            case NoticeStep(pause=pause) if pause:
                self.pausing, self.pause_until_s = pause, self._now_s + pause.delay_s
                self._enter("retrying")
                if not self.draws_live_rows:
                    return [line(event_lines.retry_text(pause, pause.delay_s))]
            case NoticeStep(reminder=told) if told and told.kind == "wake":
                self.steps = 0
                self._begin_turn()
                return self.spaced("note", [event_lines.wake_line(told.source)])
            case NoticeStep(reminder=told) if told and told.kind == "user_command":
                return self._user_command(told.source, told.state)
            case BreakStep(rewound=rewound) if rewound:
                self.prompts = [prompt for prompt in self.prompts if prompt.seq <= rewound.to]
                self.rewound = step.seq
            case BreakStep(prefix=prefix) if prefix:
                self._key_arguments |= {
                    spec.name: spec.traits.key_argument
                    for spec in prefix.callable_tools
                    if spec.traits
                }
            case TextStep() | ThinkingStep() | StreamStep() | FileStep() | SettingStep():
                pass
            case NoticeStep() | BreakStep() | CompactionStep():
                pass
            case _:
                assert_never(step)
        return self.spaced("note", self._lines_of(step))

    def _own_subagent(self, step: SubagentStep) -> list[Piece]:
        """Lines of a subagent of this session: of one whose report is waited for, only at its end,
        as the live rows show it before.
        """
        rows = self.activity.apply(step)
        known = self.activity.subagents.get(step.session)
        if step.ended is not None:
            return [] if self.groups.add_subagent(step.ended, known) else self.spaced("call", rows)
        start = step.started
        has_row = start is not None and not (start.background or start.note or start.again)
        return [] if has_row and self.draws_live_rows else self.spaced("call", rows)

    def _lines_of(self, step: Step) -> list[Line]:
        """Lines of a step that is drawn alone; none for a mode that a key has set."""
        if isinstance(step, SettingStep) and step.name == "mode":
            mode = step.value
            by_key = mode in self.silent_modes
            self.silent_modes = self.silent_modes - {mode} if by_key else set()
            self.mode_wanted = self.mode_wanted if by_key and mode != self.mode_wanted else ""
            return [] if by_key else event_lines.step_lines(step)
        if isinstance(step, CompactionStep) and self.live and self.context_now is not None:
            state, price = self.context_now()
            now = ContextNow(state, price, self._last_tokens, self._summary_usd)
            self._last_tokens, self._summary_usd = state.view_tokens, 0.0
            return event_lines.compaction_lines(step, now)
        return event_lines.step_lines(step)

    def _user_spoke(self, seq: int, spoke: UserSpoke) -> list[Piece]:
        """Begin a turn with a message, or add a steering message to the open turn."""
        note = ""
        if spoke.origin == "steer" and self._in_turn:
            note = translate(f"delivered at step {self.steps + 1}")
        else:
            self.steps = 0
            self.prompts.append(Prompt(seq, text_of(without_attachments(spoke.typed))))
        self._begin_turn()
        return self.spaced("user", event_lines.user_lines(spoke, note))

    def _user_command(self, command: str, output: str) -> list[Piece]:
        if command in self.commands_shown:
            self.commands_shown.remove(command)
            return []
        return self.spaced("answer", event_lines.user_command_lines(command, output))

    def _begin_turn(self) -> None:
        self._in_turn = True
        self._enter("thinking")

    def _end_turn(self, ended: TurnEndStep) -> list[Line]:
        self.calls.clear()
        self._questions = {
            call: one for call, one in self._questions.items() if call.startswith(NETWORK_CALL)
        }
        self.pausing = None
        self._in_turn = False
        self._enter("idle")
        work = self._work.end(ended.at)
        worked = [line(("dim", " · ".join(map(translate, work.split(" · ")))))] if work else []
        return [*event_lines.ended_turn(ended), *worked]

    def _request(self, step: RequestStep) -> list[Piece]:
        match step:
            case RequestStep(reply=reply, purpose="summary") if reply:
                self._summary_usd += reply.cost_usd
                return self._end_summary([])
            case RequestStep(reply=reply) if reply:
                self._end_retries()
                return self._replied(step, reply)
            case RequestStep(failure=failed, purpose="summary") if failed:
                return self._end_summary(event_lines.failed_summary(failed))
            case RequestStep(failure=failed) if failed:
                return self._failed(failed)
            case RequestStep(asked=asked) if asked:
                self._begin_request(asked)
        return []

    def _failed(self, failed: AskFailed) -> list[Piece]:
        self.pausing = None
        why = escape_line(translate(failed.message or failed.kind))
        cut_off = line(("warn", translate("the reply above was cut off")), ("dim", f"  {why}"))
        lines = [cut_off] if self._streamed else []
        rest = self.finish_reply()
        self._enter("thinking" if self._in_turn else "idle")
        return [*rest, *self.spaced("note", lines)]

    def _begin_request(self, asked: Asked) -> None:
        if asked.purpose == "turn" or not self._last_tokens:
            self._last_tokens = asked.estimate_tokens
        is_turn = asked.purpose == "turn"
        self._in_turn = self._in_turn or is_turn
        self.steps += is_turn
        if (
            not is_turn and asked.reason != "ahead"
        ):  # a summary in the background does not change the phase
            self.pausing = None
            self._enter("compacting")
        elif is_turn and self.pausing is None:
            self._enter("thinking")

    def _end_summary(self, rows: Sequence[Line]) -> list[Piece]:
        if self.phase == "compacting":
            self._enter("thinking" if self._in_turn else "idle")
        return self.spaced("note", rows)

    def _end_retries(self) -> None:
        if self.pausing is not None:
            self.pausing = None
            self._enter("thinking")

    def _replied(self, step: RequestStep, reply: Replied) -> list[Piece]:
        text = "".join(part.text for part in reply.parts if isinstance(part, Text))
        streamed = "".join(self._streamed)
        missing = text[len(streamed) :] if text.startswith(streamed) else ""
        rows = [*self._text(missing), *self.finish_reply()]
        if reply.stop == "interrupted":
            return rows
        file_text = self._file_text if self.live else None
        for call in map(unwrapped, step.calls):
            change = change_lines(call.name, call.arguments, file_text)
            argument = self._key_argument(call.name, call.arguments)
            self.calls[call.id] = CallRow(call.name, argument, call.arguments, change)
        if self.calls:
            self._enter("running")
        if reply.stop in ("length", "refusal"):
            why = "cut by the output limit" if reply.stop == "length" else "refused by the model"
            rows += self.spaced("note", [line(("warn", translate(f"the reply was {why}")))])
        return rows

    # --- Calls ------------------------------------------------------------------------------------

    def _call(self, step: QuestionStep | CallStep) -> list[Piece]:
        call = step.id
        match step:
            case QuestionStep(answer=answer) if answer:
                return self._answered(call, answer)
            case QuestionStep(asked=asked) if asked:
                self._ask(call, asked)
                return self.close_groups()
            case CallStep(phase="output", output=data):
                if row := self.calls.get(call) or self.user_commands.get(call):
                    row.output = (row.output + data)[-OUTPUT_BYTES_MAX:]
            case CallStep(ended=end) if end:
                self._questions.pop(call, None)
                row = self.calls.pop(call, None)
                if (
                    not self.calls
                ):  # a call that a crash has cut ends when its session is opened, outside a turn
                    self._enter("thinking" if self._in_turn else "idle")
                arguments, change = (row.arguments, row.change) if row else (None, [])
                if self.groups.add_call(step, end, arguments):
                    is_open = looks(step.kind, arguments) or self._waits_for_subagents()
                    return [] if is_open else self.close_groups()
                return self.spaced("call", ended_lines(end, arguments, change, step.kind))
            case CallStep(started=started) if started:
                self._in_turn = True
                row = self._set_status(call, "running")
                self._enter("waiting" if self._questions else "running")
                if row and started.arguments is not None:
                    row.argument = self._key_argument(row.name, started.arguments)
                given = row.arguments if row else None
                return [] if looks(step.kind, given) else self.close_groups()
        return []

    def _waits_for_subagents(self) -> bool:
        starts = (known.started.call for known in self.activity.subagents.values())
        return any(call in self.calls for call in starts)

    def _ask(self, call: str, asked: PermissionAsked) -> None:
        """Show a question; one about the network stands beside the turn."""
        if call.startswith(NETWORK_CALL):
            if self.live:
                self._questions[call] = Question(asked)
            return
        row = self._set_status(call, "asking")
        self._questions[call] = Question(asked, row.arguments if row else None)
        self._enter("waiting")

    def _answered(self, call: str, answer: PermissionAnswered) -> list[Piece]:
        self._questions.pop(call, None)
        name = ""
        if not call.startswith(NETWORK_CALL):
            row = self._set_status(call, "waiting")
            name = row.name if row else ""
            self._enter("waiting" if self._questions else "running")
        return self.spaced("call", event_lines.answered_lines(answer, name))

    def _key_argument(self, tool: str, arguments: dict[str, Any] | None) -> str:
        return key_argument(arguments, self._key_arguments.get(tool, ""))

    def _set_status(self, call: str, status: str) -> CallRow | None:
        row = self.calls.get(call)
        if row:
            row.status, row.since_s = status, self._now_s
        return row

    # --- Streamed reply ---------------------------------------------------------------------------

    def _stream(self, streaming: StreamStep) -> list[Piece]:
        self._end_retries()
        rows: list[Piece] = []
        for delta in streaming.deltas:
            match delta:
                case TextDelta(text=text):
                    self._enter("writing")
                    self._streamed.append(text)
                    rows += self._text(text)
                case ThinkingDelta(text=text):
                    self._enter("thinking")
                    self._thought.append(text)
                case CallDelta(name=name):
                    self._enter("calling")
                    self.writing_call = name or self.writing_call
        return rows

    def _text(self, text: str) -> list[Piece]:
        if not text:
            return []
        self._splitter = self._splitter or Splitter()
        before = self.close_groups() if self.groups else []
        return [*before, *self._blocks(self._splitter.feed(text))]

    def finish_reply(self) -> list[Piece]:
        """Return the remaining blocks of a reply and reset the streaming state."""
        left = self._splitter.finish() if self._splitter else []
        self._splitter = None
        self._streamed = []
        self._thought = []
        self.writing_call = ""
        return self._blocks(left)

    def _blocks(self, blocks: Sequence[Block]) -> list[Piece]:
        rows: list[Piece] = []
        for block in blocks:
            rows += [EMPTY, block] if block.gap or self._group != "text" else [block]
            self._group = "text"
        return rows
