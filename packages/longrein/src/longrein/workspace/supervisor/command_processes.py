"""Commands of the supervisor, and the processes that remain of them."""

import os
from collections import namedtuple
from collections.abc import Callable, Iterable

from longrein.workspace.supervisor.mount_watch import Plan
from longrein.workspace.supervisor.process_tree import (
    Process,
    Tree,
    descendants,
    marked_number,
    process,
)
from longrein.workspace.supervisor.shell_lines import confined_returncode, signal_name
from longrein.workspace.supervisor.spool_writer import SpoolWriter

NEVER = float("inf")


KeptTask = namedtuple("KeptTask", "task policy timeout_s quota_bytes memory_bytes cpu_s")
"""Options of a background task; fields as in `BackgroundOptions`."""


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
        self.is_confined = False
        """True if its process is the sandbox's program."""
        self.plan = Plan((), ())
        """Its mounts."""
        self.kept: KeptTask | None = None
        self.spool: SpoolWriter | None = None
        """Writer of a background task's output."""
        self.report_end: Callable[[], None] | None = None
        """Reports a foreground command's end to longrein; None when nobody wants it."""
        self.over = False
        """True once its end was reported."""
        self.ending = False
        """True once it was told to end: it is over only when its whole tree is gone."""
        self.cause, self.state = "exit", "killed"
        """Reason why the command was told to end, and the resulting state of a task."""
        self.tree = Tree(mark, self.pid, NEVER)
        """Its process tree."""

    def start(self) -> int:
        """Start time of the process in the system's unit; 0 when it has ended."""
        leader = process(self.pid) if self.returncode is None else None
        return leader.start if leader else 0

    def reaped(self, returncode: int, now: float) -> None:
        """Record the exit of its process."""
        self.returncode = confined_returncode(returncode) if self.is_confined else returncode
        self.elapsed_s = now - self.began_s
        self.tree.root = 0  # the pid may soon be reused

    def mark_ending(self, cause: str, state: str, kill_at: float) -> None:
        """Mark its tree as ending."""
        self.ending = True
        self.cause = cause
        self.state = state
        self.tree.set_kill_time(kill_at)

    def end_record(self, wall_us: int) -> dict[str, object]:
        """Build the task's end for the spool."""
        output = self.spool
        assert output is not None
        code, cause = self.returncode, ""
        if code is None:
            state, cause = "lost", "it could not be ended"
        elif code < 0:
            state = "failed"
            cause = signal_name(-code)
            code = None
        else:
            state = "failed" if code else "done"
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


# --- Processes that no command owns any more ------------------------------------------------------

ALL_COMMANDS = float("inf")
"""Stands for the number of the last command: no limit."""


class RemainingProcesses(Tree):
    """All processes that the supervisor ever started, up to command number `last`, except spared
    trees.

    Its own descendants are members even without the mark, because it is their sub-reaper. While
    trees are spared, or later commands exist, such a process could be theirs, so it is left until
    they are gone.
    """

    def __init__(
        self,
        owner: str,
        own: int,
        kill_at: float,
        spared: Callable[[], Iterable[Tree]],
        last: float,
    ) -> None:
        super().__init__(f"{owner}.", 0, kill_at)
        self._own = own
        self._spared = spared
        self._last = last

    def members(self, table: dict[int, Process], environments: dict[int, bytes]) -> list[Process]:
        trees = list(self._spared())
        spared = {one.pid for tree in trees for one in tree.members(table, environments)}
        first = {pid for pid, environment in environments.items() if self._is_marked(environment)}
        first |= {
            pid for pid, start in self.known.items() if pid in table and table[pid].start == start
        }
        if not trees and self._last == ALL_COMMANDS:
            first |= descendants(table, {self._own})
        found = descendants(table, first - spared) - spared - {self._own}
        members = [table[pid] for pid in sorted(found) if pid in table]
        self.known.update((one.pid, one.start) for one in members)
        return members

    def _is_marked(self, environment: bytes) -> bool:
        _, found, rest = environment.partition(self.mark)
        number = marked_number(rest.partition(b"/")[0])
        return bool(found) and 0 < number <= self._last
