"""Keys of providers that a person keeps and removes: `longrein login` and `/login`."""

from longrein.app.run_context import RunContext
from longrein.config import StoredKeys
from longrein.config.stored_keys import key_variable
from longrein.events import UsageError
from longrein.frontends.secret_input import SecretQuestion
from longrein.models import known_providers


def key_question(place: RunContext, provider: str) -> SecretQuestion:
    """Return the question for the key of a provider. Raises `UsageError` for one without a key."""
    variable = key_variable(provider, place.settings)

    def keep(text: str) -> str:
        where = stored_keys(place).keep(provider, text)
        first = (
            f"; but {variable} is set, too, and comes first"
            if place.environ.get(variable, "").strip()
            else ""
        )
        return (
            f"the key of {provider} is kept in {where}{first}; `longrein logout {provider}` "
            "removes it"
        )

    return SecretQuestion(f"Key of {provider} (it is not shown): ", keep)


def providers_with_keys(place: RunContext) -> list[str]:
    """Return the providers that have a key, those of the settings first."""
    own = [name for name, given in place.settings.providers.items() if given.api_key_env]
    return list(dict.fromkeys((*own, *(known.name for known in known_providers() if known.keys))))


def stored_keys(place: RunContext) -> StoredKeys:
    """Return the keys that are kept. Raises `UsageError` where none can be kept."""
    if place.keys is None:
        raise UsageError("no keys can be kept here")
    if place.keys.problem:
        raise UsageError(place.keys.problem)
    return place.keys


def forget_key(place: RunContext, provider: str) -> str:
    """Remove the key of a provider ('' for the only one); return the line to show. Raises
    `LongreinError`.
    """
    stored = stored_keys(place).stored
    if not provider and len(stored) != 1:
        raise UsageError(
            f"which one? longrein logout PROVIDER; kept are: {', '.join(stored) or 'none'}"
        )
    provider = provider or next(iter(stored))
    return f"the key of {provider} is removed from {stored_keys(place).forget(provider)}"
