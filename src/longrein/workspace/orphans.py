"""What a crash left: processes that carry the mark of a session which nobody holds. Looked for at every start.

The price is one small file of /proc per process. Who is ended: this user's, marked, outside this process's own
ancestry, in our process namespace, whose owner (its supervisor, or a longrein without one) is dead and whose session's
lock nobody holds. Kept tasks with a live supervisor are spared; those whose supervisor died are told to be lost.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Sequence

import msgspec

from longrein.workspace.spool import mark_lost_tasks
from longrein.workspace.supervisor.process_tree import (
    COMMAND_MARK,
    LINUX,
    SPOOL_MARK,
    Process,
    ancestors,
    descendants,
    process,
    processes,
    processes_with,
    send,
    variable,
)

SESSION_MARK = "LONGREIN_SESSION"
TERM_WAIT_S = 0.25
"""Between TERM and KILL: a start does not wait longer for what nobody misses."""
NO_PIDFD_WAIT_MS = 20


class Orphan(msgspec.Struct, frozen=True):
    """A process whose longrein is gone."""

    process: Process
    session: str
    """Session whose mark it carries; '' for one found only as a child of such."""
    name: str
    """Of its program, for the notice."""


def find_orphans(
    session_is_held: Callable[[str], bool], found: Sequence[tuple[int, bytes]] | None = None
) -> list[Orphan]:
    """Who would be ended. `session_is_held` is asked once for each session; what it does not know it must call held.

    A session that this very process has just opened may be called not held: what we started ourselves is spared,
    because its longrein lives. `found` is what `marked` gives, to be looked at once.
    """
    found = processes_with(SESSION_MARK) if found is None else found
    suspects = [
        (pid, session, variable(one, COMMAND_MARK)) for pid, one in found if (session := variable(one, SESSION_MARK))
    ]
    if not suspects:
        return []
    table = processes()
    spared = ancestors(table, os.getpid()) | descendants(table, {os.getpid()})
    held = {session: session_is_held(session) for session in sorted({session for _, session, _ in suspects})}
    lost = {
        pid: session
        for pid, session, command in suspects
        if pid in table and pid not in spared and not held[session]
        if not _owner_lives(command, table) and _same_namespace(pid)
    }
    below = descendants(table, set(lost)) - spared
    return [Orphan(table[pid], lost.get(pid, ""), _name(pid)) for pid in sorted(below) if pid in table]


def _owner_lives(command: str, table: dict[int, Process]) -> bool:
    """Whether who started it, told by the innermost part of its mark, is alive. No mark: it is not."""
    pid, _, rest = command.rstrip("/").rpartition("/")[2].partition(".")
    owner = table.get(int(pid)) if pid.isdecimal() else None
    return owner is not None and str(owner.start) == rest.partition(".")[0]


def _same_namespace(pid: int) -> bool:
    """A container's longrein looks dead from outside: its numbers mean nothing here."""
    if not LINUX:
        return True
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:
        return False


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "process"


def end_orphans(session_is_held: Callable[[str], bool], folder_of: Callable[[str], str] = lambda _: "") -> list[str]:
    """End what `find_orphans` finds: TERM, `PATIENCE_S`, KILL. One line each of who was ended, such as `sleep (77)`.

    `folder_of(session)` is where a session is stored, '' when that is not known: its tasks are then told to be lost.
    Almost always there is nobody, and it takes two or three milliseconds.
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
        ended.update((one.process.pid, f"{one.name} ({one.process.pid})") for one in told)
        if number == signal.SIGKILL and time.monotonic() > until + TERM_WAIT_S:
            break  # not even KILL ends what waits in the kernel
        _wait_gone([one.process for one in orphans], max(0.01, until - time.monotonic()))
        number = signal.SIGKILL
    for folder in filter(None, map(folder_of, sorted(sessions))):
        mark_lost_tasks(folder)
    return list(ended.values())


def _wake_supervisors(found: Sequence[tuple[int, bytes]], session_is_held: Callable[[str], bool]) -> None:
    """Let the supervisors of sessions that nobody holds go on: one that was stopped (SIGSTOP) has not seen that its
    longrein is gone, and would stay with all that it looks after."""
    for pid, environment in found:
        session = os.path.basename(os.path.dirname(variable(environment, SPOOL_MARK)))
        one = process(pid) if session and not session_is_held(session) else None
        if one is not None:
            send(one, signal.SIGCONT)


def _wait_gone(those: list[Process], limit_s: float) -> None:
    """Wait until all have exited, at most `limit_s`; where an exit cannot be waited for, a moment."""
    poll, until = select.poll(), time.monotonic() + limit_s
    watched = [descriptor for one in those if (descriptor := _watch(one)) >= 0]
    for descriptor in watched:
        poll.register(descriptor, select.POLLIN)
    left = len(watched)
    while left and (wait_s := until - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(wait_s * 1000 + 1):
            poll.unregister(descriptor)
            left -= 1
    if not LINUX:
        poll.poll(NO_PIDFD_WAIT_MS)
    for descriptor in watched:
        os.close(descriptor)


def _watch(one: Process) -> int:
    try:
        descriptor = os.pidfd_open(one.pid)
    except (AttributeError, OSError):
        return -1
    now = process(one.pid)
    if now is not None and now.start == one.start:
        return descriptor
    os.close(descriptor)
    return -1
