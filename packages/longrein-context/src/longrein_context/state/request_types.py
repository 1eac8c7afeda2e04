"""Neutral request: a prefix and a flat list of content blocks, before any wire encodes them.

Between two breaks the items of a request are the first items of the next one, as the same
objects, so that a wire encodes each of them once. Message brackets and cache marks are added by the
wire.
"""

from typing import Literal

import msgspec

from longrein_context.events import AnyPart, PrefixSet, ProviderBlock

ItemKind = Literal[
    "context", "user", "reminder", "text", "thinking", "call", "result", "summary", "ack"
]
ItemForm = Literal["full", "trimmed", "placeholder", "summary"]


class Item(msgspec.Struct, frozen=True):
    """Content block of the view."""

    key: tuple[
        int, int, int
    ]  # (entry that gave the item this form, part, revision): equal keys mean equal content
    # `call`, `text`, `thinking` and `ack` are on the assistant's side, the other kinds on the
    # user's
    kind: ItemKind
    seqs: tuple[int, int]  # First and last entry that the item stands for
    handle: str  # Handle that recalls the content
    # Content as the model sees it. For `result` a `ToolResult`, for `call` a `ToolCall`.
    part: AnyPart
    form: ItemForm = "full"  # Form in which the item is shown
    tokens: int = 0  # Estimate before calibration
    # The provider's own encoding of the block; of a result that of its call, for the id
    block: ProviderBlock | None = None
    owner: str = ""  # Model that wrote the item, for the assistant's items

    @property
    def mine(self) -> bool:
        """True if the item is on the assistant's side of the conversation."""
        return self.kind in ("text", "thinking", "call", "ack")


class Request(msgspec.Struct, frozen=True):
    """Provider-neutral request: equal states give equal bytes."""

    session: str  # Session id
    prefix: PrefixSet  # System text, tools, model
    prefix_seq: int  # Entry of the prefix: equal values mean an equal prefix
    items: tuple[Item, ...]  # Content blocks in order, those of kind `context` first
    marks: tuple[int, ...]  # Rising indices of items after which the cache is marked; at most three
    max_output_tokens: int  # Limit of the answer
    purpose: Literal["turn", "summary"] = (
        "turn"  # A summary request is a turn request plus items at its end
    )
    route: str = (
        ""  # Session whose prefix is shared, for providers that route by a key; '' for `session`
    )


CACHE_READ_SHARE = 0.1  # Usual price of cached input as a share of the input price


class Price(msgspec.Struct, frozen=True):
    """Prices in US dollars per million tokens."""

    input: float
    output: float
    cache_read: float = -1.0  # Negative: unknown; `CACHE_READ_SHARE` of the input price is assumed
    cache_write: float = -1.0  # Negative: equal to the input price
    # True if a cache price is the usual one of the provider's family and not its own figure
    assumed: bool = False

    @property
    def read_usd(self) -> float:
        """Price of input read from the cache."""
        return self.cache_read if self.cache_read >= 0 else CACHE_READ_SHARE * self.input

    @property
    def write_usd(self) -> float:
        """Price of input written to the cache."""
        return self.cache_write if self.cache_write >= 0 else self.input

    @property
    def note(self) -> str:
        """Note on assumed cache prices; '' if the prices are known."""
        if not (self.assumed or self.cache_read < 0) or self.input <= 0:
            return ""
        return (
            f"cache prices are not known: reading is taken for {self.read_usd / self.input:.2g} "
            "of the input price and "
            f"writing for {self.write_usd / self.input:.3g}, as is usual there; price_cache_read "
            "and "
            "price_cache_write in the settings say otherwise"
        )


PREPARE_SHARE = 0.80  # Share of the usable window at which a summary is prepared
COMPACT_SHARE = 0.92  # Share of the usable window at which the view must shrink
FULL_SHARE_MAX = 0.90  # Largest share of the window for a request, so that an answer has room
INSTRUCTION_TOKENS = 600  # Tokens that a request for a summary adds to the view, records aside


class Budget(msgspec.Struct, frozen=True):
    """Limits and prices of a model, for the policies."""

    window_tokens: int  # Context window, input and output together
    max_output_tokens: int  # Largest output of one request
    price: Price | None = None  # None when unknown
    cache_ttl_s: float = 300.0  # Lifetime of a cached prefix after its last use, seconds
    cache_min_tokens: int = 1024  # A shorter prefix is not cached
    accepts_prefill: bool = False
    """True if a request may end with the assistant's side; most current models refuse that."""
    clears: tuple[str, ...] = ("exchange", "result", "call", "text", "thinking")
    """Kinds of items that may be cleared with this provider and model. `exchange`: replies leave
    as a whole, with their thinking, calls and results; the other kinds are shortened in place.
    `old call` and `old thinking`: only items from before the user's last message.
    """
    prepare_share: float = PREPARE_SHARE
    compact_share: float = COMPACT_SHARE
    visibility: float = 1.0
    """Price of a line that is missing when it is needed, in units of the usual one. More keeps more
    lines in the view, and costs more.
    """
    is_local: bool = False
    """True for a server of the user's own without prices: it charges nothing, computing takes time,
    and reading what it has cached is free.
    """
    is_window_assumed: bool = False  # True if no setting, table or server names the window

    @property
    def reads_free(self) -> bool:
        """True if reading from the cache costs nothing."""
        return self.is_local if self.price is None else self.price.read_usd <= 0

    @property
    def read_share(self) -> float:
        """Price of cached input as a share of the input price; the usual share if unknown."""
        if self.reads_free:
            return 0.0
        price = self.price
        if price is None or price.input <= 0:
            return CACHE_READ_SHARE
        return price.read_usd / price.input

    @property
    def usable_tokens(self) -> int:
        """`window - min(max_output, window / 4)`: the largest view."""
        return self.window_tokens - min(self.max_output_tokens, self.window_tokens // 4)
