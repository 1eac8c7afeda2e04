"""Control of background tasks: the interface for the session and its tools, and adoption after a
restart.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from longrein.agent.background.output_excerpts import Slice, last_lines, matching, pieces, since
from longrein.agent.background.session_tasks import UNKNOWN, SessionTasks, is_output_stored
from longrein.agent.background.start import (
    carry,
    command_spec,
    finish_despite_cancel,
    queue_task,
    run_in_background,
    run_in_foreground,
    task_started,
)
from longrein.agent.current_rules import current_rules
from longrein.agent.dependencies import LEAVING, narrower
from longrein.agent.messages import InboxMessage, StopTask
from longrein.agent.permission_check import is_command_allowed
from longrein.agent.session_part import BackgroundTasks
from longrein.agent.task_slots import TaskPool, agent_of
from longrein.agent.wakes import WakeSchedule
from longrein.tools import BackgroundedCommand, Outcome, OutputSlice, ShellCommand, TaskView
from longrein.workspace import CommandExit, SpooledTask
from longrein_context import TaskState
from longrein_context.events import Opened, TaskEnded, ToolError

# --- Adoption -------------------------------------------------------------------------------------
#
# Tasks that an earlier longrein left, or that remain after the supervisor died. The log says which
# tasks there were, the spool what became of them.


UNCONFIRMED = (
    "it had not started when longrein ended, and no rule allows it without a question: run it again"
)


async def adopt(tasks: SessionTasks) -> None:
    """Adopt the tasks of the log.

    Running ones are watched, ends are recorded with the next ones, queued ones wait again, and the
    others are lost.
    """
    found = {one.task: one for one in await tasks.pool.supervision.adopt()}
    tasks.adopted = True
    for task, now in tasks.host.state.tasks.items():
        _take_up(tasks, task, now, found.get(task))


def _take_up(tasks: SessionTasks, task: str, now: TaskState, there: SpooledTask | None) -> None:
    if now.ended is not None:
        tasks.settling += [task] * (
            there is not None and there.state != "running" and is_output_stored(now.ended)
        )
    elif there is not None and there.state != "running":
        tasks.found_over[task] = None
        tasks.unseat(task)
    elif there is not None:
        if task not in tasks.seated:
            tasks.pool.slots.force()
            tasks.seat(task)
    elif now.started.state != "queued" or _copied(tasks, now):
        if not tasks.ended(task):
            tasks.end(TaskEnded(task, "lost", cause=_copied(tasks, now) or UNKNOWN))
    elif task not in tasks.starting:
        started = now.started
        host, rules = tasks.host, current_rules(tasks.host)
        if host.approvals.mode_restored:
            rules = msgspec.structs.replace(rules, mode=narrower(rules.mode, "default"))
        bash = host.deps.tools.get("Bash")
        if is_command_allowed(
            rules, bash, started.command, started.cwd, outside=started.outside_sandbox
        ):
            queue_task(tasks, started)
        else:
            tasks.end(TaskEnded(task, "lost", cause=UNCONFIRMED))


def _copied(tasks: SessionTasks, now: TaskState) -> str:
    """Return why a task in a copied session is not its own; '' for its own."""
    entries = tasks.host.log.entries
    first = entries[0].event if entries else None
    if (
        isinstance(first, Opened)
        and first.parent is not None
        and not first.parent.call
        and now.seq <= first.parent.seq
    ):
        return f"it belongs to session {first.parent.session}, of which this is a copy"
    return ""


# --- Commands and tasks ---------------------------------------------------------------------------


STOP_WAIT_S = 8.0
"""Wait for a stop: TERM, its grace, KILL, and the delay of a busy machine."""
SHOWN_BYTES = 24_000
"""Output shown in one answer."""


class BackgroundControl(BackgroundTasks):
    """Commands and background tasks of one open session."""

    def __init__(self, pool: TaskPool) -> None:
        self.pool = pool
        self._beside: dict[asyncio.Task[None], None] = {}

    def opened(self) -> None:
        self.tasks = SessionTasks(self.session, self.pool)
        self._fresh = self.tasks.adopted
        """True if the next recorded ends happened after the session was opened."""
        above = self.session.deps.parent_policy
        if above is not None:
            above.open_tasks()

    # --- the loop's needs -------------------------------------------------------------------------

    def tell(self, message: InboxMessage) -> None:
        """Stop a task at once; the inbox keeps the message in case of a crash."""
        self.take(message)

    def take(self, message: InboxMessage) -> None:
        if isinstance(message, StopTask):
            self.stop(message.task)

    def warm(self) -> None:
        if self.pool.supervision.may_prepare:
            with suppress(OSError):  # told when a command needs it
                spec = command_spec(self.tasks, task_started(self.tasks, "", ""))
                self.pool.supervision.prepare(spec)

    async def collect(self) -> None:
        """Record ended tasks between two moves; ends that were found at the open wake nobody."""
        tasks = self.tasks
        if not tasks.has_news:
            return
        old, self._fresh = not self._fresh, True
        if not tasks.adopted:
            await adopt(tasks)
        await tasks.collect()
        if old:
            self.session.part(WakeSchedule).since = self.session.state.seq

    def unfinished(self, after: int, promoted: bool) -> bool:
        return any(
            now.ended is None
            and now.seq > after
            and (promoted or now.started.promoted != "timeout" or task in self.tasks.carried)
            for task, now in self.session.state.tasks.items()
        )

    def of(self, call: str) -> "CallTasks":
        return CallTasks(self.tasks, call)

    def told_by(self, call: str) -> Sequence[TaskEnded]:
        return self.tasks.owed(call)

    # --- the user's -------------------------------------------------------------------------------

    def background(self) -> bool:
        wishes = [
            wish
            for member in self.pool.members.values()
            for wish in member.front.values()
            if not wish.done()
        ]
        for wish in wishes:
            wish.set_result(None)
        return bool(wishes)

    def views(self) -> Sequence[TaskView]:
        above = self.tasks.label and f"{self.tasks.label}."
        members = [
            member for member in self.pool.members.values() if member.label.startswith(above)
        ]
        below = [member for member in members if member is not self.tasks]
        return [view for member in (self.tasks, *below) for view in member.views()]

    def stop(self, task: str) -> None:
        """Stop a task of this session or an active subagent, without waiting. Unknown tasks are
        ignored.
        """
        member = self.pool.members.get(agent_of(task))
        if member is not None and task in member.host.state.tasks:
            stopping = asyncio.ensure_future(stop(member, task, "the user"))
            self._beside[stopping] = None
            stopping.add_done_callback(lambda done: self._beside.pop(done, None))

    # --- leaving ----------------------------------------------------------------------------------

    async def leave(self, policy: str) -> Sequence[TaskView]:
        tasks, host = self.tasks, self.session
        going = [task for task in host.state.tasks if not tasks.ended(task)]
        kept = [
            task
            for task in going
            if policy == "keep" and host.state.tasks[task].started.policy == "keep"
        ]
        ending = [task for task in going if task not in kept]
        wait_s = host.deps.task_options.leave_s
        await asyncio.gather(*(stop(tasks, task, LEAVING, wait_s) for task in ending))
        await self.collect()
        await host.commit(flush=True)
        return [tasks.view(task) for task in kept]

    async def close(self) -> None:
        """Stop watching; the supervisor and each task's policy handle what still runs."""
        self.tasks.stall_detector.stop()
        waiting = [*self.tasks.starting.values(), *self.tasks.carried.values(), *self._beside]
        for one in waiting:
            one.cancel()
        if waiting:
            await asyncio.wait(waiting)  # a task that is starting is kept first
        if not self.session.state.calls:
            self.session.append(*self.tasks.ends())
        self.pool.members.pop(self.tasks.label, None)


