"""Choice of the model: the named one, else the first whose key or local server is found; and
subagents' models.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite

import msgspec

from longrein.config.settings_file import shorten_home
from longrein.config.stored_keys import ProviderKey, provider_key
from longrein.config.user_environment import home_folder, user_file
from longrein.models import (
    ModelOptions,
    ServedModel,
    known_models,
    known_provider,
    known_providers,
    look_up,
    usual_price,
)
from longrein.models import Provider as Known
from longrein.models.failures import host_of, is_loopback
from longrein.settings_schema import ModelSettings, Provider, Settings
from longrein_context import Budget, Price
from longrein_context.events import LongreinError, ModelUnknown, SettingsError
from longrein_context.events.escape import nearest

Probe = Callable[[str, str, str], ServedModel | None]
"""Function from a base URL, the name that a user wrote ('' for the first model) and a key to the
model that the server has; None without one. Must return quickly.
"""

PRIVATE = re.compile(
    r"(?:10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01])|169\.254)\.\d+\.\d+"
    r"|f[cd][0-9a-f]{2}:[0-9a-f:]*|fe80:[0-9a-f:]*"
)
"""Private and link-local addresses: RFC 1918, 3927, 4193 and 4291."""
DEMO = "`longrein demo` shows a real job without a key."
"""Last line where no model can be used."""
_PRICES = ("price_input", "price_output", "price_cache_read", "price_cache_write")


class NoModelFound(ModelUnknown):
    """No model is named, and neither a key nor a local server was found."""


def choose_model(
    settings: Settings,
    environ: Mapping[str, str],
    probe: Probe = lambda *_: None,
    *,
    name: str = "",
) -> ModelOptions:
    """Return the options for `name` (`provider/model`), else for the settings' model, else for the
    first found.

    Looks for keys in `environ` first, in the catalog's order, then for local servers on their usual
    ports. A server of the user's own is asked for the model and its window. Raises `ModelUnknown`
    (the keys and servers that were looked for, nearest names) and `SettingsError`.
    """
    name = name or settings.model
    if name:
        return _named(name, settings, environ, probe)
    for known in known_providers():
        if known.model and provider_key(known.name, settings.providers, environ).key:
            return _options(known.name, known.model, settings, environ, probe)
    for known in known_providers():
        if known.local:
            served = probe(provider_address(known.name, settings, environ), "", "")
            if served is not None:
                return _options(known.name, served.name, settings, environ, probe)
    raise NoModelFound(_nothing_found())


def _nothing_found() -> str:
    servers = [known.name for known in known_providers() if known.local]
    lines = (
        "No model yet: `longrein login PROVIDER` keeps a key,",
        f"or start {', '.join(servers[:-1])} or {servers[-1]} on this machine.",
        DEMO,
    )
    return "\n".join(lines)


def _named(name: str, settings: Settings, environ: Mapping[str, str], probe: Probe) -> ModelOptions:
    provider, _, model = name.partition("/")
    if not provider or not model:
        full = [
            f"{k.name}/{m}"
            for k in known_providers()
            for m in known_models()
            if look_up(k.name, m).price
        ]
        close = next((f for f in full if f.endswith("/" + name.replace(".", "-"))), "") or nearest(
            name, full
        )
        raise ModelUnknown(
            f"{name!r} is not PROVIDER/MODEL" + (f": did you mean {close}?" if close else ".")
        )
    if provider not in settings.providers and known_provider(provider) is None:
        raise ModelUnknown(_unknown_provider(provider, name, settings, environ))
    return _options(provider, model, settings, environ, probe)


def _unknown_provider(
    provider: str, name: str, settings: Settings, environ: Mapping[str, str]
) -> str:
    names = [*settings.providers, *(known.name for known in known_providers())]
    close, home = nearest(provider, names), home_folder(environ)
    file = shorten_home(user_file(environ, home), home)
    origin = (
        f" ({settings.origin['model']})"
        if name == settings.model and "model" in settings.origin
        else ""
    )
    return (
        f"Unknown provider {provider!r} in {name!r}{origin}"
        + (f": did you mean {close}?" if close else ".")
        + f" Known are {', '.join(names)}; another needs [providers.{provider}] in {file}."
    )


def _options(
    provider: str, model: str, settings: Settings, environ: Mapping[str, str], probe: Probe
) -> ModelOptions:
    known, given = known_provider(provider), settings.providers.get(provider, Provider())
    url = provider_address(provider, settings, environ)
    wire = given.wire or _wire(known, url)
    if not wire:
        raise SettingsError(_lacking(settings, provider, "wire"))
    if not url:
        raise SettingsError(_lacking(settings, provider, "base_url"))
    if wire != "scripted" and not url.startswith(("http://", "https://")):
        where = settings.origin.get(f"providers.{provider}.base_url", "environment")
        raise SettingsError(
            f"{where}: the base_url of {provider} must start with http:// or https://, not {url!r}"
        )
    figures = settings.models.get(f"{provider}/{model}")
    key = _needed_key(provider_key(provider, settings.providers, environ), given, url)
    is_own = _is_private(url)
    served = None
    if wire == "openai-chat" and (known.local if known is not None else is_own):
        served = probe(url, model, key.key)
    return ModelOptions(
        provider=provider,
        model=model,
        served_as=_served_name(model, known, served),
        wire=wire,
        base_url=_home(url, environ) if wire == "scripted" else url,
        api_key=key.key,
        key_source=key.source,
        key_advice=key.advice,
        budget=_budget(provider, model, figures, settings, served, is_own=is_own),
        text_tools=given.text_tools,
        headers=given.headers,
        effort=figures.effort if figures else "",
        proxy=_proxy(url, environ),
        idle_timeout_s=given.idle_timeout_s,
        content_timeout_s=given.content_timeout_s,
    )


def _served_name(model: str, known: Known | None, served: ServedModel | None) -> str:
    """Return the server's name of `model` if it has another; '' if not.

    At a provider of the settings, which may be a gateway, the name must have to do with `model`.
    """
    if served is None or served.name == model:
        return ""
    return served.name if known is not None or model.lower() in served.name.lower() else ""


def _lacking(settings: Settings, provider: str, key: str) -> str:
    places = [v for k, v in settings.origin.items() if k.startswith(f"providers.{provider}.")]
    where = f"{places[0]}: " if places else ""
    return f"{where}provider {provider} has no {key}: add it under [providers.{provider}]"


def _wire(known: Known | None, url: str) -> str:
    """Return the provider's wire; at another address `openai-chat`, which compatible servers
    speak.
    """
    if known is None:
        return ""
    return (
        "openai-chat"
        if known.wire == "openai-responses" and not url.startswith(known.base_url)
        else known.wire
    )


def provider_address(provider: str, settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the base URL without a final slash: from settings, variable or catalog; '' without
    one.
    """
    given, known = settings.providers.get(provider), known_provider(provider)
    if given and given.base_url:
        return given.base_url.rstrip("/")
    if known is None:
        return ""
    url = next((environ[v] for v in known.url_keys if environ.get(v)), "")
    if not url:
        return known.base_url
    if "://" not in url:  # OLLAMA_HOST is a host and a port
        url = f"http://{url}".replace("//0.0.0.0", "//127.0.0.1")
    return url.rstrip("/") + ("/v1" if known.local and not url.rstrip("/").endswith("/v1") else "")


