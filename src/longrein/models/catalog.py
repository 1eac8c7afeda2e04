"""Known providers and models: windows, prices, addresses, key variables; and the cost of a
request.
"""

from collections.abc import Sequence

import msgspec

from longrein.context import Budget, Price
from longrein.events import Usage, is_count
from longrein.models.catalog_data import ALIASES, MODELS, PROVIDERS
from longrein.models.wire_base import family

WINDOW_DEFAULT_TOKENS = 128_000
"""Window of an unknown model: the smallest in wide use for work with tools."""
WINDOW_LOCAL_TOKENS = 32_768
"""Largest window assumed at a local server; such servers are usually started with less than the
model takes.
"""
OUTPUT_DEFAULT_TOKENS = 8_192
"""Output limit of an unknown model; nearly every model takes it."""
CACHE_READ, CACHE_WRITE = 2, 3
"""Indices of these prices in a row of the table."""
OUTPUT_OFFERED_MAX_TOKENS = 32_000
"""Largest output that is requested; more would only reserve window, money and rate limit."""


class Provider(msgspec.Struct, frozen=True):
    """A provider that is known without a settings file."""

    name: str
    """Name before the slash in `provider/model`."""
    wire: str
    """Wire it speaks."""
    base_url: str
    """Address."""
    keys: tuple[str, ...] = ()
    """Environment variables for its key, the first that is set wins; none for a local server."""
    url_keys: tuple[str, ...] = ()
    """Environment variables that override the address."""
    model: str = ""
    """Default model; empty: ask the server for its models."""

    @property
    def local(self) -> bool:
        """True if the provider is a server on this machine, which needs no key."""
        return not self.keys


def known_providers() -> tuple[Provider, ...]:
    """All known providers, in the order of search."""
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
    """Budget of `model` at `provider` ('': the company that sells the model); None if both are
    unknown.
    """
    row = _row(model)
    known = known_provider(provider)
    if row is None and not (known is not None and known.local):
        return None
    return look_up(provider or (row[0] if row else ""), model)


def look_up(provider: str, model: str) -> Budget:
    """Budget of `model` at `provider`. An unknown model gets cautious figures and no price.

    The longest name in the table that begins the model's family wins, so dated and tagged spellings
    are found. An open model has another price at each host, so a price counts only at the provider
    that the row names. A local server costs nothing and gets at most `WINDOW_LOCAL_TOKENS`.
    """
    row = _row(model)
    known = known_provider(provider)
    if known is not None and known.local:
        output = min(row[2] if row else OUTPUT_DEFAULT_TOKENS, OUTPUT_DEFAULT_TOKENS)
        return Budget(
            min(row[1] if row else WINDOW_LOCAL_TOKENS, WINDOW_LOCAL_TOKENS),
            output,
            Price(0.0, 0.0),
        )
    if row is None:
        return Budget(WINDOW_DEFAULT_TOKENS, OUTPUT_DEFAULT_TOKENS)
    sold_by, window, output, prices, ttl_s, least, prefill = row
    sells = provider in (sold_by, *ALIASES.get(sold_by, ()))
    price = usual_price(provider, model, prices) if prices and sells else None
    return Budget(window, min(output, OUTPUT_OFFERED_MAX_TOKENS), price, ttl_s, least, prefill)


PATCH_FAMILIES = ("gpt-5", "gpt-4.1", "gpt-oss", "codex", "o3", "o4")
"""Beginnings of the names of models that are trained on `apply_patch`. Source: OpenAI, "GPT-4.1
prompting guide" and "GPT-5 prompting guide"; github.com/openai/gpt-oss, tools/apply_patch.py.
"""


def is_trained_on_patches(model: str) -> bool:
    """Return True if `model` writes changes of files best as patches."""
    return family(model).startswith(PATCH_FAMILIES)


def usual_price(provider: str, model: str, prices: Sequence[float]) -> Price:
    """Make a price of (input, output, cache read, cache write); assume negative or missing cache
    prices.

    The assumed price is the median share of the input price in the table: of the seller of the
    model, else of the provider, else of all rows. Where only the read price of a row is known, a
    write costs as much as input.
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
    """Prices of the rows with a cache read price: of one seller (by any of its names), or of
    all.
    """
    names = {
        other: first
        for first, others in ALIASES.items()
        for other in others
        if other != "openrouter"
    }
    wanted = names.get(seller, seller) if seller is not None else None
    return [
        row[3] for row in MODELS.values() if len(row[3]) > CACHE_READ and wanted in (None, row[0])
    ]


def _median(shares: list[float]) -> float:
    return round(sorted(shares)[len(shares) // 2], 4)


def _row(model: str) -> tuple[str, int, int, tuple[float, ...], float, int, bool] | None:
    name = family(model)
    for candidate in (name, model.lower().rsplit("/", 1)[-1]):
        known = [
            known for known in MODELS if candidate == known or candidate.startswith(known + "-")
        ]
        if known:
            return MODELS[max(known, key=len)]
    return None


# --- Cost of a request ----------------------------------------------------------------------------


COUNT_FACTOR_MAX = 10
"""Factor by which a provider's count may differ from the estimate, either way …"""
COUNT_SLACK_TOKENS = 1_000
"""… plus this difference, before the estimate replaces the count."""


WEB_SEARCH_USD = {"anthropic": 0.01, "openai-responses": 0.01, "gemini": 0.014}
"""Wire -> list price of one search of the web in US dollars."""


def cost_usd(price: Price | None, usage: Usage, wire: str = "") -> float:
    """US dollars for `usage` on `wire`; 0 if the price is unknown."""
    if price is None:
        return 0.0
    total = (
        usage.input_tokens * price.input
        + usage.cache_read_tokens * price.read_usd
        + usage.cache_write_tokens * price.write_usd
        + usage.output_tokens * price.output
    )
    return total / 1e6 + usage.web_searches * WEB_SEARCH_USD.get(wire, 0.0)


def settled_usage(
    told: Usage, guess: Usage, window_tokens: int, output_max_tokens: int
) -> tuple[Usage, tuple[str, ...]]:
    """Choose the usage to charge, and name the sides (`input`, `output`) that are taken from
    `guess`.

    A side of `told` is used if its counts are non-negative integers with a plausible sum: not zero
    where `guess` is not, not far below `guess`, and not far above `guess`, the window and the
    output limit.
    """
    given = (told.input_tokens, told.cache_read_tokens, told.cache_write_tokens)
    has_input = all(map(is_count, given)) and _is_plausible(
        sum(given), guess.context_tokens, window_tokens
    )
    made = (told.output_tokens, told.reasoning_tokens)
    has_output = all(map(is_count, made)) and _is_plausible(
        told.output_tokens, guess.output_tokens, output_max_tokens
    )
    settled = Usage(
        *(
            given
            if has_input
            else (guess.input_tokens, guess.cache_read_tokens, guess.cache_write_tokens)
        ),
        *(made if has_output else (guess.output_tokens, guess.reasoning_tokens)),
        told.web_searches,
    )
    sides = (("input", has_input), ("output", has_output))
    return settled, tuple(side for side, holds in sides if not holds)


def _is_plausible(count: int, guess: int, most: int) -> bool:
    if guess <= 0:
        return count <= COUNT_FACTOR_MAX * most + COUNT_SLACK_TOKENS
    least = (guess - COUNT_SLACK_TOKENS) / COUNT_FACTOR_MAX
    return 0 < count <= COUNT_FACTOR_MAX * max(guess, most) + COUNT_SLACK_TOKENS and count >= least
