"""Which rules are enforced and what a model offers. The defaults are those of current providers."""

import msgspec


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where real servers differ. `lenient` switches all judging off: for benches."""

    lenient: bool = False
    """Accept whatever can be parsed; the window is not held either."""
    accepts_prefill: bool = False
    """A request may end with the assistant's side."""
    alternation: bool = True
    """Anthropic and Gemini: two messages of one role in a row are refused."""
    user_first: bool = True
    """The first message that is not the system's must be the user's."""
    short_ids: bool = False
    """Chat: call ids must be nine letters and digits, as Mistral demands."""
    counts_output: bool = False
    """The output limit counts against the window, as older models and most local servers do it."""
    keys: tuple[str, ...] = ()
    """Keys that are accepted; () accepts any, and none."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model offers. Tokens are `TOKEN_BYTES` bytes of the request's blocks as sent."""

    window_tokens: int = 200_000
    """Context window."""
    output_tokens_max: int = 0
    """Largest output limit a request may ask for; 0: any."""
    request_bytes_max: int = 32_000_000
    """Largest body."""
    cache_min_tokens: int = 1_024
    """A shorter prefix is not cached."""
    cache_ttl_s: float = 300.0
    """How long a cached prefix lives after its last use; a block that asks for `1h` gets that."""
    depth_max: int = 100
    """Nesting of JSON."""


TOKEN_BYTES = 4
"""Bytes of a request that count as one token. Pictures count `IMAGE_TOKENS` whatever their size."""
IMAGE_TOKENS = 1_600
"""Tokens of a picture, as a large one has with real providers."""


def tokens_of(size_bytes: int) -> int:
    """Tokens of `size_bytes` bytes, rounded up."""
    return -(-size_bytes // TOKEN_BYTES)
