"""What is known of providers and models without asking them: windows, prices, addresses, names of keys."""

from collections.abc import Sequence

import msgspec

from longrein.context import Budget, Price
from longrein.events import Usage, is_count
from longrein.models.catalog_data import ALIASES, MODELS, PROVIDERS
from longrein.models.wire import family

WINDOW_DEFAULT_TOKENS = 128_000
"""An unknown model of a provider: the smallest window in wide use for work with tools."""
WINDOW_LOCAL_TOKENS = 32_768
"""An unknown model of a local server: what such servers are usually started with, or more."""
OUTPUT_DEFAULT_TOKENS = 8_192
"""An unknown model's output limit: nearly every one takes it."""
CACHE_READ, CACHE_WRITE = 2, 3
"""Places of these prices in a row of the table."""
OUTPUT_OFFERED_MAX_TOKENS = 32_000
"""Output asked for at most: more would only hold back window, money and rate limit."""


class Provider(msgspec.Struct, frozen=True):
    """A provider as longrein finds it without a settings file."""

    name: str
    """Name before the slash in `provider/model`."""
    wire: str
    """Wire it speaks."""
    base_url: str
    """Address."""
    keys: tuple[str, ...] = ()
    """Environment variables that may hold its key, the first that is set wins; none for a local server."""
    url_keys: tuple[str, ...] = ()
    """Environment variables that may hold another address."""
    model: str = ""
    """Model to use when none is named; empty: the server is asked what it has."""

    @property
    def local(self) -> bool:
        """Whether it is a server on this machine, found by its port."""
        return not self.keys


def known_providers() -> tuple[Provider, ...]:
    """All known providers, in the order in which they are looked for."""
    return tuple(Provider(*row) for row in PROVIDERS)


def known_provider(name: str) -> Provider | None:
    """The provider called `name`, or None."""
    for row in PROVIDERS:
        if row[0] == name:
            return Provider(*row)
    return None


def known_models() -> tuple[str, ...]:
    """Names of all models in the table, for suggestions."""
    return tuple(MODELS)


def model_budget(provider: str, model: str) -> Budget | None:
    """What `model` offers and costs at `provider` ('' for the company that sells it); None where nothing is known."""
    row = _row(model)
    known = known_provider(provider)
    if row is None and not (known is not None and known.local):
        return None
    return look_up(provider or (row[0] if row else ""), model)


def look_up(provider: str, model: str) -> Budget:
    """What `model` offers and costs. An unknown one gets cautious figures and no price.

    The longest name in the table that the model's family begins with wins, so dated and tagged spellings are found.
    The same open model has another price at each host, so a price counts only at the provider it was read from. A
    local server costs nothing, and its window is what such servers are started with, whatever the model could take.
    """
    row = _row(model)
    known = known_provider(provider)
    if known is not None and known.local:
        output = min(row[2] if row else OUTPUT_DEFAULT_TOKENS, OUTPUT_DEFAULT_TOKENS)
        return Budget(min(row[1] if row else WINDOW_LOCAL_TOKENS, WINDOW_LOCAL_TOKENS), output, Price(0.0, 0.0))
    if row is None:
        return Budget(WINDOW_DEFAULT_TOKENS, OUTPUT_DEFAULT_TOKENS)
    sold_by, window, output, prices, ttl_s, least, prefill = row
    sells = provider in (sold_by, *ALIASES.get(sold_by, ()))
    price = usual_price(provider, model, prices) if prices and sells else None
    return Budget(window, min(output, OUTPUT_OFFERED_MAX_TOKENS), price, ttl_s, least, prefill)


def usual_price(provider: str, model: str, prices: Sequence[float]) -> Price:
    """A price of (input, output, cache read, cache write); negative or missing cache prices are those usual there.

    Usual is what the family of the model, else the provider, takes in most rows of the table, as a share of the input
    price; else what most of all rows take. To write costs as input where the reading price is known and this is not.
    """
    input_usd, output_usd, read_usd, write_usd = (*prices, -1.0, -1.0)[:4]
    if read_usd >= 0:
        return Price(input_usd, output_usd, read_usd, write_usd)
    row = _row(model)
    rows = _price_rows(row[0] if row else "") or _price_rows(provider) or _price_rows()
    read = _median([row[CACHE_READ] / row[0] for row in rows])
    write = _median([row[CACHE_WRITE] / row[0] if len(row) > CACHE_WRITE else 1.0 for row in rows])
    written = write_usd if write_usd >= 0 else write * input_usd
    return Price(input_usd, output_usd, read * input_usd, written, assumed=True)


def _price_rows(seller: str | None = None) -> list[tuple[float, ...]]:
    """Prices of the rows that know what cached input costs: of one seller (also by another of its names), or of all."""
    names = {other: first for first, others in ALIASES.items() for other in others if other != "openrouter"}
    wanted = names.get(seller, seller) if seller is not None else None
    return [row[3] for row in MODELS.values() if len(row[3]) > CACHE_READ and wanted in (None, row[0])]


def _median(shares: list[float]) -> float:
    return round(sorted(shares)[len(shares) // 2], 4)


def _row(model: str) -> tuple[str, int, int, tuple[float, ...], float, int, bool] | None:
    name = family(model)
    for candidate in (name, model.lower().rsplit("/", 1)[-1]):
        known = [known for known in MODELS if candidate == known or candidate.startswith(known + "-")]
        if known:
            return MODELS[max(known, key=len)]
    return None


# --- What a request costs by the price table, and which counts of a provider are believed ----------------------------


COUNT_FACTOR_MAX = 10
"""A count this many times our own estimate, or this small a part of it, is not believed …"""
COUNT_SLACK_TOKENS = 1_000
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
    has_input = all(map(is_count, given)) and _is_plausible(sum(given), guess.context_tokens, window_tokens)
    made = (told.output_tokens, told.reasoning_tokens)
    has_output = all(map(is_count, made)) and _is_plausible(told.output_tokens, guess.output_tokens, output_max_tokens)
    settled = Usage(
        *(given if has_input else (guess.input_tokens, guess.cache_read_tokens, guess.cache_write_tokens)),
        *(made if has_output else (guess.output_tokens, guess.reasoning_tokens)),
    )
    sides = (("input", has_input), ("output", has_output))
    return settled, tuple(side for side, holds in sides if not holds)


def _is_plausible(count: int, guess: int, most: int) -> bool:
    if guess <= 0:
        return count <= COUNT_FACTOR_MAX * most + COUNT_SLACK_TOKENS
    least = (guess - COUNT_SLACK_TOKENS) / COUNT_FACTOR_MAX
    return 0 < count <= COUNT_FACTOR_MAX * max(guess, most) + COUNT_SLACK_TOKENS and count >= least
