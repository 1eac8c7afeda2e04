"""Run the subagents of one session: start, wait, message, resume and close them.

Subagents are started in one transaction and run by the same main loop. Everything they do is in
their own logs; only what runs now is kept here. After a crash the same call joins the subagents it
started, and they continue from their logs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from longrein.agent.concurrency_limits import FairSemaphore
from longrein.agent.hooks import SessionHooks
from longrein.agent.messages import (
    Answer,
    FromSubagent,
    InboxMessage,
    PendingMessage,
    Rewind,
    StopSubagent,
    SubagentView,
    UserMessage,
    for_subagent,
)
from longrein.agent.model_request import SummaryRequest
from longrein.agent.moves import Record, check_idle
from longrein.agent.session import Session, resolved_future, retrieve_error
from longrein.agent.session_part import Subagents
from longrein.agent.subagent_host import SubagentHost, no_host
from longrein.agent.subagents.budget import limits_under, limits_within, share_budget
from longrein.agent.subagents.remote import (
    RemoteSubagent,
    remote_ended,
    remote_subagent,
    run_remote,
)
from longrein.agent.subagents.shared_state import ActiveSubagent, SubagentTree
from longrein.agent.subagents.spawn import (
    AGENT,
    LiveParentPolicy,
    SpawnPlan,
    append_start,
    open_subagent,
    plan,
    remaining_for,
    shared_entries,
    start_subagent,
)
from longrein.agent.subagents.subagent_report import (
    closing_events,
    progress_events,
    report_of,
    subagent_ended,
    subagent_views,
    synthesis_job,
)
from longrein.agent.subagents.worktree import make_worktrees
from longrein.models import Clock
from longrein.settings_schema import Limits
from longrein.tools import SubagentReport, SubagentTask, SubagentType
from longrein.workspace import Worktree, finish_worktree, read_worktree, remove_worktree
from longrein_context import SubagentState
from longrein_context.events import (
    AnyEvent,
    Entry,
    LongreinError,
    Reminded,
    SubagentEnded,
    SubagentStarted,
)

# --- Progress watch -------------------------------------------------------------------------------
#
# A subagent that hangs is warned, then ended; its parent gets a report with the cause.


LOOK_EVERY_S = 60.0
"""Interval of checks of each working subagent."""
GRACE_S = 60.0
"""Time that a running call may exceed the task's limit; requests obey the limit exactly."""


async def watch_progress(clock: Clock, one: ActiveSubagent) -> None:
    """Check a subagent until cancelled; stop it when it makes no progress or exceeds its time."""
    session = one.session
    while True:
        await clock.sleep(LOOK_EVERY_S)
        verdict, limit_s = (
            check_idle(session.state, session.elapsed.quiet_s),
            session.deps.limits.seconds_max,
        )
        if isinstance(verdict, Record):
            session.append(*verdict.events)
            session.commit(flush=False)
        elif verdict is not None:
            one.cause = verdict.message
        elif limit_s and not session.state.asking and session.elapsed.task_s >= limit_s + GRACE_S:
            one.cause = f"the time limit of {limit_s:g} s has passed"
        if one.cause:
            one.stop()
            return


# --- One subagent ---------------------------------------------------------------------------------


async def run_subagent(parent: Session, one: ActiveSubagent, slots: FairSemaphore) -> None:
    """Run the task of a subagent when the semaphore has a slot, while its progress is watched."""
    if not await slots.enter_or(one.halt, parent.id):
        slots.force()  # told to end: it only records that and ends its own subagents
    one.begun = True
    for call in (
        one.session.state.calls.values()
    ):  # publish again the question that waited when it was closed
        if call.asked is not None and call.answer is None:
            one.session.subscribers.publish(
                Entry(one.session.state.seq, one.session.state.at, call.asked)
            )
    watching = asyncio.ensure_future(watch_progress(parent.deps.clock, one))
    try:
        await _work(one)
        if one.policy.worktree is not None and not (one.problem or one.session.closed):
            one.finished = await finish_worktree(
                parent.deps.workspace, one.policy.worktree, parent.process_session
            )
    finally:
        one.session.elapsed.stop()
        watching.cancel()
        slots.leave()


