"""What a request costs by the price table."""

from longrein.context import Price
from longrein.events import Usage


def cost_usd(price: Price | None, usage: Usage) -> float:
    """US dollars for `usage`; 0 when the price is unknown. Cached input without a price of its own costs as input."""
    if price is None:
        return 0.0
    read = price.input if price.cache_read < 0 else price.cache_read
    write = price.input if price.cache_write < 0 else price.cache_write
    total = (
        usage.input_tokens * price.input
        + usage.cache_read_tokens * read
        + usage.cache_write_tokens * write
        + usage.output_tokens * price.output
    )
    return total / 1e6
