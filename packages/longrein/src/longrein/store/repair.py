"""Open an existing log: check its entries, and have the database rebuilt when it is damaged
(`salvage`).
"""

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from longrein.store.blobs import Blobs
from longrein.store.database import (
    ROOT,
    SELECT_ROWS,
    About,
    Database,
    LogHash,
    Row,
    entry_key,
    entry_seq,
    file_size,
    is_main_file_lost,
    last_key,
    read_only,
)
from longrein.store.disk_errors import SUSPECT, is_damage, is_damage_at_open
from longrein.store.reader import Reader, row_problem, shared_to
from longrein.store.session_folder import (
    DATABASE,
    HighWaterMark,
    damaged_databases,
    limit_forks,
    original_folder,
    read_mark,
)
from longrein.store.store_port import Snapshot
from longrein_context.events import (
    SCHEMA_VERSION,
    SessionError,
    SessionReadOnly,
)

# --- Checks of rows -------------------------------------------------------------------------------


class LogDamage(Exception):
    """A log is damaged from an entry on."""


def read_checked_rows(connection: sqlite3.Connection, folder: str, first: int = 1) -> Iterator[Row]:
    """Iterate the rows of the root's log from seq `first` on.

    Raises `LogDamage` at the first row that is missing or damaged, and if the last row that an
    ascending read finds is not the last row: the B-tree is out of order.
    """
    query = f"{SELECT_ROWS} WHERE key > ? AND key < ? ORDER BY key"
    try:
        last = entry_seq(last_key(connection, ROOT))
        rows = connection.execute(query, (entry_key(ROOT, first - 1), entry_key(ROOT + 1, 0)))
        yield from check_rows(rows, (folder,), first, last)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        raise LogDamage(str(error)) from None


def check_rows(rows: Iterable[Row], folders: Sequence[str], first: int, last: int) -> Iterator[Row]:
    """Pass on `rows` of one session while they are intact and without a gap, from seq `first` to
    seq `last` at least.

    Raises `LogDamage` at the first row that is missing or damaged.
    """
    expected = first
    for row in rows:
        if entry_seq(row[0]) != expected:
            raise LogDamage(f"entry {expected} is missing")
        if problem := row_problem(row, folders):
            raise LogDamage(problem)
        yield row
        expected += 1
    if expected <= last:
        raise LogDamage(f"entry {expected} is missing")


# --- Opening --------------------------------------------------------------------------------------


KEEP_BYTES_MAX = 16 * 1024 * 1024
"""Rows of a log up to this size stay in memory after open, so that the first iteration need not
read them again.
"""


class LogSummary(msgspec.Struct):
    """Contents of a log when it was opened."""

    size: int = 0
    rows: list[Row] | None = []
    """All rows; None when they are too large to keep."""
    inbox: list[tuple[int, bytes]] = []
    last_message: int = 0
    last_number: int = ROOT
    about: About = (0, "", "")
    snapshot: Snapshot | None = None
    hash: LogHash = msgspec.field(default_factory=LogHash)
    lost_from: int = 0
    """First entry of those that a fork's original has lost; 0 for none."""
    unread: int = 0
    """Number of first entries that were not checked, because the snapshot covers them."""
    updated: int = 0
    cut: frozenset[int] = frozenset()
    size_bytes: int = 0
    """Bytes of the rows that were read."""

    def add(self, row: Row) -> None:
        """Add the next row of the log. Raises `SessionReadOnly` for one of a newer longrein."""
        if row[2] > SCHEMA_VERSION:
            raise SessionReadOnly(
                f"entry {entry_seq(row[0])} of this session was written by a newer longrein; "
                "upgrade it, or export it"
            )
        self.size = entry_seq(row[0])
        self.hash.add(row)
        self.size_bytes += len(row[4])
        if self.size_bytes > KEEP_BYTES_MAX:
            self.rows = None
        if self.rows is not None:
            self.rows.append(row)


