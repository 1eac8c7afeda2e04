"""The folder of a session, `<state>/sessions/<uuid>/`: paths, safe file operations, the session
lock and the high-water mark.

Folders are 0700 and files 0600, whatever the umask.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import re
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from zlib import crc32

import msgspec

from longrein.atomic_file import flush, replace_file
from longrein.store.disk_errors import store_failure
from longrein_context.events import SessionBusy, SessionError, SessionUnknown
from longrein_context.events.escape import shortened, whole_number

DATABASE = "log.sqlite"
"""The log. SQLite's `-wal` and `-shm` lie beside it."""
BLOBS = "blobs"
"""Folder of content too large for the database: `blobs/ab/<hash>`."""
CHECKPOINTS = "checkpoints"
"""Folder of the copies of the work tree."""
INBOX = "inbox"
"""Folder where other processes leave messages for the session."""
FORKS = "forks"
"""Folder with a file for each fork that reads this session's entries, named by its id. It is empty,
or says after which entry some were lost (`limit_forks`).
"""
KEPT = ".kept"
"""Folder beside the sessions: deleted sessions whose entries forks still need."""
UNFINISHED = ".new"
"""Folder beside the sessions: forks that are being made."""
LOCK = "lock"
"""File that is locked while a process has the session open."""

NETWORK_TYPES = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "9p",
            "afs",
            "ceph",
            "glusterfs",
            "lustre",
            "gpfs",
            "beegfs",
        ),
        *(
            "fuse.sshfs",
            "fuse.rclone",
            "fuse.s3fs",
            "fuse.glusterfs",
            "fuse.ceph",
            "fuse.mfs",
            "fuse.gcsfuse",
        ),
    }
)
"""File systems without shared memory between machines, where SQLite's WAL is not safe."""


# --- Folders --------------------------------------------------------------------------------------


def session_id(text: str) -> str:
    """Return `text` as a session id in lower case. Raises `SessionUnknown` when it is not a
    UUID.
    """
    if re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text):
        return text.lower()
    shown = repr(shortened(text, 60))
    raise SessionUnknown(f"{shown} is not a session id; `longrein sessions` lists them")


def sessions_folder(state_dir: str) -> str:
    """Return the folder of all sessions."""
    return os.path.join(state_dir, "sessions")


def session_folder(state_dir: str, session: str) -> str:
    """Return the folder of a session, whether or not it exists. Raises `SessionUnknown` for an
    invalid id.
    """
    return os.path.join(sessions_folder(state_dir), session_id(session))


def kept_folder(folder: str) -> str:
    """Return the place of a session's folder after its deletion, while forks need it."""
    return os.path.join(os.path.dirname(folder), KEPT, os.path.basename(folder))


def original_folder(folder: str, fork: str) -> str:
    """Return where the session of `folder` lies, of which `fork` is a fork; '' when it is gone."""
    for place in (folder, kept_folder(folder)):
        if os.path.exists(os.path.join(place, FORKS, fork)):
            return place
    return ""


def limit_forks(folder: str, last: int) -> None:
    """Record that the session in `folder` has lost its entries after `last`: what it writes in
    their place is not what its forks refer to. Raises OSError.
    """
    place = os.path.join(folder, FORKS)
    for name in os.listdir(place) if os.path.isdir(place) else ():
        if fork_limit(folder, name) > last:
            replace_file(os.path.join(place, name), (b"%d" % last,), durable=True)


def fork_limit(folder: str, fork: str) -> int:
    """Return the last entry of the session in `folder` that `fork` may read."""
    try:
        with open(os.path.join(folder, FORKS, fork), "rb") as file:
            return int(file.read() or b"%d" % sys.maxsize)
    except (OSError, ValueError):
        return 0


