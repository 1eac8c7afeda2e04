"""What the four wires have in common: what each must offer, and what it knows of the model it speaks to."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longrein.context import Item, Request
from longrein.events import Thinking, decode_json
from longrein.models.content import IMAGE_SIDE_PX_MAX, Piece, ReplyBuilder, content_pieces
from longrein.models.port import Delta, Failure, ReadBlob, Reply

# ---------------------------------------------------------------------------------------------------------------------
#
# Once-encoded fragments and the brackets between them: how a request of any length is joined in under a millisecond.
#
# A wire says how one item is encoded (its fragment, kept for the item's life) and how a run of items of one side is
# bracketed. Requests only grow between breaks, so what was laid out for the last one is kept and the new items are
# laid after it; after a break everything before the changed item still stands.


BracketRun = Callable[[str, Sequence[bytes]], tuple[list[bytes], bytes]]
"""(side, fragments) of one run -> two chunks for each fragment (what stands before it, itself), the closing bracket."""

SESSIONS_MAX = 64
"""Sessions whose fragments a model keeps; the one that asked longest ago goes first."""


class ItemFormat(msgspec.Struct, frozen=True):
    """How a wire writes a list of items."""

    encode: Callable[[Item], bytes]
    """The fragment of an item; empty when this wire and model do not get it."""
    side: Callable[[Item], str]
    """Which run an item belongs to; neighbours of one side share a bracket."""
    bracket: BracketRun
    """How a run is bracketed; the opening bracket stands with the first fragment."""


class FragmentCache:
    """What one session's requests to one model are made of."""

    def __init__(self, item_format: ItemFormat) -> None:
        self.item_format = item_format
        self.head: tuple[object, bytes] = (None, b"")
        """Whatever stands before the items, and the prefix it was made of."""
        self._fragments: dict[tuple[int, int, int], tuple[Item, bytes]] = {}
        self._items: tuple[Item, ...] = ()
        self._chunks: list[bytes] = []  # lead, fragment, lead, fragment …: two for each item
        self._runs: list[tuple[int, str, bytes]] = []  # start, side and closing bracket of each run

    def chunks(self, items: tuple[Item, ...]) -> list[bytes]:
        """Leads and fragments of `items`, two an item, without the last bracket. The list is not to be changed."""
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
        """What closes the last run."""
        return self._runs[-1][2] if self._runs else b""

    @property
    def first_side(self) -> str:
        """Side of the first run; empty when nothing was laid."""
        return self._runs[0][1] if self._runs else ""

    def fragment(self, item: Item) -> bytes:
        """The item for this wire: made once in its life."""
        known = self._fragments.get(item.key)
        if known is not None and known[0] is item:
            return known[1]
        made = self.item_format.encode(item)
        self._fragments[item.key] = (item, made)
        return made

    def _common_prefix(self, items: tuple[Item, ...]) -> int:
        last = self._items
        for at, (old, new) in enumerate(zip(last, items, strict=False)):
            if old is not new:
                return at
        return min(len(last), len(items))

    def _drop_layout(self, same: int) -> int:
        """Drop the layout from the last run that can still change; its start."""
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
            new = self.item_format.side(item)
            if run and new != side:
                self._close_run(side, run)
                run = []
            side = new
            run.append((at, fragment))
        if run:
            self._close_run(side, run)

    def _close_run(self, side: str, run: list[tuple[int, bytes]]) -> None:
        chunks, closing = self.item_format.bracket(side, [fragment for _, fragment in run])
        if not any(chunks):
            return
        if self._runs:
            chunks[0] = self._runs[-1][2] + b"," + chunks[0]
        self._runs.append((run[0][0], side, closing))
        for n, (at, _) in enumerate(run):
            self._chunks[2 * at : 2 * at + 2] = chunks[2 * n : 2 * n + 2]


class FragmentCaches:
    """The memos of the sessions that use one model."""

    def __init__(self, item_format: ItemFormat) -> None:
        self._grammar = item_format
        self._by_session: dict[str, FragmentCache] = {}

    def of(self, session: str) -> FragmentCache:
        """The memo of `session`, made when it is new."""
        cache = self._by_session.pop(session, None) or FragmentCache(self._grammar)
        self._by_session[session] = cache
        while len(self._by_session) > SESSIONS_MAX:
            del self._by_session[next(iter(self._by_session))]
        return cache


# ---------------------------------------------------------------------------------------------------------------------
#
# Names that cross a wire: our call ids in each provider's alphabet, tool names, and which models are one family.


