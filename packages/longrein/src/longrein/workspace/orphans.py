"""Find and end processes of crashed sessions. Runs at every start.

Costs one small file of /proc per process. A process is ended when it belongs to this user, carries
the mark of a session, is outside this process's own ancestry and in our process namespace, its
owner (its supervisor, or a longrein without one) is dead, and nobody holds its session's lock.
Background tasks with a live supervisor are spared; those without are marked as lost.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence

import msgspec

from longrein.workspace.spool_reader import mark_lost_tasks
from longrein.workspace.supervisor.process_tree import (
    COMMAND_MARK,
    LINUX,
    SANDBOX_MARK,
    SESSION_MARK,
    SPOOL_MARK,
    Process,
    ancestors,
    descendants,
    owner_process,
    process,
    processes,
    processes_with,
    send,
    variable,
)

TERM_WAIT_S = 0.25
"""Time between TERM and KILL. Short, because every start waits for it."""
GONE_POLL_S = 0.005
SANDBOX = "bwrap"
"""Name of the processes around a confined command, which the user did not start."""


class Orphan(msgspec.Struct, frozen=True):
    """A process whose longrein is gone."""

    process: Process
    session: str
    """Session in the process's mark; '' for one found only as a child."""
    name: str
    """Name of its program, for the notice."""


def find_orphans(
    session_is_held: Callable[[str], bool], found: Sequence[tuple[int, bytes]] | None = None
) -> list[Orphan]:
    """Return the processes to end.

    `session_is_held` is asked once for each session; it must call an unknown session held. The
    session of this very process may be called not held: its processes are spared, because their
    longrein lives. `found` is what `processes_with` gave, used once.
    """
    found = processes_with(SESSION_MARK) if found is None else found
    suspects = [
        (pid, session, variable(one, COMMAND_MARK))
        for pid, one in found
        if (session := variable(one, SESSION_MARK))
    ]
    if not suspects:
        return []
    environments, table = dict(found), processes()
    spared = ancestors(table, os.getpid()) | descendants(table, {os.getpid()})
    held = {
        session: session_is_held(session)
        for session in sorted({session for _, session, _ in suspects})
    }
    lost = {
        pid: session
        for pid, session, command in suspects
        if pid in table and pid not in spared and not held[session]
        if owner_process(command.rstrip("/").rpartition("/")[2]) is None
        and _same_namespace(pid, variable(environments[pid], SANDBOX_MARK))
    }
    below = descendants(table, set(lost)) - spared
    return [
        Orphan(table[pid], lost.get(pid, ""), _name(pid)) for pid in sorted(below) if pid in table
    ]


def _same_namespace(pid: int, around_sandbox: str) -> bool:
    """Tell whether the process, or the sandbox around it, was started in our PID namespace.

    A container's pids mean nothing here.
    """
    if not LINUX:
        return True
    try:
        return os.readlink("/proc/self/ns/pid") in (
            os.readlink(f"/proc/{pid}/ns/pid"),
            around_sandbox,
        )
    except OSError:
        return False


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "process"


def end_orphans(
    session_is_held: Callable[[str], bool], folder_of: Callable[[str], str] = lambda _: ""
) -> list[str]:
    """End what `find_orphans` finds: TERM, `TERM_WAIT_S`, KILL. Returns lines such as `sleep (77)`.

    `folder_of(session)` is where a session is stored, '' when unknown; its tasks are then marked as
    lost. Usually finds nothing and takes two or three milliseconds.
    """
    ended: dict[int, str] = {}
    sessions: set[str] = set()
    until = time.monotonic() + TERM_WAIT_S
    number = signal.SIGTERM
    found: Sequence[tuple[int, bytes]] | None = processes_with(SESSION_MARK, SPOOL_MARK)
    _wake_supervisors(found or (), session_is_held)
    while orphans := find_orphans(session_is_held, found):
        found = None
        told = [one for one in orphans if send(one.process, number)]
        sessions.update(one.session for one in told if one.session)
        ended.update(
            (one.process.pid, f"{one.name} ({one.process.pid})")
            for one in told
            if one.name != SANDBOX
        )
        if number == signal.SIGKILL and time.monotonic() > until + TERM_WAIT_S:
            break  # KILL does not end a process that is stuck in the kernel
        _wait_gone([one.process for one in orphans], max(0.01, until - time.monotonic()))
        number = signal.SIGKILL
    for folder in filter(None, map(folder_of, sorted(sessions))):
        mark_lost_tasks(folder)
    return list(ended.values())


def _wake_supervisors(
    found: Sequence[tuple[int, bytes]], session_is_held: Callable[[str], bool]
) -> None:
    """Resume stopped supervisors of sessions that nobody holds.

    A stopped one (SIGSTOP) has not seen that its longrein is gone, and would stay with everything
    it looks after.
    """
    for pid, environment in found:
        session = os.path.basename(os.path.dirname(variable(environment, SPOOL_MARK)))
        one = process(pid) if session and not session_is_held(session) else None
        if one is not None:
            send(one, signal.SIGCONT)


def _wait_gone(those: list[Process], limit_s: float) -> None:
    """Wait until all have exited, at most `limit_s`."""
    until = time.monotonic() + limit_s
    while any(process(one.pid, one.start) for one in those) and time.monotonic() < until:
        time.sleep(GONE_POLL_S)
