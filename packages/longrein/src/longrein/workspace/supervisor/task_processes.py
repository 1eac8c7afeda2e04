"""Background tasks in the supervisor: their limits, and the one-time record of their end."""

import os
from collections import namedtuple
from collections.abc import Callable, Iterable

from longrein.workspace.supervisor.command_processes import Command, KeptTask
from longrein.workspace.supervisor.pipes import LAST_READ_BYTES, Loop, Pipes
from longrein.workspace.supervisor.process_tree import Process, processes
from longrein.workspace.supervisor.shell_lines import HELD_PIPE_S
from longrein.workspace.supervisor.spool_writer import (
    SpoolWriter,
    reserve_end,
    write_end,
    write_record,
)

# --- Memory and CPU limits ------------------------------------------------------------------------
#
# Checked only while a task has such a limit, and only where there is /proc.

LIMITS_CHECK_S = 0.5
"""Seconds between two checks; a tree can exceed its limit by what it grows in between."""
MIB = 1 << 20


def over_limit(commands: Iterable[Command]) -> list[tuple[Command, str]]:
    """Return the commands whose tree exceeds a limit, with the reason."""
    table = processes()
    return [
        (command, why)
        for command in commands
        if (why := _excess(command, command.tree.members(table, {})))
    ]


def _excess(command: Command, members: list[Process]) -> str:
    kept, pids = command.kept, [one.pid for one in members]
    if kept is None:
        return ""
    if kept.memory_bytes and sum(map(resident_bytes, pids)) > kept.memory_bytes:
        return f"it used more than {kept.memory_bytes / MIB:g} MiB of memory"
    if kept.cpu_s and sum(map(cpu_seconds, pids)) > kept.cpu_s:
        return f"it used more than {kept.cpu_s:g} s of CPU"
    return ""


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    fields = _fields(f"/proc/{pid}/statm")
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and its awaited children; 0 when it is gone."""
    fields = _fields(f"/proc/{pid}/stat")
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if len(fields) > 14 else 0.0


def _fields(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return []
    return data[data.rfind(b")") + 1 :].split()


# --- Tasks ----------------------------------------------------------------------------------------

RECORDS_CHECK_S = 60.0
"""Seconds between two checks that the tasks' records still exist."""
HERE = "."
"""The spool: the supervisor's own folder."""


Context = namedtuple("Context", "secrets nonce patterns wall_us")
"""Data from the attached longrein: secrets, its nonce, patterns of secrets, and the time in
microseconds UTC.
"""


class Tasks:
    """The running background tasks, by id."""

    def __init__(
        self,
        loop: Loop,
        pipes: Pipes,
        end: Callable[[Command, str, str], None],
        over: Callable[[str, dict[str, object]], None],
    ) -> None:
        """`end(command, cause, state)` ends a tree; `over(task, end)` is called once an end is
        in the spool.
        """
        self._loop = loop
        self._pipes = pipes
        self._end = end
        self._over = over
        self._context = Context((), "", (), 0)
        self._checking_limits = self._checking_records = False
        self.running: dict[str, Command] = {}

    def set_context(self, context: Context) -> None:
        """Set the secrets that must not reach the disk, and longrein's wall clock as of now."""
        self._context = context._replace(wall_us=context.wall_us - int(self._loop.clock() * 1e6))

    def wall_us(self) -> int:
        """Microseconds UTC: longrein's clock plus the monotonic time since. Never jumps."""
        return int(self._context.wall_us) + int(self._loop.clock() * 1e6)

    def keep(
        self,
        command: Command,
        kept: KeptTask,
        record: dict[str, object],
        written: dict[str, object],
    ) -> str:
        """Make the command a background task; returns why not, or ''.

        `written` describes the output that is in the spool already.
        """
        import json

        from longrein_context.events.redact import (
            redactor,
        )  # slow to import, and most sessions keep no task
        from longrein_context.events.redact_stream import StreamRedactor

        secrets, nonce, patterns, _ = self._context
        redact = redactor(secrets, nonce, patterns)
        began_at = self.wall_us() - int((self._loop.clock() - command.began_s) * 1e6)
        times = {"began_s": command.began_s, "started_at": began_at}
        said = {"command": redact(str(record["command"])), "policy": kept.policy}
        try:
            write_record(HERE, kept.task, json.dumps({**record, **times, **said}))
        except OSError as error:
            return f"its record could not be written: {error.strerror}"
        reserve_end(HERE, kept.task)
        command.spool = SpoolWriter(
            HERE, kept.task, kept.quota_bytes, StreamRedactor(redact, secrets, bool(patterns))
        )
        command.spool.resume_from(written)
        command.kept, self.running[kept.task] = kept, command
        self._limit(command, kept)
        self._pipes.spool(command)
        if not self._checking_records:
            self._checking_records = True
            self._loop.after(RECORDS_CHECK_S, self._check_records)
        return ""

    def _limit(self, command: Command, kept: KeptTask) -> None:
        if kept.timeout_s > 0:
            left_s = command.began_s + kept.timeout_s - self._loop.clock()
            self._loop.after(
                left_s, lambda: self._end(command, f"after {kept.timeout_s:g} s", "timed_out")
            )
        if (kept.memory_bytes or kept.cpu_s) and not self._checking_limits:
            self._checking_limits = True
            self._loop.after(0.0, self._check_limits)

    def _check_limits(self) -> None:
        """End the tasks that exceed their limits."""
        limited = [
            one
            for one in self.running.values()
            if one.kept and (one.kept.memory_bytes or one.kept.cpu_s)
        ]
        for command, why in over_limit(limited):
            self._end(command, why, "killed")
        self._checking_limits = bool(limited)
        if limited:
            self._loop.after(LIMITS_CHECK_S, self._check_limits)

    def _check_records(self) -> None:
        """End tasks whose record was deleted: nobody could find them any more."""
        for task, command in self.running.items():
            try:
                os.stat(f"{task}.json")
            except FileNotFoundError:
                self._end(command, "its folder was deleted", "killed")
            except OSError:
                continue  # unreadable now does not mean deleted
        self._checking_records = bool(self.running)
        if self.running:
            self._loop.after(RECORDS_CHECK_S, self._check_records)

    def finish(self, command: Command) -> None:
        """Read the rest of the output, then write the end.

        While another process holds the pipe, it is read a little longer.
        """
        if command.output >= 0 and self._pipes.take(command, LAST_READ_BYTES):
            self._loop.after(HELD_PIPE_S, lambda: self._write_end(command))
        else:
            self._write_end(command)

    def _write_end(self, command: Command) -> None:
        kept = command.kept
        assert kept is not None
        assert command.spool is not None
        command.spool.close()
        self._pipes.discard_output(command)
        end = command.end_record(self.wall_us())
        try:
            write_end(HERE, kept.task, end)
        except OSError as error:
            end["lost"] = f"its end could not be written: {error.strerror}"
        del self.running[kept.task]
        self._over(kept.task, end)
