"""What a request is made of before any wire has seen it: a prefix, then a flat list of content blocks.

An `Item` is one content block. Between two breaks the items of one request are the first items of the next (law 2),
the same objects even, so that a wire encodes each of them once. Message brackets and cache marks are the wire's.
"""

from typing import Literal

import msgspec

from longrein.events import AnyPart, PrefixSet, ProviderBlock

ItemKind = Literal["context", "user", "reminder", "text", "thinking", "call", "result", "summary", "ack"]
ItemForm = Literal["full", "trimmed", "placeholder", "summary"]


class Item(msgspec.Struct, frozen=True):
    """One content block of the view."""

    key: tuple[int, int, int]
    """(seq of the entry that gave it this form, its part, revision): equal keys mean equal content."""
    kind: ItemKind
    """What it is. `call`, `text`, `thinking` and `ack` are the assistant's, the rest the user's side."""
    seqs: tuple[int, int]
    """First and last entry it stands for."""
    handle: str
    """Handle that brings back its content."""
    part: AnyPart
    """Content as the model sees it. For `result` a `ToolResult`, for `call` a `ToolCall`."""
    form: ItemForm = "full"
    """How it is shown."""
    tokens: int = 0
    """Estimate."""
    block: ProviderBlock | None = None
    """The provider's own bytes for it."""
    owner: str = ""
    """Model that wrote it, for the assistant's items."""

    @property
    def mine(self) -> bool:
        """Whether it is the assistant's side of the conversation."""
        return self.kind in ("text", "thinking", "call", "ack")


class Request(msgspec.Struct, frozen=True):
    """A request, neutral: same state, same bytes (law 1)."""

    session: str
    """Session id."""
    prefix: PrefixSet
    """System text, tools, model."""
    prefix_seq: int
    """Its seq: equal seqs mean an equal prefix."""
    items: tuple[Item, ...]
    """Content blocks in order; the first ones may be of kind `context`."""
    marks: tuple[int, ...]
    """Indices of items after which the cache should be marked, rising; at most three."""
    max_output_tokens: int
    """Limit of the answer."""
    purpose: Literal["turn", "summary"] = "turn"
    """What it is for. A summary request is a turn request plus items at its end."""
    route: str = ""
    """For providers that route by a key: the session whose prefix it shares; '' for `session`."""


CACHE_READ_SHARE = 0.1
"""What most providers take for cached input, as a share of the input price."""


class Price(msgspec.Struct, frozen=True):
    """US dollars for a million tokens."""

    input: float
    output: float
    cache_read: float = -1.0
    """Negative: unknown, `CACHE_READ_SHARE` of the input's is assumed."""
    cache_write: float = -1.0
    """Negative: as input."""
    assumed: bool = False
    """Whether a cache price above is what the provider's family usually takes, and not the provider's own figure."""

    @property
    def read_usd(self) -> float:
        """Price of input that is read from the cache."""
        return self.cache_read if self.cache_read >= 0 else CACHE_READ_SHARE * self.input

    @property
    def write_usd(self) -> float:
        """Price of input that is written to the cache."""
        return self.cache_write if self.cache_write >= 0 else self.input

    @property
    def note(self) -> str:
        """What to say of cache prices that nobody gave; '' when they are known."""
        if not (self.assumed or self.cache_read < 0) or self.input <= 0:
            return ""
        return (
            f"cache prices are not known: reading is taken for {self.read_usd / self.input:.2g} of the input price and "
            f"writing for {self.write_usd / self.input:.3g}, as is usual there; price_cache_read and "
            "price_cache_write in the settings say otherwise"
        )


class Budget(msgspec.Struct, frozen=True):
    """What a model offers and costs. Only `decide` and its kin see it."""

    window_tokens: int
    """Context window, input and output together."""
    max_output_tokens: int
    """Largest output of one request."""
    price: Price | None = None
    """None when unknown."""
    cache_ttl_s: float = 300.0
    """How long a cached prefix lives after its last use."""
    cache_min_tokens: int = 1024
    """A shorter prefix is not cached."""
    accepts_prefill: bool = False
    """Whether a request may end with the assistant's side; most current models refuse that."""
    clears: tuple[str, ...] = ("result", "call", "text", "thinking")
    """Kinds of items that this provider and model tolerate being cleared; `old thinking` spares the running turn."""

    @property
    def usable_tokens(self) -> int:
        """`window - min(max_output, window / 4)`: what a view may fill (law 6)."""
        return self.window_tokens - min(self.max_output_tokens, self.window_tokens // 4)
