"""Shared validation of the four wires: rules, limits, parsed requests, images, signatures.

A request is validated in a few passes of a fast JSON decoder over raw pieces. Parsed blocks are cached by their bytes,
so a growing conversation costs only its new blocks.
"""

import re
import struct
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

# --- Rules and limits ------------------------------------------------------------------------------------------------
#
# The defaults are those of current providers.


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules in which real servers differ. `lenient` switches all validation off, for benchmarks."""

    lenient: bool = False
    """Accept every request that can be parsed, of any size."""
    accepts_prefill: bool = False
    """True if a request may end with the assistant's side."""
    alternation: bool = True
    """Anthropic and Gemini: refuse two messages of one role in a row."""
    user_first: bool = True
    """True if the first message after the system's must be the user's."""
    short_ids: bool = False
    """Chat: call ids must be nine letters and digits, as Mistral demands."""
    counts_output: bool = False
    """True if the output limit counts against the window, as with older models and most local servers."""
    keys: tuple[str, ...] = ()
    """Accepted keys; () accepts every request."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the model. A token is `TOKEN_BYTES` bytes of the request's blocks."""

    window_tokens: int = 200_000
    """Context window in tokens."""
    output_tokens_max: int = 0
    """Largest output limit a request may ask for; 0: any."""
    request_bytes_max: int = 32_000_000
    """Largest body in bytes."""
    cache_min_tokens: int = 1_024
    """Shortest prefix that is cached."""
    cache_ttl_s: float = 300.0
    """Lifetime of a cached prefix after its last use, in seconds; a block marked `1h` lives an hour."""
    depth_max: int = 100
    """Deepest nesting of JSON."""


TOKEN_BYTES = 4
"""Bytes of a request per token. An image counts as `IMAGE_TOKENS`."""
IMAGE_TOKENS = 1_600
"""Tokens of an image, as for a large one at real providers."""


