"""Conversion between log content and wire content: message parts, call arguments, replies, damaged
JSON.

A provider gets text, images and PDF files; everything else becomes text. An image that the provider
would refuse (too large, of an unknown type, or without its blob) becomes a line of text that says
so, because one refused image would make every later request fail.
"""

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.models.model_port import Failure, ReadBlob, Reply
from longrein_context.events import (
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
from longrein_context.events.image_header import image_info

IMAGE_BYTES_MAX = 3_900_000
"""Largest image in original bytes; the provider limit of 5 MiB counts base64, which is a third
longer.
"""
IMAGE_SIDE_PX_MAX = 8_000
"""Longest side of an image; the smallest limit among providers."""
PDF_BYTES_MAX = 20_000_000
"""Largest PDF file, below the 32 MB of a whole request."""
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that every provider with image input takes."""

exact_json = msgspec.json.Encoder().encode
"""Encode compact JSON without changes."""
_NUL = rb"(?<!\\)((?:\\\\)*)\\u0000"
"""Escaped NUL after any pairs of backslashes. Compiled on first use."""


def encode_json(value: Any) -> bytes:
    """Encode compact JSON for sending. NUL becomes U+FFFD, since every provider refuses NUL."""
    data = exact_json(value)
    return re.sub(_NUL, rb"\1\\ufffd", data) if b"\\u0000" in data else data


class TextPiece(msgspec.Struct, frozen=True):
    """Text."""

    text: str


class ImagePiece(msgspec.Struct, frozen=True):
    """An image."""

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
    refused: frozenset[str] = frozenset(),
) -> list[Piece]:
    """Convert `part` to pieces; a result gives the pieces of all its parts in order.

    `whole`: read a text document from its blob, instead of sending its two ends and a line that
    names `handle`. `pdf`: whether the wire takes PDF files. `side_px`: longest side of an image in
    pixels; 0 leaves images out. `refused`: blobs of images that the provider refused.
    """
    match part:
        case Text(text) | Thinking(text):
            return [TextPiece(text)]
        case Image():
            return [_image_piece(part, read_blob, side_px, refused)]
        case Document():
            return [_document_piece(part, read_blob, whole=whole, pdf=pdf, handle=handle)]
        case ToolResult():
            nested = [
                content_pieces(
                    inner,
                    read_blob,
                    whole=whole,
                    pdf=pdf,
                    handle=handle,
                    side_px=side_px,
                    refused=refused,
                )
                for inner in part.parts
            ]
            return [piece for pieces in nested for piece in pieces]
        case ToolCall():
            raise AssertionError("a call is no content")


def _image_piece(part: Image, read_blob: ReadBlob, side_px: int, refused: frozenset[str]) -> Piece:
    if not side_px:
        return TextPiece("[a picture was left out: this model or its provider takes none]")
    if part.blob in refused:
        return TextPiece(
            f"[a picture was left out: the provider refused {picture_words(part)}; convert it "
            "to another type or size]"
        )
    if part.media not in IMAGE_TYPES:
        return TextPiece(
            f"[a picture of type {part.media} was left out: the provider does not take it]"
        )
    if part.size_bytes > IMAGE_BYTES_MAX or max(part.width, part.height) > side_px:
        return _too_large(part, part.width, part.height)
    data = blob_bytes(part.blob, read_blob)
    if data is None:
        return TextPiece("[a picture was left out: its bytes are gone from the session's folder]")
    info = image_info(data)
    if info is None or not info.is_whole:
        return TextPiece(
            f"[a picture of type {part.media} was left out: its bytes are broken; make it again]"
        )
    if max(info.width, info.height) > side_px:
        return _too_large(part, info.width, info.height)
    return ImagePiece(info.media, b64encode(data).decode())


def _too_large(part: Image, width: int, height: int) -> TextPiece:
    size = f"{width}x{height} pixels, {part.size_bytes} bytes"
    return TextPiece(
        f"[a picture was left out: {size} is more than the provider takes; make it smaller]"
    )


def picture_words(part: Image) -> str:
    """Describe a picture, such as `image/png, 640x480 pixels`."""
    sides = f", {part.width}x{part.height} pixels" if part.width else ""
    return f"{part.media}{sides}"


def pictures_in(part: AnyPart) -> list[Image]:
    """Return the pictures of a part in their order."""
    if isinstance(part, ToolResult):
        return [picture for inner in part.parts for picture in pictures_in(inner)]
    return [part] if isinstance(part, Image) else []


def _document_piece(
    part: Document, read_blob: ReadBlob, *, whole: bool, pdf: bool, handle: str
) -> Piece:
    if part.media == "application/pdf" and pdf and part.size_bytes <= PDF_BYTES_MAX:
        data = blob_bytes(part.blob, read_blob)
        if data is not None:
            return PdfPiece(part.name or "document.pdf", b64encode(data).decode())
    if whole and part.media.startswith("text/"):
        data = blob_bytes(part.blob, read_blob)
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


def blob_bytes(blob: str, read_blob: ReadBlob) -> bytes | None:
    """Return the bytes of a blob; None when they are gone."""
    try:
        return read_blob(blob)
    except (OSError, LookupError):
        return None


# --- Call arguments -------------------------------------------------------------------------------
#
# Arguments that cannot be read are kept as received, with `arguments` None: such a call never runs,
# and the model is told. To send the call back, each wire puts the received text into an object.


MALFORMED_KEY = "malformed_arguments"
"""Key for arguments that are not a JSON object, when they are sent back to the model."""


NO_ARGUMENTS = ("", "null", '"null"')


def read_arguments(received: str) -> dict[str, Any] | None:
    """Parse call arguments; None when `received` is not a JSON object. Blank text and null are an
    empty object: some models send them for a tool without arguments.

    An object inside a JSON string is unwrapped, because several open models quote arguments twice.
    """
    if received.strip() in NO_ARGUMENTS:
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
    """Make a call without an id, as a reply holds it."""
    arguments = read_arguments(received)
    if arguments is not None and (
        not received.strip() or exact_json(arguments).decode() == received
    ):
        return ToolCall("", name, arguments)
    return ToolCall("", name, arguments, received)


def received_json(arguments: dict[str, Any]) -> str:
    """JSON text of arguments that a provider sent as an object; a note instead when they are
    nested too deep.
    """
    return f"({TOO_DEEP})" if is_too_deep(arguments) else exact_json(arguments).decode()


def arguments_object(call: ToolCall) -> bytes:
    """Encode the arguments as a JSON object, also when the received text was malformed."""
    return encode_json(
        call.arguments if call.arguments is not None else {MALFORMED_KEY: call.received}
    )


def arguments_string(call: ToolCall) -> bytes:
    """Encode the arguments as a JSON string: the received text if it parses to them, else their
    compact JSON.
    """
    if (
        call.arguments is not None
        and call.received
        and _decode_or_none(call.received) == call.arguments
    ):
        return encode_json(call.received)
    return encode_json(arguments_object(call).decode())


# --- Searches of the web --------------------------------------------------------------------------
#
# The provider runs them within a reply. A search and its result are one part: thinking with a text
# for people, whose provider block holds the provider's own items. So they are kept, sent back and
# cleared together, and another provider never gets them.


FOUND_MAX = 10
"""Largest number of pages that the text of a search names."""


def describe_search(what: str, found: Sequence[tuple[str, str]] = (), problem: str = "") -> str:
    """Describe a search for people. `what`: the words searched for; `found`: title and address
    of each page.
    """
    failed = f" (failed: {problem})" if problem else ""
    pages = (f"- {title}: {url}" if title else f"- {url}" for title, url in found[:FOUND_MAX])
    return "\n".join((f"Searched the web: {what}{failed}", *pages)) + "\n"


# --- Reasoning inside the text --------------------------------------------------------------------
#
# DeepSeek R1, Qwen3, MiniMax and others write their reasoning before the answer, between tags. A
# server that knows the model sends it in a field of its own; the others leave it in the text.


THINK = "<think>"
"""Tag that begins reasoning."""
THINK_END = "</think>"
"""Tag that ends reasoning."""
TAG_BLANKS_MAX = 64
"""Largest number of blanks before the first tag."""
_LONE_END = (
    r"(?m)^</think>(?=\w|[ \t\r]*$)"
    r"|(?<=[^\s`'\"(\[{<>«“‘])</think>(?![`'\")\]}»”’])"
)
"""The tag at the begin of a line, or right behind a word. An answer about the tag quotes it, or has
it between blanks.
"""
_FENCE_LINE = r"(?m)^ {0,3}(?:```|~~~)"


class ThinkTags:
    """Splitter of text that begins with `<think>`, which may be cut at any character.

    A tag after the first word is text, because an answer may be about the tag.
    """

    def __init__(self) -> None:
        self._awaited = THINK
        """Tag that comes next; empty: the rest is text."""
        self._held = ""
        """Text that may be the start of this tag."""
        self._after_tag = False
        """True until something other than blanks follows a tag."""
        self.is_over = False
        """True if all that follows is text."""

    def feed(self, text: str, *, last: bool = False) -> list[tuple[str, str]]:
        """Return the certain pieces, each with its kind: `thinking` or `text`. `last`: hold
        nothing back.
        """
        text, self._held = self._held + text, ""
        if self._awaited == THINK:
            text = self._begin(text, last=last)
        thought = ""
        if self._awaited == THINK_END:
            thought, end, text = text.partition(THINK_END)
            if not end and not last:
                thought = self._hold_tag_start(thought)
            thought = self._without_first_blanks(thought)
            if end:
                self._awaited, self._after_tag = "", True
        pieces = (("thinking", thought), ("text", self._without_first_blanks(text)))
        self.is_over = not (self._awaited or self._after_tag)
        return [piece for piece in pieces if piece[1]]

    def _begin(self, text: str, *, last: bool) -> str:
        """Look for the first tag; return what can be passed on."""
        begun = text.lstrip()
        is_near = len(text) - len(begun) <= TAG_BLANKS_MAX
        if is_near and begun.startswith(THINK):
            self._awaited, self._after_tag = THINK_END, True
            return begun.removeprefix(THINK)
        if is_near and THINK.startswith(begun) and not last:
            self._held = text
            return ""
        self._awaited = ""
        return text

    def _hold_tag_start(self, thought: str) -> str:
        for chars in range(len(THINK_END) - 1, 0, -1):
            if thought.endswith(THINK_END[:chars]):
                self._held = thought[-chars:]
                return thought[:-chars]
        return thought

    def _without_first_blanks(self, text: str) -> str:
        if self._after_tag:
            text = text.lstrip()
            self._after_tag = not text
        return text


def split_at_lone_end(text: str) -> tuple[str, str] | None:
    """Split text into reasoning and answer at a `</think>` without its beginning; None for none.

    Some chat templates put `<think>` into the prompt, so that only the end is received. A text that
    names a tag before that end, or has the end in a code fence, may be an answer about the tag.
    """
    found = re.search(_LONE_END, text)
    if found is None:
        return None
    before = text[: found.start()]
    if "think>" in before or len(re.findall(_FENCE_LINE, before)) % 2:
        return None
    return before.strip(), text[found.end() :].lstrip()


# --- Building a reply -----------------------------------------------------------------------------


REPLY_CHARS_MAX = 32 << 20
"""Largest reply in characters, with `PIECE_CHARS` per piece and `PART_CHARS` per part: about its
memory in bytes.
"""
PIECE_CHARS = 64
"""Characters added per piece."""
PART_CHARS = 1_024
"""Characters added per part (text, thinking or call)."""


class PartBuilder(msgspec.Struct):
    """A part of the reply that is still growing."""

    kind: str
    """`text`, `thinking` or `call`."""
    pieces: list[str]
    """Received pieces of its text or arguments."""
    name: str = ""
    """Tool name."""
    raw: str = ""
    """Provider block to send back; empty for none."""
    call: int = -1
    """Index of the call in the reply; -1 for other parts."""
    place: tuple[int, str] | None = None
    """Index and id of a call at the provider; None without an id."""
    signature_pieces: list[str] = []
    """Received pieces of the signature of thinking."""

    @property
    def text(self) -> str:
        """Text or arguments received so far."""
        return "".join(self.pieces)

    @property
    def is_complete(self) -> bool:
        """True if the arguments are complete. Looks at the last pieces first, which is cheap."""
        end = "".join(self.pieces[-8:]).rstrip()
        return end.endswith(("}", '"', "]")) and read_arguments(self.text) is not None


class ReplyBuilder:
    """Collects the parts of one reply while it streams."""

    def __init__(self) -> None:
        self.slots: list[PartBuilder] = []
        self.size_chars = 0
        """Size of the received content; grows with each piece of content and with nothing else."""
        self.calls = 0
        self._places: dict[tuple[tuple[int, str] | None, str], PartBuilder] = {}
        """Newest call of each place and name."""
        self.usage = Usage()
        self.stop = ""
        self.model = ""

    def open(self, kind: str, text: str = "", name: str = "") -> PartBuilder:
        """Begin a new part at the end."""
        slot = PartBuilder(kind, [text] if text else [], name)
        self.size_chars += PART_CHARS + len(text) + len(name)
        if kind == "call":
            slot.call, self.calls = self.calls, self.calls + 1
        self.slots.append(slot)
        return slot

    def open_call(self, name: str, index: int, id_: str) -> PartBuilder:
        """Begin a call, or return the incomplete one of this name, index and id."""
        place = (index, id_) if id_ else None
        known = self._places.get((place, name))
        if place is not None and known is not None and not known.is_complete:
            return known
        self._places[place, name] = slot = self.open("call", name=name)
        slot.place = place
        return slot

    def grow(self, slot: PartBuilder, text: str) -> None:
        """Add text, thinking or arguments to `slot`."""
        slot.pieces.append(text)
        self.size_chars += PIECE_CHARS + len(text)

    def last(self, kind: str) -> PartBuilder:
        """Return the last part if it is of `kind`, else begin a new one."""
        if self.slots and self.slots[-1].kind == kind:
            return self.slots[-1]
        return self.open(kind)

    def parts(self) -> tuple[AnyPart, ...]:
        """Parts received so far, without blank text, empty thinking and copies of calls."""
        return tuple(part for _, part in self._filled())

    def _filled(self) -> list[tuple[PartBuilder, AnyPart]]:
        filled: list[tuple[PartBuilder, AnyPart]] = []
        seen: set[tuple[object, ...]] = set()
        for slot in self.slots:
            part = _part(slot)
            if part is None:
                continue
            if isinstance(part, ToolCall) and slot.place is not None:
                # Some gateways send a call twice, or its beginning once more after its end.
                key = (slot.place, part.name)
                whole = (
                    *key,
                    part.received if part.arguments is None else exact_json(part.arguments),
                )
                if whole in seen or (key in seen and not slot.text.strip()):
                    continue
                seen |= {key, whole}
            filled.append((slot, part))
        return filled

    def finish(self, wire: str, model: str) -> Reply | Failure:
        """Build the reply; a `Failure` when it holds neither text nor call, or announced calls
        and has none.
        """
        filled = self._filled()
        parts = tuple(part for _, part in filled)
        has_calls = any(isinstance(part, ToolCall) for part in parts)
        stop = self.stop or "end"
        if stop == "end" and has_calls:
            stop = "calls"
        if stop == "calls" and not has_calls:
            return self.failure("empty", "the model announced a tool call and sent none")
        if stop == "end" and not any(isinstance(part, Text) for part in parts):
            return self.failure(
                "empty", "the model gave an answer with neither text nor a tool call"
            )
        blocks = tuple(
            ProviderBlock(n, wire, model, slot.raw)
            for n, (slot, _) in enumerate(filled)
            if slot.raw
        )
        return Reply(parts, stop, self.usage, blocks, self.model or model)

    def failure(self, kind: str, message: str, status: int = 0) -> Failure:
        """Make a failure that holds the parts received so far."""
        return Failure(kind, message, status, partial=self.parts(), usage=self.usage)


def _part(slot: PartBuilder) -> AnyPart | None:
    text = slot.text
    if slot.kind == "call":
        return make_call(slot.name, text)
    if slot.kind == "thinking":
        return Thinking(text) if text or slot.raw else None
    return Text(text) if text.strip() else None


# --- Repairing JSON -------------------------------------------------------------------------------
#
# Some servers send half a surrogate pair, bytes that are not UTF-8, or counts written as 12.0.


REPAIR_BYTES_MAX = 4 << 20
"""Largest payload to repair: decoding without types takes tens of times its size."""
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors that a typed decoder raises for untrusted bytes."""


def repair_json(payload: bytes) -> bytes | None:
    """Rewrite `payload` as strict JSON; None if it is not JSON at all.

    Invalid characters become U+FFFD, 12.0 becomes 12, and a value in a usage that is not a count
    becomes null.
    """
    if len(payload) > REPAIR_BYTES_MAX:
        return None
    try:
        value = _replace_invalid(json.loads(payload.decode("utf-8", "replace")))
        for holder in (
            (value, *(value.get(name) for name in _USAGE_PARENTS))
            if isinstance(value, dict)
            else ()
        ):
            for name in _USAGE_KEYS:
                if isinstance(holder, dict) and name in holder:
                    holder[name] = _valid_counts(holder[name])
        return msgspec.json.encode(value)
    except (ValueError, OverflowError, RecursionError):
        return None


_USAGE_PARENTS = ("message", "response")
"""Fields of an event that may hold a usage, besides the event itself."""
_USAGE_KEYS = ("usage", "usageMetadata", "usage_metadata")
"""Names of a usage."""


def _valid_counts(usage: Any) -> Any:
    """Return `usage` with null for every value that is neither a count nor a table of details."""
    if not isinstance(usage, dict):
        return None
    valid = {name: inner if is_count(inner) else None for name, inner in usage.items()}
    details = [name for name in usage if name.lower().endswith("details")]
    return valid | {name: _valid_counts(usage[name]) for name in details}


def _replace_invalid(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_replace_invalid(inner) for inner in value]
    if isinstance(value, dict):
        return {_replace_invalid(key): _replace_invalid(inner) for key, inner in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
