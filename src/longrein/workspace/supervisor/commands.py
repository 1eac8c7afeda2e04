"""Commands of the supervisor, and the end of their process trees."""

import os
from collections.abc import Callable, Iterable

from longrein.workspace.supervisor.process_tree import (
    FIRST_ROUND_S,
    LAST_ROUND_S,
    Process,
    Tree,
    descendants,
    environment_of,
    process,
    processes,
    terminate_group,
)
from longrein.workspace.supervisor.shell import signal_name
from longrein.workspace.supervisor.spool_writer import SpoolWriter

NEVER = float("inf")


class KeptTask:
    """Options of a background task; fields as in `BackgroundOptions`."""

    def __init__(
        self,
        *,
        task: str,
        policy: str,
        timeout_s: float,
        quota_bytes: int,
        memory_bytes: int,
        cpu_s: float,
    ) -> None:
        self.task, self.policy, self.timeout_s = task, policy, timeout_s
        self.quota_bytes, self.memory_bytes, self.cpu_s = quota_bytes, memory_bytes, cpu_s
        self.output: SpoolWriter | None = None
        """Writer of its output, once the task is kept."""


class Command:
    """A process that the supervisor started, until it is no longer needed."""

    def __init__(self, pid: int, mark: str, output: int, stdin: int, began_s: float) -> None:
        self.pid, self.mark = pid, mark
        self.returncode: int | None = None
        """Exit code, or minus the signal; None while the process runs."""
        self.output = output
        """Read end of its output; -1 when closed."""
        self.stdin = stdin
        """Write end of its input, non-blocking; -1 when it has none or it is closed."""
        self.stdin_inode = os.fstat(stdin).st_ino if stdin >= 0 else 0
        self.waiting_input = bytearray()
        self.close_input = False
        """Close the input once the waiting bytes are written."""
        self.began_s = began_s
        self.elapsed_s = 0.0
        self.kept: KeptTask | None = None
        self.report_end: Callable[[], None] | None = None
        """Reports a foreground command's end to longrein; None when nobody wants it."""
        self.over = False
        """True once its end was reported."""
        self.ending = False
        """True once it was told to end: it is over only when its whole tree is gone."""
        self.cause, self.state = "exit", "killed"
        """Why it was told to end, and the resulting state of a task."""
        self.tree = Tree(mark, self.pid, NEVER)
        """Its process tree."""

    def start(self) -> int:
        """Start time of the process in the system's unit; 0 when it has ended."""
        leader = process(self.pid) if self.returncode is None else None
        return leader.start if leader else 0

    def reaped(self, returncode: int, now: float) -> None:
        """Record the exit of its process."""
        self.returncode = returncode
        self.elapsed_s = now - self.began_s
        self.tree.root = 0  # the pid may soon be reused

    def mark_ending(self, cause: str, state: str, kill_at: float) -> None:
        """Mark its tree as ending."""
        self.ending, self.cause, self.state = True, cause, state
        self.tree.set_kill_time(kill_at)

    def end_record(self, wall_us: int) -> dict[str, object]:
        """Build the task's end for the spool."""
        assert self.kept is not None
        output = self.kept.output
        assert output is not None
        state, code, cause = _natural_end(self.returncode)
        if self.ending:
            state, cause = self.state, self.cause
        return {
            "state": state,
            "code": code,
            "cause": cause,
            "elapsed_s": round(self.elapsed_s, 6),
            "ended_at": wall_us,
            "size_bytes": output.size_bytes,
            "elided_bytes": output.elided_bytes,
            "lost": output.lost and f"{output.lost}: {output.lost_bytes:,} bytes were not written",
        }


def _natural_end(returncode: int | None) -> tuple[str, int | None, str]:
    """Return (state, code, cause) of a process that was not told to end."""
    if returncode is None:
        return "lost", None, "it could not be ended"
    if returncode < 0:
        return "failed", None, signal_name(-returncode)
    return ("failed" if returncode else "done"), returncode, ""


# --- Ending process trees --------------------------------------------------------------------------------------------
#
# The supervisor's own loop walks them: TERM, a grace period, KILL, until no process is left.

