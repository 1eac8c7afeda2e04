"""One command of the supervisor's: its process, its pipes, and what is to become of it."""

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
    """What makes a command a task: fields as those of `BackgroundOptions`."""

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
        """Where its output goes, once it is kept."""


class Command:
    """A process that the supervisor started, until nothing more is asked of it."""

    def __init__(self, pid: int, mark: str, output: int, stdin: int, began_s: float) -> None:
        self.pid, self.mark = pid, mark
        self.returncode: int | None = None
        """How its process ended; None while it runs."""
        self.output = output
        """Read end of its output; -1 when it is closed."""
        self.stdin = stdin
        """Write end of its input, non-blocking; -1 when it has none, or it is closed."""
        self.stdin_inode = os.fstat(stdin).st_ino if stdin >= 0 else 0
        self.waiting_input = bytearray()
        self.close_input = False
        """As soon as what waits has been written."""
        self.began_s = began_s
        self.elapsed_s = 0.0
        self.kept: KeptTask | None = None
        self.tell_end: Callable[[], None] | None = None
        """Tells longrein of a foreground command's end; None when nobody wants to hear of it."""
        self.over = False
        """Its end has been told."""
        self.ending = False
        """It was told to end: then it is over only when its whole tree is gone."""
        self.cause, self.state = "exit", "killed"
        """Why it was told to, and what a task is called then."""
        self.tree = Tree(mark, self.pid, NEVER)
        """Who belongs to it, looked at now and then."""

    def start(self) -> int:
        """When its process began, in the system's unit; 0 when it has ended."""
        leader = process(self.pid) if self.returncode is None else None
        return leader.start if leader else 0

    def reaped(self, returncode: int, now: float) -> None:
        """Its process has ended."""
        self.returncode = returncode
        self.elapsed_s = now - self.began_s
        self.tree.root = 0  # its number may soon be somebody else's

    def told_to_end(self, cause: str, state: str, kill_at: float) -> None:
        """From now on its tree is ending."""
        self.ending, self.cause, self.state = True, cause, state
        self.tree.expect_death(kill_at)

    def end_record(self, wall_us: int) -> dict[str, object]:
        """How a task ended, for the spool."""
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
    """(state, code, cause) of a process that was not told to end."""
    if returncode is None:
        return "lost", None, "it could not be ended"
    if returncode < 0:
        return "failed", None, signal_name(-returncode)
    return ("failed" if returncode else "done"), returncode, ""


# ---------------------------------------------------------------------------------------------------------------------
#
# Trees that are ending, walked by the supervisor's own loop: TERM, a grace, KILL, until nobody is left.


RECENT_S = 0.005
ALL_COMMANDS = float("inf")
"""In place of the number of a last command."""


class RemainingProcesses(Tree):
    """All that a supervisor ever started, up to command number `last`, but what it is told to spare.

    Its own descendants are members also when they took the mark off: it is their sub-reaper. While trees are spared or
    later commands may have left something such a process might be theirs, so it is left until they have gone, too.
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
        """See `Tree.is_gone`: two looks must find nobody, as one misses who forks and exits while it is taken."""
        before, self._looked_empty = self._looked_empty, not members
        return before and not members

    def _is_marked(self, environment: bytes) -> bool:
        _, found, rest = environment.partition(self.mark)
        number = rest.partition(b"/")[0]
        return bool(found) and number.isdigit() and int(number) <= self._last


class Terminations:
    """Every tree that is ending. They share one look at the process table a round."""

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
        """Begin to end `tree`; `done` is called when nobody is left. Its leader's group gets TERM at once.

        The leader's children are noted before: once it is dead, who took the mark off could not be told from others.
        """
        if tree.root:
            tree.members(self._recent_table(), {})
            terminate_group(tree.root)
        self._trees[tree] = done
        self.hurry()

    def _recent_table(self) -> dict[int, Process]:
        """The process table; many trees told to end in one go share one look."""
        now = self._clock()
        if now - self._looked_at > RECENT_S:
            self._looked_at, self._table = now, processes()
        return self._table

    def gone(self, pid: int) -> None:
        """This process was reaped: if it is of a tree that is ending, look again now."""
        if any(pid in tree.known for tree in self._trees):
            self.hurry()

    def hurry(self) -> None:
        """Look again now: somebody has just exited."""
        self._pause_s, self._next = FIRST_ROUND_S, self._clock()

    def wait_s(self) -> float | None:
        """Seconds until the next look is due; None when nothing is ending."""
        return max(0.0, self._next - self._clock()) if self._trees else None

    def walk(self) -> None:
        """Look who is left, if that is due, and tell them to go."""
        now = self._clock()
        if not self._trees or now < self._next:
            return
        table = processes()
        environments = {pid: environment_of(pid) for pid in table}
        for tree, done in list(self._trees.items()):
            members = tree.members(table, environments)
            if not tree.is_gone(members) and now < tree.give_up_at:
                tree.tell(members, now)
                continue
            del self._trees[tree]
            done()
        due_s = min((tree.due_s(self._clock()) for tree in self._trees), default=0.0)
        self._next = self._clock() + max(0.0, min(self._pause_s, due_s))
        self._pause_s = min(self._pause_s * 1.6, LAST_ROUND_S)
