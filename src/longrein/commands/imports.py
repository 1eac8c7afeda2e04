"""`longrein import`: the settings of another agent by its name, or sessions from files."""

import os
from collections.abc import Sequence

from longrein.commands.import_session import import_session
from longrein.commands.import_settings import import_settings
from longrein.config.settings_import import AGENTS
from longrein.events import UsageError
from longrein.run_context import RunContext


def import_named(place: RunContext, words: Sequence[str], *, yes: bool = False) -> int:
    """Import the settings of an agent, or each file as a session. Return the exit code."""
    if words[0] not in AGENTS and words[0].isalnum() and not os.path.exists(words[0]):
        raise UsageError(f"there is no file {words[0]}; name a file, or one of the agents {', '.join(AGENTS)}")
    return import_settings(place, words, yes=yes) if words[0] in AGENTS else import_session(place, words)
