"""Content as any wire can carry it: text, pictures and PDF files, with everything else turned into text.

What a provider would refuse (a picture too large, of a kind it does not know, or whose blob is gone) becomes a line of
text that says so: one refused picture would otherwise make every later request fail.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.events import (
    TOO_DEEP,
    AnyPart,
    Document,
    Image,
    ProviderBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    decode_json,
    is_count,
    is_too_deep,
)
from longrein.models.port import Failure, ReadBlob, Reply

IMAGE_BYTES_MAX = 3_900_000
"""Original bytes: a provider's 5 MiB limit counts base64, which is a third longer."""
IMAGE_SIDE_PX_MAX = 8_000
"""The smallest limit among providers."""
PDF_BYTES_MAX = 20_000_000
"""Below the 32 MB that a whole request may have."""
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Kinds that every provider with eyes takes."""

exact_json = msgspec.json.Encoder().encode
"""Compact JSON bytes: of what came in."""
_NUL = rb"(?<!\\)((?:\\\\)*)\\u0000"
"""The escape of a NUL, after pairs of backslashes that are none of it. Compiled when it is needed."""


def encode_json(value: Any) -> bytes:
    """The same of what goes out. NUL, which no provider takes, not even back from its own model, is sent as U+FFFD."""
    data = exact_json(value)
    return re.sub(_NUL, rb"\1\\ufffd", data) if b"\\u0000" in data else data


class TextPiece(msgspec.Struct, frozen=True):
    """Text."""

    text: str


class ImagePiece(msgspec.Struct, frozen=True):
    """A picture."""

    media: str
    base64: str


class PdfPiece(msgspec.Struct, frozen=True):
    """A PDF file."""

    name: str
    base64: str


Piece = TextPiece | ImagePiece | PdfPiece


def content_pieces(
    part: AnyPart,
    read_blob: ReadBlob,
    *,
    whole: bool,
    pdf: bool,
    handle: str = "",
    side_px: int = IMAGE_SIDE_PX_MAX,
) -> list[Piece]:
    """`part` as pieces; the parts of a result one after the other.

    `whole`: a text document is read from its blob; else its two ends are sent, with a line that names `handle`.
    `pdf`: whether the wire takes PDF files. `side_px`: longest side of a picture; 0 leaves all of them out.
    """
    match part:
        case Text(text) | Thinking(text):
            return [TextPiece(text)]
        case Image():
            return [_image_piece(part, read_blob, side_px)]
        case Document():
            return [_document_piece(part, read_blob, whole=whole, pdf=pdf, handle=handle)]
        case ToolResult():
            nested = [
                content_pieces(p, read_blob, whole=whole, pdf=pdf, handle=handle, side_px=side_px) for p in part.parts
            ]
            return [piece for pieces in nested for piece in pieces]
        case ToolCall():
            raise AssertionError("a call is no content")


def _image_piece(part: Image, read_blob: ReadBlob, side_px: int) -> Piece:
    if not side_px:
        return TextPiece("[a picture was left out: this model or its provider refused it]")
    if part.media not in IMAGE_TYPES:
        return TextPiece(f"[a picture of type {part.media} was left out: the provider does not take it]")
    if part.size_bytes > IMAGE_BYTES_MAX or max(part.width, part.height) > side_px:
        size = f"{part.width}x{part.height} pixels, {part.size_bytes} bytes"
        return TextPiece(f"[a picture was left out: {size} is more than the provider takes; make it smaller]")
    data = _read_blob(part.blob, read_blob)
    if data is None:
        return TextPiece("[a picture was left out: its bytes are gone from the session's folder]")
    return ImagePiece(part.media, b64encode(data).decode())


def _document_piece(part: Document, read_blob: ReadBlob, *, whole: bool, pdf: bool, handle: str) -> Piece:
    if part.media == "application/pdf" and pdf and part.size_bytes <= PDF_BYTES_MAX:
        data = _read_blob(part.blob, read_blob)
        if data is not None:
            return PdfPiece(part.name or "document.pdf", b64encode(data).decode())
    if whole and part.media.startswith("text/"):
        data = _read_blob(part.blob, read_blob)
        if data is not None:
            text = data.decode("utf-8", "replace").replace("\0", "�")
            return TextPiece(f"{part.name}:\n{text}" if part.name else text)
    return TextPiece(_excerpt(part, handle))


def _excerpt(part: Document, handle: str) -> str:
    lines = f"{part.lines} lines, " if part.lines else ""
    name = f"{part.name}: " if part.name else ""
    rest = f"; Recall {handle} shows the rest" if handle else ""
    note = f"[{name}{lines}{part.size_bytes} bytes of {part.media} in all{rest}]"
    return "\n".join(filter(None, (part.head, note, part.tail)))


def _read_blob(blob: str, read_blob: ReadBlob) -> bytes | None:
    try:
        return read_blob(blob)
    except (OSError, LookupError):
        return None


# --- The arguments of a call: from what a model wrote to an object, and back to what a wire takes --------------------
#
# What cannot be read stays as it was received, with `arguments` None: such a call never runs and the model is told.
# So that the reply can be sent back, each wire gets an object that holds the received text.


MALFORMED_KEY = "malformed_arguments"
"""Key under which text that is no JSON object is sent back to the model that wrote it."""


def read_arguments(received: str) -> dict[str, Any] | None:
    """The object in `received`; None when there is none. No text at all is the empty object: a call without arguments.

    An object wrapped in one more layer of quotes is unwrapped: several open models write that.
    """
    if not received.strip():
        return {}
    value = _decode_or_none(received)
    if isinstance(value, str):
        value = _decode_or_none(value)
    return value if isinstance(value, dict) else None


def _decode_or_none(text: str) -> object:
    try:
        value: object = decode_json(text)
    except msgspec.DecodeError:
        return None
    return value


def make_call(name: str, received: str) -> ToolCall:
    """A call without an id, as the reply holds it."""
    arguments = read_arguments(received)
    if arguments is not None and (not received.strip() or exact_json(arguments).decode() == received):
        return ToolCall("", name, arguments)
    return ToolCall("", name, arguments, received)


def received_json(arguments: dict[str, Any]) -> str:
    """The text of arguments that a provider sent as an object; what is nested too deep is no object any more."""
    return f"({TOO_DEEP})" if is_too_deep(arguments) else exact_json(arguments).decode()


def arguments_object(call: ToolCall) -> bytes:
    """The arguments as a JSON object, whatever was received."""
    return encode_json(call.arguments if call.arguments is not None else {MALFORMED_KEY: call.received})


def arguments_string(call: ToolCall) -> bytes:
    """The same for wires that take the arguments as a JSON string: what was received if it is that object."""
    if call.arguments is not None and call.received and _decode_or_none(call.received) == call.arguments:
        return encode_json(call.received)
    return encode_json(arguments_object(call).decode())


# --- The reply as far as it has come: slots that grow with the stream and become parts at its end --------------------


REPLY_CHARS_MAX = 32 << 20
"""Text, thinking and arguments of one reply, each piece with `PIECE_CHARS` on top: about the memory that they take."""
PIECE_CHARS = 64
"""A piece is counted as this much longer than it is."""
PART_CHARS = 1_024
"""So is a part: text, thinking or a call."""


class PartBuilder(msgspec.Struct):
    """One part that grows."""

    kind: str
    """`text`, `thinking` or `call`."""
    pieces: list[str]
    """What has come of its text or arguments."""
    name: str = ""
    """Tool name."""
    raw: str = ""
    """The provider's own bytes for it; empty for none."""
    call: int = -1
    """Which call of the reply."""
    signature_pieces: list[str] = []
    """What has come of the signature of thinking."""

    @property
    def text(self) -> str:
        """All that has come."""
        return "".join(self.pieces)


