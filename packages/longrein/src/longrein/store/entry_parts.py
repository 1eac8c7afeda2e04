"""The parts of an entry, as recorded in the log and not as the view shows them.

The 1-based position of a part in `contents_of` is the part number of its handle: `r412.2` is the
second. Main parts come first. Auxiliary parts (a provider's own bytes, a summary's ledger, last the
whole entry as stored) come after them, so that every byte of an entry has a handle, and a handle
without a part number returns only the main parts.
"""

import codecs
import re
from typing import Any

import msgspec

from longrein_context.events import (
    AnyEvent,
    AnyPart,
    AskFailed,
    Cleared,
    Document,
    Entry,
    FileChanged,
    FileSeen,
    GoalChanged,
    HookAnswered,
    Image,
    Interrupted,
    PermissionAsked,
    PrefixSet,
    Reminded,
    Replied,
    SubagentEnded,
    SubagentStarted,
    Summarized,
    TaskEnded,
    TaskStarted,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    ToolResult,
    ToolStarted,
    UserSpoke,
    encode_event,
    kind_of,
)

COPIES = ("reexpanded",)
"""Kinds of reminders that repeat other entries."""
NEVER_AS_STORED = (FileChanged, ToolStarted)
"""Searchable events that a search skips when they have no parts, because other entries hold
their content.
"""


class Content(msgspec.Struct, frozen=True):
    """A part of an entry."""

    title: str
    """Description, such as `call Write`."""
    text: str = ""
    """Its text, if that is in the log."""
    blob: str = ""
    """Hash of its text, if that is in a blob."""
    part: AnyPart | None = None
    """An image or binary document."""
    aside: bool = False
    """True if only the content's own handle returns it."""
    searchable: bool = True
    """True if a search looks into it. Repetitions of other entries are left out."""
    tool: str = ""
    """Tool of the call or result."""
    raw: bool = False
    """True if control characters except line ends are shown."""


def contents_of(entry: Entry) -> list[Content]:
    """Return every part of `entry` in order; the last one is the whole entry as stored."""
    event, found = entry.event, _contents(entry.event)
    is_searchable = (
        not found and event.visibility.searchable and not isinstance(event, NEVER_AS_STORED)
    )
    return [
        *found,
        Content(
            f"{kind_of(event)} as stored",
            _stored_text(event),
            aside=bool(found),
            searchable=is_searchable,
        ),
    ]


def title_of(entry: Entry) -> str:  # noqa: PLR0911 - a line for each event
    """Return a description of an entry."""
    event = entry.event
    match event:
        case UserSpoke():
            return "the user's words"
        case ToolEnded():
            return f"result of {event.name}" + ("" if event.status == "ok" else f", {event.status}")
        case Replied():
            return "your reply"
        case Reminded():
            return f"reminder {event.kind}"
        case FileSeen():
            return f"{event.path} as it was read"
        case FileChanged():
            gone = "removed" if not event.hash else "changed"
            return f"{event.path} as {'you' if event.by == 'agent' else 'a ' + event.by} {gone} it"
        case TaskStarted():
            return f"task {event.task} {'queued' if event.state == 'queued' else 'started'}"
        case TaskEnded():
            return f"output of task {event.task}, {event.state}"
        case SubagentStarted():
            return f"task of a subagent ({event.kind})"
        case SubagentEnded():
            return "report of a subagent" + ("" if event.status == "done" else f", {event.status}")
        case GoalChanged():
            return f"goal {event.goal.id}, {event.goal.status}"
        case _:
            return " ".join(re.findall("[A-Z][a-z]*", kind_of(event))).lower()


def _contents(event: AnyEvent) -> list[Content]:  # noqa: C901, PLR0911, PLR0912 - a line for each event
    match event:
        case UserSpoke():
            return [_content(part) for part in event.parts]
        case ToolEnded():
            return _result_contents(event)
        case Replied():
            return _reply_contents(event)
        case Reminded() if event.text:
            return [
                Content(f"reminder {event.kind}", event.text, searchable=event.kind not in COPIES)
            ]
        case Summarized():
            return _summary_contents(event)
        case Cleared() if event.forms:
            return [
                Content(f"short form of {form.handle}", form.text, searchable=False)
                for form in event.forms
            ]
        case PrefixSet():
            return _prefix_contents(event)
        case ToolStarted() if event.arguments is not None:
            return [Content(f"call {event.name}", arguments_text(event.arguments), tool=event.name)]
        case AskFailed() if event.partial:
            return [
                Content("partial reply", blob=event.partial),
                Content("why it failed", event.message),
            ]
        case FileSeen() if event.blob:
            return [Content("content", blob=event.blob, searchable=False)]
        case FileChanged():
            return _change_contents(event)
        case TaskStarted():
            return [Content("command", event.command)]
        case TaskEnded() if _is_blob(event.output):
            return [Content("output", blob=event.output)]
        case TaskEnded() if event.tail:
            return [Content("output", event.tail)]
        case SubagentStarted() if event.task:
            return [Content("task", event.task, searchable=not event.call)]
        case SubagentEnded() if event.report:
            return [Content("report", event.report)]
        case GoalChanged():
            goal = event.goal
            return [Content("goal", f"{goal.title}\n\n{goal.body}" if goal.body else goal.title)]
        case Interrupted():
            return [Content("interrupted", event.text, searchable=False)]
        case HookAnswered() if event.text or event.context:
            return [
                Content(f"hook {event.event}", "\n".join(filter(None, (event.text, event.context))))
            ]
        case PermissionAsked():
            return [Content("what was asked", event.shown, searchable=False)]
        case _:
            return []


