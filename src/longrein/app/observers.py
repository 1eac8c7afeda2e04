"""Observers of a session: functions of extensions that are called when a session has opened."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from longrein.agent import OpenSession
from longrein.app.run_context import CLOCK, RunContext
from longrein.config import door_points
from longrein.extension_points import OBSERVERS_DOOR
from longrein.settings_schema import Settings

FINISH_S = 10.0
"""Longest wait for an observer at the end of a session."""

Finish = Callable[[], Awaitable[None]]
"""What an observer does when the session has closed."""


class ObservedSession(msgspec.Struct, frozen=True):
    """Argument of an observer."""

    session: OpenSession
    """The session; `follow(seq)` yields its events as they come."""
    notice: Callable[[str], None]
    """Shows the user a line."""
    environ: Mapping[str, str]
    settings: Settings
    wall_us: Callable[[], int]
    """The time in microseconds."""


def start_observers(
    run_context: RunContext, session: OpenSession, say: Callable[[str], None]
) -> tuple[Finish, ...]:
    """Call the observers of all extensions; return what they do at the end.

    The user is told of one that fails, and the session goes on without it; by `say` once the
    session is closed.
    """

    def notice(line: str) -> None:
        (say if session.closed else session.notice)(line)

    settings = run_context.settings
    observed = ObservedSession(session, notice, run_context.environ, settings, CLOCK.wall_us)
    finishes: list[Finish] = []
    for point in door_points(OBSERVERS_DOOR, settings.plugins):
        try:
            finish = point.load()(observed)
        except Exception as error:
            notice(f"the observer {point.value} of {point.extension} failed: {error!r}")
            continue
        if finish is not None:
            finishes.append(finish)
    return tuple(finishes)


async def finish_observers(finishes: Sequence[Finish], say: Callable[[str], None]) -> None:
    """Let the observers finish, after the session has closed."""
    for finish in finishes:
        try:
            async with asyncio.timeout(FINISH_S):
                await finish()
        except Exception as error:
            say(f"an observer of the session failed: {error!r}")
