"""Which session the terminal opens next: the list to choose from, copies, further folders,
one-shot runs.
"""

import asyncio
import os
from contextlib import closing

from longrein.agent import SessionPort, SetTitle
from longrein.app import App, AppSession
from longrein.app.run_context import CLOCK, RunContext
from longrein.events import LongreinError, Opened, SessionError
from longrein.frontends.terminal import Outcome, Row
from longrein.steps.human_text import age, counted, joined
from longrein.store import Reader, SessionInfo, list_sessions, session_info
from longrein.store.daemon_threads import run_in_thread

ROWS_MAX = 100
"""Sessions shown by `/resume`."""
ONE_SHOT = "one-shot runs (-p)"


async def session_rows(place: RunContext) -> list[Row]:
    """Return the sessions of this folder that have a title, newest first; one-shot runs come
    last.
    """

    def read() -> list[Row]:
        here = [
            info for info in list_sessions(place.state_dir) if info.cwd == place.cwd and info.title
        ]
        now = CLOCK.wall_us()
        infos = sorted(here, key=lambda info: info.one_shot)[:ROWS_MAX]
        return [
            Row(
                info.session, info.title, _note(place, info, now), ONE_SHOT if info.one_shot else ""
            )
            for info in infos
        ]

    return await asyncio.wrap_future(run_in_thread(read, "sessions"))


def _note(place: RunContext, info: SessionInfo, now: int) -> str:
    """Return age, branch, size and, where it is so, that another process has it open."""
    where = "open elsewhere" if info.open else ""
    entries = "" if info.damaged else counted(info.entries, "entry")
    return joined(age(now - info.updated_at), _branch(place, info), entries, where, by=" · ")


def _branch(place: RunContext, info: SessionInfo) -> str:
    try:
        with closing(Reader(place.state_dir, info.session)) as reader:
            opened = reader.opening_entry()
    except SessionError:
        return ""
    return opened.event.branch if opened is not None and isinstance(opened.event, Opened) else ""


def adopt_one_shot(opened: AppSession) -> None:
    """Give a one-shot run a title when it is opened in the terminal: from now on it is a session
    like any other.
    """
    session = opened.session
    try:
        info = (
            session_info(opened.app.context.state_dir, session.id) if session.state.words else None
        )
    except LongreinError:
        return
    if info is not None and info.one_shot and info.title:
        session.tell(SetTitle(info.title))


async def next_session(
    app: App, left: SessionPort, outcome: Outcome, *, copies: bool = False
) -> tuple[str, bool]:
    """Return (session to open, whether it is new) after `outcome`. A session to watch is shown
    first.

    `copies`: a chosen session is copied (`-r --fork-session`). Raises `LongreinError`.
    """
    if outcome.kind == "watch":
        from longrein.commands.watch import watch_session

        await watch_session(app.context, app.find(outcome.session))
        kept = bool(left.state.words or left.pending)
        return (left.id, False) if kept and os.path.isdir(app.context.state_dir) else ("", True)
    if outcome.kind == "copy" or (copies and outcome.kind == "switch"):
        return await app.fork(app.find(outcome.session)), False
    return outcome.session, outcome.kind == "new"
