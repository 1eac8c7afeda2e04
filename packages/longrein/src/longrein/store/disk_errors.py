"""Map errors of SQLite and the disk to `SessionError`s with one line for the user."""

import contextlib
import errno
import os
import resource
import sqlite3

from longrein.atomic_file import write_file
from longrein_context.events import SessionError, StoreDamaged, StoreFull

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ERROR = 1
_FULL = 13
_IOERR = 10
_CORRUPT = 11
_NOTADB = 26
"""Primary result codes of SQLite."""


PROBE_BYTES = 64 * 1024
SUSPECT = "suspect"
"""File in a session's folder that requests a rebuild of the database at the next open, after a
write met damage.
"""


def is_damage(error: BaseException) -> bool:
    """Return True if SQLite reports a damaged file."""
    return isinstance(error, sqlite3.DatabaseError) and (
        _primary_code(error) in (_CORRUPT, _NOTADB)
        or any(words in str(error) for words in ("malformed", "Could not decode"))
        or getattr(error, "sqlite_errorname", "")
        in ("SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_READ")
    )


def is_damage_at_open(error: sqlite3.DatabaseError) -> bool:
    """Return True if an error during open means a damaged file.

    At open all statements and tables are known to be right, so SQL errors count as damage too.
    """
    return is_damage(error) or _primary_code(error) in (0, _ERROR)


def store_failure(error: BaseException, folder: str) -> SessionError:
    """Return the `SessionError` for an error in the session in `folder`; never raises."""
    match error:
        case SessionError():
            return error
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG):
            return _store_full(folder, error.strerror or "no room")
        case OSError(errno=errno.EIO):
            return _broken_disk(folder, error.strerror or "input/output error")
        case OSError():
            return SessionError(f"cannot use {error.filename or folder}: {error.strerror or error}")
        case sqlite3.Error() if is_damage(error):
            return StoreDamaged(
                f"the database in {folder} is damaged ({error}); open the session again to repair "
                "it"
            )
        case sqlite3.Error() if _primary_code(error) == _FULL:
            return _store_full(folder, str(error))
        case sqlite3.Error() if (
            _primary_code(error) == _IOERR
        ):  # also for writes that hit a quota or a size limit
            return (
                _store_full(folder, str(error))
                if _is_full(folder)
                else _broken_disk(folder, str(error))
            )
    return SessionError(f"the log in {folder} cannot be used: {error}")


def _store_full(folder: str, why: str) -> StoreFull:
    name = os.path.basename(folder)
    return StoreFull(
        f"cannot write to {folder} ({why}); free some room, then go on with `longrein -r {name}`"
    )


def _is_full(folder: str) -> bool:
    """Return True if a file in `folder` cannot grow, because of a file size limit, a quota or a
    full disk.
    """
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return True
    probe = os.path.join(folder, f".probe-{os.getpid()}")
    try:
        write_file(probe, (bytes(PROBE_BYTES),), durable=False)
        os.unlink(probe)
    except OSError as error:
        return error.errno in _NO_ROOM
    return False


def _broken_disk(folder: str, why: str) -> SessionError:
    name = os.path.basename(folder)
    return SessionError(
        f"the disk failed while {folder} was read or written ({why}); check the disk and its "
        "cables, "
        f"then go on with `longrein -r {name}`"
    )


def _primary_code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def mark_suspect(folder: str) -> None:
    """Request a rebuild of the database at the next open."""
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.join(folder, SUSPECT), os.O_CREAT | os.O_CLOEXEC, 0o600))
