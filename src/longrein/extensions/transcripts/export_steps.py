"""A session as a list of steps, for exports: messages, replies with the results of their calls, and
notes between them.

Text that was later cleared, summarised or rewound is included, because an export shows what
happened.
"""

from collections.abc import Callable, Iterable

import msgspec

from longrein.events import (
    AnyPart,
    Asked,
    AskFailed,
    ChildEnded,
    ChildStarted,
    Entry,
    Interrupted,
    Opened,
    PrefixSet,
    Reminded,
    Replied,
    Rewound,
    Summarized,
    TaskEnded,
    Text,
    ToolCall,
    ToolEnded,
    TurnEnded,
    Usage,
    UserSpoke,
    counts_of,
    text_of,
)
from longrein.events.purposes import Purposes
from longrein.store import Reader

SUBAGENT_DEPTH_MAX = 16


class Message(msgspec.Struct):
    """Message of the user."""

    seq: int
    at: int
    parts: tuple[AnyPart, ...]


class Reply(msgspec.Struct):
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
        """The calls, in order."""
        return [part for part in self.event.parts if isinstance(part, ToolCall)]


class Note(msgspec.Struct):
    """Something that happened between messages and replies."""

    seq: int
    at: int
    kind: str
    """`summary`, `reminder`, `rewind`, `interrupt`, `failure`, `task`, `end` or `subagent`."""
    text: str


Step = Message | Reply | Note


class Conversation(msgspec.Struct):
    """A session or a subagent."""

    session: str
    label: str
    """Label of a subagent, such as `a398`; '' for a session of the user."""
    kind: str
    cwd: str
    prefix: PrefixSet | None
    steps: list[Step]
    copied: int
    """Last entry that a forked subagent or session shares with its parent; 0 for none."""
    subagents: "list[Conversation]"
    read_blob: Callable[[str], bytes]
    """Returns the bytes of a blob. Raises KeyError."""

    @property
    def replies(self) -> list[Reply]:
        """Its own replies, without those it shares with its parent."""
        return [step for step in self.steps if isinstance(step, Reply) and step.seq > self.copied]

    @property
    def usage(self) -> Usage:
        """Tokens of its own replies."""
        return sum((counts_of(reply.event.usage) for reply in self.replies), Usage())

    @property
    def cost_usd(self) -> float:
        """Cost of its own replies."""
        return sum(max(0.0, reply.event.cost_usd) for reply in self.replies)

    @property
    def title(self) -> str:
        """First words of the user, on one line."""
        words = next((text_of(step.parts) for step in self.steps if isinstance(step, Message)), "")
        line = " ".join(words[:400].split())
        return line if len(line) <= 80 else line[:79] + "…"


def read_conversation(reader: Reader, depth: int = 0) -> Conversation:
    """Read a session with its subagents. Raises `StoreDamaged`, `SessionReadOnly`."""
    entries = list(reader.entries())
    first = reader.first
    built = build_conversation(entries, reader.blob, first - 1)
    if depth < SUBAGENT_DEPTH_MAX:
        own = (entry.event for entry in entries if entry.seq >= first)
        names = dict.fromkeys(event.child for event in own if isinstance(event, ChildStarted))
        for child in names:
            number = reader.number_of(child)
            if number:
                built.subagents.append(read_conversation(reader.session_reader(number), depth + 1))
    return built


def build_conversation(
    entries: Iterable[Entry], read_blob: Callable[[str], bytes], copied: int = 0
) -> Conversation:
    """Build the steps of one log. Its last `Opened` names the session; entries up to `copied`
    are its parent's.
    """
    built = Conversation("", "", "", "", None, [], copied, [], read_blob)
    purposes = Purposes()
    waiting: dict[str, Reply] = {}
    for entry in entries:
        match entry.event:
            case Opened() as event:
                built.session, built.label, built.kind, built.cwd = (
                    event.session,
                    event.label,
                    event.kind,
                    event.cwd,
                )
                if (
                    entry.seq == 1
                    and event.parent is not None
                    and not event.parent.call
                    and not event.label
                ):
                    built.copied = max(
                        copied, event.parent.seq
                    )  # a fork holds copies of its parent's entries
            case PrefixSet() as event:
                built.prefix = event
            case Asked():
                purposes.note(entry)
            case UserSpoke() as event:
                built.steps.append(Message(entry.seq, entry.at, event.parts))
            case Replied() as event:
                reply = Reply(entry.seq, entry.at, event, purposes.of(event.asked))
                built.steps.append(reply)
                waiting.update((call.id, reply) for call in reply.calls)
            case ToolEnded() as event if event.call in waiting:
                waiting.pop(event.call).results[event.call] = event
            case ChildStarted() as event if event.call in waiting:
                waiting[event.call].children.setdefault(event.call, []).append(event.child)
            case _:
                if (note := _note(entry)) is not None:
                    built.steps.append(note)
    return built


def _note(entry: Entry) -> Note | None:
    """Return the note for an entry that is neither message nor reply; None for one that an
    export leaves out.
    """
    kind = text = ""
    match entry.event:
        case Summarized() as event:
            kind, text = "summary", event.text
        case Reminded() as event if event.text:
            kind, text = "reminder", event.text
        case Rewound() as event:
            kind, text = (
                "rewind",
                f"the user went back to r{event.to}: what came after it no longer counts",
            )
        case Interrupted() as event:
            kind, text = "interrupt", event.text
        case AskFailed() as event:
            kind, text = "failure", f"the request failed ({event.kind}): {event.message}"
        case TaskEnded() as event:
            kind, text = (
                "task",
                f"background task {event.task} ended: {event.state}\n{event.tail}".strip(),
            )
        case ChildEnded() as event:
            kind, text = (
                "subagent",
                f"subagent {event.child} ended: {event.status}\n{event.report}".strip(),
            )
        case TurnEnded() as event if event.reason != "done":
            kind, text = "end", f"the turn ended: {event.reason}. {event.message}".strip()
        case _:
            return None
    return Note(entry.seq, entry.at, kind, text)


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
