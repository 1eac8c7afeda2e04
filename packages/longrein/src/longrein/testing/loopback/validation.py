"""Validation that the four wires share: rules, limits, parsed requests, images, signatures.

A request is validated in a few passes of a fast JSON decoder over raw pieces. Parsed blocks are
cached by their bytes, so a growing conversation costs only its new blocks.
"""

import re
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from longrein.testing.loopback.overflow_errors import overflow
from longrein.testing.loopback.response_parts import ReplyContext
from longrein.testing.loopback.script import Limits, Rules, Turn
from longrein_context.events.image_header import image_info

TOKEN_BYTES = 4
"""Bytes of a request per token. An image counts as `IMAGE_TOKENS`."""
IMAGE_TOKENS = 1_600
"""Tokens of an image, as for a large one at real providers."""


def tokens_of(size_bytes: int) -> int:
    """Convert bytes to tokens, rounded up."""
    return -(-size_bytes // TOKEN_BYTES)


# --- Images ---------------------------------------------------------------------------------------


INSPECTED_CHARS = 400_000
"""Base64 characters that are inspected; a JPEG may hold a long preview before its size."""


class Picture(msgspec.Struct, frozen=True):
    """Type and size of an image."""

    media: str
    """Media type by its bytes; empty if it is not an image."""
    width: int
    """Pixels; 0: unknown."""
    height: int
    """Pixels; 0: unknown."""
    base64_bytes: int
    """Length of its base64, which providers count."""


def inspect_image(data: str) -> Picture:
    """Inspect the image in base64 `data` by its first bytes."""
    try:
        info = image_info(b64decode(data[:INSPECTED_CHARS], validate=True))
    except ValueError:
        info = None
    return (
        Picture(info.media, info.width, info.height, len(data))
        if info
        else Picture("", 0, 0, len(data))
    )


# --- Requests -------------------------------------------------------------------------------------


CACHED_BLOCKS_MAX = 200_000
"""Number of cached blocks above which the cache is emptied."""
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_MACHINE_KEYS = (
    *("id", "tool_use_id", "tool_call_id", "call_id", "type", "role"),
    *("data", "signature", "encrypted_content", "thoughtSignature"),
)
T = TypeVar("T")


class Refused(Exception):
    """A request breaks a rule. Each wire encodes the error in its own form."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "", param: str = "", code: str = ""
    ) -> None:
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


class SentBlock(msgspec.Struct):
    """A parsed block."""

    kind: str = ""
    """Type of the block, in the wire's words."""
    raw: bytes = b""
    """Bytes without a cache mark."""
    id: str = ""
    """Id of the call that the block makes or answers."""
    name: str = ""
    """Tool that is called or answers; role of a message of the Responses wire."""
    problem: str = ""
    """Error in the block wherever it stands; `{at}` is its path."""
    mark_s: float = 0.0
    """Lifetime of the cache mark; -1: the default; 0: no mark."""
    pictures: tuple[Picture, ...] = ()
    text: str = ""
    """Thinking text that the signature must match."""
    signature: str | None = None
    calls: tuple[str, ...] = ()
    """Chat: ids of the calls in a message."""

    @property
    def tokens(self) -> int:
        """Tokens of the block."""
        shown = sum(picture.base64_bytes for picture in self.pictures)
        return tokens_of(len(self.raw) - shown) + IMAGE_TOKENS * len(self.pictures)


class SentMessage(msgspec.Struct):
    """Consecutive blocks of one side."""

    role: str
    blocks: Sequence[SentBlock]


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
    first: bytes = b"[]"
    """JSON list of the blocks of the user's first message."""
    flags: frozenset[str] = frozenset()
    """Options for the answer, in the wire's words."""

    @property
    def used(self) -> int:
        """Tokens of the whole input."""
        return sum(self.tokens)

    def add(self, side: str, block: SentBlock) -> None:
        """Add a block."""
        if block.mark_s:
            self.marks.append((len(self.blocks), block.mark_s))
        self.blocks.append((side, block.raw))
        self.tokens.append(block.tokens)

    def said(self) -> str:
        """Return the text since the last reply, one string per line."""
        return _text(self.tail)

    def opening(self) -> str:
        """Return the text of the user's first message."""
        return _text([self.first])


def _text(blocks: list[bytes]) -> str:
    return "\n".join(text for raw in blocks for text in strings(msgspec.json.decode(raw)))


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
    """Parse a request body. Raises `Refused` unless it is a UTF-8 JSON object without NUL and
    not too deep.
    """
    too_deep = f"The request body is not valid JSON: nested deeper than {limits.depth_max} levels"
    try:
        if not rules.lenient:
            if len(body) > limits.request_bytes_max:
                raise Refused(
                    "Request exceeds the maximum size", status=413, kind="request_too_large"
                )
            body.decode()
            if b"\\u0000" in body and _NUL.search(body):
                raise Refused("The request body is not valid: \\u0000 cannot be converted to text")
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        if not rules.lenient and _is_deeper(msgspec.json.decode(body), limits.depth_max):
            raise Refused(too_deep)
    except RecursionError:
        raise Refused(too_deep) from None  # the recursion limit differs between Python versions
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"The request body is not valid JSON: {error}") from None
    return fields


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [box for box in level if isinstance(box, dict | list)]
        if not level:
            return False
        level = [
            inner for box in level for inner in (box.values() if isinstance(box, dict) else box)
        ]
    return True