def open_or_repair(
    folder: str, blobs: Blobs, notes: list[str], *, network: bool
) -> tuple[Database, LogSummary]:
    """Open the database of an existing session, repaired if need be; add the repairs to `notes`.

    A database of which nothing can be read begins anew. Raises `SessionReadOnly`, OSError,
    sqlite3.Error.
    """
    why = _visible_damage(folder)
    if not why:
        try:
            return _open_undamaged(folder, blobs, notes, network)
        except LogDamage as damage:
            why = str(damage)
        except sqlite3.DatabaseError as error:
            if not is_damage_at_open(error):
                raise
            why = str(error)
    from longrein.store.salvage import rebuild

    rebuild(folder, why, notes)
    return _open(folder, blobs, notes, network)


def _open_undamaged(
    folder: str, blobs: Blobs, notes: list[str], network: bool
) -> tuple[Database, LogSummary]:
    """Open the database as it is. Raises `LogDamage` when its WAL ends before the high-water mark.

    If there is a WAL, a reader holds the database meanwhile. Otherwise SQLite would checkpoint and
    remove the WAL when it closes a damaged database, with everything behind its first wrong bit.
    """
    path = os.path.join(folder, DATABASE)
    if not file_size(path + "-wal"):
        return _open(folder, blobs, notes, network)
    with contextlib.closing(read_only(path)) as reader:
        mark = read_mark(folder)
        if mark is not None and _find_losses(mark, reader, folder):
            raise LogDamage("its write-ahead log is damaged")
        return _open(folder, blobs, notes, network)


def _find_losses(
    mark: HighWaterMark, connection: sqlite3.Connection, folder: str
) -> dict[int, tuple[int, int]]:
    """Return the sessions that end before their mark: number -> (last seq, last seq by the mark).

    Number 0 stands for the inbox and its message ids.
    """
    ends = {
        number: (entry_seq(last_key(connection, number)), seq)
        for number, seq in mark.entries.items()
    }
    found, known = ends.get(ROOT, (0, 0))
    if found < known:
        ends[ROOT] = (max(found, shared_to(connection, folder)), known)
    ends[0] = (_last_message(connection), mark.message)
    return {number: (found, seq) for number, (found, seq) in ends.items() if found < seq}


def _open(
    folder: str, blobs: Blobs, notes: list[str], network: bool
) -> tuple[Database, LogSummary]:
    database = Database(folder, blobs, notes, network=network)
    try:
        summary = _summarize_log(database.connection, folder, notes)
        database.root_hash = summary.hash
        _compare_with_mark(database, summary, notes)
        if not summary.cut:  # else lost entries may have named them
            blobs.remove_unnamed(
                lambda: {
                    row[0].hex() for row in database.connection.execute("SELECT hash FROM files")
                }
            )
    except BaseException:
        database.close()
        raise
    return database, summary


def _compare_with_mark(database: Database, summary: LogSummary, notes: list[str]) -> None:
    """Report what was lost since the last high-water mark, and bring the mark in line with the
    log.

    Raises `LogDamage` where the pages are out of order: they may still hold what was lost.
    """
    mark = database.mark
    lost = _find_losses(mark, database.connection, database.folder)
    if lost and database.connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise LogDamage("its pages are out of order")
    summary.last_message = max(summary.last_message, mark.message)
    if lost:
        inbox = lost.pop(0, (0, 0))
        mark.message = inbox[0] if inbox[1] else mark.message
        if ROOT in lost:
            limit_forks(database.folder, lost[ROOT][0])
        database.record_losses({number: found for number, (found, _) in lost.items()})
        found, claimed = lost.get(ROOT, (summary.size, summary.size))
        gone = [f"the last {claimed - found} of its {claimed} entries"] if found < claimed else []
        gone += ["the last entries of subagents"] if len(lost) > (ROOT in lost) else []
        gone += ["messages to it"] if inbox[1] else []
        why = (
            "its write-ahead log was removed or cut short, or the database replaced by an older one"
        )
        notes.append(f"this session has lost {' and '.join(gone)}: {why}")
    mark.entries.setdefault(ROOT, summary.size)
    mark.updated = mark.updated or summary.updated
    if not mark.created:
        mark.created, mark.cwd, mark.title = summary.about
    summary.cut = frozenset(mark.cut)