async def stop(tasks: SessionTasks, task: str, who: str, wait_s: float = STOP_WAIT_S) -> None:
    """Stop a task and wait until its end is known; a task that is over stays as it is."""
    if tasks.view(task).state == "queued":
        tasks.end(TaskEnded(task, "killed", cause=f"stopped by {who} before it began"))
        if task in tasks.starting:
            tasks.starting[task].cancel()
    elif not tasks.ended(task):
        if task in tasks.starting:  # it is in the log and about to be kept
            await asyncio.wait((tasks.starting[task],))
        try:
            await tasks.pool.supervision.stop(task, f"stopped by {who}")
        except OSError:  # the supervisor is gone with the task; the next adoption records it
            return
        if not tasks.ended(task):
            await tasks.wait_over(task, wait_s)


class CallTasks:
    """Implement `tools.TaskPort` for one call.

    An end that the result reports goes into the log with that result, so it is told once even if
    longrein is killed in between.
    """

    def __init__(self, tasks: SessionTasks, call: str) -> None:
        self._tasks, self._call = tasks, call

    async def run(self, command: ShellCommand) -> CommandExit | BackgroundedCommand:
        limit_s = command.timeout_s if command.background else 0.0
        fact = task_started(
            self._tasks, command.command, command.call, limit_s, outside=command.outside_sandbox
        )
        if command.background:
            return await finish_despite_cancel(run_in_background(self._tasks, fact))
        return await run_in_foreground(self._tasks, fact, command.sink, command.timeout_s)

    async def carry(
        self, name: str, work: Coroutine[Any, Any, Outcome], *, after_s: float
    ) -> Outcome | BackgroundedCommand:
        """Implement `tools.TaskPort.carry`."""
        return await carry(self._tasks, task_started(self._tasks, name, self._call), work, after_s)

    def tasks(self) -> Sequence[TaskView]:
        return self._tasks.views()

    async def output(
        self, task: str, *, tail: int = 0, since: int = -1, grep: str = ""
    ) -> OutputSlice:
        view = await self._seen(task)
        shown = await self._shown(view, tail, since, grep) if view.size_bytes else Slice("", 0, 0)
        note = shown.note
        if view.elided_bytes:
            note = "; ".join(
                filter(None, (note, f"{view.elided_bytes} bytes of its middle were not kept"))
            )
        return OutputSlice(view, shown.text, shown.first_byte, shown.next_byte, note)

    async def _shown(self, view: TaskView, tail: int, start: int, grep: str) -> Slice:
        read = await self._reader(view)
        if grep:
            return await matching(pieces(read, 0), grep, SHOWN_BYTES)
        if start >= 0:
            return since(read, start, SHOWN_BYTES)
        return last_lines(read, view.size_bytes, tail or 50, SHOWN_BYTES)

    async def _reader(self, view: TaskView) -> Callable[[int, int], tuple[int, bytes]]:
        """Return a reader of a task's output: from its blob once the end is recorded, else from
        the spool.
        """
        host, supervision = self._tasks.host, self._tasks.pool.supervision
        now = host.state.tasks[view.id]
        if now.ended is None or supervision.spooled(view.id) is not None:
            return lambda start, size: supervision.read(view.id, start, size)
        data = b""
        blob = now.ended.output
        if blob:
            data = await host.deps.archive.reading(lambda past: b"".join(past.pieces(blob)))
        gap = now.ended.size_bytes - len(data)  # the dropped middle comes after the first half
        half = min(len(data), host.deps.task_options.quota_bytes // 2) if gap else len(data)
        return lambda start, size: _from_blob(data, half, gap, start, size)

    async def _seen(self, task: str) -> TaskView:
        """Return the view of a task; record with this call's result that it is over."""
        view = self._tasks.view(task)
        return await finish_despite_cancel(self._told(task)) if self._tasks.ended(task) else view

    async def _told(self, task: str) -> TaskView:
        await self._tasks.prepare(task)
        self._tasks.owe(self._call, task)
        return self._tasks.view(task)

    async def wait(self, task: str, timeout_s: float) -> TaskView:
        self._tasks.view(task)
        if not self._tasks.ended(task):
            await self._tasks.wait_over(task, timeout_s)
        return await self._seen(task)

    async def stop(self, task: str) -> TaskView:
        await stop(self._tasks, task, "TaskStop")
        return await self._seen(task)

    async def give(self, task: str, text: str, *, eof: bool = False) -> TaskView:
        view = self._tasks.view(task)
        if view.state != "running":
            raise ToolError(
                f"[not-running] {task} is {view.state.replace('_', ' ')}; nothing was written. "
                f'Next: call TaskOutput with task_id "{task}".'
            )
        if self._tasks.host.state.tasks[task].started.promoted:
            raise ToolError(
                f"[no-input] {task} was started in the foreground, so its input is closed; start "
                "it again with "
                "run_in_background to answer it."
            )
        try:
            await self._tasks.pool.supervision.give(
                task, text.encode("utf-8", "surrogateescape"), eof=eof
            )
        except OSError as error:
            raise ToolError(
                f"[no-input] {task} takes no input any more: {error.strerror or error}. Next: "
                f'call TaskOutput with task_id "{task}".'
            ) from None
        self._tasks.stall_detector.heard(task)
        return self._tasks.view(task)


def _from_blob(data: bytes, half: int, gap: int, start: int, size: int) -> tuple[int, bytes]:
    if start < half:
        return start, data[start : min(start + size, half)]
    at = max(start - gap, half)
    return at + gap, data[at : at + size]
