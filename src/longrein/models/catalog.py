"""What is known of providers and models without asking them: windows, prices, addresses, names of keys."""

import msgspec

from longrein.context import Budget, Price
from longrein.models.catalog_data import ALIASES, MODELS, PROVIDERS
from longrein.models.naming import family

WINDOW_DEFAULT_TOKENS = 128_000
"""An unknown model of a provider: the smallest window in wide use for work with tools."""
WINDOW_LOCAL_TOKENS = 32_768
"""An unknown model of a local server: what such servers are usually started with, or more."""
OUTPUT_DEFAULT_TOKENS = 8_192
"""An unknown model's output limit: nearly every one takes it."""
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
    price = Price(*prices) if prices and provider in (sold_by, *ALIASES.get(sold_by, ())) else None
    return Budget(window, min(output, OUTPUT_OFFERED_MAX_TOKENS), price, ttl_s, least, prefill)


def _row(model: str) -> tuple[str, int, int, tuple[float, ...], float, int, bool] | None:
    name = family(model)
    for candidate in (name, model.lower().rsplit("/", 1)[-1]):
        known = [known for known in MODELS if candidate == known or candidate.startswith(known + "-")]
        if known:
            return MODELS[max(known, key=len)]
    return None
