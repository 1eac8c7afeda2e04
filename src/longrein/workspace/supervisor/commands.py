"""One command of the supervisor's: its process, its pipes, and what is to become of it."""

import os
from collections.abc import Callable

from longrein.workspace.processes import process
from longrein.workspace.supervisor.spooling import Output
from longrein.workspace.tree import Tree
from longrein.workspace.words import signal_name

NEVER = float("inf")


class Kept:
    """What makes a command a task: fields as those of `Keeping`."""

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
        self.output: Output | None = None
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
        self.kept: Kept | None = None
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
        state, code, cause = _ending(self.returncode)
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


def _ending(returncode: int | None) -> tuple[str, int | None, str]:
    """(state, code, cause) of a process that was not told to end."""
    if returncode is None:
        return "lost", None, "it could not be ended"
    if returncode < 0:
        return "failed", None, signal_name(-returncode)
    return ("failed" if returncode else "done"), returncode, ""
