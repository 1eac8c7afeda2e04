"""`longrein import`: the settings of another agent by its name, or sessions from files
(`import_session`).
"""

import os
from collections.abc import Sequence

from longrein.app.run_context import RunContext
from longrein.commands.import_session import import_session
from longrein.config import shorten_home
from longrein.config.settings_import import AGENTS, apply_changes, find_settings, planned_changes
from longrein.frontends.secret_input import is_confirmed
from longrein.frontends.stdio import say, show
from longrein_context.events import UsageError

QUESTION = "Write this to your own settings? [y/n] "


def import_named(run_context: RunContext, words: Sequence[str], *, yes: bool = False) -> int:
    """Import the settings of an agent, or each file as a session. Return the exit code."""
    if words and words[0] not in AGENTS and words[0].isalnum() and not os.path.exists(words[0]):
        raise UsageError(
            f"there is no file {words[0]}; name a file, or one of the agents {', '.join(AGENTS)}"
        )
    return (
        import_session(run_context, words)
        if words and words[0] not in AGENTS
        else import_settings(run_context, words, yes=yes)
    )


def import_settings(run_context: RunContext, words: Sequence[str], *, yes: bool = False) -> int:
    """Show what would be taken over from an agent's settings, and write it after a yes. Return the
    exit code.

    Without a terminal nothing is written unless `yes` is given.
    """
    if not words or words[0] not in AGENTS:
        raise UsageError(f"name the agent whose settings to import: {', '.join(AGENTS)}")
    found = find_settings(words[0], run_context.home, run_context.environ)
    changes = planned_changes(found, run_context.home, run_context.environ)
    lines = [f"read: {', '.join(found.files) or f'nothing: no settings of {words[0]} are here'}"]
    for change in changes:
        lines += [
            f"to {shorten_home(change.path, run_context.home)}:",
            *(f"  {line}" for line in change.lines),
        ]
    lines += [
        "read where it stands, nothing to import:",
        *(f"  {line}" for line in found.read_anyway),
    ] * bool(found.read_anyway)
    lines += ["not taken over:", *(f"  {line}" for line in found.left)] * bool(found.left)
    show("".join(f"{line}\n" for line in lines))
    if not changes:
        say("nothing to write")
        return 0
    if not (yes or is_confirmed(QUESTION)):
        say("nothing was written; --yes writes it without a question")
        return 0
    apply_changes(changes, run_context.home)
    say(f"written: {', '.join(shorten_home(change.path, run_context.home) for change in changes)}")
    return 0
