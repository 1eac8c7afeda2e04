"""Commands and background tasks of one session: running, queued, and ended but not recorded.

The order of writes makes a crash harmless. `TaskStarted` is on disk before the supervisor keeps the
task, so the log knows every task. The end stays in the spool until `TaskEnded` is on disk, so it is
written exactly once. A task that the log calls running and the spool does not know is recorded as
lost.
"""

import asyncio

import msgspec

from longrein.agent.background.output_excerpts import last_lines
from longrein.agent.background.stall_detector import StallDetector
from longrein.agent.confinement import report_of_task
from longrein.agent.dependencies import below
from longrein.agent.messages import TaskOver
from longrein.agent.session import Session
from longrein.agent.task_slots import TaskPool
from longrein.tools import TaskView
from longrein.workspace import SpooledTask, Supervision
from longrein_context import TaskState
from longrein_context.events import TaskEnded, ToolError

# --- Spool to event and view ----------------------------------------------------------------------


TAIL_LINES = 100
"""Lines of output that a `TaskEnded` carries."""
UNKNOWN = "longrein ended before it was kept, or the folder of its output is gone"


def ended(found: SpooledTask, output: str, tail: str, note: str = "") -> TaskEnded:
    """Build the `TaskEnded` of a task from the spool."""
    gone = not output and not note  # the output no longer exists
    cause = "; ".join(
        filter(None, (found.cause, found.lost and f"output not kept whole: {found.lost}", note))
    )
    return TaskEnded(
        found.task,
        found.state,
        found.code,
        cause,
        output,
        round(found.elapsed_s * 1000),
        found.size_bytes,
        found.size_bytes if gone else found.elided_bytes,
        tail,
    )


def tail_text(supervision: Supervision, found: SpooledTask, tail_bytes: int) -> str:
    """Return the end of a task's output as safe text."""
    if not found.size_bytes or tail_bytes <= 0:
        return ""
    shown = last_lines(
        lambda start, size: supervision.read(found.task, start, size),
        found.size_bytes,
        TAIL_LINES,
        tail_bytes,
    )
    return shown.text.rstrip("\n")


def task_view(now: TaskState, found: SpooledTask | None, now_us: int) -> TaskView:
    """Build the view of a task from the log, and of a running one from the spool."""
    started, end = now.started, now.ended
    task = started.task
    command = started.command
    policy = started.policy
    if end is not None:
        return TaskView(
            task,
            end.state,
            command,
            policy=policy,
            elapsed_s=end.elapsed_ms / 1000,
            size_bytes=end.size_bytes,
            elided_bytes=end.elided_bytes,
            code=end.code,
            cause=end.cause,
            handle=f"r{now.ended_seq}" if now.ended_seq else "",
        )
    if started.state == "queued" or found is None:
        why = "waits for its turn" if started.state == "queued" else ""
        return TaskView(
            task, started.state, command, _seconds(now_us - now.at), cause=why, policy=policy
        )
    running = found.state == "running"
    printed = max(found.written_at, found.started_at)
    return TaskView(
        task,
        found.state,
        command,
        policy=policy,
        elapsed_s=found.elapsed_s,
        size_bytes=found.size_bytes,
        elided_bytes=found.elided_bytes,
        silent_s=min(_seconds(now_us - printed), found.elapsed_s) if running else 0.0,
        code=found.code,
        cause=found.cause,
        path=found.path,
    )


def _seconds(us: int) -> float:
    """Convert microseconds to seconds, at least 0 in case the clock was set back."""
    return max(0, us) / 1e6


# --- Tasks of a session ---------------------------------------------------------------------------


QUIET_S = 3.0
"""Silence after which the last line may be taken for a question when the task is shown."""


def is_output_stored(event: TaskEnded) -> bool:
    """Return True if the spool holds no output that is stored nowhere else."""
    return bool(event.output) or not event.size_bytes


