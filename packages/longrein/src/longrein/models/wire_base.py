"""The wire interface, and what the four wires share: joining encoded items, ids, names, request
heads.

A wire encodes requests for one provider protocol and reads its streams. It is pure, so tests need
no socket.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from longrein.models.failures import error_text, kind_of_error_event
from longrein.models.model_port import (
    CallDelta,
    Delta,
    Failure,
    ReadBlob,
    Reply,
    TextDelta,
    ThinkingDelta,
)
from longrein.models.wire_content import (
    DECODE_ERRORS,
    IMAGE_SIDE_PX_MAX,
    PartBuilder,
    Piece,
    ReplyBuilder,
    content_pieces,
)
from longrein_context import Item, Request
from longrein_context.events import (
    PrefixSet,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolTraits,
    decode_object,
)
from longrein_context.events.escape import whole_number
from longrein_context.overflow import limit_tokens

# --- Fragment cache -------------------------------------------------------------------------------
#
# A wire encodes each item once (its fragment) and puts brackets around each run of items of one
# side. Requests only grow between breaks, so chunks of the last request are kept and new items are
# added after them; after a break, chunks before the changed item stay valid. A request of any
# length is joined in under a millisecond.


SESSIONS_MAX = 64
"""Sessions whose caches a model keeps."""

T = TypeVar("T")


class FragmentCache:
    """Encoded fragments of one session's requests to one model."""

    def __init__(self, wire: "Wire") -> None:
        self.wire = wire
        self.head: tuple[object, bytes] = (None, b"")
        """(prefix, encoded request head made of that prefix)."""
        self._fragments: dict[tuple[int, int, int], tuple[Item, bytes]] = {}
        self._items: tuple[Item, ...] = ()
        self._chunks: list[bytes] = []  # lead, fragment, lead, fragment …: two for each item
        self._runs: list[tuple[int, str, bytes]] = []  # start, side and closing bracket of each run

    def chunks(self, items: tuple[Item, ...]) -> list[bytes]:
        """Separators and fragments of `items`, two per item, without the last bracket. Do not
        modify the list.
        """
        same = self._common_prefix(items)
        if same < len(self._items) or same < len(items):
            start = self._drop_layout(same)
            if same < len(self._items):
                self._drop_unused(items)
            self._items = items
            self._extend(start)
        return self._chunks

    @property
    def closing(self) -> bytes:
        """Closing bracket of the last run."""
        return self._runs[-1][2] if self._runs else b""

    @property
    def first_side(self) -> str:
        """Side of the first run; empty when there is none."""
        return self._runs[0][1] if self._runs else ""

    def fragment(self, item: Item) -> bytes:
        """Encode `item` for this wire, once per item object."""
        known = self._fragments.get(item.key)
        if known is not None and known[0] is item:
            return known[1]
        made = self.wire.encode(item)
        self._fragments[item.key] = (item, made)
        return made

    def _common_prefix(self, items: tuple[Item, ...]) -> int:
        last = self._items
        for at, (old, new) in enumerate(zip(last, items, strict=False)):
            if old is not new:
                return at
        return min(len(last), len(items))

    def _drop_layout(self, same: int) -> int:
        """Drop the chunks of the last run that can still change, and all later ones; return
        where they began.
        """
        while self._runs and self._runs[-1][0] >= same:
            self._runs.pop()
        start = self._runs.pop()[0] if self._runs else 0
        del self._chunks[2 * start :]
        return start

    def _drop_unused(self, items: tuple[Item, ...]) -> None:
        kept = {item.key for item in items}
        for key in [key for key in self._fragments if key not in kept]:
            del self._fragments[key]

    def _extend(self, start: int) -> None:
        run: list[tuple[int, bytes]] = []
        side = ""
        self._chunks += [b""] * (2 * (len(self._items) - start))
        for at in range(start, len(self._items)):
            item = self._items[at]
            fragment = self.fragment(item)
            if not fragment:
                continue
            new = self.wire.side(item)
            if run and new != side:
                self._close_run(side, run)
                run = []
            side = new
            run.append((at, fragment))
        if run:
            self._close_run(side, run)

    def _close_run(self, side: str, run: list[tuple[int, bytes]]) -> None:
        chunks, closing = self.wire.bracket(side, [fragment for _, fragment in run])
        if not any(chunks):
            return
        if self._runs:
            chunks[0] = self._runs[-1][2] + b"," + chunks[0]
        self._runs.append((run[0][0], side, closing))
        for n, (at, _) in enumerate(run):
            self._chunks[2 * at : 2 * at + 2] = chunks[2 * n : 2 * n + 2]


