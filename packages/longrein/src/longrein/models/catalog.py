"""Known providers and models: windows, prices, addresses, key variables; and the cost of a
request.
"""

from collections.abc import Sequence

import msgspec

from longrein.models.catalog_data import ALIASES, MODELS, PROVIDERS
from longrein.models.model_port import Clock, Model, ModelOptions, ReadBlob
from longrein.models.wire_base import Wire, WireTarget, family
from longrein_context import Budget, Price
from longrein_context.events import SettingsError, Usage, is_count

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
        window = min(row[1] if row else WINDOW_LOCAL_TOKENS, WINDOW_LOCAL_TOKENS)
        return Budget(window, output, Price(0.0, 0.0), is_window_assumed=True)
    if row is None:
        return Budget(WINDOW_DEFAULT_TOKENS, OUTPUT_DEFAULT_TOKENS, is_window_assumed=True)
    sold_by, window, output, prices, ttl_s, least, prefill = row
    sells = provider in (sold_by, *ALIASES.get(sold_by, ()))
    price = usual_price(provider, model, prices) if prices and sells else None
    return Budget(window, min(output, OUTPUT_OFFERED_MAX_TOKENS), price, ttl_s, least, prefill)


PATCH_FAMILIES = ("gpt-6", "gpt-5", "gpt-4.1", "gpt-oss", "codex", "o3", "o4")
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
SEARCHES_MAX = 1_000
"""Largest number of searches of the web in one reply that is believed."""


HOUR_WRITE_FACTOR = 2.0
"""Price of a token written to the cache for an hour, in units of the input price. Source:
platform.claude.com/docs/en/build-with-claude/prompt-caching, November 2026.
"""
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
        + usage.cache_write_hour_tokens * (HOUR_WRITE_FACTOR * price.input - price.write_usd)
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
        told.web_searches if told.web_searches in range(SEARCHES_MAX + 1) else 0,
        told.cache_write_hour_tokens
        if has_input and told.cache_write_hour_tokens in range(told.cache_write_tokens + 1)
        else 0,
    )
    sides = (("input", has_input), ("output", has_output))
    return settled, tuple(side for side, holds in sides if not holds)


def _is_plausible(count: int, guess: int, most: int) -> bool:
    if guess <= 0:
        return count <= COUNT_FACTOR_MAX * most + COUNT_SLACK_TOKENS
    least = (guess - COUNT_SLACK_TOKENS) / COUNT_FACTOR_MAX
    return 0 < count <= COUNT_FACTOR_MAX * max(guess, most) + COUNT_SLACK_TOKENS and count >= least


# --- Opening --------------------------------------------------------------------------------------
#
# Open a model from its options. The only module that knows all wires.

CLEARS: dict[str, tuple[str, ...]] = {
    "anthropic": ("exchange", "result", "call", "text", "old thinking"),
    "openai-chat": ("exchange", "result", "call", "text", "thinking"),
    "openai-responses": ("exchange", "result", "call", "text", "old thinking"),
    "gemini": ("exchange", "result", "text", "old call", "old thinking"),
}
"""Kinds of items that may be cleared on a wire. The Messages API and the Responses API want the
thinking of the running turn with its calls; a Gemini signature belongs to one call, and only
those of the running turn are required.
"""


def open_model(options: ModelOptions, read_blob: ReadBlob, clock: Clock) -> Model:
    """Open the model that `options` describe. Opens no socket; reads a file only for a scripted
    model.

    Raises `SettingsError` for an unknown wire and for a script that cannot be read.
    """
    if options.wire == "scripted":
        from longrein.models.scripted import ScriptFileModel, load_script

        return ScriptFileModel(load_script(options.base_url, _read_file), options, clock)
    if options.wire not in CLEARS:
        known = ", ".join((*CLEARS, "scripted"))
        raise SettingsError(
            f"provider {options.provider!r} has the unknown wire {options.wire!r}; wires are "
            f"{known}"
        )
    from longrein.models.http_model import HttpModel

    budget = options.budget or look_up(options.provider, options.model)
    budget = msgspec.structs.replace(budget, clears=CLEARS[options.wire])
    target = WireTarget(
        options.wire,
        options.served_as or options.model,
        read_blob,
        host_of(options.base_url),
        options.effort,
        has_pauses=options.has_pauses,
    )
    if not options.text_tools:
        return HttpModel(make_wire(target), options, budget, clock)
    from longrein.models.text_tool_calls import STOPS, TextToolModel

    return TextToolModel(
        HttpModel(make_wire(msgspec.structs.replace(target, stops=STOPS)), options, budget, clock)
    )


def make_wire(target: WireTarget) -> Wire:
    """Make the wire that `target` names. A wire is imported when it is used, because imports are
    slow.
    """
    match target.wire:
        case "anthropic":
            from longrein.models.anthropic import Anthropic

            return Anthropic(target)
        case "openai-chat":
            from longrein.models.openai_chat import OpenAIChat

            return OpenAIChat(target)
        case "openai-responses":
            from longrein.models.openai_responses import OpenAIResponses

            return OpenAIResponses(target)
        case _:
            from longrein.models.gemini import Gemini

            return Gemini(target)


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def host_of(url: str) -> str:
    """Return the host in `url`, without port and credentials."""
    rest = url.split("://", 1)[-1].split("/", 1)[0].rsplit("@", 1)[-1]
    return rest.rsplit(":", 1)[0].lower() if not rest.startswith("[") else rest.split("]")[0] + "]"