def _needed_key(found: ProviderKey, given: Provider, url: str) -> ProviderKey:
    """Return the key. Raises `ModelUnknown` without one where the address needs one."""
    optional = not found.names or (not given.api_key_env and is_loopback(url))
    if not found.key and not optional:
        raise ModelUnknown(
            f"No key for {found.provider}: `longrein login {found.provider}` keeps one,\n"
            f"or set {found.names[0]}, or use another with --model PROVIDER/MODEL.\n{DEMO}"
        )
    return found


def _budget(
    provider: str,
    model: str,
    figures: ModelSettings | None,
    settings: Settings,
    served: ServedModel | None,
    *,
    is_own: bool,
) -> Budget | None:
    """Return the budget that the settings and the server name; None for that of the catalog.
    `is_own`: the model runs at an address of the user's own.
    """
    table = look_up(provider, model)
    changes: dict[str, object] = {}
    if served is not None and served.window_tokens:
        changes["window_tokens"] = served.window_tokens
        changes["max_output_tokens"] = min(table.max_output_tokens, served.window_tokens // 4)
    for name, field in (
        ("window", "window_tokens"),
        ("max_output", "max_output_tokens"),
        ("cache_ttl_s", "cache_ttl_s"),
    ):
        value = getattr(figures, name, -1)
        if value >= 0:
            changes[field] = value
    if "window_tokens" in changes:
        changes["is_window_assumed"] = False
    prices = [getattr(figures, name, -1.0) for name in _PRICES]
    if any(price >= 0 for price in prices):
        changes["price"] = _price(f"{provider}/{model}", prices, table.price, settings)
    elif is_own and table.price is None:
        changes["is_local"] = True
    return msgspec.structs.replace(table, **changes) if changes else None


def _price(name: str, given: Sequence[float], table: Price | None, settings: Settings) -> Price:
    known = (
        (table.input, table.output, table.cache_read, table.cache_write)
        if table
        else (-1.0, -1.0, -1.0, -1.0)
    )
    prices = [new if new >= 0 else old for new, old in zip(given, known, strict=True)]
    if prices[0] < 0 or prices[1] < 0:
        where = next(
            settings.origin[k] for k in settings.origin if k.startswith(f'models."{name}".price')
        )
        raise SettingsError(f'{where}: models."{name}" needs both price_input and price_output')
    if not all(map(isfinite, prices)):
        raise SettingsError(
            f'models."{name}": a price is a number of dollars for a million tokens, not infinite'
        )
    return usual_price(name.partition("/")[0], name.partition("/")[2], prices)


def _home(path: str, environ: Mapping[str, str]) -> str:
    path = path.removeprefix("file://")
    return environ.get("HOME", "~") + path[1:] if path.startswith("~/") else path


def _is_private(url: str) -> bool:
    """Return True for a loopback, private or link-local address."""
    return is_loopback(url) or PRIVATE.fullmatch(host_of(url)) is not None


def _proxy(url: str, environ: Mapping[str, str]) -> str:
    """Return the proxy for an `https` address by HTTPS_PROXY; '' where NO_PROXY names its host."""
    proxy = (
        environ.get("HTTPS_PROXY") or environ.get("https_proxy") or environ.get("ALL_PROXY") or ""
    )
    if not proxy or not url.startswith("https://") or is_loopback(url):
        return ""
    host = host_of(url)
    for rule in (environ.get("NO_PROXY") or environ.get("no_proxy") or "").split(","):
        name = rule.strip().lower().lstrip("*").lstrip(".").partition(":")[0]
        if rule.strip() == "*" or (name and (host == name or host.endswith("." + name))):
            return ""
    return proxy


# --- Models of subagents --------------------------------------------------------------------------
# The environment decides for all subagents, else the subagent's own choice, else its parent's model. An alias (`haiku`)  # noqa: E501
# or a bare id is searched among the models in the settings, then among those of the parent's provider; the newest wins.  # noqa: E501
# An unavailable model is no error: the subagent runs on its parent's model, with a note.


VARIABLES = ("LONGREIN_SUBAGENT_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
"""The first variable that is set applies to every subagent."""


def subagent_model(
    asked: str, parent: str, settings: Settings, environ: Mapping[str, str]
) -> tuple[str, str]:
    """Return (`provider/model`, note) for a subagent that asks for `asked`; '' for the model of its
    parent.

    `parent`: the parent's model. The note is '' when the subagent gets what it asks for.
    """
    variable = next((name for name in VARIABLES if environ.get(name, "").strip()), "")
    wanted = environ[variable].strip() if variable else asked.strip()
    over = (
        f"{asked} is not used: {variable} says {wanted}"
        if variable and asked.strip() not in ("", wanted)
        else ""
    )
    if wanted in ("", "inherit"):
        return "", over
    name = wanted if "/" in wanted else resolved(wanted, parent, settings)
    why = _problem(name, settings, environ) if name else f"no configured model is called {wanted!r}"
    return ("", f"{why}; it runs on the model of its parent") if why else (name, over)


def full_model_name(name: str, settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the `provider/model` that `name` stands for; `name` itself where it stands for none.

    `sonnet` is the newest model of that name, `claude-x-1` one of the provider with other `claude`
    models, `default` that of the settings. The provider is that of the settings' model, else the
    first whose key is there.
    """
    if name in ("default", "inherit"):
        return ""
    if not name or "/" in name:
        return name
    keyed = (
        k.name
        for k in known_providers()
        if k.model and provider_key(k.name, settings.providers, environ).key
    )
    provider = next(
        (one for one in (settings.model.partition("/")[0], *keyed) if known_provider(one)), ""
    )
    found = resolved(name, f"{provider}/", settings)
    family, dash, _ = name.partition("-")
    relative = resolved(family, f"{provider}/", settings) if dash and not found else ""
    return f"{relative.partition('/')[0]}/{name}" if relative else found or name


def resolved(alias: str, parent: str, settings: Settings) -> str:
    """Return the `provider/model` that an alias or a bare id stands for; '' for none."""
    provider = parent.partition("/")[0]
    named = (settings.model, settings.fallback_model, settings.compact_model)
    configured = list(dict.fromkeys((*filter(None, named), *settings.models)))
    known = known_provider(provider)
    sold = known_models() if known is not None and not known.local else ()
    offered = [
        f"{provider}/{model}" for model in sold if look_up(provider, model).price is not None
    ]
    for names in (configured, offered):
        fitting = [name for name in names if _fits(alias, name)]
        if fitting:
            return max(fitting, key=lambda name: (name.startswith(f"{provider}/"), _version(name)))
    return ""


def _fits(alias: str, name: str) -> bool:
    """Return whether `alias` is the model's id or one of its words."""
    model = name.partition("/")[2].lower()
    return alias.lower() == model or alias.lower() in re.split(r"[-_./:@]", model)


def _version(name: str) -> tuple[int, ...]:
    """Return the version numbers in a name. Dates are skipped."""
    return tuple(
        int(digits) for digits in re.findall(r"\d+", name.partition("/")[2]) if len(digits) < 6
    )


def _problem(name: str, settings: Settings, environ: Mapping[str, str]) -> str:
    """Return why the model cannot be used; '' when it can."""
    try:
        choose_model(settings, environ, name=name)
    except LongreinError as error:
        return str(error).partition("\n")[0].rstrip(".,")
    return ""