class SessionCaches(Generic[T]):
    """A cache of each session that uses one model; requests outside the conversation have another
    one.

    The cache of the least recently used session is dropped first.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._by_session: dict[str, T] = {}

    def of(self, request: Request) -> T:
        """Return the cache for `request`, a new one for an unknown session."""
        key = request.session if request.prefix_seq else f"{request.session} aside"
        cache = self._by_session.pop(key) if key in self._by_session else self._make()
        self._by_session[key] = cache
        if len(self._by_session) > SESSIONS_MAX:
            del self._by_session[next(iter(self._by_session))]
        return cache

    def clear(self) -> None:
        """Drop all caches."""
        self._by_session.clear()


# --- Call ids, tool names and model families ------------------------------------------------------


TOOL_NAME_CHARS_MAX = 64
"""Longest tool name; the shortest limit among providers."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NOT_NAME = r"[^a-zA-Z0-9_-]"
_DATED = r"(-20\d{2}-?\d{2}-?\d{2}|-\d{4}|-latest|-preview(-\d{2}-\d{2,4})?|-exp)+$"


def wire_call_id(call: str) -> str:
    """Write call id `c5.0` as `c5_0`: every provider takes letters, digits and `_`."""
    return call.replace(".", "_")


def kimi_call_id(call: str, name: str) -> str:
    """Write call id `c5.0` of a call of `Bash` as `functions.Bash:500`: Kimi K2 counts its calls
    from 0, so that a call that another model made has a number of its own.
    """
    seq, _, index = call.removeprefix("c").partition(".")
    return f"functions.{wire_tool_name(name)}:{100 * whole_number(seq) + whole_number(index)}"


def short_call_id(call: str) -> str:
    """Write call id `c5.0` as nine letters and digits, which Mistral's models require.

    Six digits for the seq and three for the index, in base 36.
    """
    seq, _, index = call.removeprefix("c").partition(".")
    return _base36(seq, 6) + _base36(index, 3)


def _base36(number: str, width: int) -> str:
    value, text = whole_number(number), ""
    for _ in range(width):
        value, digit = divmod(value, 36)
        text = _DIGITS[digit] + text
    return text


def wire_tool_name(name: str) -> str:
    """Make a tool name valid: a model may invent one that providers would refuse in every later
    request.
    """
    if name.isidentifier() and name.isascii() and len(name) <= TOOL_NAME_CHARS_MAX:
        return name
    return re.sub(_NOT_NAME, "_", name)[:TOOL_NAME_CHARS_MAX] or "unnamed"


def family(model: str) -> str:
    """Strip date, tag and route from a model name.

    `anthropic/claude-sonnet-4.5:thinking` and `claude-sonnet-4-5-20250929` are both
    `claude-sonnet-4-5`. Signed or encrypted reasoning is sent back only to a model of the same
    family.
    """
    name = model.lower().rsplit("/", 1)[-1].split(":", 1)[0].split("@", 1)[0].replace(".", "-")
    return re.sub(_DATED, "", name) or name


# --- Tools that the provider runs -----------------------------------------------------------------


WEB_SEARCH = ToolSpec(
    "WebSearch", "Search the web.", {"type": "object"}, ToolTraits(kind="search", hosted=True)
)
"""Search by the provider; each wire that has one writes its own tool for it."""


def can_search_web(wire: str, model: str) -> bool:
    """Return whether the wire has a search that works beside other tools. Gemini has it since
    version 3.
    """
    if wire == "gemini":
        return not family(model).startswith(("gemini-1", "gemini-2", "gemma"))
    return wire in ("anthropic", "openai-responses")


def own_tools(prefix: PrefixSet) -> tuple[ToolSpec, ...]:
    """Return the tools of `prefix` that longrein runs."""
    return tuple(tool for tool in prefix.tools if tool.traits is None or not tool.traits.hosted)


def searches_web(prefix: PrefixSet) -> bool:
    """Return whether `prefix` offers the search by the provider."""
    return len(own_tools(prefix)) < len(prefix.tools)


# --- The wire interface ---------------------------------------------------------------------------