def tokens_of(size_bytes: int) -> int:
    """Convert bytes to tokens, rounded up."""
    return -(-size_bytes // TOKEN_BYTES)


# --- Images ----------------------------------------------------------------------------------------------------------
#
# Type and size come from the first bytes of the base64, without decoding the whole image.


INSPECTED_CHARS = 400_000
"""Base64 characters that are inspected; a JPEG may hold a long preview before its size."""


class ImageInfo(msgspec.Struct, frozen=True):
    """Type and size of an image."""

    media: str
    """Media type by its bytes; empty if it is not an image."""
    width: int
    """Pixels; 0: unknown."""
    height: int
    """Pixels; 0: unknown."""
    base64_bytes: int
    """Length of its base64, which providers count."""


def inspect_image(data: str) -> ImageInfo:
    """Inspect the image in base64 `data`."""
    try:
        head = b64decode(data[: INSPECTED_CHARS // 4 * 4] if len(data) > INSPECTED_CHARS else data, validate=True)
    except (Error, ValueError):
        return ImageInfo("", 0, 0, len(data))
    media, width, height = _sniff(head)
    return ImageInfo(media, width, height, len(data))


def _sniff(head: bytes) -> tuple[str, int, int]:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR" and len(head) >= 24:
        return ("image/png", *struct.unpack(">II", head[16:24]))
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return ("image/gif", *struct.unpack("<HH", head[6:10]))
    if head[:2] == b"\xff\xd8":
        return ("image/jpeg", *_jpeg(head))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return ("image/webp", *_webp(head))
    return ("", 0, 0)


def _jpeg(head: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 2 + length
    return 0, 0


def _webp(head: bytes) -> tuple[int, int]:
    if head[12:16] == b"VP8X" and len(head) >= 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if head[12:16] == b"VP8L" and len(head) >= 25:
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if head[12:16] == b"VP8 " and len(head) >= 30:
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def split_data_url(url: str) -> tuple[str, str]:
    """Split a `data:` URL into (media type, base64); ('', '') for another URL."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return "", ""
    return head[5:-7], data


# --- Requests --------------------------------------------------------------------------------------------------------


NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
CACHED_BLOCKS_MAX = 200_000
"""Number of cached blocks above which the cache is emptied."""
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_MARK = re.compile(rb',\s*"cache_control"\s*:\s*\{[^{}]*\}\s*\}\Z')
_MACHINE_KEYS = {
    "tool_call_id",
    "data",
    "signature",
    "encrypted_content",
    "thoughtSignature",
    "id",
    "tool_use_id",
    "call_id",
    "type",
    "role",
}

T = TypeVar("T")


class Refused(Exception):
    """A request breaks a rule. Each wire encodes the error in its own form."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "", param: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code


class Overflow(Refused):
    """The request does not fit the window."""

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(f"{used} tokens > {limit}", code="context_length_exceeded")
        self.used, self.limit = used, limit


class Block(msgspec.Struct):
    """A parsed block."""

    kind: str = ""
    """Type of the block, in the wire's words."""
    raw: bytes = b""
    """Bytes without a cache mark."""
    tokens: int = 0
    id: str = ""
    """Id of the call that the block makes or answers."""
    name: str = ""
    """Tool that is called or answers."""
    problem: str = ""
    """Error in the block wherever it stands; `{at}` is its path."""
    mark_s: float = 0.0
    """Lifetime of the cache mark; -1: the default; 0: no mark."""
    pictures: tuple[ImageInfo, ...] = ()
    text: str = ""
    """Thinking text that the signature must match."""
    signature: str | None = None
    note: str = ""
    """Further data for the wire."""


class ParsedRequest(msgspec.Struct):
    """A parsed request."""

    wire: str
    model: str = ""
    output_max: int = 0
    """Requested output limit; 0: none."""
    blocks: list[tuple[str, bytes]] = []
    """(side, bytes without cache mark) of tools, system and content, in cache order."""
    tokens: list[int] = []
    """Tokens of each block."""
    marks: list[tuple[int, float]] = []
    """(index of a marked block, seconds to live)."""
    replies: int = 0
    """Number of assistant replies in the request."""
    tail: list[bytes] = []
    """JSON of the blocks since the last reply."""
    first: bytes = b""
    """JSON of the user's first message."""
    flags: frozenset[str] = frozenset()
    """Options for the answer, in the wire's words."""

    @property
    def used(self) -> int:
        """Tokens of the whole input."""
        return sum(self.tokens)

    def add(self, side: str, raw: bytes, tokens: int = -1) -> None:
        """Add a block."""
        self.blocks.append((side, raw))
        self.tokens.append(tokens_of(len(raw)) if tokens < 0 else tokens)

    def said(self) -> str:
        """Return the text since the last reply, one string per line."""
        return "\n".join(text for raw in self.tail for text in strings(msgspec.json.decode(raw)))

    def opening(self) -> str:
        """Return the text of the user's first message."""
        return "\n".join(strings(msgspec.json.decode(self.first))) if self.first else ""


def strings(value: Any) -> Iterator[str]:
    """Yield the readable text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _MACHINE_KEYS:
                yield from strings(inner)


def parse_body(body: bytes, limits: Limits, rules: Rules) -> dict[str, msgspec.Raw]:
    """Parse a request body. Raises `Refused` unless it is a UTF-8 JSON object without NUL and not too deep."""
    if not rules.lenient:
        if len(body) > limits.request_bytes_max:
            raise Refused("Request exceeds the maximum size", status=413, kind="request_too_large")
        check_encoding(body)
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        if not rules.lenient:
            check_depth(msgspec.json.decode(body), limits.depth_max)
    except RecursionError:
        raise Refused(_too_deep(limits.depth_max)) from None  # the recursion limit differs between Python versions
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"The request body is not valid JSON: {error}") from None
    return fields


def check_encoding(body: bytes) -> None:
    """Raise `Refused` for invalid UTF-8 or NUL. The JSON decoder refuses lone surrogates."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Refused(f"The request body is not valid JSON: {error}") from None
    if b"\\u0000" in body and _NUL.search(body):
        raise Refused("The request body is not valid: \\u0000 cannot be converted to text")


def check_depth(value: Any, limit: int) -> None:
    """Raise `Refused` for JSON nested deeper than `limit`."""
    level, depth = [value], 0
    while level := [box for box in level if isinstance(box, dict | list)]:
        depth += 1
        if depth > limit:
            raise Refused(_too_deep(limit))
        level = [inner for box in level for inner in (box.values() if isinstance(box, dict) else box)]


def _too_deep(limit: int) -> str:
    return f"The request body is not valid JSON: nested deeper than {limit} levels"


def convert(raw: msgspec.Raw, kind: type[T], where: str) -> T:
    """Decode `raw` as `kind`. Raises `Refused` with the decoder's message at path `where`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        said = str(error)
        path = said.partition("`$")[2].partition("`")[0].replace("[", ".").replace("]", "")
        raise Refused(f"{where}{path}: {said.partition(' - at')[0]}", param=where) from None


def without_cache_mark(raw: bytes, mark: object) -> bytes:
    """Remove the cache mark from `raw`."""
    if mark is None:
        return raw
    short = _MARK.sub(b"}", raw)
    if short is not raw and len(short) < len(raw):
        return short
    fields = msgspec.json.decode(raw)
    fields.pop("cache_control", None)
    return msgspec.json.encode(fields)


def check_window(parsed: ParsedRequest, limits: Limits, rules: Rules) -> None:
    """Raise `Overflow` if the request does not fit the window."""
    if rules.lenient:
        return
    used = parsed.used
    asked = used + parsed.output_max if rules.counts_output else used
    if asked > limits.window_tokens:
        raise Overflow(asked, limits.window_tokens)


class BlockCache:
    """Cache of parsed blocks by wire and bytes."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], Block] = {}

    def get(self, wire: str, raw: bytes) -> Block | None:
        """Return the parsed block of `raw`, or None."""
        return self._known.get((wire, raw))

    def keep(self, wire: str, raw: bytes, block: Block) -> Block:
        """Add `block` and return it."""
        if len(self._known) >= CACHED_BLOCKS_MAX:
            self._known.clear()
        self._known[wire, raw] = block
        return block


class ValidationInput(msgspec.Struct):
    """Input of a wire's validation."""

    fields: dict[str, msgspec.Raw]
    """Fields of the body."""
    limits: Limits
    rules: Rules
    cache: BlockCache
    model: str = ""
    """Model in the address, if it names one."""


def duplicates(names: list[str]) -> list[str]:
    """Return the names that occur more than once, in order."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [name for name, count in seen.items() if count > 1]


# --- Signatures of thinking ------------------------------------------------------------------------------------------
#
# A signature is bound to wire, model and text and is checked without state, so that a restarted provider still accepts
# its own signatures, as a real one does.


_KEY = b"the loopback provider's own hand"
_DATED = re.compile(r"(-20\d{6}|-20\d{2}-\d{2}-\d{2}|-latest)$")


def sign(wire: str, model: str, text: str) -> str:
    """Sign the thinking `text` of `model`. A dated name and its alias are one model."""
    name = _DATED.sub("", model)
    digest = blake2b(f"{wire}\n{name}\n{text}".encode("utf-8", "surrogatepass"), key=_KEY[:32], digest_size=48).digest()
    return "Er" + b64encode(digest).decode()


def is_signed(signature: str, wire: str, model: str, text: str) -> bool:
    """Return whether this provider made `signature` for this wire, model and text."""
    return signature == sign(wire, model, text)


# --- Rules of both OpenAI wires --------------------------------------------------------------------------------------


IMAGE_BYTES_MAX = 20 * 1024 * 1024
"""Largest image, in base64."""
IMAGES_MAX = 500
EMPTY_ARRAY = "empty array. Expected an array with minimum length 1, but got an empty array instead."
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAME_PATTERN = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
_MEDIA = ("image/png", "image/jpeg", "image/gif", "image/webp")


def images_of(urls: list[Any]) -> tuple[ImageInfo, ...]:
    """Inspect the images among data URLs."""
    return tuple(inspect_image(data) for url in urls if isinstance(url, str) and (data := split_data_url(url)[1]))


def image_problem(url: Any) -> str:
    """Say what is wrong with the image at `url`; empty for nothing."""
    if not isinstance(url, str):
        return "Missing required parameter: '{at}.image_url'."
    media, data = split_data_url(url)
    if not data:
        wrong = "Invalid '{at}.image_url': expected a base64-encoded data URL or an address."
        return "" if url.startswith("https://") else wrong
    picture = inspect_image(data)
    if picture.base64_bytes > IMAGE_BYTES_MAX:
        return "Image size exceeds the limit of 20MB."
    if picture.media not in _MEDIA or picture.media != media:
        return (
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
            "['png', 'jpeg', 'gif', 'webp']."
        )
    return ""


def is_json_object(text: Any) -> bool:
    """Return whether `text` is a string that holds a JSON object."""
    try:
        return isinstance(text, str) and isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False


def length_problem(at: str, text: str, limit: int) -> str:
    """Error text for a string above `limit` characters; empty otherwise."""
    if len(text) <= limit:
        return ""
    told = f"Expected a string with maximum length {limit}, but got a string with length {len(text)} instead."
    return f"Invalid '{at}': string too long. {told}"
