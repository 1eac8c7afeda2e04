"""What the disk and SQLite say, as one of our errors with one line for the person."""

import contextlib
import errno
import os
import sqlite3

from longrein.events import SessionError, StoreDamaged, StoreFull

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL, _IOERR, _CORRUPT, _NOTADB = 13, 10, 11, 26
"""Primary result codes of SQLite."""


SUSPECT = "suspect"
"""A file in a session's folder that says: a write met damage, rebuild the database at the next open."""


def is_damage(error: BaseException) -> bool:
    """Whether SQLite says that the file is not what it wrote."""
    return isinstance(error, sqlite3.DatabaseError) and (
        _primary(error) in (_CORRUPT, _NOTADB) or "malformed" in str(error) or _short_read(error)
    )


def store_failure(error: BaseException, folder: str) -> SessionError:
    """The error of our tree for what went wrong with the session in `folder`; never raises."""
    if isinstance(error, SessionError):
        return error
    if isinstance(error, OSError):
        return _of_system(error, folder)
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error, folder)
    return SessionError(f"the log in {folder} cannot be used: {error}")


def _of_system(error: OSError, folder: str) -> SessionError:
    if error.errno in _NO_ROOM:
        return _full(folder, error.strerror or "no room")
    return SessionError(f"cannot use {error.filename or folder}: {error.strerror or error}")


def _of_sqlite(error: sqlite3.Error, folder: str) -> SessionError:
    if is_damage(error):
        return StoreDamaged(f"the database in {folder} is damaged ({error}); open the session again to repair it")
    if _primary(error) in (_FULL, _IOERR):
        return _full(folder, str(error))
    return SessionError(f"the log in {folder} cannot be used: {error}")


def _full(folder: str, why: str) -> StoreFull:
    name = os.path.basename(folder)
    return StoreFull(f"cannot write to {folder} ({why}); free some room, then go on with `longrein -r {name}`")


def _primary(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _short_read(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "") in ("SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_READ")


def mark_suspect(folder: str) -> None:
    """Have the database rebuilt at the next open."""
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.join(folder, SUSPECT), os.O_CREAT | os.O_CLOEXEC, 0o600))
