"""Background tasks of a session: reading them, adopting them after a restart, ending lost ones."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

from longrein.workspace import spool_reader
from longrein.workspace.spool_reader import SPOOL, has_end, usable_id
from longrein.workspace.supervisor.process_tree import (
    GRACE_S,
    Terminations,
    Tree,
    environment_of,
    process,
)
from longrein.workspace.supervisor_client import HELLO_S, SupervisorConnection, connect
from longrein.workspace.workspace_port import SpooledTask

FOREIGN_POLL_S = 0.5
"""Polling interval for tasks of a supervisor that speaks another version."""
END_S = 2 * GRACE_S + 1
"""Longest wait for a task that was told to end."""
POLL_S = 0.02
GAP_MARKER = "\n[{sign} elided: {{}} bytes of the output were not kept]\n"


class TreeTerminator:
    """The process trees that are being ended: TERM, a grace period, KILL, until none is left.

    Processes that ignore TERM, fork away or hide are found too. One task handles all trees, with
    one look at the process table per round.
    """

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._trees = Terminations(time.monotonic)
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def end(self, mark: str, root: int) -> asyncio.Future[None]:
        """Begin to end a tree; the future is done when no process is left.

        The process group gets TERM now, the rest within a round. `root` is the pid of the session's
        leader, 0 when only the mark counts.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not ended.done():
                ended.set_result(None)

        self._trees.end(Tree(mark, root, time.monotonic() + self._grace_s), done)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._walk())
        self._news.set()
        return ended

    def hurry(self) -> None:
        """Look again now, because a process has just exited."""
        self._trees.hurry()
        self._news.set()

    async def wait_all(self) -> None:
        """Wait until every tree has ended."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _walk(self) -> None:
        try:
            while (wait_s := self._trees.wait_s()) is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), wait_s)
                self._news.clear()
                self._trees.walk()
        except asyncio.CancelledError:  # the loop is closing
            self._trees.kill_now()
            raise


class BackgroundTasks:
    """The background tasks of one spool, by id. Belongs to one event loop."""

    def __init__(self, folder: str, sign: str, grace_s: float = GRACE_S) -> None:
        """`sign` marks inserted text as this session's."""
        self._folder = folder
        self._gap = GAP_MARKER.format(sign=sign)
        self._records: dict[str, dict[str, Any]] = {}
        self._ends: dict[str, Mapping[str, Any]] = {}
        """Ends reported by the supervisor; they are valid even when the spool's folder is gone."""
        self._calls: list[Callable[[str], None]] = []
        self._trees = TreeTerminator(grace_s)
        self._closing: set[asyncio.Task[None]] = set()
        self._foreign: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    # --- Reading ----------------------------------------------------------------------------------

    def record(self, task: str) -> dict[str, Any]:
        """Return the record written when the task was kept; empty for an unknown task."""
        found = self._records.get(task) or (
            spool_reader.record_of(self._folder, task) if spool_reader.usable_id(task) else {}
        )
        if found:
            self._records[task] = found
        return found

    def check_new(self, task: str) -> None:
        """Raise OSError when a new task cannot have this id."""
        if not spool_reader.usable_id(task) or self.record(task):
            raise OSError(
                f"a task cannot be called {task!r}: it is in use, or no file can be called so"
            )

    def known(self, task: str) -> SpooledTask:
        """Return an existing task. Raises OSError when it is gone."""
        found = self.spooled(task)
        if found is None:
            raise OSError(f"the spool {self._folder} is gone")
        return found

    def spooled(self, task: str) -> SpooledTask | None:
        found = spool_reader.read_task(self._folder, task, self.record(task))
        end = self._ends.get(task)
        return spool_reader.with_end(found, end, found.written_at) if found and end else found

    def read(self, task: str, start: int, size_bytes: int) -> tuple[int, bytes]:
        return (
            spool_reader.read_output(self._folder, task, start, size_bytes)
            if spool_reader.usable_id(task)
            else (start, b"")
        )

    def whole(self, task: str) -> str:
        return (
            spool_reader.make_whole(self._folder, task, self._gap)
            if spool_reader.usable_id(task)
            else ""
        )

    def settle(self, task: str) -> None:
        if spool_reader.usable_id(task):
            spool_reader.remove_task(self._folder, task)
        self._records.pop(task, None)
        self._ends.pop(task, None)

    def owned(self, owner: str) -> list[str]:
        """Return the running tasks of this supervisor."""
        return [
            task
            for task in spool_reader.task_ids(self._folder)
            if self._is_running(task) and self.record(task)["owner"] == owner
        ]

    def _is_running(self, task: str) -> bool:
        return (
            bool(self.record(task))
            and task not in self._ends
            and not spool_reader.has_end(self._folder, task)
        )

    # --- News -------------------------------------------------------------------------------------

    def on_news(self, call: Callable[[str], None]) -> None:
        self._calls.append(call)

    def tell(self, task: str, end: Mapping[str, Any] | None = None) -> None:
        """Report that a task has ended, or ("") that the supervisor is gone."""
        if end is not None:
            self._ends[task] = end
        for call in self._calls:
            call(task)

    # --- Tasks without a live supervisor ----------------------------------------------------------

    async def adopt_tasks(self, owner: str) -> list[SpooledTask]:
        """See `Supervision.adopt`. `owner` is the connected supervisor, '' for none."""
        spool_reader.sweep_spool(self._folder)
        tasks = spool_reader.task_ids(self._folder)
        lost = [
            task
            for task in tasks
            if self._is_running(task) and not spool_reader.owner_lives(self.record(task))
        ]
        await self._end_as_lost(lost, spool_reader.NO_SUPERVISOR)
        self._foreign |= {
            task for task in tasks if self._is_running(task) and self.record(task)["owner"] != owner
        }
        self._schedule_poll()
        found = [one for one in map(self.spooled, tasks) if one is not None]
        return sorted(found, key=lambda one: (one.started_at, one.task))

    def supervisor_died(self, owner: str, leaders: Iterable[int]) -> None:
        """End everything that a dead supervisor had started, and mark its tasks as lost.

        `leaders` are the pids of its foreground commands.
        """
        for pid in leaders:
            if owner and f"{owner}.".encode() in environment_of(pid):
                self._trees.end(f"{owner}.", pid)
        self.run_in_background(self._close_lost(owner))
        self.tell("")

    def run_in_background(self, ending: Coroutine[Any, Any, None]) -> None:
        """Run `ending` beside other work; `wait_ended` waits for it."""
        closing = asyncio.get_running_loop().create_task(ending)
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def end_marked(self, mark: str, pid: int) -> None:
        """End a command's tree that its supervisor does not end. `pid` may have been reused."""
        await self._trees.end(mark, pid if mark.encode() in environment_of(pid) else 0)

    async def _close_lost(self, owner: str) -> None:
        lost = self.owned(owner) if owner else []
        if owner:
            self._trees.end(f"{owner}.", 0)
        for task in await self._end_as_lost(lost, "its supervisor ended while it ran"):
            self.tell(task)

    async def _end_as_lost(self, lost: list[str], cause: str) -> list[str]:
        """End these tasks' trees, then write that the tasks are lost."""
        for task in lost:
            self._end_tree(self.record(task))
        await self._trees.wait_all()
        for task in lost:
            try:
                spool_reader.write_lost(self._folder, task, cause)
            except OSError as error:
                self._ends[task] = spool_reader.lost_end(
                    self._folder, task, f"{cause} ({error.strerror})"
                )
        return lost

    def _end_tree(self, record: Mapping[str, Any]) -> "asyncio.Future[None]":
        leader = process(record["pid"], record["start"])
        return self._trees.end(record["mark"], record["pid"] if leader else 0)

    async def end_without_supervisor(self, task: str, cause: str) -> None:
        """End a task whose supervisor does not answer, and write its end."""
        if self._is_running(task):
            await self._end_as_lost([task], f"{cause}; its supervisor did not answer")
            self.tell(task)

    # --- Tasks of a supervisor of another version -------------------------------------------------

    def stop_marked(self, task: str) -> None:
        """End a task by its mark, for a supervisor that cannot be asked; it writes the end
        itself.
        """
        if self._is_running(task):
            self._end_tree(self.record(task))

    def _schedule_poll(self) -> None:
        if self._foreign and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FOREIGN_POLL_S, self._poll_foreign)

    def _poll_foreign(self) -> None:
        self._timer = None
        for task in sorted(self._foreign):
            if not self._is_running(task):
                self._foreign.discard(task)
                self.tell(task)
            elif not spool_reader.owner_lives(self.record(task)):
                self._foreign.discard(task)
                self.supervisor_died(self.record(task)["owner"], ())
        self._schedule_poll()

    async def wait_for_end(self, task: str) -> None:
        """Wait until a task has ended, at most `END_S`.

        A task whose supervisor is dead is marked as lost.
        """
        until = asyncio.get_running_loop().time() + END_S
        while self._is_running(task) and asyncio.get_running_loop().time() < until:
            if not spool_reader.owner_lives(self.record(task)):
                await self._end_as_lost([task], spool_reader.NO_SUPERVISOR)
                return
            await asyncio.sleep(POLL_S)

    async def wait_ended(self) -> None:
        """Wait for everything that is being ended. For shutdown."""
        if self._timer is not None:
            self._timer.cancel()
        while self._closing:
            await asyncio.wait(self._closing)
        await self._trees.wait_all()


# --- Stopping a task from another process ---------------------------------------------------------


async def stop_background_task(
    session_folder: str, task: str, cause: str = "the user"
) -> SpooledTask | None:
    """End a background task of a session that another process may have open, and wait for its end.

    The supervisor is asked. One that speaks another version, or is dead, is bypassed: the processes
    are found by mark and start time. Returns the task as it is then; None for an unknown one.
    """
    folder = os.path.join(session_folder, SPOOL)
    kept = BackgroundTasks(folder, "longrein")
    spooled = kept.spooled(task) if usable_id(task) else None
    if spooled is None or spooled.state not in ("running", "lost") or has_end(folder, task):
        return spooled
    sock = connect(folder)
    connection = (
        SupervisorConnection(sock, None, lambda _: None, lambda _: None)
        if sock is not None
        else None
    )
    is_known = False
    if connection is not None:
        connection.owner = kept.record(task)["owner"]
        connection.wake()
        with suppress(ConnectionError):
            answer = await connection.ask(limit_s=HELLO_S, do="stop", task=task, cause=cause)
            is_known = answer["known"]
    if not is_known:
        kept.stop_marked(task)
    await kept.wait_for_end(task)
    if connection is not None:
        connection.close()
    return kept.spooled(task)
