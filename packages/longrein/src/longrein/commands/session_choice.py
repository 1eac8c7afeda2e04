"""Which session the terminal opens next: the list to choose from, copies, further folders,
one-shot runs.
"""

import os

from longrein.agent import OpenSession, SetTitle
from longrein.app import App, AppSession
from longrein.frontends.terminal import Outcome
from longrein.store import session_info
from longrein_context.events import LongreinError


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
    app: App, left: OpenSession, outcome: Outcome, *, copies: bool = False
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