async def _work(one: ActiveSubagent) -> None:
    """Run the turn of the task, and the turns for which its own background subagents wake it."""
    session = one.session
    if one.problem:
        return
    await session.run(once=True)
    while (
        (subagents := session.find(Subagents)) is not None
        and subagents.running
        and not session.closed
    ):
        if one.stopped:
            subagents.stop()
        await subagents.settled()
        await session.run(once=True)
    if not session.closed:
        await session.part(SummaryRequest).stop()
        await session.leave("stop")  # its tasks are of no more use


# --- Subagents of a session -----------------------------------------------------------------------


AnySubagent = ActiveSubagent | RemoteSubagent
Place = AnySubagent | SubagentState | str
"""A job that works, or was done before a crash, or the reason why it cannot run."""


class SubagentRunner(Subagents):
    """The subagents of one session."""

    def __init__(self, open_host: Callable[[str], SubagentHost] = no_host) -> None:
        """`open_host`: see `SubagentTree`."""
        self._open_host = open_host
        self._mine: dict[str, AnySubagent] = {}
        """Subagents of this session that are not over, by session."""
        self._aside: dict[str, AnySubagent] = {}
        """Those that run in the background."""
        self._leaving: dict[str, asyncio.Task[None]] = {}
        """Sessions of finished subagents that are being closed."""
        self._waiting = 0

    def opened(self) -> None:
        policy = self.session.deps.parent_policy
        above = policy.tree if isinstance(policy, LiveParentPolicy) else None
        self.tree = SubagentTree(self.session, self._open_host) if above is None else above
        self.session.subscribers.asking = lambda: self.questions

    # --- the tool ---------------------------------------------------------------------------------

    def kinds(self) -> Sequence[SubagentType]:
        return self.session.deps.kinds

    async def run(
        self, jobs: Sequence[SubagentTask], *, call: str, background: bool, synthesis: str = ""
    ) -> tuple[Sequence[SubagentReport], tuple[AnyEvent, ...]]:
        found = {
            now.started.index: now
            for now in self.session.state.children.values()
            if now.started.call == call
        }
        places = await self._start_and_wait(list(enumerate(jobs)), call, background, found)
        reports, facts = self._reports(jobs, places)
        if synthesis and not background and not self.session.stops(call):
            self.session.append(*facts)  # frees the unused budget for the synthesis
            more, facts = await self._synthesis(synthesis, reports, call, found)
            return [*reports, *more], facts
        return reports, facts

    async def _synthesis(
        self,
        goal: str,
        reports: Sequence[SubagentReport],
        call: str,
        found: dict[int, SubagentState],
    ) -> tuple[list[SubagentReport], tuple[AnyEvent, ...]]:
        """Run a subagent that combines the reports; not for a single report."""
        if sum(bool(report.text) for report in reports) < 2:
            return [], ()
        job = synthesis_job(goal, reports, self.session.state.nonce)
        places = await self._start_and_wait([(len(reports), job)], call, False, found)
        return self._reports([job], places)

    def _reports(
        self, jobs: Sequence[SubagentTask], places: Sequence[Place]
    ) -> tuple[list[SubagentReport], tuple[AnyEvent, ...]]:
        reports, facts = [], []
        for job, one in zip(jobs, places, strict=True):
            if isinstance(one, str):
                reports.append(SubagentReport("", job, "refused", "", one))
            elif isinstance(one, SubagentState):
                reports.append(report_of(one.seq, job, one.started, one.ended))
            elif one.started.background:
                reports.append(report_of(one.seq, job, one.started, None))
            else:
                ended, whole = self._ended(one)
                facts.append(ended)
                reports.append(report_of(one.seq, job, one.started, ended, whole))
        return reports, tuple(facts)

    async def _start_and_wait(
        self,
        jobs: Sequence[tuple[int, SubagentTask]],
        call: str,
        background: bool,
        found: dict[int, SubagentState],
    ) -> list[Place]:
        """Start or join the subagents, run them, and wait for those in the foreground."""
        found = {index: found[index] for index, _ in jobs if index in found}
        if self._leaving and any(job.again for _, job in jobs):  # a log has one writer
            await asyncio.wait(list(self._leaving.values()))
        trees = await make_worktrees(self.session, jobs, call, found)
        places = self._start(jobs, call, background, found, trees)
        new = [
            one.session for one in places if isinstance(one, ActiveSubagent) and one.task is None
        ]
        used = {one.started.worktree for one in self._mine.values()}
        halted = False
        try:
            await self.session.commit(
                flush=True, beside=new
            )  # nothing has awaited since they were started
            for tree in trees.values():
                if isinstance(tree, Worktree) and tree.path not in used:
                    await remove_worktree(
                        self.session.deps.workspace, tree, self.session.process_session
                    )
        except asyncio.CancelledError:
            if not self.session.stops(call):
                raise
            halted = True  # they are in the log, so each must record its end
        for one in places:
            if isinstance(one, AnySubagent):
                self._launch(one)
                if halted:
                    one.stop()
        await self._wait(
            [one for one in places if isinstance(one, AnySubagent) and not one.started.background],
            call,
        )
        return places

    # --- starting ---------------------------------------------------------------------------------

    def _start(
        self,
        jobs: Sequence[tuple[int, SubagentTask]],
        call: str,
        background: bool,
        found: dict[int, SubagentState],
        trees: Mapping[int, Worktree | str],
    ) -> list[Place]:
        """Join the subagents that this call started before a crash, and start the others.

        Contains no await, so all starts go into one transaction.
        """
        places: dict[int, Place] = {}
        for index, now in found.items():
            places[index] = now if now.ended is not None else self._rejoin(now)
        fresh = [(index, job) for index, job in jobs if index not in places]
        plans = [self._plan(index, job, trees.get(index)) for index, job in fresh]
        wishes = [
            one.wish(self.session.state, self.session.deps.limits.depth_max)
            for one in plans
            if isinstance(one, SpawnPlan)
        ]
        room = remaining_for(self.session, self.tree, len(wishes))
        given = share_budget(room, wishes, rivals=self._rivals(call))
        served = iter(given)
        for (index, _), planned in zip(fresh, plans, strict=True):
            if isinstance(planned, str):
                places[index] = planned
                continue
            grant = next(served)
            if isinstance(grant, str):
                places[index] = grant
            else:
                start = append_start(self.session, planned, grant, call, background)
                places[index] = self._keep(self._open(planned, start))
        return [places[index] for index, _ in jobs]

    def _open(self, planned: SpawnPlan, start: tuple[int, SubagentStarted]) -> AnySubagent:
        if planned.kind.location:
            return remote_subagent(self.session, self.tree, planned.kind, *start)
        return start_subagent(self.session, self.tree, planned, start)

    def _rejoin(self, now: SubagentState) -> AnySubagent:
        """Resume a subagent that worked when the session was left."""
        known = self._mine.get(now.started.child)
        if known is not None:
            return known
        deps = self.session.deps
        kind = next((kind for kind in deps.kinds if kind.name == now.started.kind), None)
        if now.started.location:
            return self._keep(remote_subagent(self.session, self.tree, kind, now.seq, now.started))
        shares = shared_entries(self.session.log.history, now)
        working = open_subagent(self.session, self.tree, kind, (now.seq, now.started), shares)
        child = working.session
        child.deps.limits = limits_under(deps.limits, now.started.grant, child.state)
        return self._keep(working)

    def _keep(self, one: AnySubagent) -> AnySubagent:
        child = one.started.child
        self._mine[child] = one
        if isinstance(one, ActiveSubagent):
            self.tree.working[child] = one
        else:
            self.tree.elsewhere[child] = one
        if one.started.background:
            self._aside[child] = one
        return one

    def within(self, limits: Limits) -> Limits:
        """Return `limits` for the next request, reduced to the budget left to the whole tree."""
        return limits_within(limits, self.session.state, remaining_for(self.session, self.tree))

    def _rivals(self, call: str) -> int:
        """Count other calls of the same reply that will still start subagents."""
        served = {call, *(now.started.call for now in self.session.state.children.values())}
        calls = self.session.state.calls.values()
        return sum(one.call.name == AGENT and one.call.id not in served for one in calls)

    def _plan(
        self, index: int, job: SubagentTask, folder: Worktree | str | None
    ) -> SpawnPlan | str:
        if not job.again:
            return plan(self.session.state, self.session.deps, self.tree, index, job, folder)
        named = next(
            (now for now in self.session.state.children.values() if f"a{now.seq}" == job.again),
            None,
        )
        if named is None:
            known = (
                ", ".join(f"a{now.seq}" for now in self.session.state.children.values()) or "none"
            )
            return f"there is no subagent {job.again} of yours; there are {known}"
        if named.ended is None:
            return f"{job.again} still works; its report comes when it is there"
        if named.started.location:
            return f"{job.again} worked elsewhere and cannot be asked again; start a new one"
        if named.started.worktree and read_worktree(named.started.worktree) is None:
            return f"{job.again} worked in a worktree that is gone; start a new one"
        same = msgspec.structs.replace(job, kind=named.started.kind, form="")
        one = plan(self.session.state, self.session.deps, self.tree, index, same, None)
        if isinstance(one, SpawnPlan):
            one.job = job
            one.again = named.started.child
            one.form = named.started.form
        return one

    # --- working ----------------------------------------------------------------------------------

    def _launch(self, one: AnySubagent) -> None:
        """Start the asyncio task of a subagent."""
        if one.task is None:
            if isinstance(one, ActiveSubagent):
                work = run_subagent(self.session, one, self.tree.slots)
            else:
                work = run_remote(self.session, one, self.tree)
            one.task = asyncio.ensure_future(work)
            one.task.add_done_callback(retrieve_error)
            one.task.add_done_callback(lambda _done: self.session.poke())

    async def _wait(self, those: Sequence[AnySubagent], call: str) -> None:
        """Wait for subagents. Interrupted, they end with what they have; closed, they resume
        later.
        """
        tasks = [one.task for one in those if one.task is not None]
        if not tasks:
            return
        try:
            await self._wait_without_slot(tasks, asyncio.ALL_COMPLETED)
        except asyncio.CancelledError:
            if not self.session.stops(call):
                raise
            for one in those:
                one.stop()
            await asyncio.wait(tasks)

    async def _wait_without_slot(self, tasks: "Sequence[asyncio.Task[None]]", until: str) -> None:
        """Wait without holding a slot, so that the subagents below can use it."""
        if self.session.deps.parent_policy is None:
            await asyncio.wait(tasks, return_when=until)
            return
        slots = self.tree.slots
        self._waiting += 1
        if self._waiting == 1:
            slots.leave()
        back = False
        try:
            await asyncio.wait(tasks, return_when=until)
            if self._waiting == 1:
                await slots.enter(self.session.id, back=True)
                back = True
        finally:
            self._waiting -= 1
            if back and self._waiting:  # another call has started to wait meanwhile
                slots.leave()
            elif not back and not self._waiting:
                slots.force()

    def _ended(self, one: AnySubagent) -> tuple[SubagentEnded, str]:
        """Return a subagent's end and the handle of its last text, and forget the subagent."""
        error = one.task.exception() if one.task is not None and not one.task.cancelled() else None
        child = one.started.child
        for known in (self._mine, self._aside, self.tree.working, self.tree.elsewhere):
            known.pop(child, None)
        if isinstance(one, RemoteSubagent):
            return remote_ended(one, error)
        state = one.session.state
        if error is not None and not isinstance(error, LongreinError):
            text = f"longrein failed inside: {type(error).__name__}: {error}"
            one.session.append(*closing_events(state, text))
        ended, whole = subagent_ended(one, self.tree.states)
        self.tree.questions.settled(child)
        for message in one.session.inbox.pending:  # these messages stay in its inbox
            self.session.notice(
                f"a{one.seq} ended before it heard you; it does when it is asked again: "
                f"{message.text}"
            )
        leaving = asyncio.ensure_future(one.session.close())
        self._leaving[child] = leaving
        leaving.add_done_callback(retrieve_error)
        leaving.add_done_callback(lambda _done: self._leaving.pop(child, None))
        return ended, whole

    # --- the session ------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return bool(self._aside)

    @property
    def questions(self) -> Sequence[FromSubagent]:
        """The permission question of a subagent that waits for the user, for new subscribers."""
        return self.tree.questions.shown if self.session is self.tree.root else ()

    @property
    def pending(self) -> Sequence[PendingMessage]:
        below = self.tree.working.items() if self.session is self.tree.root else ()
        return [
            msgspec.structs.replace(message, to=child)
            for child, one in below
            for message in one.session.inbox.pending
        ]

    def take(self, message: InboxMessage) -> None:
        if isinstance(message, Rewind) and message.conversation:
            self._collect()

    async def collect(self) -> None:
        self._collect()

    def _collect(self) -> None:
        """Append the ends of subagents in the background."""
        self._stop_strays()
        for one in [one for one in self._aside.values() if one.done]:
            ended, _ = self._ended(one)
            self.session.append(ended)
            self.session.part(SessionHooks).notify(
                "agent_completed", f"subagent a{one.seq} has ended: {ended.status}"
            )
        self.tree.questions.look()

    def _stop_strays(self) -> None:
        """Stop subagents whose call was closed before they resumed: the user rewound after a
        crash.
        """
        calls = self.session.state.calls
        for now in list(self.session.state.children.values()):
            if (
                now.ended is None
                and now.started.child not in self._mine
                and now.started.call not in calls
            ):
                one = self._aside[now.started.child] = self._rejoin(now)
                self._launch(one)
                one.stop()

    async def settled(self) -> None:
        tasks = [one.task for one in self._aside.values() if one.task is not None]
        if tasks:
            await self._wait_without_slot(tasks, asyncio.FIRST_COMPLETED)

    def stop(self) -> None:
        for one in self._mine.values():
            one.stop()

    def resume(self) -> None:
        calls = self.session.state.calls
        for now in list(self.session.state.children.values()):
            if now.ended is None and (now.started.background or now.started.call not in calls):
                one = self._rejoin(now)
                self._aside[now.started.child] = one
                self._launch(one)

    def tell(self, message: InboxMessage) -> Awaitable[None] | None:
        """Put a message into the inbox of the subagent that it is for; None when that does not
        work.
        """
        child = for_subagent(message)
        if isinstance(message, StopSubagent) and child in self.tree.elsewhere:
            self.tree.elsewhere[child].stop()
            return resolved_future()
        one = self.tree.working.get(child)
        if one is None or one.done:
            return None
        match message:
            case UserMessage(parts, how):
                return one.session.tell(UserMessage(parts, "steer" if how == "prompt" else how))
            case Answer():
                return one.session.tell(msgspec.structs.replace(message, session=""))
            case StopSubagent():
                one.stop()
        return resolved_future()

    def unqueue(self, number: int) -> str:
        number = number or max((message.id for message in self.pending), default=0)
        for one in self.tree.working.values():
            if any(message.id == number for message in one.session.inbox.pending):
                return one.session.unqueue(number)
        return ""

    def views(self) -> Sequence[SubagentView]:
        return subagent_views(self.session.state, self.tree.working)

    def reminders(self) -> Sequence[Reminded]:
        """Return how far those in the background are."""
        if not self.running:
            return ()
        return progress_events(self.session.state, self.views(), self.session.deps.redact)

    async def close(self) -> None:
        """Close them; they continue when the session is opened again."""
        working = list(self._mine.values())
        for one in working:
            if one.task is not None and not (one.begun and isinstance(one, ActiveSubagent)):
                one.task.cancel()
        open_here = [one.session for one in working if isinstance(one, ActiveSubagent)]
        ends = await asyncio.gather(*(one.close() for one in open_here), return_exceptions=True)
        tasks = [one.task for one in working if one.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        if self._leaving:
            await asyncio.wait(list(self._leaving.values()))
        if self.session is self.tree.root:
            await self.tree.close()
        for error in ends:
            if error is not None:
                raise error
