"""What an entry of the log holds, as text to page through. Original bytes, not what the view made of them."""

import msgspec

from longrein.events import (
    AnyEvent,
    AnyPart,
    AskFailed,
    Cleared,
    Document,
    Entry,
    Image,
    PrefixSet,
    Reminded,
    Replied,
    Summarized,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    ToolError,
    ToolResult,
    ToolStarted,
    UserSpoke,
    encode_event,
)
from longrein.tools.encoding import decode
from longrein.tools.port import Blobs
from longrein.tools.text import clean, size_words


class Content(msgspec.Struct, frozen=True):
    """One part of an entry."""

    title: str
    """What it is, such as `call Write`."""
    text: str = ""
    """Its text, whole."""
    part: AnyPart | None = None
    """What is no text: an image or a document to be shown again."""


def contents_of(entry: Entry, blobs: Blobs) -> list[Content]:
    """The parts of `entry` in order; their 1-based index is the part of a handle."""
    event = entry.event
    match event:
        case UserSpoke() | Replied() | ToolEnded():
            return [content_of(part, blobs) for part in event.parts]
        case Cleared():
            return [Content(f"short form of {form.handle}", form.text) for form in event.forms]
        case Summarized():
            return [Content("summary", event.text)]
        case Reminded():
            return [Content(f"reminder {event.kind}", event.text)]
        case PrefixSet():
            return [Content("system text", event.system), *(Content("static context", text) for text in event.context)]
        case ToolStarted() if event.arguments is not None:
            return [Content(f"call {event.name}", arguments_text(event.arguments))]
        case AskFailed() if event.partial:
            return [Content("partial reply", blob_text(blobs, event.partial))]
        case _:
            return [Content(kind_of(event), readable(event))]


def title_of(entry: Entry) -> str:
    """What an entry is, in words."""
    event = entry.event
    match event:
        case UserSpoke():
            return "the user's words"
        case ToolEnded():
            return f"result of {event.name}" + ("" if event.status == "ok" else f", {event.status}")
        case Replied():
            return "your reply"
        case _:
            return kind_of(event)


def content_of(part: AnyPart, blobs: Blobs) -> Content:
    """One content part."""
    match part:
        case Text():
            return Content("text", part.text)
        case Thinking():
            return Content("thinking", part.text)
        case ToolCall():
            whole = part.received if part.arguments is None else arguments_text(part.arguments)
            return Content(f"call {part.name}", whole)
        case Document() if part.media == "text/plain":
            return Content(part.name or "output", blob_text(blobs, part.blob))
        case Document() | Image():
            return Content(f"{part.media}, {size_words(part.size_bytes)}", "", part)
        case ToolResult():
            inner = [content_of(one, blobs) for one in part.parts]
            return Content(f"result of {part.name}", "\n".join(one.text for one in inner))


def arguments_text(arguments: dict[str, object]) -> str:
    """Arguments of a call, long texts as they are and not as JSON, so that they can be paged and copied."""
    if len(arguments) == 1 and isinstance(only := next(iter(arguments.values())), str):
        return f"{next(iter(arguments))}: {only}"
    return "\n".join(
        f"{name}:\n{value}" if is_long(value) else f"{name}: {short(value)}" for name, value in arguments.items()
    )


def is_long(value: object) -> bool:
    """Whether a text gets lines of its own."""
    return isinstance(value, str) and "\n" in value


def short(value: object) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def blob_text(blobs: Blobs, blob: str) -> str:
    """A blob as text. Raises ToolError when it is gone."""
    try:
        data = blobs.read_blob(blob)
    except KeyError:
        raise ToolError(f"[lost] The blob {blob[:12]} is not in this session's folder any more.") from None
    decoded = decode(data)
    return clean(data) if decoded is None or decoded.odd or "\r" in decoded.text else decoded.text


def kind_of(event: AnyEvent) -> str:
    """The name of an event."""
    return type(event).__name__


def readable(event: AnyEvent) -> str:
    """Any other event as JSON, one key a line."""
    return msgspec.json.format(encode_event(event), indent=1).decode()