class WireTarget(msgspec.Struct, frozen=True):
    """The model that a wire encodes for."""

    wire: str
    """Wire name."""
    model: str
    """Id as the provider knows it."""
    read_blob: ReadBlob
    """Bytes of pictures and documents."""
    host: str = ""
    """Host of the address, for fields that only one provider takes."""
    effort: str = ""
    """Reasoning effort; empty: the provider's default."""
    stops: tuple[str, ...] = ()
    """Stop sequences."""
    reasoning: bool = True
    """True if reasoning is sent back; False after the provider refused it."""
    has_pauses: bool = False
    """True if minutes may pass between two requests, so that a longer cache pays."""
    picture_side_px: int = IMAGE_SIDE_PX_MAX
    """Longest side of an image that is sent; 0: no image is sent."""
    refused_pictures: frozenset[str] = frozenset()
    """Blobs of images that the provider refused."""

    def owns(self, item: Item) -> bool:
        """Return whether the provider block of `item` may be sent back: same wire, same model
        family.
        """
        block = item.block
        return (
            self.reasoning
            and block is not None
            and block.wire == self.wire
            and family(block.model) == family(self.model)
        )


class TokenDetails(msgspec.Struct):
    """Details of a usage on both OpenAI wires."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _ErrorEvent(msgspec.Struct):
    """Fields that tell an error event from a piece of a reply."""

    type: Any = None
    error: msgspec.Raw = msgspec.Raw(b"")
    detail: msgspec.Raw = msgspec.Raw(b"")
    """Error of some frameworks for servers, also with status 200."""
    choices: msgspec.Raw = msgspec.Raw(b"")
    candidates: msgspec.Raw = msgspec.Raw(b"")


_decode_error_event = msgspec.json.Decoder(_ErrorEvent).decode


class StreamReader(ABC):
    """Parser of one reply: takes event payloads, emits deltas, builds the reply."""

    wire: str
    """Name of the wire."""
    kinds: frozenset[str] = frozenset()
    """Values of `type` that this wire reads; other events are ignored. Empty: events have no
    type.
    """
    error_statuses: Mapping[str, int] = {}
    """Error code of the provider -> HTTP status."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.builder = ReplyBuilder()
        """The reply received so far."""
        self.done = False
        """True if the terminal event has arrived."""
        self.failed: Failure | None = None
        """Failure made of an error event inside the stream."""

    @property
    def may_end(self) -> bool:
        """True if the reply is complete if the stream ends now, for servers without a terminal
        event.
        """
        return False

    def read(self, payload: bytes, out: list[Delta]) -> None:
        """Read one event and append its deltas to `out`; an error in any server's form sets
        `failed`.

        Raises `msgspec.DecodeError` for bytes of no such wire.
        """
        may_fail = b'"error"' in payload or b'"detail"' in payload
        problem = self._error_in(payload) if may_fail else b""
        if not problem:
            self.feed(payload, out)
            return
        with suppress(*DECODE_ERRORS):  # an error event may hold a piece of the reply too
            self.feed(payload, out)
        if self.failed is None:
            self._fail_with(problem)

    @abstractmethod
    def feed(self, payload: bytes, out: list[Delta]) -> None:
        """Read one event as `read` does, but for its error."""

    def finish(self) -> Reply | Failure:
        """Return the reply, once `done` or `may_end`."""
        return self.builder.finish(self.wire, self.model)

    def grow(self, slot: PartBuilder, text: str | None, out: list[Delta]) -> None:
        """Add text, thinking or arguments to `slot`, and their delta to `out`."""
        if not text:
            return
        self.builder.grow(slot, text)
        match slot.kind:
            case "text":
                out.append(TextDelta(text))
            case "thinking":
                out.append(ThinkingDelta(text))
            case _:
                out.append(CallDelta(slot.call, json=text))

    def _error_in(self, payload: bytes) -> bytes:
        """Return the error that an event holds, as JSON; empty for none."""
        event = _decode_error_event(payload)
        if event.error and bytes(event.error) != b"null":
            return bytes(event.error)
        if event.type == "error":
            return payload
        is_reply = event.choices or event.candidates or str(event.type) in self.kinds
        return b"" if is_reply or bytes(event.detail) == b"null" else bytes(event.detail)

    def _fail_with(self, problem: bytes) -> None:
        text = problem.decode("utf-8", "replace")
        code = _error_code(problem)
        status = whole_number(code) if len(code) == 3 else 0
        status = self.error_statuses.get(code, status)
        message = error_text(f'{{"error":{text}}}') or code or "the provider broke off"
        self.fail(str(status or code), text, message, status)

    def fail(self, code: str, text: str, message: str = "", status: int = 0) -> None:
        """Set `failed` for an error event: its code (a word or a status), its text, and the
        message to show.
        """
        kind = kind_of_error_event(code, text)
        failure = self.builder.failure(kind, message or text or "the provider broke off", status)
        self.failed = msgspec.structs.replace(
            failure, limit_tokens=limit_tokens(text) if kind == "overflow" else 0
        )


