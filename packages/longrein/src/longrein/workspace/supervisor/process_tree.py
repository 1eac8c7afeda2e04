"""Process table and process trees: descendants, marks, and signals. From /proc; elsewhere through
psutil.

A process is identified by (pid, start), because a pid alone may have been reused. Standard library
only: the supervisor loads this module too.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

LINUX = sys.platform == "linux"
ENVIRONMENT_BYTES_MAX = 1 << 20
"""Bytes of a process's environment that are searched for the mark."""
CHUNK_BYTES = 1 << 14


class Process:
    """A live process of this user. `start` is its start time in the system's unit: compared,
    never shown.
    """

    __slots__ = ("group", "parent", "pid", "session", "start")

    def __init__(self, pid: int, parent: int, group: int, session: int, start: int) -> None:
        self.pid = pid
        self.parent = parent
        self.group = group
        self.session = session
        self.start = start


def processes() -> dict[int, Process]:
    """Return every live process of this user by pid, without zombies and kernel threads."""
    if not LINUX:
        return _from_psutil()
    own = os.getuid()
    found = (_stat_of(pid, own) for pid in _numbers())
    return {process.pid: process for process in found if process is not None}


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


DIGITS_MAX = 15
"""Most digits of a number in a mark."""


def process(pid: int, start: int | None = None) -> Process | None:
    """Return a live process of this user; None when it is gone, a zombie, or has another
    `start`.
    """
    found = _stat_of(pid, os.getuid()) if LINUX else _from_psutil().get(pid)
    return found if found is not None and start in (None, found.start) else None


def owner_mark() -> str:
    """Return `/<pid>.<start>` of this process; the marks of its commands begin with it."""
    own = process(os.getpid())
    return f"/{os.getpid()}.{own.start if own else 0}"


def marked_number(text: str | bytes) -> int:
    """Return a number of a mark, which a command may have written itself; 0 for any other text.

    Python refuses to read more than 4,300 digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else 0


def owner_process(mark: str) -> Process | None:
    """Return the live process that a mark names, `/<pid>.<start>` with perhaps more behind a
    dot.
    """
    pid, start, *_ = map(marked_number, (*mark.strip("/").split("."), "", ""))
    return process(pid, start) if pid and start else None


PF_EXITING = 0x4
"""Flag in `/proc/<pid>/stat` of a process that ends (Linux, include/linux/sched.h)."""


def _stat_of(pid: int, own: int) -> Process | None:
    data = _slurp(f"/proc/{pid}/stat", own)
    fields = data[data.rfind(b")") + 2 :].split(b" ", 20)
    if (
        len(fields) < 20 or fields[0] in b"ZXx" or fields[1] == b"2"
    ):  # 2 is the parent of kernel threads
        return None
    if int(fields[6]) & PF_EXITING:  # killed, and not yet waited for: as dead as a zombie
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _slurp(path: str, own: int) -> bytes:
    """Read a file of /proc that belongs to user `own`; empty when it is gone or not ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        owner = os.fstat(descriptor).st_uid
        if owner != own and (owner or os.stat(os.path.dirname(path)).st_uid != own):
            # the files of a process that is not dumpable belong to root, its folder to its user
            return b""
        data = last = os.read(descriptor, CHUNK_BYTES)
        while len(last) == CHUNK_BYTES and len(data) < ENVIRONMENT_BYTES_MAX:
            last = os.read(descriptor, CHUNK_BYTES)
            data += last
        return data
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def environment_of(pid: int) -> bytes:
    """`\\0NAME=value\\0…` with which a process of this user was started; empty when it cannot be
    read.
    """
    if LINUX:
        own = os.getuid()
        return b"\0" + (_slurp(f"/proc/{pid}/environ", own) or _supervisor_mark(pid, own))
    return _environment_psutil(pid)


def _supervisor_mark(pid: int, own: int) -> bytes:
    """Return the mark of a supervisor, whose environment only root can read, by its command
    line; else nothing.
    """
    try:
        hidden = own != 0 and os.stat(f"/proc/{pid}").st_uid == own
    except OSError:
        return b""
    words = _slurp(f"/proc/{pid}/cmdline", own).split(b"\0") if hidden else []
    if len(words) < 4 or not any(SUPERVISOR_MODULE in word for word in words[:-3]):
        return b""
    return f"{SPOOL_MARK}=".encode() + words[-3] + b"\0"


def processes_with(*names: str) -> list[tuple[int, bytes]]:
    """Return (pid, environment) of this user's processes that have one of these variables."""
    wanted = [f"\0{name}=".encode() for name in names]
    read = ((pid, environment_of(pid)) for pid in (_numbers() if LINUX else _from_psutil()))
    return [
        (pid, environment) for pid, environment in read if any(one in environment for one in wanted)
    ]


def variable(environment: bytes, name: str) -> str:
    """Return the value of a variable in an environment of `environment_of`; '' when absent."""
    _, found, rest = environment.partition(f"\0{name}=".encode())
    return os.fsdecode(rest.partition(b"\0")[0]) if found else ""


def descendants(table: dict[int, Process], first: set[int]) -> set[int]:
    """Return `first` and all their descendants."""
    below: dict[int, list[int]] = {}
    for one in table.values():
        below.setdefault(one.parent, []).append(one.pid)
    found, waiting = set(first), list(first)
    while waiting:
        for pid in below.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's children, zombies included. Cheaper than the whole table."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(number) for number in file.read().split()]
    except OSError:
        return [] if LINUX else [one.pid for one in processes().values() if one.parent == pid]


