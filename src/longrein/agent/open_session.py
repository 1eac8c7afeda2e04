"""Opening: new, resumed, forked or a subagent's, a session begins the same way: fold the log, go on from there."""

import asyncio
from collections.abc import Sequence

from longrein.agent.inbox import told_pins
from longrein.agent.loop import run
from longrein.agent.messages import SetMode
from longrein.agent.moves import after_loss
from longrein.agent.ports import Company, Crew
from longrein.agent.redaction import redacted
from longrein.agent.session import Session
from longrein.context import State, advance, decode_state, fold
from longrein.events import AnyEvent, ModeSet, Opened, PrefixSet
from longrein.store import Log
from longrein.tools import SubagentPort, SubagentReport, SubagentTask, SubagentType

BYPASS = "bypassPermissions"


class OpenSession(Session):
    """A session that can walk."""

    async def run(self, *, once: bool) -> None:
        """See `loop.run`."""
        self.walk = asyncio.current_task()
        unfinished = any(child.ended is None for child in self.state.children.values())
        if self.company is None and self.crew.company is not None and (unfinished or self.crew.above is not None):
            self.open_company().resume()  # also of one below others: it counts what is left to all of them
        try:
            await run(self, once=once)
        finally:
            self.walk = None

    @property
    def agent_port(self) -> SubagentPort | None:
        """See `Session.agent_port`."""
        if not self.crew.kinds or self.crew.company is None:
            return None
        return _Agents(self) if self.company is None else self.company

    def open_company(self) -> Company:
        """Its subagents, from here on. Only where the crew has any."""
        if self.company is None:
            assert self.crew.company is not None
            company: Company = self.crew.company(self)
            self.company = company
            self.readers.asking = lambda: company.questions
        return self.company


class _Agents:
    """Subagents of a session that has started none yet: what stands behind is imported with the first."""

    def __init__(self, session: OpenSession) -> None:
        self._session = session

    def kinds(self) -> Sequence[SubagentType]:
        """See `SubagentPort.kinds`."""
        return self._session.crew.kinds

    async def run(
        self, jobs: Sequence[SubagentTask], *, call: str, background: bool, synthesis: str = ""
    ) -> tuple[Sequence[SubagentReport], tuple[AnyEvent, ...]]:
        """See `SubagentPort.run`."""
        company = self._session.open_company()
        return await company.run(jobs, call=call, background=background, synthesis=synthesis)


def resumed_state(log: Log) -> State:
    """The fold of `log`: of what came after its snapshot where there is one, else of all."""
    kept = log.snapshot
    state = decode_state(kept.state) if kept is not None else None
    if kept is None or state is None or (state.seq, state.session) != (kept.seq, log.session):
        return fold(log.entries)
    for entry in log.history(kept.seq + 1, len(log.entries)):
        state = advance(state, entry, lambda to: log.history(1, to))
    return state


def open_session(
    log: Log, crew: Crew, *, state: State | None = None, opened: Opened | None = None, mode: str = ""
) -> OpenSession:
    """The session in `log`, which the caller has locked. `opened` is its first entry where the log holds none of its
    own: it is empty, or damage took that entry.

    `state` is the fold of the log where the caller has it already. `mode` is the permission mode that is asked for now.
    Without one a stored session keeps its own, but for `bypassPermissions`: that is never taken from what is stored.

    What the present version, tools or model would send differently becomes a `PrefixSet` with its reason; else nothing
    that was sent before changes (law 10).
    """
    session = OpenSession(log, crew, resumed_state(log) if state is None else state)
    new = session.state.seq == 0
    if session.state.session != log.session:  # it is new, or the entries that are there are its parent's
        if opened is None:
            raise AssertionError("a new session needs its Opened")
        session.append(opened)
    else:
        opened = None
    if session.state.prefix is None:
        session.append(crew.prefix(crew.model, "start"))
    elif opened is None:
        _renew(session, session.state.prefix)
    if opened is not None and opened.pins and new:
        session.append(told_pins(opened.nonce, opened.pins))
    while (stale := session.inbox.take(lambda word: isinstance(word, SetMode) and word.mode == BYPASS)) is not None:
        session.take(stale[0])  # asked for in an earlier run and not obeyed when that ended
    if not mode and session.state.mode == BYPASS and crew.above is None:  # a subagent follows the session above
        mode = "default"
    if log.was_cut and session.state.nonce:
        session.append(*after_loss(session.state))
    if mode and mode != session.state.mode:
        session.append(ModeSet(mode))
    if session.state.tasks:
        session.open_commands()
    return session


def _renew(session: Session, stored: PrefixSet) -> None:
    wanted = redacted(session.crew.prefix(session.crew.model, "upgrade"), session.crew.redact)
    reason = _difference(stored, wanted)
    if reason:
        session.append(session.crew.prefix(session.crew.model, reason))


def _difference(stored: PrefixSet, wanted: PrefixSet) -> str:
    if (stored.provider, stored.model, stored.wire) != (wanted.provider, wanted.model, wanted.wire):
        return "model"
    if (stored.tools, stored.deferred) != (wanted.tools, wanted.deferred):
        return "tools"
    return "upgrade" if stored.system != wanted.system else ""
