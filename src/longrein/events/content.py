"""Content parts: what a message is made of. A closed union; everything the model can be shown is one of these.

A part never holds base64 or more text than a person would page through: large or binary content lies in a blob and
the part names it. `ToolResult` and `ProviderBlock` are joined to their call and part by id, never by position in a
provider's message.
"""

from typing import Any

import msgspec

from longrein.events.nesting import decode_json


class Part(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """One piece of content. Subclasses are the closed union `AnyPart`."""


class Text(Part, frozen=True, tag="text"):
    """Plain text, as the model was or will be sent it."""

    text: str
    """Valid Unicode without NUL; what a wire cannot carry is replaced before it gets here."""


class Image(Part, frozen=True, tag="image"):
    """A picture in a blob."""

    blob: str
    """Hash of the original bytes."""
    media: str
    """Media type, such as `image/png`."""
    size_bytes: int
    """Length of the original bytes."""
    width: int = 0
    """Pixels; 0 when unknown."""
    height: int = 0
    """Pixels; 0 when unknown."""


class Document(Part, frozen=True, tag="document"):
    """Content that is too large or not text: the bytes are a blob, the part describes it and keeps both ends."""

    blob: str
    """Hash of the whole original content."""
    media: str
    """Media type; `text/plain` for command output and long text."""
    size_bytes: int
    """Length of the whole content."""
    name: str = ""
    """A file's name or a command, for people."""
    lines: int = 0
    """Number of lines; 0 for binary content."""
    head: str = ""
    """First lines, decoded and made safe."""
    tail: str = ""
    """Last lines, decoded and made safe."""


class Thinking(Part, frozen=True, tag="thinking"):
    """Reasoning text of the model. Its signature or ciphertext is in the provider block beside it."""

    text: str
    """Readable reasoning; empty when the provider sent only ciphertext."""


class ToolCall(Part, frozen=True, tag="tool_call"):
    """The model asks for a tool."""

    id: str
    """Our id, `c<seq of the Asked>.<index in the reply>`."""
    name: str
    """Tool name as the model wrote it."""
    arguments: dict[str, Any] | None
    """Parsed arguments; None when what was received is not a JSON object."""
    received: str = ""
    """The text as received; empty when it is exactly the compact JSON of `arguments`."""


class ToolResult(Part, frozen=True, tag="tool_result"):
    """What came of a call: exactly one for each call in each request."""

    call: str
    """Id of the call it answers."""
    name: str
    """Tool name."""
    status: str
    """One of `ok failed denied interrupted not_run`."""
    parts: tuple["AnyPart", ...]
    """Text, images and documents."""


AnyPart = Text | Image | Document | Thinking | ToolCall | ToolResult


class ProviderBlock(msgspec.Struct, frozen=True, omit_defaults=True):
    """The provider's own bytes for one part of a reply, to be sent back verbatim to the same wire."""

    part: int
    """Index of the neutral part in `Replied.parts` that this stands for."""
    wire: str
    """`anthropic`, `openai-chat`, `openai-responses` or `gemini`."""
    model: str
    """Model that wrote it; thinking goes back only to the same family."""
    raw: str
    """JSON text exactly as received."""


def text_of(parts: tuple[AnyPart, ...]) -> str:
    """The readable text of `parts`, joined by newlines; documents give their two ends."""
    return "\n".join(filter(None, map(_text, parts)))


def _text(part: AnyPart) -> str:
    match part:
        case Text(text) | Thinking(text):
            return text
        case Document():
            return part.head + ("\n" + part.tail if part.tail else "")
        case ToolResult():
            return text_of(part.parts)
        case _:
            return ""


# ---------------------------------------------------------------------------------------------------------------------
#
# A call of a deferred tool: the model writes `CallTool(name, args)`, everybody but the provider sees what it names.
#
# The log keeps the reply as it came, since the provider's cache holds those bytes; `unwrapped` is the one place that
# knows what they mean.


CALL_TOOL = "CallTool"
"""The tool that calls deferred ones."""


def unwrapped(call: ToolCall) -> ToolCall:
    """The call that `call` stands for, under the same id; itself when it is an ordinary one.

    `args` may be left out, be null or come as JSON text. What does not fit the schema of `CallTool` stays as it is, so
    that it is refused by name.
    """
    while call.name == CALL_TOOL and call.arguments is not None and call.arguments.keys() <= {"name", "args"}:
        name, inner = call.arguments.get("name"), _object(call.arguments.get("args"))
        if not isinstance(name, str) or not name or inner is None:
            return call
        call = ToolCall(call.id, name, inner)
    return call


def _object(value: object) -> "dict[str, object] | None":
    if isinstance(value, str):
        try:
            value = decode_json(value)
        except msgspec.DecodeError:
            return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None
