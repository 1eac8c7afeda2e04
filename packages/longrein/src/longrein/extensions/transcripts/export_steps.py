"""A session as a list of steps, for exports: messages, replies with the results of their calls, and
notes between them.

Text that was later cleared, summarised or rewound is included, because an export shows what
happened.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import assert_never

import msgspec

from longrein.steps import (
    BreakStep,
    CallStep,
    CompactionStep,
    FileStep,
    NoticeStep,
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
    steps_of,
)
from longrein.store import Reader
from longrein_context.events import (
    AnyPart,
    Entry,
    Opened,
    PrefixSet,
    Replied,
    SubagentStarted,
    Text,
    ToolCall,
    ToolEnded,
    Usage,
    UserSpoke,
    counts_of,
    text_of,
)

SUBAGENT_DEPTH_MAX = 16


class ExportedMessage(msgspec.Struct):
    """Message of the user."""

    seq: int
    at: int
    parts: tuple[AnyPart, ...]


class ExportedReply(msgspec.Struct):
    """A reply of the model, with what its calls returned."""

    seq: int
    at: int
    event: Replied
    purpose: str
    """`turn`, or `summary` for a request of a compaction."""
    results: dict[str, ToolEnded] = {}
    """Call id -> its result."""
    children: dict[str, list[str]] = {}
    """Call id -> sessions of the subagents that it started."""

    @property
    def calls(self) -> list[ToolCall]:
        return [part for part in self.event.parts if isinstance(part, ToolCall)]


class Note(msgspec.Struct):
    """Something that happened between messages and replies."""

    seq: int
    at: int
    kind: str
    """`summary`, `reminder`, `rewind`, `interrupt`, `failure`, `task`, `end` or `subagent`."""
    text: str


ConversationPart = ExportedMessage | ExportedReply | Note


class ExportedConversation(msgspec.Struct):
    """A session or a subagent."""

    session: str
    label: str
    """Label of a subagent, such as `a398`; '' for a session of the user."""
    kind: str
    cwd: str
    prefix: PrefixSet | None
    steps: list[ConversationPart]
    copied: int
    """Last entry that a forked subagent or session shares with its parent; 0 for none."""
    subagents: "list[ExportedConversation]"
    read_blob: Callable[[str], bytes]
    """Returns the bytes of a blob. Raises KeyError."""

    @property
    def replies(self) -> list[ExportedReply]:
        """Its own replies, without those it shares with its parent."""
        return [
            step
            for step in self.steps
            if isinstance(step, ExportedReply) and step.seq > self.copied
        ]

    @property
    def usage(self) -> Usage:
        return sum((counts_of(reply.event.usage) for reply in self.replies), Usage())

    @property
    def cost_usd(self) -> float:
        return sum(max(0.0, reply.event.cost_usd) for reply in self.replies)

    @property
    def title(self) -> str:
        """First words of the user, on one line."""
        return _title(
            next((step for step in self.steps if isinstance(step, ExportedMessage)), None)
        )


def _title(first: ExportedMessage | None) -> str:
    line = " ".join(text_of(first.parts)[:400].split()) if first is not None else ""
    return line if len(line) <= 80 else line[:79] + "…"


def read_conversation(reader: Reader, depth: int = 0) -> ExportedConversation:
    """Read a session with its subagents. Raises `StoreDamaged`, `SessionReadOnly`."""
    entries = list(reader.entries())
    first = reader.first
    built = build_conversation(entries, reader.blob, first - 1)
    if depth < SUBAGENT_DEPTH_MAX:
        own = steps_of(entry for entry in entries if entry.seq >= first)
        started = (step.started for step in own if isinstance(step, SubagentStep))
        for subagent in dict.fromkeys(start.child for start in started if start):
            log = reader.subagent(subagent)
            if log is not None:
                built.subagents.append(read_conversation(log, depth + 1))
    return built


def build_conversation(
    entries: Iterable[Entry], read_blob: Callable[[str], bytes], copied: int = 0
) -> ExportedConversation:
    """Build the steps of one log. Its last `Opened` names the session; entries up to `copied`
    are its parent's.
    """
    built = ExportedConversation("", "", "", "", None, [], copied, [], read_blob)
    made_in: dict[str, ExportedReply] = {}
    for step in steps_of(entries):
        built.steps += _take(built, made_in, step)
    return built


def _take(
    built: ExportedConversation, made_in: dict[str, ExportedReply], step: Step
) -> Sequence[ConversationPart]:
    """Take in a step; return the parts of the conversation that begin with it. `made_in`: id of
    each call -> the reply that made it.
    """
    match step:
        case SettingStep(opened=opened) if opened:
            _open(built, step.seq, opened)
        case BreakStep(prefix=prefix) if prefix:
            built.prefix = prefix
        case PromptStep(message=message):
            return (ExportedMessage(step.seq, step.at, message.parts),)
        case RequestStep(reply=replied) if replied:
            reply = ExportedReply(step.seq, step.at, replied, step.purpose)
            made_in.update((call.id, reply) for call in reply.calls)
            return (reply,)
        case CallStep(ended=result) if result and step.id in made_in:
            made_in[step.id].results[step.id] = result
        case SubagentStep(ended=None, started=subagent) if subagent and subagent.call in made_in:
            made_in[subagent.call].children.setdefault(subagent.call, []).append(subagent.child)
        case _:
            return _notes(step)
    return ()


def _open(built: ExportedConversation, seq: int, opened: Opened) -> None:
    """Take the names from the first entry of a log. A fork holds copies of its parent's entries."""
    built.session, built.label = opened.session, opened.label
    built.kind, built.cwd = opened.kind, opened.cwd
    parent = opened.parent
    if seq == 1 and parent is not None and not parent.call and not opened.label:
        built.copied = max(built.copied, parent.seq)


