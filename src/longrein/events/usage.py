"""What a request used, and the words for why one failed."""

from typing import Literal

import msgspec

COUNT_MAX = 1_000_000_000
"""A larger count of tokens is no count."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider counted them. The four kinds do not overlap: they are priced apart."""

    input_tokens: int = 0
    """Input neither read from nor written to the cache."""
    cache_read_tokens: int = 0
    """Input read from the prompt cache."""
    cache_write_tokens: int = 0
    """Input written to the prompt cache."""
    output_tokens: int = 0
    """Output, reasoning included."""
    reasoning_tokens: int = 0
    """The part of the output that was reasoning."""

    @property
    def context_tokens(self) -> int:
        """All input, however it was priced."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


def is_count(value: object) -> bool:
    """Whether `value` can be a count of tokens: a whole number from 0 to `COUNT_MAX`."""
    return type(value) is int and 0 <= value <= COUNT_MAX


def counts_of(usage: Usage) -> Usage:
    """`usage` with 0 for every field that cannot be a count, such as -5, NaN or a text."""
    fields = [getattr(usage, name) for name in Usage.__struct_fields__]
    return usage if all(map(is_count, fields)) else Usage(*(value if is_count(value) else 0 for value in fields))


FailureKind = Literal[
    "rate",  # 429: wait as told
    "overload",  # 529 or 503 of an overloaded provider
    "server",  # other 5xx, 408, 409
    "network",  # no connection, reset
    "timeout",  # connect or first byte too late
    "stalled",  # silent in mid-stream: the idle watchdog
    "truncated",  # the stream ended without its terminal event
    "empty",  # an answer with neither text nor call
    "overflow",  # the context does not fit
    "auth",  # the key was refused
    "billing",  # no money, no quota
    "refused",  # the provider would not serve this request (policy)
    "invalid",  # 400, 404, 422: asking again is of no use
    "lost",  # longrein died while it waited
    "cancelled",  # the user interrupted before anything came
]

RETRYABLE: frozenset[str] = frozenset(
    {"rate", "overload", "server", "network", "timeout", "stalled", "truncated", "empty"}
)
"""Kinds that the same request may survive later. `lost` is asked again too, but without a wait."""
