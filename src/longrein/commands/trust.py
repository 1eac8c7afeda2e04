"""`longrein trust`: use what the current folder brings, or stop using it."""

from collections.abc import Sequence

from longrein import config
from longrein.frontends.stdio import say
from longrein.run_context import RunContext


def trust(place: RunContext, _words: Sequence[str], *, undo: bool = False) -> int:
    """Trust the current folder, so that its own settings file is read; with `undo` stop trusting it."""
    if undo:
        config.distrust(place.state_dir, place.cwd)
    else:
        config.trust(place.state_dir, place.cwd, place.home)
    say(f"{place.cwd} is {'no longer ' if undo else ''}trusted")
    return 0