def _notes(step: Step) -> list[Note]:  # noqa: PLR0911 - a case for each step
    """Return the note for a step that is neither message nor reply; none for one that an export
    leaves out.
    """
    match step:
        case CallStep() | TextStep() | FileStep() | ThinkingStep() | PromptStep():  # the most
            return []
        case CompactionStep(summarized=summary) if summary:
            return _note(step, "summary", summary.text)
        case NoticeStep(kind="reminder", text=text) if text:
            return _note(step, "reminder", text)
        case NoticeStep(kind="interrupt", text=text):
            return _note(step, "interrupt", text)
        case BreakStep(rewound=rewound) if rewound:
            gone = f"the user went back to r{rewound.to}: what came after it no longer counts"
            return _note(step, "rewind", gone)
        case RequestStep(failure=failure) if failure:
            why = f"the request failed ({failure.kind}): {failure.message}"
            return _note(step, "failure", why)
        case TaskStep(ended=task) if task:
            end = f"background task {task.task} ended: {task.state}\n{task.tail}"
            return _note(step, "task", end.strip())
        case SubagentStep(ended=subagent) if subagent:
            end = f"subagent {subagent.child} ended: {subagent.status}\n{subagent.report}"
            return _note(step, "subagent", end.strip())
        case TurnEndStep(reason=reason, message=message) if reason != "done":
            return _note(step, "end", f"the turn ended: {reason}. {message}".strip())
        case RequestStep() | TaskStep() | SubagentStep() | NoticeStep() | BreakStep():
            return []
        case StreamStep() | QuestionStep() | SettingStep() | CompactionStep() | TurnEndStep():
            return []
        case _:
            assert_never(step)


def _note(step: Step, kind: str, text: str) -> list[Note]:
    return [Note(step.seq, step.at, kind, text)]


def shown_text(parts: Iterable[AnyPart]) -> str:
    """Return the readable text of parts; images and documents are named, of a document both ends
    are shown.
    """
    return "\n".join(filter(None, map(_shown, parts)))


def _shown(part: AnyPart) -> str:
    match part:
        case Text(text):
            return text
        case ToolCall():
            return ""
        case _:
            text = text_of((part,))
            media, size = getattr(part, "media", ""), getattr(part, "size_bytes", 0)
            return "\n".join(filter(None, (text, f"[{media}, {size} bytes]" if media else "")))


# --- Conversations that are read twice ------------------------------------------------------------


class StoredConversation:
    """A stored session or subagent, read once for what stands above it and again for its steps, so
    that it is never all in memory. Its replies do not tell the subagents of their calls.
    """

    def __init__(self, reader: Reader, depth: int = 0) -> None:
        """Raises `StoreDamaged`, `SessionReadOnly`."""
        self._reader = reader
        self._depth = depth
        self._results: Counter[str] = Counter()
        """Call id -> number of its results."""
        self._children: dict[str, None] = {}
        self._last = -1
        self.read_blob = reader.blob
        self.usage = Usage()
        self.cost_usd = 0.0
        self.title = ""
        head = self._empty()
        self._read_head(head)
        self.session, self.label, self.cwd = head.session, head.label, head.cwd
        self.prefix, self.copied = head.prefix, head.copied

    def _empty(self) -> ExportedConversation:
        return ExportedConversation(
            "", "", "", "", None, [], self._reader.first - 1, [], self.read_blob
        )

    def _read_head(self, head: ExportedConversation) -> None:
        """Read the log once, without making steps of it."""
        first: ExportedMessage | None = None
        for entry in self._reader.entries():
            self._last = entry.seq
            match entry.event:
                case ToolEnded(call=call):
                    self._results[call] += 1
                case Replied() as reply if entry.seq > head.copied:
                    self.usage += counts_of(reply.usage)
                    self.cost_usd += max(0.0, reply.cost_usd)
                case UserSpoke(parts=parts) if first is None:
                    first = ExportedMessage(entry.seq, entry.at, parts)
                case PrefixSet() as prefix:
                    head.prefix = prefix
                case Opened() as opened:
                    _open(head, entry.seq, opened)
                case SubagentStarted(child=subagent) if entry.seq >= self._reader.first:
                    self._children[subagent] = None
        self.title = _title(first)

    @property
    def steps(self) -> Iterator[ConversationPart]:
        """Iterate the steps, a reply when all results of its calls were read."""
        waiting: deque[ConversationPart] = deque()
        made_in: dict[str, ExportedReply] = {}
        scratch, left = self._empty(), self._results.copy()
        for step in steps_of(self._reader.entries(0, self._last)):
            waiting += _take(scratch, made_in, step)
            if isinstance(step, CallStep) and step.ended:
                left[step.id] -= 1
            while waiting and not any(left[call] for call in _calls(waiting[0])):
                part = waiting.popleft()
                for call in _calls(part):
                    made_in.pop(call, None)
                yield part
        yield from waiting

    @property
    def subagents(self) -> "Iterator[StoredConversation]":
        """Iterate the subagents, each read when it is asked for."""
        logs = map(self._reader.subagent, self._children)
        for log in logs if self._depth < SUBAGENT_DEPTH_MAX else ():
            if log is not None:
                yield StoredConversation(log, self._depth + 1)


def _calls(part: ConversationPart) -> list[str]:
    return [call.id for call in part.calls] if isinstance(part, ExportedReply) else []