def convert(
    fields: dict[str, msgspec.Raw], name: str, kind: type[T], default: T | None = None
) -> T:
    """Decode field `name` as `kind`. Raises `Refused` with the decoder's message at its path."""
    if name not in fields and default is not None:
        return default
    try:
        return msgspec.json.decode(fields[name], type=kind)
    except msgspec.ValidationError as error:
        said = str(error)
        path = said.partition("`$")[2].partition("`")[0].replace("[", ".").replace("]", "")
        raise Refused(f"{name}{path}: {said.partition(' - at')[0]}", param=name) from None


def duplicates(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once, in order."""
    return [name for name, count in Counter(names).items() if count > 1]


# --- Signatures of thinking -----------------------------------------------------------------------
#
# A signature is bound to wire, model and text and is checked without state, so that a restarted
# provider still accepts its own signatures, as a real one does.


_DATED = re.compile(r"(-20\d{6}|-20\d{2}-\d{2}-\d{2}|-latest)$")


def sign(wire: str, model: str, text: str) -> str:
    """Sign the thinking `text` of `model`. A dated name and its alias are one model."""
    signed = f"{wire}\n{_DATED.sub('', model)}\n{text}".encode("utf-8", "surrogatepass")
    digest = blake2b(signed, key=b"the loopback provider's own hand", digest_size=48).digest()
    return b64encode(b"\x12\xb0\x02" + digest).decode()


# --- The wire -------------------------------------------------------------------------------------


class WireEndpoint(ABC):
    """A wire: validation of its requests, and its answers. A request is a list of messages of
    blocks.
    """

    name: str
    path: str
    """Pattern of the address; the group `model`, if there is one, is the model."""
    overflow: str
    """Its own entry in `OVERFLOWS`."""
    items: str
    """Field that holds the conversation."""
    at: str
    """Path of block `{n}` of message `{at}`."""
    not_an_object: str
    """Problem of a block that is no JSON object."""
    reply_role = "assistant"
    images_max: int
    # Error texts of the provider:
    no_items: str
    user_first: str
    no_prefill: str
    too_many_images: str

    def parse_request(
        self,
        fields: dict[str, msgspec.Raw],
        limits: Limits,
        rules: Rules,
        cache: dict[tuple[str, bytes], SentBlock],
        model: str,
    ) -> ParsedRequest:
        """Parse and validate a request. `model` is the one in the address. Raises `Refused`."""

        def read(raw: bytes | msgspec.Raw) -> SentBlock:
            key = self.name, bytes(raw)
            if key not in cache:
                if len(cache) >= CACHED_BLOCKS_MAX:
                    cache.clear()
                cache[key] = self.read_block(bytes(raw))
            return cache[key]

        if not rules.lenient:
            self._check_head(fields, limits)
        parsed = ParsedRequest(self.name, model or msgspec.json.decode(fields.get("model", b'""')))
        parsed.output_max = self._output_limit(fields)
        parsed.flags = self._flags(fields, parsed.model)
        for side, block in self._prefix(fields, read):
            parsed.add(side, block)
        messages = self._messages(fields, read)
        for message in messages:
            for block in message.blocks:
                parsed.add(message.role, block)
        self._find_parts(messages, parsed)
        if not rules.lenient:
            self._check_messages(messages, parsed, rules)
            asked = parsed.used + (parsed.output_max if rules.counts_output else 0)
            if asked > limits.window_tokens:
                raise Overflow(asked, limits.window_tokens)
        return parsed

    def _find_parts(self, messages: list[SentMessage], parsed: ParsedRequest) -> None:
        """Find the number of replies, the blocks since the last one, and the first message of
        the user.
        """
        was_reply, last = False, -1
        for n, message in enumerate(messages):
            is_reply = message.role == self.reply_role
            parsed.replies += is_reply and not was_reply
            was_reply, last = is_reply, n if is_reply else last
        parsed.tail = [
            block.raw for message in _spoken(messages[last + 1 :]) for block in message.blocks
        ]
        first = next((message.blocks for message in messages if message.role == "user"), ())
        parsed.first = b"[%b]" % b",".join(block.raw for block in first)

    def read_block(self, raw: bytes) -> SentBlock:
        """Parse the block `raw`."""
        fields = msgspec.json.decode(raw)
        return (
            self._read_fields(raw, fields)
            if isinstance(fields, dict)
            else SentBlock(raw=raw, problem=self.not_an_object)
        )

    def _check_messages(
        self, messages: list[SentMessage], parsed: ParsedRequest, rules: Rules
    ) -> None:
        """Check the conversation. Raises `Refused`."""
        if not messages:
            raise Refused(self.no_items, param=self.items, code="empty_array")
        for at, message in enumerate(messages):
            self._check_role(at, messages, rules)
            for n, block in enumerate(message.blocks):
                path = self.at.format(at=at, n=n)
                if block.problem:
                    raise Refused(
                        block.problem.replace("{at}", path), param=path, code="invalid_value"
                    )
                self._check_block(path, message.role, block, parsed.model, rules)
        if rules.user_first and any(
            message.role == self.reply_role for message in _spoken(messages)[:1]
        ):
            raise Refused(self.user_first, param=self.items)
        self._check_pairs(messages)
        if messages[-1].role == self.reply_role and not rules.accepts_prefill:
            raise Refused(self.no_prefill, param=self.items)
        count = sum(len(block.pictures) for message in messages for block in message.blocks)
        if count > self.images_max:
            raise Refused(self.too_many_images.format(count=count), param=self.items)

    def _check_role(self, at: int, messages: list[SentMessage], rules: Rules) -> None:  # noqa: B027 - optional
        """Check the role of message `at`, and that it has blocks."""

    def _check_block(  # noqa: B027 - optional
        self, path: str, role: str, block: SentBlock, model: str, rules: Rules
    ) -> None:
        """Check a block where it stands."""

    def refusal(self, refused: Refused) -> tuple[int, bytes]:
        """Return status and body of an error."""
        if isinstance(refused, Overflow):
            return overflow(self.overflow, refused.used, refused.limit)
        return refused.status, msgspec.json.encode(self._error_body(refused))

    @abstractmethod
    def _check_head(self, fields: dict[str, msgspec.Raw], limits: Limits) -> None:
        """Check the fields outside the conversation."""

    @abstractmethod
    def _output_limit(self, fields: dict[str, msgspec.Raw]) -> int:
        """Return the requested output limit; 0 for none."""

    @abstractmethod
    def _flags(self, fields: dict[str, msgspec.Raw], model: str) -> frozenset[str]:
        """Return options for the answer."""

    @abstractmethod
    def _prefix(
        self, fields: dict[str, msgspec.Raw], read: Callable[[bytes], SentBlock]
    ) -> list[tuple[str, SentBlock]]:
        """Return tools and system text with their side."""

    @abstractmethod
    def _messages(
        self, fields: dict[str, msgspec.Raw], read: Callable[[bytes], SentBlock]
    ) -> list[SentMessage]:
        """Return the conversation."""

    @abstractmethod
    def _read_fields(self, raw: bytes, fields: dict[str, Any]) -> SentBlock:
        """Make a block of its fields."""

    @abstractmethod
    def _check_pairs(self, messages: list[SentMessage]) -> None:
        """Check that calls and results belong together."""

    @abstractmethod
    def _error_body(self, refused: Refused) -> dict[str, Any]:
        """Return the body of an error."""

    @abstractmethod
    def stream_events(self, turn: Turn, answer: ReplyContext) -> list[bytes]:
        """Return all events of an answer."""

    def streams(self, fields: dict[str, msgspec.Raw], path: str) -> bool:
        """Return whether a request asks for a stream of events."""
        del path
        return bytes(fields.get("stream", msgspec.Raw(b""))) == b"true"

    @abstractmethod
    def plain_body(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer without streaming: what the events of the stream add up to."""

    @abstractmethod
    def error_event(self, status: int, word: str, message: str) -> bytes:
        """Return an error event inside a stream; `word` is the error type, by default that of
        `status`.
        """


def event_data(events: list[bytes]) -> list[dict[str, Any]]:
    """Return the JSON of a stream's events; `[DONE]` is left out."""
    lines = b"".join(events).splitlines()
    data = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: {")]
    return [msgspec.json.decode(one) for one in data]


def _spoken(messages: list[SentMessage]) -> list[SentMessage]:
    return [message for message in messages if message.role not in ("system", "developer")]


def raw_blocks(fields: dict[str, msgspec.Raw], *names: str) -> list[tuple[str, SentBlock]]:
    """Return tools, and the other fields in `names`, as unparsed blocks with their side."""
    found = [
        ("tools", SentBlock(raw=bytes(raw)))
        for raw in convert(fields, "tools", list[msgspec.Raw], [])
    ]
    return found + [
        ("system", SentBlock(raw=bytes(fields[name]))) for name in names if name in fields
    ]


def listed(raw: msgspec.Raw | bytes | None, of_text: bytes) -> list[bytes]:
    """Split a JSON list into its elements; a bare string becomes one element by the form
    `of_text`.
    """
    if raw is None:
        return []
    data = bytes(raw)
    if data[:1] != b"[":
        return [of_text % data]
    return [bytes(one) for one in msgspec.json.decode(data, type=list[msgspec.Raw])]
