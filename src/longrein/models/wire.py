"""What the four wires have in common: what each must offer, and what it knows of the model it speaks to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longrein.context import Item, Request
from longrein.events import Thinking, decode_json
from longrein.models.content import IMAGE_SIDE_PX_MAX, Piece, pieces_of
from longrein.models.draft import Draft
from longrein.models.layout import Grammar, Memo
from longrein.models.naming import family
from longrein.models.port import Delta, Failure, ReadBlob, Reply


class Facing(msgspec.Struct, frozen=True):
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
        return pieces_of(item.part, self.read_blob, whole=whole, pdf=pdf, handle=item.handle, side_px=side_px)


class Reading(Protocol):
    """Takes the payloads of a stream, gives deltas, and in the end the reply."""

    kinds: frozenset[str]
    """Values of `type` that this wire reads; events of any other are passed over. Empty: its events have no type."""
    draft: Draft
    """The reply as far as it has come."""
    done: bool
    """Whether the terminal event was seen."""
    failed: Failure | None
    """What an error event in mid-stream said."""

    @property
    def settled(self) -> bool:
        """Whether a clean end of the stream would be a proper one: for wires and servers without a terminal event."""
        ...

    def take(self, payload: bytes, out: list[Delta]) -> None:
        """One event. Raises `msgspec.DecodeError` for bytes that are not of this wire."""
        ...

    def finish(self) -> Reply | Failure:
        """The reply, once `done`."""
        ...


class Wire(Protocol):
    """One provider protocol: pure, so that it can be tried without a socket."""

    name: str
    """As in `PrefixSet.wire`."""
    facing: Facing
    """The model it encodes for."""
    grammar: Grammar
    """How items are written."""

    def url(self, base_url: str) -> str:
        """Where requests go."""
        ...

    def headers(self, api_key: str) -> dict[str, str]:
        """Headers of each request."""
        ...

    def body(self, request: Request, memo: Memo) -> bytes:
        """The request as JSON. `memo` holds what earlier requests of the session encoded."""
        ...

    def reading(self) -> Reading:
        """What reads one answer."""
        ...


def head_of(memo: Memo, request: Request, make: Callable[[], bytes]) -> bytes:
    """What stands before the items, made once for a prefix."""
    if memo.head[0] is not request.prefix:
        memo.head = (request.prefix, make())
    return memo.head[1]


def with_path(base_url: str, root: str, path: str) -> str:
    """`base_url` + `path`; a bare host gets the usual `root` (such as `/v1`) in between."""
    bare = base_url.rstrip("/")
    if bare.count("/") == 2 and "://" in bare:
        bare += root
    return bare + path


def listed(opening: bytes, fragments: Sequence[bytes]) -> list[bytes]:
    """Chunks of a run whose fragments stand in one list: the opening bracket, then commas."""
    chunks = [b","] * (2 * len(fragments))
    chunks[:1] = [opening] if chunks else []
    chunks[1::2] = fragments
    return chunks


def thinking_raw(facing: Facing, item: Item) -> bytes:
    """The provider's own bytes of a thinking item; empty for a foreign one, which is left out."""
    if isinstance(item.part, Thinking) and facing.owns(item) and item.block is not None:
        return item.block.raw.encode()
    return b""


def fields_of(raw: str) -> dict[str, Any]:
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