def _result_contents(event: ToolEnded) -> list[Content]:
    parts = [msgspec.structs.replace(_content(part), tool=event.name) for part in event.parts]
    raw = Content("output byte for byte", blob=event.raw, aside=True, raw=True)
    return [*parts, raw] if event.raw else parts


def _reply_contents(event: Replied) -> list[Content]:
    blocks = [
        Content(f"provider block of part {b.part + 1}", b.raw, aside=True, searchable=False)
        for b in event.blocks
    ]
    return [*map(_content, event.parts), *blocks]


def _summary_contents(event: Summarized) -> list[Content]:
    rest = [
        Content("prose", event.prose, aside=True),
        Content("ledger", event.ledger, aside=True, searchable=False),
        Content("acknowledgement", event.reply, aside=True, searchable=False),
    ]
    summary = Content("summary", event.text, searchable=False)
    return [summary, *(one for one in rest if one.text)]


def _prefix_contents(event: PrefixSet) -> list[Content]:
    tools = msgspec.json.format(msgspec.json.encode((event.tools, event.deferred)), indent=1)
    return [
        *(Content("static context", text) for text in event.context),
        Content("system text", event.system, searchable=False),
        Content("tools", tools.decode(), aside=True, searchable=False),
    ]


def _change_contents(event: FileChanged) -> list[Content]:
    over = "what somebody else had written there"
    parts = [
        Content("content", blob=event.blob, searchable=False),
        Content(over, blob=event.over, aside=True, searchable=False),
        Content("what changed", event.diff, aside=bool(event.blob or event.over)),
    ]
    return [part for part in parts if part.text or part.blob]


def _content(part: AnyPart) -> Content:
    match part:
        case Text():
            return Content("text", part.text)
        case Thinking():
            return Content("thinking", part.text)
        case ToolCall():
            whole = part.received if part.arguments is None else arguments_text(part.arguments)
            return Content(f"call {part.name}", whole, tool=part.name)
        case Document() if part.media.startswith("text/"):
            return Content(part.name or "output", blob=part.blob)
        case Document() | Image():
            return Content(f"{part.media}, {part.size_bytes} bytes", part=part)
        case ToolResult():
            return Content(
                f"result of {part.name}", "\n".join(_content(one).text for one in part.parts)
            )


def arguments_text(arguments: dict[str, Any]) -> str:
    """Return the arguments of a call as text, long texts verbatim instead of as JSON."""
    if len(arguments) == 1 and isinstance(only := next(iter(arguments.values())), str):
        return f"{next(iter(arguments))}: {only}"
    return "\n".join(
        f"{name}:\n{value}" if _is_long(value) else f"{name}: {_short(value)}"
        for name, value in arguments.items()
    )


def _is_long(value: object) -> bool:
    return isinstance(value, str) and "\n" in value


def _short(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _stored_text(event: AnyEvent) -> str:
    """Return any event as text, one field a line, texts verbatim."""
    fields = msgspec.json.decode(encode_event(event), type=dict[str, Any])
    del fields["type"]
    return f"{kind_of(event)}\n{arguments_text(fields)}" if fields else kind_of(event)


def _is_blob(text: str) -> bool:
    return len(text) == 64 and not text.strip("0123456789abcdef")


def encoding_of(data: bytes | bytearray) -> str:
    """Guess the encoding of a text from its first bytes: UTF-16 by its byte order mark or NULs,
    else UTF-8.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = data[:512]
    half = len(sample) // 2
    low, high = sample[0::2].count(0), sample[1::2].count(0)
    if half >= 4 and high > half * 0.7 and low < half * 0.1:
        return "utf-16-le"
    return "utf-16-be" if half >= 4 and low > half * 0.7 and high < half * 0.1 else "utf-8"