def make_folder(path: str) -> bool:
    """Create `path` and missing parents with mode 0700; return whether `path` is new. Raises
    OSError.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return False
    except FileNotFoundError:
        make_folder(os.path.dirname(path))
    else:
        return True
    try:
        os.mkdir(path, 0o700)  # only once: below /proc creation fails whatever parents exist
    except FileExistsError:
        return False  # another process creates the same folders
    return True


def make_session_folder(state_dir: str, session: str) -> tuple[str, bool]:
    """Return the folder of `session`, created if missing, and whether it is new. Raises
    `SessionError`.
    """
    folder = session_folder(state_dir, session)
    try:
        return folder, make_folder(folder)
    except OSError as error:
        failure = store_failure(error, folder)
        if type(failure) is not SessionError:
            raise failure from None
        raise SessionError(
            f"cannot make {folder}: {error.strerror}; name another place with --state-dir or "
            "LONGREIN_STATE_DIR"
        ) from None


def damaged_databases(folder: str) -> list[str]:
    """Return paths of databases that were set aside in a session's folder, oldest first."""
    start = DATABASE + ".damaged-"
    ends = [name[len(start) :] for name in os.listdir(folder) if name.startswith(start)]
    return [
        os.path.join(folder, f"{start}{number}")
        for number in sorted(filter(None, map(whole_number, ends)))
    ]


def new_file(path: str) -> int:
    """Create a file with mode 0600 and return its descriptor. Raises FileExistsError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def unlink(path: str) -> None:
    """Remove a file, if it exists. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def is_on_network(folder: str) -> bool:
    """Return True if `folder` lies on a network file system; False where that is unknown."""
    try:
        device = os.stat(folder).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return mount_type(file.read(), os.major(device), os.minor(device)) in NETWORK_TYPES
    except OSError:
        return False


def mount_type(table: str, major: int, minor: int) -> str:
    """Return the file system type of device `major:minor` in a mountinfo table; '' when it is
    missing.
    """
    _, found, after = table.partition(f" {major}:{minor} ")
    return after.partition("\n")[0].partition(" - ")[2].partition(" ")[0] if found else ""


# --- Session lock ---------------------------------------------------------------------------------
#
# Held from open to close, so that a session has one writer. The kernel releases it when the process
# ends.


RETRY_S = (0.002, 0.008, 0.03)
"""Pauses before a held lock counts as held. Where locks can only be tried, a list of sessions
holds one for an instant.
"""

_SET = getattr(fcntl, "F_OFD_SETLK", 0)
_GET = getattr(fcntl, "F_OFD_GETLK", 0)
# Linux: open file description locks. Unlike flock they work over network mounts; unlike plain fcntl
# locks they stay when another descriptor of the file is closed.


class LockHolder(msgspec.Struct, frozen=True):
    """Content of the lock file: the process that holds the lock, and since when (microseconds
    UTC).
    """

    pid: int
    host: str
    since: int


