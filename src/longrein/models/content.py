"""Content as any wire can carry it: text, pictures and PDF files, with everything else turned into text.

What a provider would refuse (a picture too large, of a kind it does not know, or whose blob is gone) becomes a line of
text that says so: one refused picture would otherwise make every later request fail.
"""

import re
from base64 import b64encode
from typing import Any

import msgspec

from longrein.events import AnyPart, Document, Image, Text, Thinking, ToolCall, ToolResult
from longrein.models.port import ReadBlob

IMAGE_BYTES_MAX = 3_900_000
"""Original bytes: a provider's 5 MiB limit counts base64, which is a third longer."""
IMAGE_SIDE_PX_MAX = 8_000
"""The smallest limit among providers."""
PDF_BYTES_MAX = 20_000_000
"""Below the 32 MB that a whole request may have."""
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Kinds that every provider with eyes takes."""

exact_json = msgspec.json.Encoder().encode
"""Compact JSON bytes: of what came in."""
_NUL = rb"(?<!\\)((?:\\\\)*)\\u0000"
"""The escape of a NUL, after pairs of backslashes that are none of it. Compiled when it is needed."""


def encode_json(value: Any) -> bytes:
    """The same of what goes out. NUL, which no provider takes, not even back from its own model, is sent as U+FFFD."""
    data = exact_json(value)
    return re.sub(_NUL, rb"\1\\ufffd", data) if b"\\u0000" in data else data


class Plain(msgspec.Struct, frozen=True):
    """Text."""

    text: str


class Picture(msgspec.Struct, frozen=True):
    """A picture."""

    media: str
    base64: str


class Pdf(msgspec.Struct, frozen=True):
    """A PDF file."""

    name: str
    base64: str


Piece = Plain | Picture | Pdf


def pieces_of(
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
            return [Plain(text)]
        case Image():
            return [_picture(part, read_blob, side_px)]
        case Document():
            return [_document(part, read_blob, whole=whole, pdf=pdf, handle=handle)]
        case ToolResult():
            nested = [pieces_of(p, read_blob, whole=whole, pdf=pdf, handle=handle, side_px=side_px) for p in part.parts]
            return [piece for pieces in nested for piece in pieces]
        case ToolCall():
            raise AssertionError("a call is no content")


def _picture(part: Image, read_blob: ReadBlob, side_px: int) -> Piece:
    if not side_px:
        return Plain("[a picture was left out: this model or its provider refused it]")
    if part.media not in PICTURES:
        return Plain(f"[a picture of type {part.media} was left out: the provider does not take it]")
    if part.size_bytes > IMAGE_BYTES_MAX or max(part.width, part.height) > side_px:
        size = f"{part.width}x{part.height} pixels, {part.size_bytes} bytes"
        return Plain(f"[a picture was left out: {size} is more than the provider takes; make it smaller]")
    data = _bytes(part.blob, read_blob)
    if data is None:
        return Plain("[a picture was left out: its bytes are gone from the session's folder]")
    return Picture(part.media, b64encode(data).decode())


def _document(part: Document, read_blob: ReadBlob, *, whole: bool, pdf: bool, handle: str) -> Piece:
    if part.media == "application/pdf" and pdf and part.size_bytes <= PDF_BYTES_MAX:
        data = _bytes(part.blob, read_blob)
        if data is not None:
            return Pdf(part.name or "document.pdf", b64encode(data).decode())
    if whole and part.media.startswith("text/"):
        data = _bytes(part.blob, read_blob)
        if data is not None:
            text = data.decode("utf-8", "replace").replace("\0", "�")
            return Plain(f"{part.name}:\n{text}" if part.name else text)
    return Plain(_two_ends(part, handle))


def _two_ends(part: Document, handle: str) -> str:
    lines = f"{part.lines} lines, " if part.lines else ""
    name = f"{part.name}: " if part.name else ""
    rest = f"; Recall {handle} shows the rest" if handle else ""
    note = f"[{name}{lines}{part.size_bytes} bytes of {part.media} in all{rest}]"
    return "\n".join(filter(None, (part.head, note, part.tail)))


def _bytes(blob: str, read_blob: ReadBlob) -> bytes | None:
    try:
        return read_blob(blob)
    except (OSError, LookupError):
        return None