def ancestors(table: dict[int, Process], pid: int) -> set[int]:
    """Return `pid` and all its ancestors."""
    found: set[int] = set()
    while pid not in found:
        found.add(pid)
        one = table.get(pid)
        if one is None:
            break
        pid = one.parent
    return found


def send(one: Process, number: int) -> bool:
    """Signal exactly this process; False when it is gone or its pid was reused."""
    try:
        if process(one.pid, one.start) is None:
            return False
        os.kill(one.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _from_psutil() -> dict[int, Process]:
    import psutil  # type: ignore[import-untyped]  # no stubs

    own, found = os.getuid(), {}
    for one in psutil.process_iter(["pid", "ppid", "uids", "status", "create_time"]):
        info = one.info
        if (
            info["uids"] is None
            or info["uids"].real != own
            or info["status"] == psutil.STATUS_ZOMBIE
        ):
            continue
        pid, start = info["pid"], int((info["create_time"] or 0) * 1000)
        try:
            found[pid] = Process(pid, info["ppid"] or 0, os.getpgid(pid), os.getsid(pid), start)
        except OSError:
            found[pid] = Process(pid, info["ppid"] or 0, 0, 0, start)
    return found


def _environment_psutil(pid: int) -> bytes:
    import psutil

    try:
        values = psutil.Process(pid).environ()
    except psutil.Error:
        return b"\0"
    return (
        b"\0" + b"\0".join(os.fsencode(f"{name}={value}") for name, value in values.items()) + b"\0"
    )


# --- Process trees that are ending ----------------------------------------------------------------
#
# Longrein and the supervisor both end trees. Members of a command's tree are the processes that
# carry its mark, sit in its session, or descend from either. Each command has a mark of its own in
# `LONGREIN_COMMAND`: `/<pid and start of its owner>.<number>/`. The owner is the process that
# started it: the supervisor, or longrein where there is none. A command of a longrein that runs
# inside another's command carries both marks.

SESSION_MARK = "LONGREIN_SESSION"
COMMAND_MARK = "LONGREIN_COMMAND"
SPOOL_MARK = "LONGREIN_SPOOL"
SANDBOX_MARK = "LONGREIN_SANDBOX"
"""Environment variables: of a supervisor, with its spool; of a confined command, with the PID
namespace around it.
"""
SUPERVISOR_MODULE = b"longrein.workspace.supervisor.main"
"""Text in the command line of a supervisor, whose next words are its code, its spool and a
descriptor.
"""
GRACE_S = 2.0
"""Seconds between TERM and KILL."""
GIVE_UP_S = 5.0
"""Seconds after KILL; a process that still lives is stuck in the kernel and left to the next
start's sweep.
"""
FIRST_ROUND_S = 0.004
LAST_ROUND_S = 0.1
"""First and longest pause between two looks."""
RECENT_S = 0.005
"""Age up to which a process table is used again."""


class Tree:
    """Process tree of one command."""

    def __init__(self, mark: str, root: int, kill_at: float) -> None:
        self.mark = mark.encode()
        self.root = root
        self.set_kill_time(kill_at)
        self.known: dict[int, int] = {}
        """pid -> start of every process ever found: a child stays a member when its parent has
        died.
        """
        self._told: set[tuple[int, int]] = set()
        """(pid, start) of the processes that got TERM."""
        self._group_told = root
        """The group that got TERM as a whole. Only once: many programs take a second TERM as "at
        once".
        """
        self._looked_empty = False

    def members(self, table: dict[int, Process], environments: dict[int, bytes]) -> list[Process]:
        """Return the processes that are left, by pid, and remember them."""
        first = {pid for pid, environment in environments.items() if self.mark in environment}
        first |= {
            one.pid for one in table.values() if self.root and self.root in (one.pid, one.session)
        }
        first |= {
            pid for pid, start in self.known.items() if pid in table and table[pid].start == start
        }
        found = descendants(table, first)
        members = [table[pid] for pid in sorted(found) if pid in table and pid != os.getpid()]
        self.known.update((one.pid, one.start) for one in members)
        return members

    def is_gone(self, members: list[Process]) -> bool:
        """Tell whether no process is left, after a look that found `members`. Two looks must find
        nothing: one misses a process that forks meanwhile, or that is between two programs and
        has no environment.
        """
        before, self._looked_empty = self._looked_empty, not members
        return before and not members

    def set_kill_time(self, kill_at: float) -> None:
        """Set the time of KILL."""
        self.kill_at, self.give_up_at = kill_at, kill_at + GIVE_UP_S

    def signal_members(self, members: list[Process], now: float) -> None:
        """Send TERM to new members; after the grace period, KILL to all."""
        for one in members:
            if now >= self.kill_at:
                send(one, signal.SIGKILL)
            elif (one.pid, one.start) not in self._told and one.group != self._group_told:
                send(one, signal.SIGTERM)
            self._told.add((one.pid, one.start))
        self._group_told = 0

    def due_s(self, now: float) -> float:
        """Return the seconds until KILL; after KILL, the pause until the next look."""
        return self.kill_at - now if now < self.kill_at else FIRST_ROUND_S


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

        The leader's group gets TERM at once. The leader's children are noted first: after its death
        an unmarked child could not be told from a stranger.
        """
        if tree.root:
            tree.members(self._recent_table(), {})
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(tree.root, signal.SIGTERM)
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

    def kill_now(self) -> None:
        """Send KILL to everything that is left, without a grace period."""
        for tree in self._trees:
            tree.set_kill_time(self._clock())
        self.hurry()
        self.walk()
