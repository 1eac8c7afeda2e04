"""`longrein login` and `logout`: keep a provider's key once, in the system's keyring or in a
0600 file.
"""

from collections.abc import Sequence

from longrein.app.run_context import RunContext, chosen_model
from longrein.config import shorten_home, user_file
from longrein.frontends.provider_keys import (
    forget_key,
    ignored_key,
    key_of,
    key_question,
    providers_with_keys,
)
from longrein.frontends.secret_input import read_secret
from longrein.frontends.stdio import say, show
from longrein.steps.human_text import escape_line
from longrein_context.events import LongreinError


def login(run_context: RunContext, words: Sequence[str]) -> int:
    """Ask for the key of a provider, or read it from stdin, and keep it."""
    if not words:
        return _list(run_context)
    question = key_question(run_context, words[0])
    say(question.keep(read_secret(question.text)))
    for line in _advice(run_context, words[0]):
        say(line)
    return 0


def logout(run_context: RunContext, words: Sequence[str]) -> int:
    """Remove the kept key of a provider."""
    say(forget_key(run_context, words[0] if words else ""))
    return 0


def _list(run_context: RunContext) -> int:
    """List the providers and where the key of each is."""
    rows = []
    for provider in providers_with_keys(run_context):
        found = key_of(run_context, provider)
        source = found.source if found.key else "no key"
        note = f"  ({ignored_key(found)})" if ignored_key(found) else ""
        rows.append(f"{escape_line(provider):<12} {source}{note}\n")
    show("".join(rows))
    say(
        "`longrein login PROVIDER` asks for a key and keeps it; `longrein login PROVIDER < FILE` "
        "reads it from there"
    )
    return 0


def _advice(run_context: RunContext, provider: str) -> list[str]:
    """Say which model the next start takes, and from where its key comes."""
    try:
        chosen = chosen_model(run_context)
    except LongreinError as error:
        return [str(error)]
    lines = [f"`longrein` uses {chosen.provider}/{chosen.model}, key from {chosen.key_source}"]
    if chosen.provider != provider:
        file = shorten_home(user_file(run_context.environ, run_context.home), run_context.home)
        lines.append(
            f'another one: longrein --model {provider}/MODEL, or model = "{provider}/MODEL" in '
            f"{file}"
        )
    return lines