TOOL_NAME_CHARS_MAX = 64
"""The shortest limit among providers."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NOT_NAME = r"[^a-zA-Z0-9_-]"
_DATED = r"(-20\d{2}-?\d{2}-?\d{2}|-\d{4}|-latest|-preview(-\d{2}-\d{2,4})?|-exp)+$"


def wire_call_id(call: str) -> str:
    """Our call id `c5.0` as `c5_0`: letters, digits and `_` are what every provider takes."""
    return call.replace(".", "_")


def short_call_id(call: str) -> str:
    """Our call id `c5.0` as the nine letters and digits that Mistral's models demand.

    Six for the seq and three for the index, to the base of 36.
    """
    seq, _, index = call.removeprefix("c").partition(".")
    return _base36(seq, 6) + _base36(index, 3)


def _base36(number: str, width: int) -> str:
    value, text = int(number) if number.isdecimal() else 0, ""
    for _ in range(width):
        value, digit = divmod(value, 36)
        text = _DIGITS[digit] + text
    return text


def wire_tool_name(name: str) -> str:
    """A tool name that providers take back: a model may have invented one they would refuse in every later request."""
    if name.isidentifier() and name.isascii() and len(name) <= TOOL_NAME_CHARS_MAX:
        return name
    return re.sub(_NOT_NAME, "_", name)[:TOOL_NAME_CHARS_MAX] or "unnamed"


def family(model: str) -> str:
    """What a model and its dated, tagged or routed spellings have in common.

    `anthropic/claude-sonnet-4.5:thinking` and `claude-sonnet-4-5-20250929` are both `claude-sonnet-4-5`. Signed or
    encrypted reasoning goes back only inside a family.
    """
    name = model.lower().rsplit("/", 1)[-1].split(":", 1)[0].split("@", 1)[0].replace(".", "-")
    return re.sub(_DATED, "", name) or name


# --- wire ------------------------------------------------------------------------------------------------------------


class WireTarget(msgspec.Struct, frozen=True):
    """The model that a wire encodes for."""

    wire: str
    """Wire name."""
    model: str
    """Id as the provider knows it."""
    read_blob: ReadBlob
    """Bytes of pictures and documents."""
    host: str = ""
    """Host of the address, for what only one provider takes."""
    effort: str = ""
    """How hard to think; empty: as the provider does by default."""
    stops: tuple[str, ...] = ()
    """Texts at which the model is to stop."""
    reasoning: bool = True
    """Whether reasoning goes back; not after the provider refused it."""
    picture_side_px: int = IMAGE_SIDE_PX_MAX
    """Longest side of a picture that is sent; 0: none is."""

    def owns(self, item: Item) -> bool:
        """Whether the provider's own bytes of `item` may go back: same wire, same model family."""
        block = item.block
        return (
            self.reasoning
            and block is not None
            and block.wire == self.wire
            and family(block.model) == family(self.model)
        )

    def pieces(self, item: Item, *, pdf: bool) -> list[Piece]:
        """Content of an item of the user's side. What the user attached is sent whole."""
        whole = item.kind == "user"
        side_px = self.picture_side_px
        return content_pieces(item.part, self.read_blob, whole=whole, pdf=pdf, handle=item.handle, side_px=side_px)


class StreamReader(Protocol):
    """Takes the payloads of a stream, gives deltas, and in the end the reply."""

    kinds: frozenset[str]
    """Values of `type` that this wire reads; events of any other are passed over. Empty: its events have no type."""
    builder: ReplyBuilder
    """The reply as far as it has come."""
    done: bool
    """Whether the terminal event was seen."""
    failed: Failure | None
    """What an error event in mid-stream said."""

    @property
    def may_end(self) -> bool:
        """Whether a clean end of the stream would be a proper one: for wires and servers without a terminal event."""
        ...

    def feed(self, payload: bytes, out: list[Delta]) -> None:
        """One event. Raises `msgspec.DecodeError` for bytes that are not of this wire."""
        ...

    def finish(self) -> Reply | Failure:
        """The reply, once `done`."""
        ...


class Wire(Protocol):
    """One provider protocol: pure, so that it can be tried without a socket."""

    name: str
    """As in `PrefixSet.wire`."""
    target: WireTarget
    """The model it encodes for."""
    item_format: ItemFormat
    """How items are written."""

    def url(self, base_url: str) -> str:
        """Where requests go."""
        ...

    def headers(self, api_key: str) -> dict[str, str]:
        """Headers of each request."""
        ...

    def body(self, request: Request, cache: FragmentCache) -> bytes:
        """The request as JSON. `memo` holds what earlier requests of the session encoded."""
        ...

    def reader(self) -> StreamReader:
        """What reads one answer."""
        ...


def cached_head(cache: FragmentCache, request: Request, make: Callable[[], bytes]) -> bytes:
    """What stands before the items, made once for a prefix."""
    if cache.head[0] is not request.prefix:
        cache.head = (request.prefix, make())
    return cache.head[1]


def endpoint_url(base_url: str, root: str, path: str) -> str:
    """`base_url` + `path`; a bare host gets the usual `root` (such as `/v1`) in between."""
    bare = base_url.rstrip("/")
    if bare.count("/") == 2 and "://" in bare:
        bare += root
    return bare + path


def list_chunks(opening: bytes, fragments: Sequence[bytes]) -> list[bytes]:
    """Chunks of a run whose fragments stand in one list: the opening bracket, then commas."""
    chunks = [b","] * (2 * len(fragments))
    chunks[:1] = [opening] if chunks else []
    chunks[1::2] = fragments
    return chunks


def own_thinking(target: WireTarget, item: Item) -> bytes:
    """The provider's own bytes of a thinking item; empty for a foreign one, which is left out."""
    if isinstance(item.part, Thinking) and target.owns(item) and item.block is not None:
        return item.block.raw.encode()
    return b""


def json_fields(raw: str) -> dict[str, Any]:
    """The fields of a provider block; none if it is no object."""
    try:
        value = decode_json(raw)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


ERROR_CODES: Mapping[str, int] = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "authentication_error": 401,
    "permission_error": 403,
    "billing_error": 402,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "not_found_error": 404,
}
"""Error words that stand for a status."""
