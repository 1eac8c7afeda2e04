"""Keys of providers that a person keeps and removes: `longrein login` and `/login`."""

from longrein.app.run_context import RunContext
from longrein.config import StoredKeys
from longrein.config.key_editing import keep_key, key_variable, remove_key
from longrein.config.stored_keys import ProviderKey, provider_key
from longrein.frontends.secret_input import SecretQuestion
from longrein.models import known_providers
from longrein_context.events import UsageError


def key_question(run_context: RunContext, provider: str) -> SecretQuestion:
    """Return the question for the key of a provider. Raises `UsageError` for one without a key."""
    key_variable(provider, run_context.settings.providers)

    def keep(text: str) -> str:
        where = keep_key(stored_keys(run_context), provider, run_context.settings.providers, text)
        found = key_of(run_context, provider)
        removal = f"`longrein logout {provider}` removes it"
        if found.uses_kept:
            return f"the key of {provider} is kept in {where}; {removal}"
        return (
            f"the key of {provider} is kept in {where}; but {found.variable} is set and comes "
            f"first: unset {found.variable}, or `/login {provider} kept` in a session uses the "
            f"kept key there; {removal}"
        )

    return SecretQuestion(f"Key of {provider} (it is not shown): ", keep)


def key_of(run_context: RunContext, provider: str) -> ProviderKey:
    """Return the key that a provider gets, and where it comes from."""
    return provider_key(provider, run_context.settings.providers, run_context.key_environ)


def ignored_key(found: ProviderKey) -> str:
    """Say which other key of a provider is not used; '' without another one."""
    if not found.variable or not found.kept:
        return ""
    if found.uses_kept:
        return f"{found.variable} is set too, and not used until longrein ends"
    return f"{found.variable} is set and comes before the key kept in {found.kept}"


KEPT = "kept"
"""Word of `/login PROVIDER kept`, which prefers the kept key to a variable."""
VARIABLE = "variable"
"""Word of `/login PROVIDER variable`, which takes that back."""


def prefer_key(run_context: RunContext, provider: str, word: str) -> str:
    """Use the kept key or the variable of a provider until longrein ends; return the line to show.
    Raises `UsageError`.
    """
    preferred = stored_keys(run_context).preferred
    if word not in (KEPT, VARIABLE):
        raise UsageError(f"say /login {provider}, /login {provider} {KEPT} or {VARIABLE}")
    if word == KEPT:
        preferred.add(provider)
    else:
        preferred.discard(provider)
    found = key_of(run_context, provider)
    if word == KEPT and not found.uses_kept:
        preferred.discard(provider)
        raise UsageError(f"no key of {provider} is kept; /login {provider} asks for one")
    if word == VARIABLE and not found.variable:
        raise UsageError(f"none of {', '.join(found.names)} is set")
    told = f"{provider} uses the key from {found.source}"
    if not found.uses_kept or not found.variable:
        return told
    return (
        f"{told} until longrein ends; the next start takes {found.variable} again, unless you "
        "unset it"
    )


def providers_with_keys(run_context: RunContext) -> list[str]:
    """Return the providers that have a key, those of the settings first."""
    own = [name for name, given in run_context.settings.providers.items() if given.api_key_env]
    return list(dict.fromkeys((*own, *(known.name for known in known_providers() if known.keys))))


def stored_keys(run_context: RunContext) -> StoredKeys:
    """Return the keys that are kept. Raises `UsageError` where none can be kept."""
    if run_context.keys is None:
        raise UsageError("no keys can be kept here")
    if run_context.keys.problem:
        raise UsageError(run_context.keys.problem)
    return run_context.keys


def forget_key(run_context: RunContext, provider: str) -> str:
    """Remove the key of a provider ('' for the only one); return the line to show. Raises
    `LongreinError`.
    """
    stored = stored_keys(run_context).stored
    if not provider and len(stored) != 1:
        raise UsageError(
            f"which one? longrein logout PROVIDER; kept are: {', '.join(stored) or 'none'}"
        )
    provider = provider or next(iter(stored))
    return f"the key of {provider} is removed from {remove_key(stored_keys(run_context), provider)}"
