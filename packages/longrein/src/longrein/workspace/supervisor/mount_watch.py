"""Masks and locks of running commands, made anew when somebody replaces a file under one.

A mount belongs to a file, not to its name. When an editor renames a new `.env` over the old one,
the kernel removes the mask from all running commands (rename(2), since Linux 3.19). The new file is
the user's and stays; the mounts over it are made again in the mount namespace of each command.
"""

import fcntl
import os
import signal
import stat
import struct
import sys
import termios
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

from longrein.workspace.supervisor.landlock_process import c_library, checked
from longrein.workspace.supervisor.mount_process import (
    COVER,
    EMPTY,
    IMAGE,
    READ,
    Mount,
    decode_plan,
    enter_namespaces,
    renew_mounts,
)
from longrein.workspace.supervisor.openat import IS_FOLDER, open_real
from longrein.workspace.supervisor.process_tree import children_of

_CAME = 0x80 | 0x100
"""`IN_MOVED_TO` and `IN_CREATE`."""
_OVERFLOW = 0x4000
"""More has come than the kernel keeps."""
_ALL = ""
"""Place that every path is below."""
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_EVENT = struct.Struct("iIII")
EVENT_BYTES = 1 << 16


class Plan(namedtuple("Plan", "mounts inner")):
    """Mounts of a command; the inner ones are in folders that the command may change."""

    def identities(self, *more: str) -> Sequence[tuple[int, ...]]:
        """Return what tells the files at its paths, and at the paths `more`, from others that may
        take their place.
        """
        own = (one.path if one.kind == COVER else one.source or one.path for one in self.mounts)
        return list(map(_identity, (*more, *own)))


@lru_cache(maxsize=4)
def _plan_of(encoded: bytes) -> Plan:
    """Return the mounts of a plan, that of one command after the other."""
    mounts = decode_plan(encoded)
    return Plan(mounts, [one for one in mounts if one.kind != EMPTY and _is_inner(one, mounts)])


_Watched = namedtuple("_Watched", "pid mounts drop")
"""The sandbox's program, outside the namespaces of the command; mounts in folders that the command
may change; what gives up a sandbox that still waits for its command, None for a running command.
"""


class MountWatch:
    """Watch of the files under the mounts of running commands. Belongs to the supervisor's loop."""

    def __init__(
        self, watch: Callable[[int, Callable[[], None]], None], tell: Callable[[str], None]
    ) -> None:
        """`watch` calls back when a descriptor can be read. `tell` gets a line for the user."""
        self._watch, self._tell = watch, tell
        self._descriptor = -1
        self._folders: dict[int, str] = {}
        """Number of the kernel's watch -> folder."""
        self._running: dict[int, _Watched] = {}

    def prepare(self, plan_path: str) -> Plan:
        """Read a plan and watch its folders, before a command makes the mounts. Raises OSError.

        What has come before is no change for this command.
        """
        self.look()
        with open(plan_path, "rb") as file:
            plan = _plan_of(file.read())
        with suppress(OSError):
            self._watch_folders({os.path.dirname(mount.path) for mount in plan.inner})
        return plan

    def add(self, pid: int, plan: Plan, drop: Callable[[], None] | None = None) -> None:
        """Note a command that has just started; `drop` as in `_Watched`."""
        if plan.inner:
            self._running[pid] = _Watched(pid, plan.inner, drop)

    def remove(self, pid: int) -> None:
        """Forget a command that has ended."""
        self._running.pop(pid, None)

    def _watch_folders(self, folders: Iterable[str]) -> None:
        libc = c_library()
        if self._descriptor < 0:
            self._descriptor = int(checked(libc.inotify_init1(_NONBLOCK_CLOEXEC)))
            self._watch(self._descriptor, self.look)
        for folder in folders:
            with suppress(OSError):
                opened = open_real(folder, IS_FOLDER)
                try:
                    name = f"/proc/self/fd/{opened}".encode()
                    number = checked(libc.inotify_add_watch(self._descriptor, name, _CAME))
                    self._folders[int(number)] = folder
                finally:
                    os.close(opened)

    def look(self) -> None:
        """Read the events; renew the mounts at and below each path that has come."""
        came = set()
        if self._descriptor < 0:
            return
        with suppress(BlockingIOError):
            for number, kinds, name in events_in(os.read(self._descriptor, self._waiting_bytes())):
                path = f"{self._folders.get(number, '')}/{name}"
                came.add(path if not kinds & _OVERFLOW else _ALL)
        for watched in list(self._running.values()):
            lost = [one for one in watched.mounts if _is_at_or_below(one.path, came)]
            if lost and watched.drop is not None:
                watched.drop()
            elif lost:
                self._renew(watched, lost)

    def _waiting_bytes(self) -> int:
        """Return how much can be read now: what comes meanwhile may have no end."""
        found = fcntl.ioctl(self._descriptor, termios.FIONREAD, b"\0" * 4)
        return max(EVENT_BYTES, int.from_bytes(found, sys.byteorder))

    def _renew(self, watched: _Watched, lost: Sequence[Mount]) -> None:
        names = ", ".join(mount.path for mount in lost[:3])
        inner = children_of(watched.pid)
        if not inner:
            return
        pid = os.fork()
        if not pid:
            status = 1
            with suppress(OSError):
                enter_namespaces(inner[0])
                renew_mounts(lost)
                status = 0
            os._exit(status)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            for process in inner:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._tell(
                f"a running command was ended: {names} was replaced while it ran and could not be "
                "protected from it again; start it again"
            )
            return
        self._tell(f"{names} was replaced while a command ran; it is protected from it again")


def _identity(path: str) -> tuple[int, ...]:
    try:
        seen = os.stat(path, follow_symlinks=False)
    except OSError:
        return ()
    # a file system may give the number of a removed file to the next one
    changed_ns = 0 if stat.S_ISDIR(seen.st_mode) else seen.st_ctime_ns
    return seen.st_dev, seen.st_ino, changed_ns


def events_in(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield (number of the watch, bits of the event, name in the folder) of what was read from
    inotify(7).
    """
    at = 0
    while at < len(data):
        number, kinds, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        yield number, kinds, os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length


def _is_inner(mount: Mount, plan: Sequence[Mount]) -> bool:
    """Return True if the mount lies in a folder that the command may change, and hides a file of
    that folder.
    """
    around = [one for one in plan if mount.path.startswith(one.path.rstrip("/") + "/")]
    if not around or around[-1].kind in (READ, EMPTY, IMAGE):
        return False
    return bool(mount.kind != READ or around[-1].source == around[-1].path)


def _is_at_or_below(path: str, places: set[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)
