"""What the judges of the four wires share: a request taken apart, and the ways any of them refuses one.

A request is judged in a few passes of a fast JSON decoder over raw pieces. What is known of a block's own bytes is
remembered by those bytes, so a growing conversation costs only its new blocks.
"""

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from longrein.testing.loopback.images import Picture
from longrein.testing.loopback.limits import Limits, Rules, tokens_of

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MEMO_MAX = 200_000
"""Blocks that are remembered."""
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_MARK = re.compile(rb',\s*"cache_control"\s*:\s*\{[^{}]*\}\s*\}\Z')
_UNREAD = {
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
    """A rule is broken. Each wire writes it down in its own form."""

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
    """What the bytes of one block say."""

    kind: str = ""
    """The wire's own word for it."""
    raw: bytes = b""
    """Its bytes without a cache mark."""
    tokens: int = 0
    id: str = ""
    """Id of the call it makes or answers."""
    name: str = ""
    """Tool it calls or answers for."""
    problem: str = ""
    """What is wrong with it wherever it stands; `{at}` is its path."""
    mark_s: float = 0.0
    """How long the cache shall keep what ends here; 0: no mark."""
    pictures: tuple[Picture, ...] = ()
    text: str = ""
    """Thinking that its signature must fit."""
    signature: str | None = None
    note: str = ""
    """What else the wire must know of it."""


class Asking(msgspec.Struct):
    """A request, taken apart."""

    wire: str
    model: str = ""
    output_max: int = 0
    """Output limit asked for; 0: none."""
    blocks: list[tuple[str, bytes]] = []
    """(side, bytes without cache mark) of tools, system and content, in the order they are cached."""
    tokens: list[int] = []
    """Of each block."""
    marks: list[tuple[int, float]] = []
    """(index of a marked block, seconds to live)."""
    replies: int = 0
    """Answers of the assistant that it holds."""
    tail: list[bytes] = []
    """JSON of what was said since the last of them."""
    first: bytes = b""
    """JSON of the first thing said by the user."""
    flags: frozenset[str] = frozenset()
    """What it wishes of the answer, in the wire's words."""

    @property
    def used(self) -> int:
        """Tokens of the whole input."""
        return sum(self.tokens)

    def add(self, side: str, raw: bytes, tokens: int = -1) -> None:
        """One more block."""
        self.blocks.append((side, raw))
        self.tokens.append(tokens_of(len(raw)) if tokens < 0 else tokens)

    def said(self) -> str:
        """Text since the last reply, one string a line."""
        return "\n".join(text for raw in self.tail for text in strings(msgspec.json.decode(raw)))

    def opening(self) -> str:
        """Text of the user's first message."""
        return "\n".join(strings(msgspec.json.decode(self.first))) if self.first else ""


def strings(value: Any) -> Iterator[str]:
    """All text in a JSON value that a person might read."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _UNREAD:
                yield from strings(inner)


def fields_of(body: bytes, limits: Limits, rules: Rules) -> dict[str, msgspec.Raw]:
    """The fields of a request body. Refuses what is no JSON object, not UTF-8, too deep or holds a NUL."""
    if not rules.lenient:
        if len(body) > limits.request_bytes_max:
            raise Refused("Request exceeds the maximum size", status=413, kind="request_too_large")
        check_text(body)
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        if not rules.lenient:
            check_depth(msgspec.json.decode(body), limits.depth_max)
    except RecursionError:
        raise Refused(_too_deep(limits.depth_max)) from None  # how deep Python itself goes differs by version
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"The request body is not valid JSON: {error}") from None
    return fields


def check_text(body: bytes) -> None:
    """Valid UTF-8, no NUL. Lone surrogates do not get past the JSON decoder."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Refused(f"The request body is not valid JSON: {error}") from None
    if b"\\u0000" in body and _NUL.search(body):
        raise Refused("The request body is not valid: \\u0000 cannot be converted to text")


def check_depth(value: Any, limit: int) -> None:
    """Refuses JSON nested deeper than `limit`."""
    level, depth = [value], 0
    while level := [box for box in level if isinstance(box, dict | list)]:
        depth += 1
        if depth > limit:
            raise Refused(_too_deep(limit))
        level = [inner for box in level for inner in (box.values() if isinstance(box, dict) else box)]


def _too_deep(limit: int) -> str:
    return f"The request body is not valid JSON: nested deeper than {limit} levels"


def convert(raw: msgspec.Raw, kind: type[T], where: str) -> T:
    """`raw` as `kind`; refused in the words of the decoder, at the path `where`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        said = str(error)
        path = said.partition("`$")[2].partition("`")[0].replace("[", ".").replace("]", "")
        raise Refused(f"{where}{path}: {said.partition(' - at')[0]}", param=where) from None


def unmarked(raw: bytes, mark: object) -> bytes:
    """`raw` without its cache mark."""
    if mark is None:
        return raw
    short = _MARK.sub(b"}", raw)
    if short is not raw and len(short) < len(raw):
        return short
    fields = msgspec.json.decode(raw)
    fields.pop("cache_control", None)
    return msgspec.json.encode(fields)


def check_window(asking: Asking, limits: Limits, rules: Rules) -> None:
    """Refuses what does not fit."""
    if rules.lenient:
        return
    used = asking.used
    asked = used + asking.output_max if rules.counts_output else used
    if asked > limits.window_tokens:
        raise Overflow(asked, limits.window_tokens)


class Memo:
    """Blocks by their bytes."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], Block] = {}

    def get(self, wire: str, raw: bytes) -> Block | None:
        """What is known of `raw`."""
        return self._known.get((wire, raw))

    def keep(self, wire: str, raw: bytes, block: Block) -> Block:
        """Remember `block`."""
        if len(self._known) >= MEMO_MAX:
            self._known.clear()
        self._known[wire, raw] = block
        return block


class Case(msgspec.Struct):
    """One request before the judge of its wire."""

    fields: dict[str, msgspec.Raw]
    """Of the body."""
    limits: Limits
    rules: Rules
    memo: Memo
    model: str = ""
    """Where the address names it."""


def duplicates(names: list[str]) -> list[str]:
    """Names that occur more than once, in order."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [name for name, count in seen.items() if count > 1]
