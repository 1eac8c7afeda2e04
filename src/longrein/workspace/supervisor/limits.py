"""Memory and CPU of a task's tree. Looked at only while some task has such a limit; from /proc, else not at all."""

import os
from collections.abc import Iterable

from longrein.workspace.processes import Process, processes
from longrein.workspace.supervisor.commands import Command

LOOK_S = 0.5
"""Between two looks: what a tree may grow by in between is what it can exceed its limit by."""
MIB = 1 << 20


def over_limit(commands: Iterable[Command]) -> list[tuple[Command, str]]:
    """Those whose tree uses more than it may, and of what."""
    table = processes()
    return [(command, why) for command in commands if (why := _excess(command, command.tree.members(table, {})))]


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
    """Memory that a process holds; 0 when it is gone."""
    fields = _fields(f"/proc/{pid}/statm")
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def cpu_seconds(pid: int) -> float:
    """CPU that a process and those of its children that it has waited for have used; 0 when it is gone."""
    fields = _fields(f"/proc/{pid}/stat")
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if len(fields) > 14 else 0.0


def _fields(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return []
    return data[data.rfind(b")") + 1 :].split()
