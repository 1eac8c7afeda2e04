"""Limit on the nesting depth of JSON, so that recursive code cannot fail on a value.

Values from outside (arguments of calls, old logs) are checked once on entry. longrein itself needs
a few levels; the JSON library fails at about a thousand, fewer when it is called from deep code.
"""

import re
from typing import Any

import msgspec

DEPTH_MAX = 100  # Maximum levels of nested lists and objects
TOO_DEEP = f"it is nested deeper than {DEPTH_MAX} levels"  # Error for a deeper value
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_decode = msgspec.json.Decoder().decode


def is_too_deep(value: object) -> bool:
    """Return True if lists and objects in `value` are nested deeper than `DEPTH_MAX`. Not
    recursive.
    """
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(DEPTH_MAX):
        inner: list[Any] = []
        for one in level:
            values = one.values() if isinstance(one, dict) else one
            inner += [value for value in values if isinstance(value, list | dict)]
        if not inner:
            return False
        level = inner
    return True


def decode_json(text: str | bytes) -> Any:
    """Decode JSON. Raises `msgspec.DecodeError` for invalid text and for a value that is nested
    too deep.
    """
    try:
        value = _decode(text)
    except RecursionError:
        raise msgspec.DecodeError(TOO_DEEP) from None
    except UnicodeError as error:
        raise msgspec.DecodeError(str(error)) from None
    if is_too_deep(value):
        raise msgspec.DecodeError(TOO_DEEP)
    return value


def decode_object(text: str | bytes) -> dict[str, Any] | None:
    """Decode a JSON object; None for invalid text and for any other value."""
    try:
        value = decode_json(text)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


NUMBER_MAX = 10**15  # Largest number that `positive_number` returns


def positive_number(value: object) -> float:
    """Return a number of JSON from 0 to `NUMBER_MAX`; 0.0 for any other value. A whole number can
    be too large for a float.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 < value <= NUMBER_MAX else 0.0


def flattened(data: bytes, levels: int) -> bytes:
    """Replace each list and object below `levels` others in JSON `data` by its text, as a
    string.
    """
    out: list[bytes] = []
    depth = done = start = 0
    for token in _TOKEN.finditer(data):
        match data[token.start()]:
            case 0x5B | 0x7B:  # [ {
                depth += 1
                if depth == levels + 1:
                    start = token.start()
            case 0x5D | 0x7D:  # ] }
                depth -= 1
                if depth == levels:
                    text = data[start : token.end()].decode("utf-8", "replace")
                    out += [data[done:start], msgspec.json.encode(text)]
                    done = token.end()
    return b"".join([*out, data[done:]])


# --- Content --------------------------------------------------------------------------------------
#
# Content parts of messages: text, image, document, thinking, tool call, tool result.
#
# Large or binary content is stored in a blob, and the part names the blob. `ToolResult` and
# `ProviderBlock` refer to their call and part by id, never by position in a provider's message.


class Part(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of content parts. The closed union is `AnyPart`."""


class Text(Part, frozen=True, tag="text"):
    """Plain text, exactly as sent to the model."""

    text: str  # Valid Unicode without NUL; other characters have been replaced


class Image(Part, frozen=True, tag="image"):
    """Image in a blob."""

    blob: str  # Hash of the original bytes
    media: str  # Media type, such as `image/png`
    size_bytes: int  # Length of the original bytes
    width: int = 0  # Pixels; 0 when unknown
    height: int = 0  # Pixels; 0 when unknown


class Document(Part, frozen=True, tag="document"):
    """Large or binary content in a blob, with its description and both ends of its text."""

    blob: str  # Hash of the whole original content
    media: str  # Media type; `text/plain` for command output and long text
    size_bytes: int  # Length of the whole content
    name: str = ""  # File name or command, for display
    lines: int = 0  # Number of lines; 0 for binary content
    head: str = ""  # First lines, decoded and cleaned
    tail: str = ""  # Last lines, decoded and cleaned


class Thinking(Part, frozen=True, tag="thinking"):
    """Reasoning text of the model. Its signature or ciphertext is in the provider block beside
    it.
    """

    text: str  # Readable reasoning; empty when the provider sent only ciphertext


class ToolCall(Part, frozen=True, tag="tool_call"):
    """Call of a tool by the model."""

    id: str  # Call id, `c<seq of the Asked>.<index in the reply>`
    name: str  # Tool name as the model wrote it
    arguments: (
        dict[str, Any] | None
    )  # Parsed arguments; None when the received text is not a JSON object
    received: str = (
        ""  # The text as received; empty when it is exactly the compact JSON of `arguments`
    )


class ToolResult(Part, frozen=True, tag="tool_result"):
    """Result of a call: exactly one for each call in each request."""

    call: str  # Id of the call it answers
    name: str  # Tool name
    status: str  # One of `ok failed denied interrupted not_run`
    parts: tuple["AnyPart", ...]  # Text, images and documents


AnyPart = Text | Image | Document | Thinking | ToolCall | ToolResult


class ProviderBlock(msgspec.Struct, frozen=True, omit_defaults=True):
    """Provider's own JSON for one part of a reply, to be sent back verbatim on the same wire."""

    part: int  # Index of the corresponding part in `Replied.parts`
    wire: str  # `anthropic`, `openai-chat`, `openai-responses` or `gemini`
    model: str  # Model that wrote it; thinking is sent back only to the same model family
    raw: str  # JSON text exactly as received


def text_of(parts: tuple[AnyPart, ...]) -> str:
    """Return the readable text of `parts`, joined by newlines; of documents both ends."""
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


ATTACHED = "[attached by the user: "
"""Beginning of a text part that holds a file which the user attached to a message."""


def without_attachments(parts: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
    """Return the parts of a message that the user wrote: all but the texts of attached files."""
    return (
        *parts[:1],
        *(
            part
            for part in parts[1:]
            if not (isinstance(part, Text) and part.text.startswith(ATTACHED))
        ),
    )


# --- Calls of deferred tools ----------------------------------------------------------------------
#
# The model writes `CallTool(name, args)`. The log keeps the reply as received, since the provider's
# cache has those bytes. All other code sees the call that `unwrapped` returns.


CALL_TOOL = "CallTool"  # Tool that calls deferred tools


def unwrapped(call: ToolCall) -> ToolCall:
    """Return the call that a `CallTool` contains, with the same id; other calls unchanged.

    `args` may be missing, null or JSON text. A `CallTool` with invalid arguments is unchanged, so
    that it is refused.
    """
    while (
        call.name == CALL_TOOL
        and call.arguments is not None
        and call.arguments.keys() <= {"name", "args"}
    ):
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
