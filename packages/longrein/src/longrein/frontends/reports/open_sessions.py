"""The sessions that are open on this machine, those that wait for an answer first."""

from contextlib import closing, suppress

import msgspec

from longrein.agent import StoredStates
from longrein.store import Reader, SessionInfo, list_sessions
from longrein_context import State, advance, state_at
from longrein_context.events import SessionError
from longrein_context.events.escape import one_line, shortened

STATES = ("asks", "works", "idle")
WORDS_MAX = 60
"""Longest title and question, in characters."""


class OpenSessionRow(msgspec.Struct, frozen=True):
    """A session that a process has open. Its texts are as they were written, not escaped."""

    session: str
    cwd: str
    title: str
    """The beginning of its title; '' before the first prompt."""
    state: str
    """One of `STATES`."""
    question: str
    """Tool and argument of the call that waits for an answer."""
    since_us: int
    """Start of the turn, or while nothing happens the last entry; microseconds UTC."""
    model: str
    """`provider/model` of its requests."""
    context_tokens: int
    """Input of the last request."""
    usd: float


class OpenSessionList:
    """Follows the open sessions of a state folder. Each look reads only new entries."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self.states: dict[str, State] = {}
        """State of each session that was open at a look."""

    def look(self) -> list[OpenSessionRow]:
        """Return the sessions that are open now."""
        found = []
        for info in list_sessions(self._state_dir):
            if info.open:
                with suppress(SessionError):  # it is gone
                    found.append(row_of(info, self._newest(info.session)))
        return sorted(found, key=lambda row: STATES.index(row.state))

    def _newest(self, session: str) -> State:
        """Return the present state of a session. Raises `SessionError`."""
        with closing(Reader(self._state_dir, session)) as reader:
            log = StoredStates(
                session, lambda first, last: reader.entries(first - 1, last), reader.snapshot
            )
            state = self.states.pop(session, None) or state_at(log, reader.tail()[0])
            for entry in reader.entries(state.seq):
                state = advance(state, entry, log)
        self.states[session] = state
        return state


def row_of(info: SessionInfo, state: State) -> OpenSessionRow:
    """Return the row of a session in a state."""
    asked = [call.asked for call in state.calls.values() if call.asked and not call.answer]
    word, question = "works" if state.turn_open else "idle", ""
    if asked:
        word, question = "asks", one_line(f"{asked[0].name} {asked[0].shown}")
    return OpenSessionRow(
        session=info.session,
        cwd=info.cwd,
        title=shortened(one_line(info.title), WORDS_MAX),
        state=word,
        question=shortened(question, WORDS_MAX),
        since_us=state.began_at if word == "works" else state.at,
        model=f"{state.prefix.provider}/{state.prefix.model}" if state.prefix else "",
        context_tokens=state.last_usage.context_tokens,
        usd=state.spent_usd,
    )
