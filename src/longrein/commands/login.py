"""`longrein login` and `logout`: keep a provider's key once, in the system's keyring or in a
0600 file.
"""

from collections.abc import Sequence

from longrein.app.run_context import RunContext, chosen_model, key_source
from longrein.config import StoredKeys, shorten_home, user_file
from longrein.config.stored_keys import key_variable
from longrein.events import LongreinError, UsageError
from longrein.frontends.secret_input import KeyCommands, SecretQuestion, read_secret
from longrein.frontends.stdio import say, show
from longrein.models import known_provider, known_providers
from longrein.steps.human_text import escape_line


def login(place: RunContext, words: Sequence[str]) -> int:
    """Ask for the key of a provider, or read it from stdin, and keep it."""
    if not words:
        return _list(place)
    question = key_commands(place).login(words[0])
    say(question.keep(read_secret(question.text)))
    for line in _advice(place, words[0]):
        say(line)
    return 0


def logout(place: RunContext, words: Sequence[str]) -> int:
    """Remove the kept key of a provider."""
    say(key_commands(place).logout(words[0] if words else ""))
    return 0


def key_commands(place: RunContext) -> KeyCommands:
    """Return what `/login` and `/logout` do, the same as the subcommands."""

    def ask(provider: str) -> SecretQuestion:
        key_variable(provider, place.settings)  # raises for one without a key
        return SecretQuestion(
            f"Key of {provider} (it is not shown): ", lambda text: keep(provider, text)
        )

    def keep(provider: str, text: str) -> str:
        where = _keys(place).keep(provider, text)
        variable = key_variable(provider, place.settings)
        first = (
            f"; but {variable} is set, too, and comes first"
            if place.environ.get(variable, "").strip()
            else ""
        )
        return (
            f"the key of {provider} is kept in {where}{first}; `longrein logout {provider}` "
            "removes it"
        )

    return KeyCommands(
        lambda: providers_with_keys(place), ask, lambda provider: _forget(place, provider)
    )


def providers_with_keys(place: RunContext) -> list[str]:
    """Return the providers that have a key, those of the settings first."""
    own = [name for name, given in place.settings.providers.items() if given.api_key_env]
    return list(dict.fromkeys((*own, *(known.name for known in known_providers() if known.keys))))


def _keys(place: RunContext) -> StoredKeys:
    if place.keys is None:
        raise UsageError("no keys can be kept here")
    if place.keys.problem:
        raise UsageError(place.keys.problem)
    return place.keys


def _forget(place: RunContext, provider: str) -> str:
    stored = _keys(place).stored
    if not provider and len(stored) != 1:
        raise UsageError(
            f"which one? longrein logout PROVIDER; kept are: {', '.join(stored) or 'none'}"
        )
    provider = provider or next(iter(stored))
    return f"the key of {provider} is removed from {_keys(place).forget(provider)}"


def _list(place: RunContext) -> int:
    """List the providers and where the key of each is."""
    rows = []
    for provider in providers_with_keys(place):
        variable = key_variable(provider, place.settings)
        known = known_provider(provider)
        names = (variable, *(known.keys if known else ()))
        set_now = next((name for name in names if place.environ.get(name, "").strip()), "")
        kept = _keys(place).source(variable) if variable in _keys(place) else ""
        rows.append(f"{escape_line(provider):<12} {set_now or kept or 'no key'}\n")
    show("".join(rows))
    say(
        "`longrein login PROVIDER` asks for a key and keeps it; `longrein login PROVIDER < FILE` "
        "reads it from there"
    )
    return 0


def _advice(place: RunContext, provider: str) -> list[str]:
    """Say which model the next start takes, and from where its key comes."""
    try:
        chosen = chosen_model(place)
    except LongreinError as error:
        return [str(error)]
    lines = [
        f"`longrein` uses {chosen.provider}/{chosen.model}, key from {key_source(place, chosen)}"
    ]
    if chosen.provider != provider:
        file = shorten_home(user_file(place.environ, place.home), place.home)
        lines.append(
            f'another one: longrein --model {provider}/MODEL, or model = "{provider}/MODEL" in '
            f"{file}"
        )
    return lines
