"""`longrein sessions --watch`: the sessions that are open, those that wait for an answer first."""

from collections.abc import Iterable, Sequence
from contextlib import closing

from longrein.app.run_context import CLOCK, RunContext
from longrein.frontends.reports.session_lists import table
from longrein.frontends.stdio import show
from longrein.steps.human_text import escape_line
from longrein.store import Reader, list_sessions
from longrein_context.events import (
    Entry,
    PermissionAnswered,
    PermissionAsked,
    SessionError,
    TurnEnded,
    UserSpoke,
)
from longrein_context.events.escape import one_line, shortened

LOOK_S = 1.0
"""Pause between two looks."""
KINDS = ("PermissionAsked", "PermissionAnswered", "UserSpoke", "TurnEnded")
STATES = ("asks", "works", "idle")
ASKED_CHARS_MAX = 60


async def watch_open_sessions(run_context: RunContext) -> None:
    """Show the open sessions whenever that has changed, until Ctrl-C."""
    before: Sequence[tuple[str, ...]] | None = None
    while True:
        rows = _rows(run_context.state_dir)
        if rows != before:
            heads = ("session", "state", "folder", "title")
            show(table([heads, *rows, ("",) * 4]) if rows else b"no session is open\n")
            before = rows
        await CLOCK.sleep(LOOK_S)


def _rows(state_dir: str) -> Sequence[tuple[str, ...]]:
    found = []
    for info in list_sessions(state_dir):
        if not info.open:
            continue
        try:
            with closing(Reader(state_dir, info.session)) as reader:
                state, asked = state_of(reader.of_kind(*KINDS))
        except SessionError:
            continue  # it is gone
        words = f"{state}: {asked}" if asked else state
        title = shortened(escape_line(one_line(info.title)), ASKED_CHARS_MAX)
        found.append((STATES.index(state), info.session, words, escape_line(info.cwd), title))
    return [tuple(map(str, row[1:])) for row in sorted(found, key=lambda row: row[0])]


def state_of(newest_first: Iterable[Entry]) -> tuple[str, str]:
    """Return (one of `STATES`, what is asked) of an open session, from the entries of `KINDS`."""
    answered = set()
    for entry in newest_first:
        match entry.event:
            case PermissionAnswered(call=call):
                answered.add(call)
            case PermissionAsked() as asked if asked.call not in answered:
                return "asks", shortened(
                    escape_line(one_line(f"{asked.name} {asked.shown}")), ASKED_CHARS_MAX
                )
            case UserSpoke():
                return "works", ""
            case TurnEnded():
                break
            case _:
                pass
    return "idle", ""
