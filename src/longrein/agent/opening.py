"""Opening: new, resumed, forked or a subagent's, a session begins the same way: fold the log, go on from there."""

import asyncio
from collections.abc import Sequence

from longrein.agent.company import Company
from longrein.agent.inbox import told_pins
from longrein.agent.loop import run
from longrein.agent.moves import after_loss
from longrein.agent.ports import Crew
from longrein.agent.session import Session
from longrein.context import State, fold
from longrein.events import AnyEvent, ModeSet, Opened, PrefixSet
from longrein.store import Log
from longrein.tools import AgentPort, Job, Kind, Report


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
    def agent_port(self) -> AgentPort | None:
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

    def kinds(self) -> Sequence[Kind]:
        """See `AgentPort.kinds`."""
        return self._session.crew.kinds

    async def run(
        self, jobs: Sequence[Job], *, call: str, background: bool, synthesis: str = ""
    ) -> tuple[Sequence[Report], tuple[AnyEvent, ...]]:
        """See `AgentPort.run`."""
        company = self._session.open_company()
        return await company.run(jobs, call=call, background=background, synthesis=synthesis)


def open_session(
    log: Log, crew: Crew, *, state: State | None = None, opened: Opened | None = None, mode: str = ""
) -> OpenSession:
    """The session in `log`, which the caller has locked. `opened` is its first entry when the log is empty.

    `state` is the fold of the log where the caller has it already.

    What the present version, tools or model would send differently becomes a `PrefixSet` with its reason; else nothing
    that was sent before changes (law 10).
    """
    session = OpenSession(log, crew, fold(log.entries) if state is None else state)
    new = session.state.seq == 0
    if session.state.session != log.session:  # it is new, or the entries that are there are its parent's
        if opened is None:
            raise AssertionError("a new session needs its Opened")
        session.append(opened, *((crew.prefix(crew.model, "start"),) if new else ()))
        if opened.pins and new:
            session.append(told_pins(opened.nonce, opened.pins))
    elif session.state.prefix is None:  # it was lost
        session.append(crew.prefix(crew.model, "start"))
    else:
        _renew(session, session.state.prefix)
    if log.was_cut and session.state.nonce:
        session.append(*after_loss(session.state))
    if mode and mode != session.state.mode:
        session.append(ModeSet(mode))
    if session.state.tasks:
        session.open_commands()
    return session


def _renew(session: Session, stored: PrefixSet) -> None:
    wanted = session.crew.prefix(session.crew.model, "upgrade")
    reason = _difference(stored, wanted)
    if reason:
        session.append(session.crew.prefix(session.crew.model, reason))


def _difference(stored: PrefixSet, wanted: PrefixSet) -> str:
    if (stored.provider, stored.model, stored.wire) != (wanted.provider, wanted.model, wanted.wire):
        return "model"
    if (stored.tools, stored.deferred) != (wanted.tools, wanted.deferred):
        return "tools"
    return "upgrade" if stored.system != wanted.system else ""