class SessionTasks:
    """Tasks of one session; see the module. Belongs to one event loop."""

    def __init__(self, host: Session, pool: TaskPool) -> None:
        self.host, self.pool = host, pool
        self.label = host.state.label
        self.stall_detector = StallDetector(self)
        self.adopted = not host.state.tasks
        """True once the log's unfinished tasks were compared with the spool."""
        self.front: dict[str, asyncio.Future[None]] = {}
        """Foreground commands by call; set when the user sends one to the background."""
        self.starting: dict[str, asyncio.Task[None]] = {}
        """Queued tasks, each with the asyncio task that starts it."""
        self.carried: dict[str, asyncio.Task[None]] = {}
        """Tasks that are no commands, each with the asyncio task that waits for their text."""
        self.seated: dict[str, None] = {}
        self.found_over: dict[str, None] = {}
        """Tasks whose end is in the spool and not read yet."""
        self._ends: dict[str, TaskEnded] = {}
        """Ends that are not in the log yet."""
        self._owed: dict[str, list[str]] = {}
        """Ends by the call whose result reports them, to be logged with it."""
        self.settling: list[str] = []
        """Tasks whose end was appended and whose spool files still exist."""
        self._shown: dict[str, None] = {}
        """Tasks whose end was shown to subscribers."""
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._preparing = asyncio.Lock()
        pool.members[self.label] = self

    # --- what there is ----------------------------------------------------------------------------

    def next_id(self) -> str:
        """Return the id of the next task, valid until something is appended."""
        return below(self.label, f"b{len(self.host.state.tasks) + 1}")

    def view(self, task: str) -> TaskView:
        """Return the view of a task. Raises `ToolError` for an unknown id, naming the known
        ones.
        """
        now = self.host.state.tasks.get(task)
        if now is None:
            known = list(self.host.state.tasks)
            more = f" and {len(known) - 8} older ones (TaskList)" if len(known) > 8 else ""
            there = (
                f"; there are {', '.join(known[-8:])}{more}"
                if known
                else ": none was started in this session"
            )
            raise ToolError(f"[unknown-task] There is no task {task[:40]!r}{there}.")
        if now.ended is None and task in self._ends:
            now = msgspec.structs.replace(now, ended=self._ends[task])
        found = None if now.ended else self.pool.supervision.spooled(task)
        one = task_view(now, found, self.host.deps.clock.wall_us())
        is_command = task not in self.carried
        silent = (
            is_command
            and found is not None
            and found.state == "running"
            and (found.reads_input or one.silent_s >= QUIET_S)
        )
        question = self.stall_detector.question(found) if found is not None and silent else ""
        return msgspec.structs.replace(one, waits_for_input=question) if question else one

    def views(self) -> list[TaskView]:
        """Return running and queued tasks, then ended ones, newest first."""
        every = [self.view(task) for task in reversed(self.host.state.tasks)]
        return sorted(every, key=lambda one: one.state not in ("running", "queued"))

    # --- places and news --------------------------------------------------------------------------

    def seat(self, task: str) -> None:
        """Mark a task as holding a slot, and watch it."""
        self.seated[task] = None
        self.stall_detector.watch(task)

    def unseat(self, task: str) -> None:
        """Free the slot of a task, if it holds one."""
        if task in self.seated:
            del self.seated[task]
            self.pool.slots.leave()

    def over(self, task: str) -> None:
        """Handle news of the supervisor: the task has ended; '' means the supervisor is gone
        with all tasks.
        """
        if not task:
            self.adopted = False
            for waiting in list(self._waiting):
                self._wake(waiting)
        elif task in self.host.state.tasks and self.host.state.tasks[task].ended is None:
            self.found_over[task] = None
            self.unseat(task)
            self._wake(task)
            if (
                self.host.subscribers.streaming
                and (found := self.pool.supervision.spooled(task)) is not None
            ):
                self._show(ended(found, "", self._tail(found)))
        self.host.poke()

    def _show(self, ended: TaskEnded) -> None:
        """Show the end to subscribers, once, also in the middle of a long move."""
        if ended.task not in self._shown:
            self._shown[ended.task] = None
            self.host.subscribers.publish(TaskOver(ended))

    def _wake(self, task: str) -> None:
        for waiter in self._waiting.pop(task, []):
            if not waiter.done():
                waiter.set_result(None)

    async def wait_over(self, task: str, timeout_s: float) -> None:
        """Wait for news of `task`, or until `timeout_s` has passed."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[task] = [
            *(one for one in self._waiting.get(task, ()) if not one.done()),
            news,
        ]
        nap = asyncio.ensure_future(self.host.deps.clock.sleep(timeout_s))
        try:
            await asyncio.wait((news, nap), return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
            news.cancel()

    def ended(self, task: str) -> bool:
        """Return True if the task is over, as far as known here."""
        now = self.host.state.tasks.get(task)
        return (
            (now is not None and now.ended is not None)
            or task in self._ends
            or task in self.found_over
        )

    # --- ends -------------------------------------------------------------------------------------

    def end(self, event: TaskEnded) -> None:
        """Note how a task ended; it is appended with the next ends."""
        now = self.host.state.tasks.get(event.task)
        if now is None or now.ended is None:  # else the loss was found twice
            deps, made = self.host.deps, ""
            if now is not None:
                made = report_of_task(deps.sandbox, deps.workspace.roots, now.started)
            cause = "; ".join(filter(None, (event.cause, made)))
            event = msgspec.structs.replace(event, cause=cause)
            self._ends[event.task] = event
            self._show(event)
        self.unseat(event.task)
        self._wake(event.task)
        self.host.poke()

    @property
    def has_news(self) -> bool:
        """True if something may have to be recorded."""
        return not self.adopted or bool(
            self.found_over or self._ends or self.settling or self.stall_detector.news
        )

    async def collect(self) -> None:
        """Record ended tasks between two moves.

        An end that an open call asks about is left to its result; if a crash or denial closes that
        call without one, the end is recorded afterwards.
        """
        state = self.host.state
        asked = [state.reported_task(open_call.call) for open_call in state.calls.values()]
        for task in [task for task in self.found_over if task not in asked]:
            await self.prepare(task)
        self._owed.clear()
        ready = [task for task in self._ends if task not in asked]
        self.host.append(*self._take(ready), *self.stall_detector.take())
        self.settle()

    async def prepare(self, task: str) -> None:
        """Prepare the end of `task` for the log: store its output as a blob. No effect when it
        is not over.
        """
        async with self._preparing:
            self.found_over.pop(task, None)
            now = self.host.state.tasks.get(task)
            found = self.pool.supervision.spooled(task)
            if now is None or now.ended is not None or task in self._ends:
                return
            if found is None:
                self.end(TaskEnded(task, "lost", cause=UNKNOWN))
            elif found.state != "running":
                self.end(await self._prepared(found))

    async def _prepared(self, found: SpooledTask) -> TaskEnded:
        supervision, tail = self.pool.supervision, self._tail(found)
        path = found.path
        blob = ""
        note = ""
        try:
            path = supervision.whole(found.task)
            blob = await self.host.log.adopt(path) if path else ""
        except OSError as error:
            note = f"output could not be put away ({error.strerror or error}) and lies in {path}"
        return ended(found, blob, tail, note)

    def _tail(self, found: SpooledTask) -> str:
        deps = self.host.deps
        return deps.redact(tail_text(self.pool.supervision, found, deps.task_options.tail_bytes))

    def owe(self, call: str, task: str) -> None:
        """Log the end of `task` together with the result of `call`."""
        if task in self._ends and not any(task in owed for owed in self._owed.values()):
            self._owed.setdefault(call, []).append(task)

    def owed(self, call: str) -> list[TaskEnded]:
        """Return the ends that the result of `call` reports; the caller appends them."""
        return self._take(self._owed.pop(call, []))

    def ends(self) -> list[TaskEnded]:
        """Return all known ends that are not in the log; the caller appends them."""
        return self._take(list(self._ends))

    def _take(self, tasks: list[str]) -> list[TaskEnded]:
        taken = [self._ends.pop(task) for task in tasks if task in self._ends]
        self.settling += [event.task for event in taken if is_output_stored(event)]
        return taken

    def settle(self) -> None:
        """Delete recorded tasks from the spool once the log is on disk."""
        settling, self.settling = self.settling, []
        if settling:
            self.host.commit(flush=True).add_done_callback(
                lambda done: self._settled(done, settling)
            )

    def _settled(self, done: "asyncio.Future[None]", tasks: list[str]) -> None:
        if done.cancelled() or done.exception() is not None:
            return  # the spool still has them: the next run deletes them
        for task in tasks:
            self.pool.supervision.settle(task)
