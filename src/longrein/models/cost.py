"""What a request costs by the price table, and which counts of a provider are believed."""

from longrein.context import Price
from longrein.events import Usage, is_count

FACTOR_MAX = 10
"""A count this many times our own estimate, or this small a part of it, is not believed …"""
SLACK_TOKENS = 1_000
"""… when it is also further from it than this."""


def cost_usd(price: Price | None, usage: Usage) -> float:
    """US dollars for `usage`; 0 when the price is unknown. What is not known of cached input is assumed (`Price`)."""
    if price is None:
        return 0.0
    total = (
        usage.input_tokens * price.input
        + usage.cache_read_tokens * price.read_usd
        + usage.cache_write_tokens * price.write_usd
        + usage.output_tokens * price.output
    )
    return total / 1e6


def settled_usage(
    told: Usage, guess: Usage, window_tokens: int, output_max_tokens: int
) -> tuple[Usage, tuple[str, ...]]:
    """The usage to settle a request with, and which sides of it (`input`, `output`) are taken from `guess`.

    A side of `told` holds when all of its counts are whole numbers, none negative, and their sum can be true: not zero
    where `guess` is not, nor far below `guess`, nor far above all of `guess`, the window and the output limit.
    """
    given = (told.input_tokens, told.cache_read_tokens, told.cache_write_tokens)
    has_input = all(map(is_count, given)) and _can_be(sum(given), guess.context_tokens, window_tokens)
    made = (told.output_tokens, told.reasoning_tokens)
    has_output = all(map(is_count, made)) and _can_be(told.output_tokens, guess.output_tokens, output_max_tokens)
    settled = Usage(
        *(given if has_input else (guess.input_tokens, guess.cache_read_tokens, guess.cache_write_tokens)),
        *(made if has_output else (guess.output_tokens, guess.reasoning_tokens)),
    )
    sides = (("input", has_input), ("output", has_output))
    return settled, tuple(side for side, holds in sides if not holds)


def _can_be(count: int, guess: int, most: int) -> bool:
    if guess <= 0:
        return count <= FACTOR_MAX * most + SLACK_TOKENS
    least = (guess - SLACK_TOKENS) / FACTOR_MAX
    return 0 < count <= FACTOR_MAX * max(guess, most) + SLACK_TOKENS and count >= least
