"""The subagents of one session: started in one transaction, walked by the same loop, ended as facts.

What a subagent is, does and says stands in its own log; here is only what runs just now. So a crash costs nothing: the
same call joins those that it started, and they go on from their logs.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

import msgspec

from longrein.agent.messages import AgentView, Answer, OfChild, Pending, Said, StopChild, Word
from longrein.agent.moves import End, Tell, idle
from longrein.agent.ports import Limits
from longrein.agent.session import Session, retrieve_error
from longrein.agent.subagents.budget import limits_within, share_out
from longrein.agent.subagents.report import closing, ended_of, report_of, synthesis_job
from longrein.agent.subagents.spawn import AGENT, Bond, Plan, begin, plan, refusals, rejoin, room_of
from longrein.agent.subagents.status import views
from longrein.agent.subagents.tree import Gate, Tree, Working
from longrein.agent.subagents.worktree import dropped, finished, made
from longrein.context import ChildNow
from longrein.events import AnyEvent, ChildEnded, Entry, LongreinError
from longrein.tools import SubagentReport, SubagentTask, SubagentType
from longrein.workspace import Worktree, read_worktree

# ---------------------------------------------------------------------------------------------------------------------
#
# The watchdog of subagents: one that hangs is told, then ended; its parent gets a report with the cause.


LOOK_EVERY_S = 60.0
"""How often each one that works is looked at."""
GRACE_S = 60.0
"""What a task may go on beyond its time, for a call that runs: before each request the limit is kept anyway."""


async def watch(parent: Session, one: Working) -> None:
    """Look at `one` while it works, until it is cancelled; ends what makes no progress or stays beyond its time."""
    clock, session = parent.crew.clock, one.session
    while True:
        await clock.sleep(LOOK_EVERY_S)
        verdict = idle(session.state, session.lasting.quiet_s) or _late(one)
        match verdict:
            case Tell(reminded):
                session.append(reminded)
                session.commit(flush=False)
            case End(message):
                one.cause = message
                one.stop()
                return
            case None:
                pass


def _late(one: Working) -> End | None:
    """Whether a call keeps it beyond the time of its task. What waits for the user may take its time."""
    state, limit_s = one.session.state, one.session.crew.limits.seconds_max
    if not limit_s or state.asking or one.session.lasting.task_s < limit_s + GRACE_S:
        return None
    return End(f"the time limit of {limit_s:g} s has passed")


# ---------------------------------------------------------------------------------------------------------------------
#
# The walk of one subagent: the turns of its task by the main loop, and what is ended when they are over.


async def walk(parent: Session, one: Working, gate: Gate) -> None:
    """The whole walk of `one`, when `gate` has a place for it. A watchdog looks at it meanwhile."""
    if not await gate.enter_or(one.halt, parent.id):
        gate.force()  # it was told to end: it has only to write that down, and to end those below it
    one.begun = True
    _ask_again(one.session)
    watching = asyncio.ensure_future(watch(parent, one))
    try:
        await _through(parent, one)
    finally:
        one.session.lasting.stop()
        watching.cancel()
        gate.leave()


async def _through(parent: Session, one: Working) -> None:
    """Its turns: the one of its task, and those for which its own subagents in the background wake it."""
    session = one.session
    if one.problem:
        return
    await session.run(once=True)
    while (company := session.company) is not None and company.running and not session.closed:
        if one.stopped:
            company.stop()
        await company.settled()
        await session.run(once=True)
    if not session.closed:
        await session.beside.stop(session)
        await session.leave("stop")  # nobody is left to whom its tasks could be of use
        if one.worktree is not None:
            one.finished = await finished(parent, one.worktree)


def _ask_again(child: Session) -> None:
    """Let its question be heard that waited when it was left. Not before it works: nobody else asks meanwhile."""
    for call in child.state.calls.values():
        if call.asked is not None and call.answer is None:
            child.readers.publish(Entry(child.state.seq, child.state.at, call.asked))


# --- running ---------------------------------------------------------------------------------------------------------


class Children:
    """See `tools.SubagentPort` for what the tool may do, and `agent.company.Company` for the rest."""

    def __init__(self, session: Session) -> None:
        self.session = session
        bond = session.crew.above
        self.tree: Tree = bond.tree if isinstance(bond, Bond) else Tree(session)
        self._mine: dict[str, Working] = {}
        """Those that this session has started and that are not over, by session."""
        self._aside: dict[str, Working] = {}
        """Those of them that nobody waits for."""
        self._leaving: dict[str, asyncio.Task[None]] = {}
        """Sessions of those that are over, while they are closed."""
        self._waiting = 0

    # --- the tool ------------------------------------------------------------------------------------------------

    def kinds(self) -> Sequence[SubagentType]:
        """See `SubagentPort.kinds`."""
        return self.session.crew.kinds

    async def run(
        self, jobs: Sequence[SubagentTask], *, call: str, background: bool, synthesis: str = ""
    ) -> tuple[Sequence[SubagentReport], tuple[AnyEvent, ...]]:
        """See `SubagentPort.run`."""
        found = {now.started.index: now for now in self.session.state.children.values() if now.started.call == call}
        places = await self._go(list(enumerate(jobs)), call, background, found)
        reports, facts = self._reports(jobs, places)
        if synthesis and not background and not self.session.stops(call):
            self.session.append(*facts)  # what they did not use is there for the synthesis
            more, facts = await self._synthesis(synthesis, reports, call, found)
            return [*reports, *more], facts
        return reports, facts

    async def _synthesis(
        self, goal: str, reports: Sequence[SubagentReport], call: str, found: dict[int, ChildNow]
    ) -> tuple[list[SubagentReport], tuple[AnyEvent, ...]]:
        """One more subagent, which reads what the others say; nobody is needed for a single report."""
        if sum(bool(report.text) for report in reports) < 2:
            return [], ()
        job = synthesis_job(goal, reports, self.session.state.nonce)
        places = await self._go([(len(reports), job)], call, False, found)
        return self._reports([job], places)

    def _reports(
        self, jobs: Sequence[SubagentTask], places: Sequence[Working | ChildNow | str]
    ) -> tuple[list[SubagentReport], tuple[AnyEvent, ...]]:
        reports, facts = [], []
        for job, one in zip(jobs, places, strict=True):
            if isinstance(one, str):
                reports.append(SubagentReport("", job, "refused", "", one))
            elif isinstance(one, ChildNow):
                reports.append(report_of(one.seq, job, one.started, one.ended))
            elif one.started.background:
                reports.append(report_of(one.seq, job, one.started, None))
            else:
                ended, whole = self._ended(one)
                facts.append(ended)
                reports.append(report_of(one.seq, job, one.started, ended, whole))
        return reports, tuple(facts)

    async def _go(
        self, jobs: Sequence[tuple[int, SubagentTask]], call: str, background: bool, found: dict[int, ChildNow]
    ) -> "list[Working | ChildNow | str]":
        """Start or join, let them go, and wait for those that are waited for."""
        found = {index: found[index] for index, _ in jobs if index in found}
        if self._leaving and any(job.again for _, job in jobs):  # a log has one writer
            await asyncio.wait(list(self._leaving.values()))
        trees = await made(self.session, jobs, call, found)
        places = self._start(jobs, call, background, found, trees)
        new = [one.session for one in places if isinstance(one, Working) and one.walk is None]
        unused = [tree for tree in trees.values() if not isinstance(tree, str) and not self._works_in(tree)]
        halted = False
        try:
            await self.session.commit(flush=True, beside=new)  # nothing has waited since they were begun
            await dropped(self.session, unused)
        except asyncio.CancelledError:
            if not self.session.stops(call):
                raise
            halted = True  # they are in the log, so each must write down that it ended
        for one in places:
            if isinstance(one, Working):
                self._walk(one)
                if halted:
                    one.stop()
        await self._wait([one for one in places if isinstance(one, Working) and not one.started.background], call)
        return places

    def _works_in(self, tree: Worktree) -> bool:
        return any(one.started.worktree == tree.path for one in self._mine.values())

    # --- starting ------------------------------------------------------------------------------------------------

    def _start(
        self,
        jobs: Sequence[tuple[int, SubagentTask]],
        call: str,
        background: bool,
        found: dict[int, ChildNow],
        trees: Mapping[int, Worktree | str],
    ) -> list[Working | ChildNow | str]:
        """Join those that were started for this call before a crash, start the others. Nothing waits in here."""
        places: dict[int, Working | ChildNow | str] = {}
        for index, now in found.items():
            places[index] = now if now.ended is not None else self._rejoin(now)
        fresh = [(index, job) for index, job in jobs if index not in places]
        plans = [self._plan(index, job, trees.get(index)) for index, job in fresh]
        wishes = [one.wish(self.session) for one in plans if isinstance(one, Plan)]
        room = room_of(self.session, self.tree, len(wishes))
        given = share_out(room, wishes, rivals=self._rivals(call))
        for (index, _), one in zip(fresh, refusals(plans, given), strict=True):
            places[index] = (
                one if isinstance(one, str) else self._takes(begin(self.session, self.tree, *one, call, background))
            )
        return [places[index] for index, _ in jobs]

    def _rejoin(self, now: ChildNow) -> Working:
        """One that worked when the session was left, as its log has it."""
        known = self._mine.get(now.started.child)
        return known if known is not None else self._takes(rejoin(self.session, self.tree, now))

    def _takes(self, one: Working) -> Working:
        child = one.started.child
        self._mine[child] = self.tree.working[child] = one
        if one.started.background:
            self._aside[child] = one
        return one

    def within(self, limits: Limits) -> Limits:
        """See `Company.within`."""
        return limits_within(limits, self.session.state, room_of(self.session, self.tree))

    def _rivals(self, call: str) -> int:
        """Other calls of the same reply that will start subagents and have not."""
        served = {call, *(now.started.call for now in self.session.state.children.values())}
        calls = self.session.state.calls.values()
        return sum(one.call.name == AGENT and one.call.id not in served for one in calls)

    def _plan(self, index: int, job: SubagentTask, folder: Worktree | str | None) -> Plan | str:
        if not job.again:
            return plan(self.session, self.tree, index, job, folder)
        named = next((now for now in self.session.state.children.values() if f"a{now.seq}" == job.again), None)
        if named is None:
            known = ", ".join(f"a{now.seq}" for now in self.session.state.children.values()) or "none"
            return f"there is no subagent {job.again} of yours; there are {known}"
        if named.ended is None:
            return f"{job.again} still works; its report comes when it is there"
        if named.started.worktree and read_worktree(named.started.worktree) is None:
            return f"{job.again} worked in a worktree that is gone; start a new one"
        same = msgspec.structs.replace(job, kind=named.started.kind, form="")
        one = plan(self.session, self.tree, index, same, None)
        if isinstance(one, Plan):
            one.job, one.again, one.form = job, named.started.child, named.started.form
        return one

    # --- working -------------------------------------------------------------------------------------------------

    def _walk(self, one: Working) -> None:
        """Let it go."""
        if one.walk is None:
            one.walk = asyncio.ensure_future(walk(self.session, one, self.tree.gate))
            one.walk.add_done_callback(retrieve_error)
            one.walk.add_done_callback(lambda _walk: self.session.poke())

    async def _wait(self, those: Sequence[Working], call: str) -> None:
        """Until they are over. Interrupted, they end with what they have; closed, they are left for another day."""
        walks = [one.walk for one in those if one.walk is not None]
        if not walks:
            return
        try:
            await self._away(walks, asyncio.ALL_COMPLETED)
        except asyncio.CancelledError:
            if not self.session.stops(call):
                raise
            for one in those:
                one.stop()
            await asyncio.wait(walks)

    async def _away(self, walks: "Sequence[asyncio.Task[None]]", until: str) -> None:
        """Wait without holding a place, so that those below have it."""
        if self.session.crew.above is None:
            await asyncio.wait(walks, return_when=until)
            return
        gate = self.tree.gate
        self._waiting += 1
        if self._waiting == 1:
            gate.leave()
        back = False
        try:
            await asyncio.wait(walks, return_when=until)
            if self._waiting == 1:
                await gate.enter(self.session.id, back=True)
                back = True
        finally:
            self._waiting -= 1
            if back and self._waiting:  # another call has begun to wait meanwhile
                gate.leave()
            elif not back and not self._waiting:
                gate.force()

    def _ended(self, one: Working) -> tuple[ChildEnded, str]:
        """Its end, for the parent's log, and the handle of its last words; it is forgotten here."""
        state = one.session.state
        error = one.walk.exception() if one.walk is not None and not one.walk.cancelled() else None
        if error is not None and not isinstance(error, LongreinError):
            text = f"longrein failed inside: {type(error).__name__}: {error}"
            one.session.append(*closing(state, text, "error", text))
        ended, whole = ended_of(one, self.tree.states)
        child = one.started.child
        for known in (self._mine, self._aside, self.tree.working):
            known.pop(child, None)
        self.tree.questions.settled(child)
        for word in one.session.inbox.pending:  # they stay in its inbox
            told = f"a{one.seq} ended before it heard you; it does when it is asked again: {word.text}"
            self.session.notice(told)
        leaving = asyncio.ensure_future(one.session.close())
        self._leaving[child] = leaving
        leaving.add_done_callback(retrieve_error)
        leaving.add_done_callback(lambda _done: self._leaving.pop(child, None))
        return ended, whole

    # --- the session ---------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """See `Company.running`."""
        return bool(self._aside)

    @property
    def questions(self) -> Sequence[OfChild]:
        """See `Company.questions`."""
        return self.tree.questions.shown if self.session is self.tree.root else ()

    @property
    def pending(self) -> Sequence[Pending]:
        """See `Company.pending`."""
        below = self.tree.working.items() if self.session is self.tree.root else ()
        return [msgspec.structs.replace(word, to=child) for child, one in below for word in one.session.inbox.pending]

    def collect(self) -> None:
        """See `Company.collect`."""
        self._stop_strays()
        for one in [one for one in self._aside.values() if one.done]:
            self.session.append(self._ended(one)[0])
        self.tree.questions.look()

    def _stop_strays(self) -> None:
        """End those whose call was closed before they went on: the user went back after a crash."""
        calls = self.session.state.calls
        for now in list(self.session.state.children.values()):
            if now.ended is None and now.started.child not in self._mine and now.started.call not in calls:
                one = self._aside[now.started.child] = self._rejoin(now)
                self._walk(one)
                one.stop()

    async def settled(self) -> None:
        """See `Company.settled`."""
        walks = [one.walk for one in self._aside.values() if one.walk is not None]
        if walks:
            await self._away(walks, asyncio.FIRST_COMPLETED)

    def stop(self) -> None:
        """See `Company.stop`."""
        for one in self._mine.values():
            one.stop()

    def resume(self) -> None:
        """See `Company.resume`."""
        calls = self.session.state.calls
        for now in list(self.session.state.children.values()):
            if now.ended is None and (now.started.background or now.started.call not in calls):
                one = self._rejoin(now)
                self._aside[now.started.child] = one
                self._walk(one)

    def tell(self, word: Word, child: str) -> Awaitable[None] | None:
        """See `Company.tell`."""
        one = self.tree.working.get(child)
        if one is None or one.done:
            return None
        match word:
            case Said(parts, how):
                return one.session.tell(Said(parts, "steer" if how == "prompt" else how))
            case Answer():
                return one.session.tell(msgspec.structs.replace(word, session=""))
            case StopChild():
                one.stop()
        return _nothing_to_wait_for()

    def unqueue(self, number: int) -> str:
        """See `Company.unqueue`."""
        number = number or max((word.id for word in self.pending), default=0)
        for one in self.tree.working.values():
            if any(word.id == number for word in one.session.inbox.pending):
                return one.session.unqueue(number)
        return ""

    def views(self) -> Sequence[AgentView]:
        """See `Company.views`."""
        return views(self.session, self.tree.working)

    async def close(self) -> None:
        """See `Company.close`."""
        working = list(self._mine.values())
        for one in working:
            if not one.begun and one.walk is not None:
                one.walk.cancel()
        ends = await asyncio.gather(*(one.session.close() for one in working), return_exceptions=True)
        walks = [one.walk for one in working if one.walk is not None]
        if walks:
            await asyncio.wait(walks)
        if self._leaving:
            await asyncio.wait(list(self._leaving.values()))
        if self.session is self.tree.root:
            await self.tree.close()
        for error in ends:
            if error is not None:
                raise error


def _nothing_to_wait_for() -> Awaitable[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done
