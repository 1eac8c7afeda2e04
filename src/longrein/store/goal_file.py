"""The goals' database file: one transaction at a time, and what becomes of a file that is damaged.

As with sessions, a damaged database is never written to: it is set aside as `….damaged-<n>`, and what can be read of
it goes into a new one.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from typing import TypeVar

from longrein.events import StoreFull, ToolError
from longrein.store.database import read_only
from longrein.store.faults import is_damage, store_failure
from longrein.store.folder import flush_path, make_folder, new_file

T = TypeVar("T")
LAYOUT = 1
"""Version of the tables, in `user_version`."""
TABLES = f"""
CREATE TABLE goals(id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, status TEXT NOT NULL, body TEXT NOT NULL,
    owner TEXT NOT NULL, lease_until INTEGER NOT NULL, revision INTEGER NOT NULL, changed_by TEXT NOT NULL,
    changed_at INTEGER NOT NULL);
CREATE TABLE blocks(goal INTEGER NOT NULL, blocker INTEGER NOT NULL, PRIMARY KEY(goal, blocker)) WITHOUT ROWID;
PRAGMA user_version={LAYOUT};
"""
# goals.id is never used twice; a deleted goal stays, and so do all its edges: what blocks is computed
BUSY_S = 10.0
"""How long a transaction waits for those of other processes."""


def transaction(path: str, act: Callable[[sqlite3.Connection], T], *, network: bool) -> T:
    """`act` with the database at `path`, made if missing, in one transaction: all of it or nothing.

    Raises `ToolError`, in words for whoever asked, when the file cannot be used.
    """
    try:
        make_folder(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.close(new_file(path))
        return _transacted(path, act, network=network)
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise _mended(path, str(error)) from None
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise ToolError("[busy] Other processes keep the goals busy; nothing was changed. Try again.") from None
        raise _failed(error, path) from None
    except OSError as error:
        raise _failed(error, path) from None


def _failed(error: Exception, path: str) -> ToolError:
    full = isinstance(store_failure(error, os.path.dirname(path)), StoreFull)
    if full:
        return ToolError(f"[disk-full] There is no room for the goals in {path}; nothing was changed.")
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    return ToolError(f"[goals] {path} cannot be used ({why}); nothing was changed.")


def _transacted(path: str, act: Callable[[sqlite3.Connection], T], *, network: bool) -> T:
    with contextlib.closing(_open(path, network=network)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            _lay_out(connection, path)
            result = act(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result


def _open(path: str, *, network: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)
    try:
        wanted = "delete" if network else "wal"
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
            with _alone(path):  # two that change it at once would find it locked and not wait
                connection.execute(f"PRAGMA journal_mode={wanted}")
        connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _lay_out(connection: sqlite3.Connection, path: str) -> None:
    layout = connection.execute("PRAGMA user_version").fetchone()[0]
    if layout > LAYOUT:
        raise ToolError(f"[newer] {path} was written by a newer longrein; upgrade this one to use the goals.")
    if layout == 0:
        for statement in TABLES.split(";\n")[:-1]:
            connection.execute(statement)


def _mended(path: str, why: str) -> ToolError:
    """Set the damaged file aside and make a new one of what can be read; what to tell of it."""
    with _alone(path):
        if _is_sound(path):  # another process has mended it meanwhile
            return ToolError("[goals] The goals were being mended; nothing was changed. Try again.")
        aside, building = _free_name(path), path + ".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(building)
        os.close(new_file(building))
        kept = _copy(path, building)
        for end in ("-wal", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + end, aside + end)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + "-shm")
        _second_name(path, aside)
        flush_path(building)
        os.rename(building, path)
        flush_path(os.path.dirname(path))
    return ToolError(
        f"[damaged] The goals' database was damaged ({why}) and is set aside as {aside}; {kept} goals could be kept. "
        "Nothing was changed now: list them and try again."
    )


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """While no other process makes or mends the file."""
    descriptor = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_sound(path: str) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)) as connection:
            sound: bool = connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
            return sound
    except sqlite3.DatabaseError:
        return False


def _second_name(path: str, aside: str) -> None:
    try:
        os.link(path, aside)
    except OSError:  # a file system without links
        os.rename(path, aside)


def _free_name(path: str) -> str:
    number = 1
    while os.path.exists(f"{path}.damaged-{number}"):
        number += 1
    return f"{path}.damaged-{number}"


def _copy(damaged: str, building: str) -> int:
    """Copy what can be read; the number of goals. Their counter goes on where it was, as far as that can be told."""
    with contextlib.closing(sqlite3.connect(building, isolation_level=None)) as target:
        target.execute("BEGIN")
        _lay_out(target, building)
        with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(read_only(damaged)) as source:
            for table in ("goals", "blocks"):
                with contextlib.suppress(sqlite3.DatabaseError):
                    for row in source.execute(f"SELECT * FROM {table}"):
                        target.execute(f"INSERT INTO {table} VALUES({', '.join('?' * len(row))})", row)
            last = source.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()[0] or 0
            known = target.execute("SELECT coalesce(max(id), 0) FROM goals").fetchone()[0]
            target.execute("DELETE FROM sqlite_sequence")
            target.execute("INSERT INTO sqlite_sequence(name, seq) VALUES('goals', ?)", (max(last, known),))
        kept: int = target.execute("SELECT count(*) FROM goals").fetchone()[0]
        target.execute("COMMIT")
    return kept
