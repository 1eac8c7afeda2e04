"""Before each request the session looks around: what became of the files that the model knows?

It appends facts only. What of them the model is told, and how, `context.due` decides from the log.
"""

from longrein.agent.session import Session
from longrein.context import State
from longrein.events import AnyEvent, Reminded


def look_around(session: Session) -> None:
    """Append a `FileChanged` for each known file that changed; once for a request, so that a busy file stops nobody."""
    state, watch, crew = session.state, session.watch, session.crew
    moment = (state.asks, session.rested, state.breaks)
    if session.paused or watch.looked == moment or not _asks_next(state):
        return
    watch.looked, since_us, watch.since_us = moment, watch.since_us, 0
    by = "command" if _commanded(session) else "user"
    redact, keep = crew.redact, crew.options.keep_bytes_max
    found: list[AnyEvent] = list(watch.changes(state, crew.workspace, session.blobs, redact, by=by, keep=keep))
    if found and since_us:
        gap_s = max(0, crew.clock.wall_us() - since_us) // 1_000_000
        found.insert(0, Reminded("resumed", "", "files", str(gap_s)))
    session.append(*found)


def _asks_next(state: State) -> bool:
    """Whether a request comes next, as far as the log alone can tell."""
    waits = bool(state.calls) or state.asked is not None or state.interrupted
    return state.turn_open and state.owes_reply and not waits


def _commanded(session: Session) -> bool:
    """Whether a command of the model ran since the last request; a change is then put down to it."""
    for ran in reversed(session.state.ledger.ran.values()):
        if ran.seq < session.state.asked_seq:
            return False
        tool = session.crew.tools.get(ran.name)
        if tool is not None and tool.access == "command":
            return True
    return False