def _summarize_log(connection: sqlite3.Connection, folder: str, notes: list[str]) -> LogSummary:
    """Read and check the root's log, without the entries that a fitting snapshot covers: of a
    large log, and of a fork.
    """
    summary = LogSummary()
    reader = Reader(os.path.dirname(os.path.dirname(folder)), os.path.basename(folder))
    with contextlib.closing(reader):
        shared = shared_to(connection, folder)
        fitting = reader.snapshot_and_hash()
        if fitting is not None:
            summary.snapshot, log = fitting
            if shared or os.path.getsize(os.path.join(folder, DATABASE)) > KEEP_BYTES_MAX:
                summary.hash, summary.rows = log, None
                summary.size = summary.unread = log.seq
        for row in _checked_log(connection, reader, shared, summary, notes):
            summary.add(row)
        summary.size = max(summary.size, shared)
        summary.updated = reader.tail()[1]
    summary.inbox = connection.execute(
        "SELECT id, body FROM inbox WHERE number = ? ORDER BY id", (ROOT,)
    ).fetchall()
    summary.last_number = _last_number(connection)
    summary.last_message = _last_message(connection)
    about = connection.execute(
        "SELECT created, cwd, title FROM sessions WHERE number = ?", (ROOT,)
    ).fetchone()
    summary.about = about or (0, "", "")
    return summary


def _checked_log(
    connection: sqlite3.Connection,
    reader: Reader,
    shared: int,
    summary: LogSummary,
    notes: list[str],
) -> Iterator[Row]:
    """Iterate the rows behind `summary.unread`, checked. Those up to `shared` are the original's,
    but for the first; what it has lost is left out, and the user told.

    Raises `LogDamage` where the session's own rows are damaged.
    """
    last = summary.unread
    if shared and not last:
        yield from itertools.islice(read_checked_rows(connection, reader.folder), 1)
        last = 1
    if last < shared:
        why = ""
        try:
            for row in check_rows(reader.rows(last, shared), reader.folders, last + 1, shared):
                last = entry_seq(row[0])
                yield row
        except (LogDamage, SessionError) as error:
            why = str(error)
        if last < shared:
            summary.lost_from = last + 1
            reader.source.drop_shared(last + 1)
            notes.append(_lost_with_original(reader, last + 1, why))
        last = shared
    yield from read_checked_rows(connection, reader.folder, first=last + 1)


def _lost_with_original(reader: Reader, first: int, why: str) -> str:
    """Return the line for the user: the original of this fork has lost entries from `first` on."""
    shares = reader.source.shares
    assert shares is not None
    folder = os.path.join(os.path.dirname(reader.folder), shares.session)
    if not original_folder(folder, reader.session):
        what = "is gone"
    else:
        what = f"is damaged ({why})" if why else "is damaged"
        what += f"; `longrein -r {shares.session}` repairs it" if os.path.isdir(folder) else ""
    return (
        f"entries {first} to {shares.seq} of this session are missing: session {shares.session}, "
        f"from which it was forked, {what}"
    )


def _last_message(connection: sqlite3.Connection) -> int:
    return int(
        connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()[0] or 0
    )


def _last_number(connection: sqlite3.Connection) -> int:
    """Return the highest session number that any table of the database mentions."""
    tables = (
        "SELECT number FROM sessions UNION ALL SELECT number FROM inbox UNION ALL SELECT "
        "max(key) >> 40 FROM entries"
    )
    return int(connection.execute(f"SELECT max(number) FROM ({tables})").fetchone()[0] or ROOT)


def _visible_damage(folder: str) -> str:
    """Return damage that shows without SQLite, which would delete the WAL of an empty main file;
    '' for none.
    """
    path = os.path.join(folder, DATABASE)
    if os.path.exists(os.path.join(folder, SUSPECT)):
        return "a write met damage"
    if not os.path.exists(path) and damaged_databases(folder):
        return "its repair was cut short"
    return "its main file is empty" if is_main_file_lost(path) else ""
