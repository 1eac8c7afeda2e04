"""One writer: a lock held from open to close, that says who holds it. The kernel lets go of it when we die."""

import asyncio
import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Callable

import msgspec

from longrein.events import SessionBusy
from longrein.store.folder import LOCK

RETRY_S = (0.002, 0.008, 0.03)
"""Pauses before a held lock counts as held: where a lock can only be tried, a list of sessions holds it an instant."""

_SET = getattr(fcntl, "F_OFD_SETLK", 0)
_GET = getattr(fcntl, "F_OFD_GETLK", 0)
# Linux: locks of the open file. They reach other machines over a network mount, as flock may not, and do not vanish
# when some other descriptor of the file is closed, as plain fcntl locks do.


class Holder(msgspec.Struct, frozen=True):
    """Who holds a session."""

    pid: int
    """Process."""
    host: str
    """Machine."""
    since: int
    """Microseconds UTC."""


class SessionLock:
    """The lock of one session's folder, held until `release`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


async def take_lock(folder: str, wall_us: Callable[[], int]) -> SessionLock:
    """Lock the session in `folder`. Raises `SessionBusy` with pid and host of the holder, OSError."""
    descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for pause_s in (*RETRY_S, 0.0):
            if _try(descriptor):
                _sign(descriptor, wall_us())
                return SessionLock(descriptor)
            await asyncio.sleep(pause_s)
        holder = _holder(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    who = f"process {holder.pid} on {holder.host}" if holder else "another process"
    raise SessionBusy(
        f"session {os.path.basename(folder)} is open in {who}; close that one, or go on in a copy with --fork-session"
    )


def is_held(folder: str) -> bool:
    """Whether a process has the session in `folder` open now."""
    try:
        descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if _GET:
            return bool(struct.unpack_from("h", fcntl.fcntl(descriptor, _GET, _whole_file()))[0] != fcntl.F_UNLCK)
        return not _try(descriptor)
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        if _SET:
            fcntl.fcntl(descriptor, _SET, _whole_file())
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise  # a file system without locks
    return True


def _whole_file() -> bytes:
    return struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _sign(descriptor: int, since: int) -> None:
    line = msgspec.json.encode(Holder(os.getpid(), os.uname().nodename, since)) + b"\n"
    with contextlib.suppress(OSError):  # a full disk: the lock holds without its message
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, line, 0)


def _holder(descriptor: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None
