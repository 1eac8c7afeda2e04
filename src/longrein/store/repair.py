"""Opening a log that was there before: looking through it, and keeping the good part when it is damaged.

A damaged database is never written to. It is set aside as `log.sqlite.damaged-<n>`, then the longest good beginning
of its log is copied into a new one. Killed anywhere in between, the next open finds no `log.sqlite` and goes on.
"""

import contextlib
import os
import sqlite3

from longrein.events import SCHEMA_VERSION, SessionReadOnly, StoreDamaged
from longrein.store.blobs import Blobs
from longrein.store.copying import Unsound, copy_tables, new_database, sound_rows
from longrein.store.database import ROOT, Database, LogHash, Row, entry_seq, lost_main, read_only
from longrein.store.faults import SUSPECT, is_damage
from longrein.store.folder import DATABASE, flush_path, set_aside
from longrein.store.port import Snapshot
from longrein.store.salvage import Kept, copy_sessions, last_number
from longrein.store.snapshot import read_snapshot

KEEP_BYTES_MAX = 16 * 1024 * 1024
"""Rows of a log up to this size are kept from the look at open, so that the first walk does not read them again."""
_OTHER_TABLES = ("collected", "blobs", "files", "sqlite_sequence")


class Survey:
    """What a log held when it was opened."""

    def __init__(self) -> None:
        self.size = 0
        """Number of entries."""
        self.rows: list[Row] | None = []
        """All of them, None when they are too many to keep."""
        self.inbox: list[tuple[int, bytes]] = []
        """The root's messages not yet taken."""
        self.last_message = 0
        """Highest id ever given to a message."""
        self.last_number = ROOT
        """Highest number that a session of the database has."""
        self.about: tuple[int, str, str] = (0, "", "")
        """(created, cwd, title)."""
        self.snapshot: Snapshot | None = None
        """The one that fits the log."""
        self.hash = LogHash()
        """Of the whole log."""
        self.unread = 0
        """So many of the first entries were not looked through: the snapshot stands for them."""


def open_sound(folder: str, blobs: Blobs, notes: list[str], *, network: bool) -> tuple[Database, Survey]:
    """The database of an existing session, repaired if need be; what was repaired is added to `notes`.

    Raises `StoreDamaged` when nothing could be kept, `SessionReadOnly`, OSError, sqlite3.Error.
    """
    why = _outward_damage(folder)
    if not why:
        try:
            return _open(folder, blobs, notes, network)
        except Unsound as damage:
            why = str(damage)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            why = str(error)
    _rebuild(folder, why, notes)
    return _open(folder, blobs, notes, network)


def _open(folder: str, blobs: Blobs, notes: list[str], network: bool) -> tuple[Database, Survey]:
    database = Database(folder, blobs, notes, network=network)
    try:
        survey = _look(database.connection, folder)
        database.root_hash = survey.hash
        blobs.sweep(lambda: {row[0].hex() for row in database.connection.execute("SELECT hash FROM files")})
    except BaseException:
        database.close()
        raise
    return database, survey


def _look(connection: sqlite3.Connection, folder: str) -> Survey:
    survey, size_bytes, rows = Survey(), 0, []
    fitting = read_snapshot(folder, os.path.basename(folder), connection)
    if fitting is not None:
        survey.snapshot, log = fitting
        if os.path.getsize(os.path.join(folder, DATABASE)) > KEEP_BYTES_MAX:
            survey.hash, survey.rows = log, None
            survey.size = survey.unread = log.seq
    for row in sound_rows(connection, folder, first=survey.unread + 1):
        if row[2] > SCHEMA_VERSION:
            raise SessionReadOnly(
                f"entry {entry_seq(row[0])} of this session was written by a newer longrein; upgrade it, or export it"
            )
        survey.size += 1
        survey.hash.add(row)
        size_bytes += len(row[4])
        if size_bytes <= KEEP_BYTES_MAX and not survey.unread:
            rows.append(row)
        elif rows:
            rows, survey.rows = [], None
    survey.rows = rows if survey.rows is not None else None
    survey.inbox = connection.execute("SELECT id, body FROM inbox WHERE number = ? ORDER BY id", (ROOT,)).fetchall()
    survey.last_number = last_number(connection)
    survey.last_message = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()[0]
    about = connection.execute("SELECT created, cwd, title FROM sessions WHERE number = ?", (ROOT,)).fetchone()
    survey.about = about or (0, "", "")
    return survey


def _outward_damage(folder: str) -> str:
    """Damage that shows before SQLite is asked; ''. SQLite would delete the WAL of an empty main file."""
    path = os.path.join(folder, DATABASE)
    if os.path.exists(os.path.join(folder, SUSPECT)):
        return "a write met damage"
    if not os.path.exists(path) and set_aside(folder):
        return "its repair was cut short"
    return "its main file is empty" if lost_main(path) else ""


def _rebuild(folder: str, why: str, notes: list[str]) -> None:
    """Set the database aside and make a new one of what is good in it."""
    damaged = _move_aside(folder)
    path = os.path.join(folder, DATABASE)
    building = path + ".new"
    kept = _copy_good(folder, damaged, building)
    flush_path(building)
    if kept.entries == 0:
        os.unlink(building)
        raise StoreDamaged(f"nothing in the database of this session could be read ({why}); it is kept as {damaged}")
    os.rename(building, path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, SUSPECT))
    flush_path(folder)
    below = (
        f"; of its subagents' logs {kept.cut} were cut and {kept.dropped} dropped" if kept.cut or kept.dropped else ""
    )
    notes.append(
        f"the session's database was damaged ({why}): the first {kept.entries} entries were kept, "
        f"the rest is in {damaged}{below}"
    )


def _move_aside(folder: str) -> str:
    """Move the database and its WAL out of the way; the path it has now. Goes on where a killed one stopped."""
    path, before = os.path.join(folder, DATABASE), set_aside(folder)
    if os.path.exists(path):
        target = f"{path}.damaged-{len(before) + 1}"
        os.rename(path, target)
    else:
        target = before[-1] if before else f"{path}.damaged-1"
    for end in ("-wal", "-journal"):
        if os.path.exists(path + end) and not os.path.exists(target + end):
            os.rename(path + end, target + end)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + "-shm")  # shared memory of nobody: we hold the lock
    flush_path(folder)
    return target


def _copy_good(folder: str, damaged: str, building: str) -> Kept:
    """Copy what can be read of `damaged` into a new database."""
    target = new_database(building)
    try:
        with contextlib.closing(read_only(damaged)) as source:
            kept = copy_sessions(folder, source, target)
            copy_tables(source, target, _OTHER_TABLES)
            target.execute("COMMIT")
            return kept
    except sqlite3.DatabaseError:
        return Kept()
    finally:
        target.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(damaged + "-shm")