class SessionLock:
    """The lock of one session's folder, held until `release`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


async def take_lock(folder: str, wall_us: Callable[[], int]) -> SessionLock:
    """Lock the session in `folder`. Raises `SessionBusy` with pid and host of the holder,
    OSError.
    """
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
        f"session {os.path.basename(folder)} is open in {who}; close that one, or go on in a copy "
        "with --fork-session"
    )


def is_held(folder: str) -> bool:
    """Return True if a process has the session in `folder` open."""
    try:
        descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if _GET:
            return bool(
                struct.unpack_from("h", fcntl.fcntl(descriptor, _GET, _whole_file()))[0]
                != fcntl.F_UNLCK
            )
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
    with contextlib.suppress(OSError):  # on a full disk the lock works without its text
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, line, 0)


def _read_holder(descriptor: int) -> LockHolder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=LockHolder)
    except (OSError, msgspec.DecodeError):
        return None


# --- High-water mark ------------------------------------------------------------------------------

AT_ONCE = os.O_CLOEXEC | os.O_NONBLOCK
"""Flags to open a file with no wait for another process, as for a pipe."""
MARK_FILE = "high-water-mark"
"""File in a session's folder: eight hexadecimal digits of a CRC-32, then the JSON it covers, on
one line.
"""
LAG_NS = 1_000_000_000
"""A trusted mark is older than the database by less than this. Unflushed commits and copies of
the folder make it older.
"""
BYTES_MAX = 1024 * 1024


class HighWaterMark(msgspec.Struct):
    """The state that was on disk at the last flush.

    SQLite takes a WAL that was removed, cut short or changed for one that ends early, and reports
    nothing. The mark is written after every flush, so a log that ends before its mark has lost
    entries. The mark itself is not flushed: it survives `kill -9`, and after a power cut it may be
    behind the log but never ahead of it. Lists of sessions read it instead of the database.
    """

    created: int = 0
    """Time when the session was first opened, microseconds UTC."""
    cwd: str = ""
    title: str = ""
    one_shot: bool = False
    """True for a run of `longrein -p` without a title of its own."""
    updated: int = 0
    """Time of the last entry of the root session, microseconds UTC; 0 when unknown."""
    entries: dict[int, int] = {}
    """Number of a session in the database -> its last seq."""
    message: int = 0
    """Highest id of an inbox message."""
    size_bytes: int = 0
    """Size of the main file when it was last closed; it never shrinks."""
    cut: set[int] = set()
    """Numbers of sessions that have lost their last entries and were not written since. Their
    last acts are unknown, so nothing may be repeated without asking.
    """


def read_mark(folder: str, *, since_ns: int = 0) -> HighWaterMark | None:
    """Return the mark of the session in `folder`; None when it is missing, invalid or too old.

    `since_ns`: time of the last write to the database. A mark written long before that is too old.
    """
    try:
        path = f"{folder}/{MARK_FILE}"
        with open(os.open(path, os.O_RDONLY | AT_ONCE), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if status.st_mtime_ns + LAG_NS < since_ns or status.st_size > BYTES_MAX:
                return None
            line = file.read(status.st_size).partition(b"\n")[0]
        return _decoder.decode(line[8:]) if int(line[:8], 16) == crc32(line[8:]) else None
    except (OSError, ValueError, msgspec.DecodeError):
        return None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(HighWaterMark)


def write_mark(folder: str, mark: HighWaterMark, *, durable: bool = False) -> None:
    """Replace the mark in one system call, so that a killed process leaves the old or the new one.

    `durable`: flush it before returning. A failed write is ignored, because a mark may be behind.
    """
    body = _encode(mark)
    with contextlib.suppress(OSError):
        descriptor = os.open(f"{folder}/{MARK_FILE}", os.O_WRONLY | os.O_CREAT | AT_ONCE, 0o600)
        try:
            os.pwrite(descriptor, b"%08x%b\n" % (crc32(body), body), 0)
            if durable:
                flush(descriptor)
        finally:
            os.close(descriptor)


# --- Files for hooks ------------------------------------------------------------------------------
#
# Files beside the log for hooks: a readable copy of the conversation, and files into which hooks
# write variables.


class HookFiles:
    """The files of one session and its subagents."""

    def __init__(self, folder: str) -> None:
        """`folder`: that of the session."""
        self._folder = folder
        self.env_folder = os.path.join(os.path.realpath(folder), "hook-env")
        """Folder of the files for variables, which confined hooks may change."""
        self._numbers = count(1)

    def append(self, label: str, data: bytes, anew: bool) -> str:
        """Append lines to the transcript of the session or, by its label, of a subagent; `anew`
        begins it again.

        Return its path, or '' where it cannot be written.
        """
        path = os.path.join(
            self._folder, f"transcript-{label}.jsonl" if label else "transcript.jsonl"
        )
        how = os.O_TRUNC if anew else os.O_APPEND
        return path if _write(path, data, how) else ""

    def new_env_file(self) -> str:
        """Make an empty file for the variables of one hook; return its path, '' where it cannot
        be made.
        """
        with suppress(OSError):
            os.makedirs(self.env_folder, 0o700, exist_ok=True)
        path = os.path.join(self.env_folder, f"{os.getpid()}-{next(self._numbers)}.sh")
        return path if _write(path, b"", os.O_TRUNC) else ""

    def has_content(self, path: str) -> bool:
        """Return True if a hook has written into the file."""
        try:
            return os.lstat(path).st_size > 0
        except OSError:
            return False

    def remove(self, path: str) -> None:
        """Remove a file for variables."""
        with suppress(OSError):
            os.unlink(path)


def _write(path: str, data: bytes, how: int) -> bool:
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | how, 0o600
        )
        with open(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        return False
    return True
