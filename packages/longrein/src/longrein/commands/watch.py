"""`longrein watch`: follow a session that another process has open, without its lock."""

import asyncio
from collections.abc import Sequence
from contextlib import closing

from longrein.app.run_context import RunContext
from longrein.frontends.stdio import say
from longrein.frontends.terminal.event_lines import line
from longrein.frontends.terminal.watch_session import WATCHING
from longrein.frontends.terminal.watch_session import watch as follow
from longrein.steps.human_text import escape_line
from longrein.store import Reader, find_session, is_open, list_sessions, session_info
from longrein_context.events import SessionUnknown


def watch(run_context: RunContext, words: Sequence[str]) -> int:
    """Run `longrein watch [SESSION]`: the session, else the newest of this folder that is open."""
    session = find_session(run_context.state_dir, words[0]) if words else _open_here(run_context)
    asyncio.run(watch_session(run_context, session))
    return 0


def _open_here(run_context: RunContext) -> str:
    found = next(
        (
            one
            for one in list_sessions(run_context.state_dir)
            if one.open and one.cwd == run_context.cwd
        ),
        None,
    )
    if found is None:
        raise SessionUnknown(
            f"no session of {run_context.cwd} is open; `longrein sessions` lists all, then "
            "longrein watch ID"
        )
    return found.session


async def watch_session(run_context: RunContext, session: str) -> None:
    """Show a session until it is closed or the user presses Ctrl-C, and say how to go on with
    it.
    """
    info = session_info(run_context.state_dir, session)
    title = f" {escape_line(info.title)}" if info is not None and info.title else ""
    head = line(("bold", f"session {session[:8]}"), f"{title}  ", ("dim", f"{WATCHING}"))
    with closing(Reader(run_context.state_dir, session)) as reader:
        ended = await follow(
            reader,
            head,
            lambda: is_open(run_context.state_dir, session),
            colour=not run_context.environ.get("NO_COLOR"),
        )
    if ended:
        say(f"{ended}; `longrein -r {session[:8]}` goes on with session {session[:8]}")