class ReplyBuilder:
    """All slots of one reply in order."""

    def __init__(self) -> None:
        self.slots: list[PartBuilder] = []
        self.size_chars = 0
        """How much content has come; it grows with each piece, and with nothing else."""
        self.calls = 0
        self.usage = Usage()
        self.stop = ""
        self.model = ""

    def open(self, kind: str, text: str = "", name: str = "") -> PartBuilder:
        """A new slot at the end."""
        slot = PartBuilder(kind, [text] if text else [], name)
        self.size_chars += PART_CHARS + len(text) + len(name)
        if kind == "call":
            slot.call, self.calls = self.calls, self.calls + 1
        self.slots.append(slot)
        return slot

    def grow(self, slot: PartBuilder, text: str) -> None:
        """More text, thinking or arguments."""
        slot.pieces.append(text)
        self.size_chars += PIECE_CHARS + len(text)

    def last(self, kind: str) -> PartBuilder:
        """The slot that text of `kind` goes to: the last one if it is of that kind, else a new one."""
        if self.slots and self.slots[-1].kind == kind:
            return self.slots[-1]
        return self.open(kind)

    def parts(self) -> tuple[AnyPart, ...]:
        """Everything that has come, as parts. Text of nothing but blanks and empty thinking are none."""
        return tuple(part for _, part in self._filled())

    def _filled(self) -> list[tuple[PartBuilder, AnyPart]]:
        made = ((slot, _part(slot)) for slot in self.slots)
        return [(slot, part) for slot, part in made if part is not None]

    def finish(self, wire: str, model: str) -> Reply | Failure:
        """The reply; a `Failure` when it holds neither text nor call, or announced calls and has none."""
        filled = self._filled()
        parts = tuple(part for _, part in filled)
        has_calls = any(isinstance(part, ToolCall) for part in parts)
        stop = self.stop or "end"
        if stop == "end" and has_calls:
            stop = "calls"
        if stop == "calls" and not has_calls:
            return self.failure("empty", "the model announced a tool call and sent none")
        if stop == "end" and not any(isinstance(part, Text) for part in parts):
            return self.failure("empty", "the model gave an answer with neither text nor a tool call")
        blocks = tuple(ProviderBlock(n, wire, model, slot.raw) for n, (slot, _) in enumerate(filled) if slot.raw)
        return Reply(parts, stop, self.usage, blocks, self.model or model)

    def failure(self, kind: str, message: str, status: int = 0) -> Failure:
        """A failure that holds what had come."""
        return Failure(kind, message, status, partial=self.parts(), usage=self.usage)


