"""Where a session lies on disk: `<state>/sessions/<uuid>/`, folders 0700 and files 0600 whatever the umask."""

import asyncio
import contextlib
import errno
import fcntl
import os
import re
import struct
from collections.abc import Callable, Iterable

import msgspec

from longrein.events import SessionBusy, SessionError, SessionUnknown
from longrein.store.errors import store_failure

DATABASE = "log.sqlite"
"""The log. Beside it SQLite's `-wal` and `-shm`."""
BLOBS = "blobs"
"""Content too large for the database: `blobs/ab/<hash>`."""
INBOX = "inbox"
"""Where other processes leave words for the session."""
LOCK = "lock"
"""Held as long as a process has the session open."""

NETWORK_TYPES = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"),
        *("fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.glusterfs", "fuse.ceph", "fuse.mfs", "fuse.gcsfuse"),
    }
)
"""File systems whose shared memory is not shared between machines: SQLite's WAL is not safe there."""


def session_id(text: str) -> str:
    """`text` as a session id, lower case. Raises `SessionUnknown` for anything that is not a UUID."""
    if re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text):
        return text.lower()
    shown = repr(text if len(text) <= 60 else text[:60] + "…")
    raise SessionUnknown(f"{shown} is not a session id; `longrein sessions` lists them")


def sessions_folder(state_dir: str) -> str:
    """Folder of all sessions."""
    return os.path.join(state_dir, "sessions")


def session_folder(state_dir: str, session: str) -> str:
    """Folder of one session, there or not. Raises `SessionUnknown` for a text that is no id."""
    return os.path.join(state_dir, "sessions", session_id(session))


def existing_folder(state_dir: str, session: str) -> str:
    """Folder of a session that is there. Raises `SessionUnknown`."""
    folder = session_folder(state_dir, session)
    if os.path.isdir(folder):
        return folder
    raise SessionUnknown(f"there is no session {session}; `longrein sessions` lists them")


def make_folder(path: str) -> bool:
    """Make `path` and what is missing above it, 0700 each; whether it was not there. Raises OSError."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return False
    except FileNotFoundError:
        make_folder(os.path.dirname(path))
    else:
        return True
    try:
        os.mkdir(path, 0o700)  # once: below /proc a folder is missing whatever there is above it
    except FileExistsError:
        return False  # another start is making the same folders
    return True


def make_session_folder(state_dir: str, session: str) -> tuple[str, bool]:
    """Folder of `session`, made if missing; whether it is new. Raises `SessionError`."""
    folder = session_folder(state_dir, session)
    try:
        return folder, make_folder(folder)
    except OSError as error:
        failure = store_failure(error, folder)
        if type(failure) is not SessionError:
            raise failure from None
        raise SessionError(
            f"cannot make {folder}: {error.strerror}; name another place with --state-dir or LONGREIN_STATE_DIR"
        ) from None


def damaged_databases(folder: str) -> list[str]:
    """Damaged databases that were set aside in a session's folder, oldest first."""
    start = DATABASE + ".damaged-"
    ends = [name[len(start) :] for name in os.listdir(folder) if name.startswith(start)]
    return [os.path.join(folder, f"{start}{number}") for number in sorted(int(end) for end in ends if end.isdigit())]


def new_file(path: str) -> int:
    """A descriptor of a new file, 0600. Raises FileExistsError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def flush(descriptor: int) -> None:
    """Bring the data of a file to the platter."""
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache
    if full is not None:
        fcntl.fcntl(descriptor, full)
    else:
        os.fdatasync(descriptor)


def flush_path(path: str) -> None:
    """The same by name, names inside a folder included."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):
            flush(descriptor)
        else:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: str, pieces: Iterable[bytes]) -> None:
    """A new file 0600 of `pieces`, on disk when this returns; its name is not yet. Leaves nothing when it fails."""
    descriptor = new_file(path)
    try:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(descriptor, view) :]
        flush(descriptor)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def is_on_network(folder: str) -> bool:
    """Whether `folder` lies on a network file system. False where that cannot be told."""
    try:
        device = os.stat(folder).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return mount_type(file.read(), os.major(device), os.minor(device)) in NETWORK_TYPES
    except OSError:
        return False


def mount_type(table: str, major: int, minor: int) -> str:
    """Type of the file system on device `major:minor` by a mountinfo table; '' when it is not there."""
    _, found, after = table.partition(f" {major}:{minor} ")
    return after.partition("\n")[0].partition(" - ")[2].partition(" ")[0] if found else ""


# ---------------------------------------------------------------------------------------------------------------------
#
# One writer: a lock held from open to close, that says who holds it. The kernel lets go of it when we die.


RETRY_S = (0.002, 0.008, 0.03)
"""Pauses before a held lock counts as held: where a lock can only be tried, a list of sessions holds it an instant."""

_SET = getattr(fcntl, "F_OFD_SETLK", 0)
_GET = getattr(fcntl, "F_OFD_GETLK", 0)
# Linux: locks of the open file. They reach other machines over a network mount, as flock may not, and do not vanish
# when some other descriptor of the file is closed, as plain fcntl locks do.


class LockHolder(msgspec.Struct, frozen=True):
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
            if _try_lock(descriptor):
                _write_holder(descriptor, wall_us())
                return SessionLock(descriptor)
            await asyncio.sleep(pause_s)
        holder = _read_holder(descriptor)
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
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
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


def _write_holder(descriptor: int, since: int) -> None:
    line = msgspec.json.encode(LockHolder(os.getpid(), os.uname().nodename, since)) + b"\n"
    with contextlib.suppress(OSError):  # a full disk: the lock holds without its message
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, line, 0)


def _read_holder(descriptor: int) -> LockHolder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=LockHolder)
    except (OSError, msgspec.DecodeError):
        return None