RECENT_S = 0.005
ALL_COMMANDS = float("inf")
"""Stands for the number of the last command: no limit."""


class RemainingProcesses(Tree):
    """All processes that the supervisor ever started, up to command number `last`, except spared trees.

    Its own descendants are members even without the mark, because it is their sub-reaper. While trees are spared, or
    later commands exist, such a process could be theirs, so it is left until they are gone.
    """

    def __init__(self, owner: str, own: int, kill_at: float, spared: Callable[[], Iterable[Tree]], last: float) -> None:
        super().__init__(f"{owner}.", 0, kill_at)
        self._own, self._spared, self._last = own, spared, last
        self._looked_empty = False

    def members(self, table: dict[int, Process], environments: dict[int, bytes]) -> list[Process]:
        """See `Tree.members`."""
        trees = list(self._spared())
        spared = {one.pid for tree in trees for one in tree.members(table, environments)}
        first = {pid for pid, environment in environments.items() if self._is_marked(environment)}
        first |= {pid for pid, start in self.known.items() if pid in table and table[pid].start == start}
        if not trees and self._last == ALL_COMMANDS:
            first |= descendants(table, {self._own})
        found = descendants(table, first - spared) - spared - {self._own}
        members = [table[pid] for pid in sorted(found) if pid in table]
        self.known.update((one.pid, one.start) for one in members)
        return members

    def is_gone(self, members: list[Process]) -> bool:
        """See `Tree.is_gone`. Two looks must find nothing: one misses a process that forks meanwhile."""
        before, self._looked_empty = self._looked_empty, not members
        return before and not members

    def _is_marked(self, environment: bytes) -> bool:
        _, found, rest = environment.partition(self.mark)
        number = rest.partition(b"/")[0]
        return bool(found) and number.isdigit() and int(number) <= self._last


class Terminations:
    """The trees that are ending. All share one look at the process table per round."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._trees: dict[Tree, Callable[[], None]] = {}
        self._pause_s = FIRST_ROUND_S
        self._next = 0.0
        self._looked_at, self._table = -1.0, dict[int, Process]()

    def __bool__(self) -> bool:
        return bool(self._trees)

    def __contains__(self, tree: Tree) -> bool:
        return tree in self._trees

    def end(self, tree: Tree, done: Callable[[], None]) -> None:
        """Begin to end `tree`; `done` is called when no process is left.

        The leader's group gets TERM at once. The leader's children are noted first: after its death an unmarked child
        could not be told from a stranger.
        """
        if tree.root:
            tree.members(self._recent_table(), {})
            terminate_group(tree.root)
        self._trees[tree] = done
        self.hurry()

    def _recent_table(self) -> dict[int, Process]:
        """Return the process table; trees that are ended together share it."""
        now = self._clock()
        if now - self._looked_at > RECENT_S:
            self._looked_at, self._table = now, processes()
        return self._table

    def gone(self, pid: int) -> None:
        """Look again at once if the reaped process belongs to an ending tree."""
        if any(pid in tree.known for tree in self._trees):
            self.hurry()

    def hurry(self) -> None:
        """Look again at once, because a process has just exited."""
        self._pause_s, self._next = FIRST_ROUND_S, self._clock()

    def wait_s(self) -> float | None:
        """Return the seconds until the next look; None when nothing is ending."""
        return max(0.0, self._next - self._clock()) if self._trees else None

    def walk(self) -> None:
        """Signal the processes that are left, if a look is due."""
        now = self._clock()
        if not self._trees or now < self._next:
            return
        table = processes()
        environments = {pid: environment_of(pid) for pid in table}
        for tree, done in list(self._trees.items()):
            members = tree.members(table, environments)
            if not tree.is_gone(members) and now < tree.give_up_at:
                tree.signal_members(members, now)
                continue
            del self._trees[tree]
            done()
        due_s = min((tree.due_s(self._clock()) for tree in self._trees), default=0.0)
        self._next = self._clock() + max(0.0, min(self._pause_s, due_s))
        self._pause_s = min(self._pause_s * 1.6, LAST_ROUND_S)
