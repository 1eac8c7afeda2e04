"""Opening a session: new, resumed, forked or a subagent's.

Every session begins the same way: fold the log and continue from its state.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from longrein.agent.dependencies import Dependencies
from longrein.agent.hooks import SessionHooks
from longrein.agent.inbox import pins_reminder, typed
from longrein.agent.loop import run
from longrein.agent.memory_pressure import MemoryPressure
from longrein.agent.messages import (
    Answer,
    CommandRun,
    InboxMessage,
    PendingMessage,
    RewindPreview,
    SetMode,
    SubagentView,
)
from longrein.agent.model_request import SummaryRequest
from longrein.agent.moves import events_after_loss
from longrein.agent.redaction import redacted
from longrein.agent.session import CLOSE_WAIT_S, SNAPSHOT_FROM, Session, state_of
from longrein.agent.session_part import BackgroundTasks, Checkpoints, Skills, Subagents
from longrein.agent.wakes import WakeSchedule
from longrein.store import Log, Snapshot
from longrein.tools import TaskView
from longrein_context import State, state_at
from longrein_context.events import Entry, ModeSet, Opened, PrefixSet, text_of
from longrein_context.snapshot_codec import encode_state

BYPASS = "bypassPermissions"
RESTORED_MODES = ("plan", "default", "dontAsk", "acceptEdits")
"""Modes that a stored session keeps; calls that an earlier run has left are judged in `default`
at most.
"""


def bypass_warning(is_root: bool) -> str:
    """Return the warning of the mode `bypassPermissions`."""
    root = " longrein runs as root: a command can destroy this whole machine." if is_root else ""
    return f"bypassPermissions: no call is asked about any more.{root}"


class OpenSession(Session):
    """A session that can run the main loop, and commands of the user."""

    def __init__(self, log: Log, deps: Dependencies, state: State) -> None:
        super().__init__(log, deps, state)
        self.add(MemoryPressure(deps.memory, deps.ease, self.notice, deps.clock.mono_s))
        self.add(SummaryRequest())
        self.add(WakeSchedule())
        self.ensure(SessionHooks)
        self.open(Skills)
        for part in deps.extension_parts if deps.parent_policy is None else ():
            self.add(part)
        self._user_commands: set[asyncio.Task[CommandRun]] = set()

    @property
    def skills(self) -> Skills | None:
        """Skills and custom commands; None where nothing brings any."""
        return self.find(Skills)

    @property
    def pending(self) -> Sequence[PendingMessage]:
        """User messages still in an inbox, those for subagents included."""
        subagents = self.find(Subagents)
        return [*self.inbox.pending, *(subagents.pending if subagents is not None else ())]

    def unqueue(self, number: int = 0) -> str:
        """Take a waiting user message (the newest for 0) back for editing; '' when there is
        none.
        """
        taken = self.inbox.take_back(number)
        if taken is None:
            subagents = self.find(Subagents)
            return subagents.unqueue(number) if subagents is not None else ""
        self.take(taken[0])
        self.commit(flush=False)
        return text_of(typed(taken[1]))

    def agents(self) -> Sequence[SubagentView]:
        """Return the subagents below this session, each followed by its own, finished ones
        included.
        """
        subagents = self.find(Subagents)
        return subagents.views() if subagents is not None else ()

    def tasks(self) -> Sequence[TaskView]:
        """Return the background tasks of this session and its subagents."""
        tasks = self.find(BackgroundTasks)
        return tasks.views() if tasks is not None else ()

    def background(self) -> bool:
        """Send the command in the foreground to the background (Ctrl-B); False when none can be."""
        tasks = self.find(BackgroundTasks)
        return tasks is not None and tasks.background()

    async def leave(self, policy: str) -> Sequence[TaskView]:
        """Stop background tasks before `close`, while nothing runs; return those that continue.

        `stop` ends every task, `keep` only those that cannot outlive longrein. Their ends are
        recorded.
        """
        tasks = self.find(BackgroundTasks)
        return await tasks.leave(policy) if tasks is not None else ()

    def stay(self, how: str, limit_s: float = 0.0, *, promoted: bool = True) -> None:
        """Set how `run(once=True)` ends while background tasks or subagents still work.

        `exit`: it returns. `drain`: it waits for them and records their ends. `steer`: each end
        starts a turn; it waits only for what is started from now on. Both wait at most `limit_s`
        seconds, and for commands that went to the background by their time limit only if
        `promoted`. A limit of turns counts all requests from this call on.
        """
        self.part(WakeSchedule).stay(how, limit_s, promoted=promoted)

    async def run_command(self, command: str, call: str) -> CommandRun:
        """Run a command of the user at once, in the session's folder and sandbox, also while a turn
        is in progress.

        Its outcome enters the log, and the model reads it with its next request. `call` names it in
        `Output`. Cancelling stops the command. Raises `UsageError` where none can run.
        """
        from longrein.agent.user_command_runner import run_user_command

        task = asyncio.ensure_future(run_user_command(self, command, call))
        self._user_commands.add(task)
        task.add_done_callback(self._user_commands.discard)
        return await task

    async def close(self, reason: str = "other") -> None:
        """Stop the commands of the user, whose outcomes stay in the inbox, then close the
        session.
        """
        for task in self._user_commands:
            task.cancel()
        if self._user_commands:
            await asyncio.wait([*self._user_commands], timeout=CLOSE_WAIT_S)
        await super().close(reason)

    async def preview_rewind(
        self, to: int, *, overwrite: bool = False, conversation: bool = True
    ) -> RewindPreview:
        """Return what `Rewind(to, files=True)` would do to the files. Changes nothing."""
        from longrein.agent.rewind_trees import preview_rewind

        return await preview_rewind(self, to, overwrite=overwrite, conversation=conversation)

    async def run(self, *, once: bool) -> None:
        """Run the main loop until `close`; with `once`, until the turn has ended and nothing is
        queued.

        Raises only longrein's own errors (`StoreFull` …).
        """
        self.loop_task = asyncio.current_task()
        unfinished = any(child.ended is None for child in self.state.children.values())
        is_subagent = self.deps.parent_policy is not None  # accounts for the budget of the tree
        if self.find(Subagents) is None and (unfinished or is_subagent):
            subagents = self.open(Subagents)
            if subagents is not None:
                subagents.resume()
        for part in self.parts:
            part.started()
        if self.log.is_shared and self.log.entries and not is_subagent:
            from longrein.agent.stored_trees import take_over_tree

            await take_over_tree(self)
        await self._take_up_after_a_cut()
        try:
            await run(self, once=once)
        finally:
            self.loop_task = None

    async def _take_up_after_a_cut(self) -> None:
        """Take up what a kill in the middle of a command has left: its supervisor, which may still
        run it, and the work tree, so that a later change is not taken for the command's.
        """
        cut = [
            open_call.call.id
            for open_call in self.state.calls.values()
            if open_call.started
            and (tool := self.deps.tools.get(open_call.call.name)) is not None
            and tool.traits.kind not in ("read", "search")
        ]
        if not cut:
            return
        self.deps.workspace.spawner.warm()
        if (tasks := self.open(BackgroundTasks)) is not None:
            tasks.warm()
        if (checkpoints := self.open(Checkpoints)) is not None:
            await checkpoints.keep("opened", cut)


def resumed_state(log: Log) -> State:
    """Fold the log, from its snapshot where there is one."""

    def snapshot_before(seq: int) -> Snapshot | None:
        known = log.snapshot
        return known if known is not None and known.seq <= seq else log.snapshot_before(seq)

    stored = StoredStates(log.session, log.history, snapshot_before)
    found = state_at(stored, len(log.entries))
    # the last entries of a fork are missing when its original is gone
    found.seq = max(found.seq, len(log.entries))
    return found


class StoredStates(msgspec.Struct, frozen=True):
    """The states that a log has in its snapshots (`context.StoredLog`)."""

    session: str
    history: Callable[[int, int], Iterable[Entry]]
    snapshot_before: Callable[[int], Snapshot | None]

    def state_before(self, seq: int, /) -> State | None:
        return state_of(self.session, self.snapshot_before(seq))


async def store_snapshot(log: Log, state: State) -> None:
    """Store the snapshot of a log that was written without a session, for its first resume. A
    short log gets none.
    """
    data = encode_state(state) if state.seq >= SNAPSHOT_FROM else b""
    stored = log.keep_snapshot(Snapshot(state.seq, data)) if data else None
    if stored is not None:
        await asyncio.wrap_future(stored)


def open_session(
    log: Log,
    deps: Dependencies,
    *,
    state: State | None = None,
    opened: Opened | None = None,
    mode: str = "",
) -> OpenSession:
    """Open the session in `log`, which the caller has locked.

    `opened` is the first entry of a log without one: a new log, or one whose first entry was
    damaged. `state` is the fold of the log, if the caller has it. `mode` is the permission mode
    asked for now; without it a stored session keeps its own if that is one of `RESTORED_MODES`.
    Answers to permission questions are not restored either: a call that was allowed and has not
    started is asked again.

    Where the present version, tools or model would send something else, a `PrefixSet` with the
    reason is appended; otherwise nothing that was sent before changes.
    """
    session = OpenSession(log, deps, resumed_state(log) if state is None else state)
    if session.state.session != log.session:  # new, or a fork with only its parent's entries
        if opened is None:
            raise AssertionError("a new session needs its Opened")
        session.append(opened)
    else:
        opened = None
    session.part(SessionHooks).source = _how_opened(opened, deps)
    if session.state.prefix is None:
        session.append(deps.prefix(deps.model, "start"))
        if session.state.pins:
            session.append(pins_reminder(session.state.nonce, session.state.pins))
    elif opened is None:
        wanted = redacted(deps.prefix(deps.model, "upgrade"), deps.redact)
        reason = _difference(session.state.prefix, wanted)
        if reason:
            session.append(deps.prefix(deps.model, reason))
    _restrict_earlier_calls(session, restored=not mode)
    while (stale := session.inbox.take(_may_widen)) is not None:
        session.take(stale[0])  # left by an earlier run, which ended before it took the message
    if (
        not mode and session.state.mode not in RESTORED_MODES and deps.parent_policy is None
    ):  # else as the parent
        mode = "default"
    if log.was_cut and session.state.nonce:
        session.append(*events_after_loss(session.state))
    if mode and mode != session.state.mode:
        session.append(ModeSet(mode))
    if session.state.tasks:
        session.open(BackgroundTasks)
    return session


def _how_opened(opened: Opened | None, deps: Dependencies) -> str:
    """Return the word for hooks of how a session was opened."""
    if opened is None:
        return "resume"
    return "startup" if opened.parent is None or deps.parent_policy is not None else "fork"


def _restrict_earlier_calls(session: OpenSession, *, restored: bool) -> None:
    """Judge calls that an earlier run has left in `default` at most, unless the mode was asked
    for now.
    """
    above = session.deps.parent_policy
    session.approvals.mode_restored = restored if above is None else above.mode_restored
    if session.approvals.mode_restored:
        session.approvals.earlier_calls = frozenset(session.state.calls)


def _may_widen(message: InboxMessage) -> bool:
    """Return True for a message that could let a call run unasked."""
    return isinstance(message, Answer) or (
        isinstance(message, SetMode) and message.mode not in RESTORED_MODES
    )


def _difference(stored: PrefixSet, wanted: PrefixSet) -> str:
    if (stored.provider, stored.model, stored.wire) != (wanted.provider, wanted.model, wanted.wire):
        return "model"
    if any(
        [spec.sent for spec in old] != [spec.sent for spec in new]
        for old, new in ((stored.tools, wanted.tools), (stored.deferred, wanted.deferred))
    ):
        return "tools"
    return "upgrade" if stored.system != wanted.system else ""