def _part(slot: PartBuilder) -> AnyPart | None:
    text = slot.text
    if slot.kind == "call":
        return make_call(slot.name, text)
    if slot.kind == "thinking":
        return Thinking(text) if text or slot.raw else None
    return Text(text) if text.strip() else None


def texts(parts: Sequence[AnyPart]) -> str:
    """The visible text among `parts`."""
    return "".join(part.text for part in parts if isinstance(part, Text))


# ---------------------------------------------------------------------------------------------------------------------
#
# Reading JSON that is almost right: a provider's event with half a surrogate pair, bytes that are no UTF-8, counts
# written as 12.0, or a usage that holds anything but counts.


REPAIR_BYTES_MAX = 4 << 20
"""Longer ones are not tried: read without types they would take tens of times their size."""
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a typed decoder raises for bytes from outside."""


def repair_json(payload: bytes) -> bytes | None:
    """`payload` as strict JSON: U+FFFD for what cannot be carried, 12 for 12.0, null for what is no count in a usage.

    None if it is no JSON at all.
    """
    import json

    if len(payload) > REPAIR_BYTES_MAX:
        return None
    try:
        value = _replace_invalid(json.loads(payload.decode("utf-8", "replace")))
        for holder in (value, *(value.get(name) for name in _USAGE_PARENTS)) if isinstance(value, dict) else ():
            for name in _USAGE_KEYS:
                if isinstance(holder, dict) and name in holder:
                    holder[name] = _valid_counts(holder[name])
        return msgspec.json.encode(value)
    except (ValueError, OverflowError, RecursionError):
        return None


_USAGE_PARENTS = ("message", "response")
"""Fields of an event beside the event itself that may hold a usage …"""
_USAGE_KEYS = ("usage", "usageMetadata", "usage_metadata")
"""… under one of these names."""


def _valid_counts(usage: Any) -> Any:
    """A usage with null for whatever is no count, and no table of details with counts."""
    if not isinstance(usage, dict):
        return None
    return {
        name: _valid_counts(inner) if name.lower().endswith("details") else inner if is_count(inner) else None
        for name, inner in usage.items()
    }


def _replace_invalid(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_replace_invalid(inner) for inner in value]
    if isinstance(value, dict):
        return {_replace_invalid(key): _replace_invalid(inner) for key, inner in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