def _error_code(problem: bytes) -> str:
    """Code, status or type of an error; empty for none."""
    fields = json_fields(problem.decode("utf-8", "replace"))
    return str(fields.get("code") or fields.get("status") or fields.get("type") or "")


class Wire(ABC):
    """A provider protocol: encodes requests item by item, and makes the parser of their replies."""

    name: str
    """As in `PrefixSet.wire`."""
    root = "/v1"
    """Path between a bare host and `path`."""
    path: str
    """Path of requests below the base URL."""
    takes_pdf = True

    def __init__(self, target: WireTarget) -> None:
        self.target = target
        """The model it encodes for."""

    def url(self, base_url: str) -> str:
        """Join `base_url` and the path of requests; a bare host gets `root` in between."""
        bare = base_url.rstrip("/")
        return bare + (self.root if bare.count("/") == 2 and "://" in bare else "") + self.path

    def headers(self, api_key: str) -> dict[str, str]:
        """Headers of each request, with the key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    @abstractmethod
    def body(self, request: Request, cache: FragmentCache) -> bytes:
        """Encode `request` as JSON. `cache` holds fragments of earlier requests of the session."""

    @abstractmethod
    def reader(self) -> StreamReader:
        """Make a parser for one reply."""

    def encode(self, item: Item) -> bytes:
        """Encode one item; empty when this wire and model must not get it."""
        match item.part:
            case ToolCall() as call:
                return self._call(item, call)
            case Thinking():
                return self._thinking(item)
            case ToolResult() as result:
                return self._result(item, result)
            case Text(text) if item.mine:
                return self._said(item, text) if text.strip() else b""
            case _:
                return b",".join(map(self._piece, self.pieces(item)))

    @abstractmethod
    def side(self, item: Item) -> str:
        """Side of an item, such as `user`. Neighbouring items of one side form a run in one
        bracket.
        """

    @abstractmethod
    def bracket(self, side: str, fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
        """Put brackets around the fragments of a run.

        Returns two chunks per fragment (separator and fragment; the opening bracket is in the
        first) and the closing bracket.
        """

    def pieces(self, item: Item) -> list[Piece]:
        """Content of an item on the user's side. Files that the user attached are sent whole."""
        target, whole = self.target, item.kind == "user"
        return content_pieces(
            item.part,
            target.read_blob,
            whole=whole,
            pdf=self.takes_pdf,
            handle=item.handle,
            side_px=target.picture_side_px,
            refused=target.refused_pictures,
        )

    def _thinking(self, item: Item) -> bytes:
        """Provider block of thinking; empty when another model made it, so that the item is left
        out.
        """
        return item.block.raw.encode() if item.block is not None and self.target.owns(item) else b""

    def _own_fields(self, item: Item) -> dict[str, Any]:
        """Fields of the provider block of `item`; empty when another model made it."""
        return (
            json_fields(item.block.raw) if item.block is not None and self.target.owns(item) else {}
        )

    @abstractmethod
    def _call(self, item: Item, call: ToolCall) -> bytes: ...

    @abstractmethod
    def _result(self, item: Item, result: ToolResult) -> bytes: ...

    @abstractmethod
    def _said(self, item: Item, text: str) -> bytes: ...

    @abstractmethod
    def _piece(self, piece: Piece) -> bytes: ...


def cached_head(cache: FragmentCache, request: Request, make: Callable[[], bytes]) -> bytes:
    """Return the encoded fields before the items, made once per prefix."""
    if cache.head[0] is not request.prefix:
        cache.head = (request.prefix, make())
    return cache.head[1]


def list_chunks(opening: bytes, fragments: Sequence[bytes]) -> list[bytes]:
    """Chunks of a run whose fragments form one JSON list: `opening`, then commas."""
    chunks = [b","] * (2 * len(fragments))
    chunks[:1] = [opening] if chunks else []
    chunks[1::2] = fragments
    return chunks


def json_fields(raw: str) -> dict[str, Any]:
    """Fields of the JSON object in `raw`; empty if `raw` holds no object."""
    return decode_object(raw) or {}
