"""Open an existing log: check its entries, and rebuild the database when it is damaged.

A damaged database is never written to. It is set aside as `log.sqlite.damaged-<n>`, and the longest good beginning of
each log is copied into a new database. After a kill in between, the next open finds no `log.sqlite` and continues the
repair.
"""

import contextlib
import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

import msgspec

from longrein.events import (
    SCHEMA_VERSION,
    AnyEvent,
    ChildStarted,
    Opened,
    Reminded,
    SessionError,
    SessionReadOnly,
    StoreDamaged,
    TurnEnded,
    UserSpoke,
    decode_event,
)
from longrein.store.blobs import BlobDamaged, Blobs, blob_files, is_hash, read_blob_file
from longrein.store.database import (
    ROOT,
    TABLES,
    Database,
    LogHash,
    Row,
    entry_key,
    entry_seq,
    is_main_file_lost,
    is_sound_row,
    key_number,
    last_key,
    read_only,
    row_checksum,
)
from longrein.store.errors import SUSPECT, is_damage, is_damage_at_open
from longrein.store.high_water_mark import HighWaterMark, read_mark, write_mark
from longrein.store.page_scan import PageScan
from longrein.store.pending_writes import NO_WORDS_TITLE, session_title
from longrein.store.port import Snapshot
from longrein.store.reader import stored_body
from longrein.store.session_folder import DATABASE, damaged_databases, flush_path, new_file, write_file
from longrein.store.snapshot import read_snapshot

# --- Copying rows (shared with fork) ---------------------------------------------------------------------------------
#
# Nothing here writes to the source.


class LogDamage(Exception):
    """A log is damaged from an entry on."""


def read_checked_rows(connection: sqlite3.Connection, folder: str, number: int = ROOT, first: int = 1) -> Iterator[Row]:
    """Iterate the rows of session `number` from seq `first` on.

    Raises `LogDamage` at the first row that is missing or damaged.
    """
    query = "SELECT key, at, version, crc, body FROM entries WHERE key > ? AND key < ? ORDER BY key"
    values = (entry_key(number, first - 1), entry_key(number + 1, 0))
    with contextlib.closing(_select_until_damage(connection, query, values)) as rows:
        yield from check_rows(rows, folder, first)


def check_rows(rows: Iterable[Row], folder: str, first: int) -> Iterator[Row]:
    """Pass on `rows` of one session while they are intact and without a gap, from seq `first` on.

    Raises `LogDamage` at the first row that is missing or damaged.
    """
    for expected, row in enumerate(rows, first):
        if entry_seq(row[0]) != expected:
            raise LogDamage(f"entry {expected} is missing")
        if not is_sound_row(row):
            raise LogDamage(f"entry {expected} is not what was written")
        if isinstance(row[4], str):
            _check_file(folder, row[4], expected)
        yield row


def _check_file(folder: str, blob: str, seq: int) -> None:
    """Raise `LogDamage` when the file that holds entry `seq` is missing or damaged."""
    try:
        read_blob_file(folder, blob)
    except BlobDamaged:
        raise LogDamage(f"the file of entry {seq} is not what was written") from None
    except KeyError:
        raise LogDamage(f"the file of entry {seq} is missing") from None


def _select_until_damage(
    connection: sqlite3.Connection, query: str, values: tuple[int, int]
) -> Generator[Row, None, None]:
    try:
        yield from connection.execute(query, values)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        raise LogDamage(str(error)) from None


def new_database(path: str) -> sqlite3.Connection:
    """Create an empty database at `path`, in an open transaction, without flushes.

    Replaces an unfinished copy.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.close(new_file(path))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.executescript(TABLES)
    connection.execute("BEGIN")
    return connection


def new_row(key: int, at: int, version: int, body: bytes) -> Row:
    """Return a row of `entries` with its checksum."""
    return key, at, version, row_checksum(key, at, version, body), body


def insert_entry(target: sqlite3.Connection, row: Row) -> None:
    """Insert one row of `entries` as stored."""
    target.execute("INSERT INTO entries VALUES(?, ?, ?, ?, ?)", row)


def copy_tables(source: sqlite3.Connection, target: sqlite3.Connection, tables: Sequence[str]) -> None:
    """Copy `tables` row by row, as far as they can be read.

    The source may have an older layout.
    """
    for table in tables:
        with contextlib.suppress(sqlite3.DatabaseError):
            rows = source.execute(f"SELECT * FROM {table}")
            names = ", ".join(column[0] for column in rows.description)
            marks = ", ".join("?" * len(rows.description))
            for row in rows:
                target.execute(f"INSERT OR REPLACE INTO {table}({names}) VALUES({marks})", row)


# --- Copying the sessions of a damaged database ----------------------------------------------------------------------
#
# Of each session the longest good beginning is copied, and never half of a joint write.
#
# A subagent was written together with the entry of its parent that started it. It is kept only with that entry and only
# if its first turn has begun. Turns of a subagent that was asked again are kept only if its parent has their start.
# Everything that is left out remains in the database that was set aside.


class CopyResult:
    """What was copied of a damaged database."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        """Session number -> its last copied entry."""
        self.cut: set[int] = set()
        """Numbers of sessions that were not copied completely."""
        self.dropped = 0
        """Number of subagents that were left out."""
        self.later = 0
        """Number of readable root entries behind the first missing one."""

    @property
    def entries(self) -> int:
        """Number of copied root entries."""
        return self.ends.get(ROOT, 0)

    def note(self, number: int, last: int, *, whole: bool) -> None:
        """Record that session `number` was copied up to entry `last`."""
        self.ends[number] = last
        if not whole:
            self.cut.add(number)


class _CopiedSessions:
    """References between the sessions that were copied so far."""

    def __init__(self) -> None:
        self.turns: dict[str, int] = {}
        """Session id -> number of times it was started or asked again."""
        self.reach: dict[str, tuple[int, bool]] = {}
        """Session id -> (its last copied entry, whether that is all of it)."""


def salvage_cwd(folder: str) -> str:
    """Return the cwd of a session whose database cannot be opened; '' when it cannot be read."""
    paths = [os.path.join(folder, DATABASE), *reversed(damaged_databases(folder))]
    for path in paths:
        with contextlib.closing(PageScan(path)) as pages:
            for row in pages.entries():
                if row[0] == entry_key(ROOT, 1) and isinstance(event := _decode_row(folder, row), Opened):
                    return event.cwd
    return ""


def last_number(connection: sqlite3.Connection) -> int:
    """Return the highest session number that any table of the database mentions."""
    found = ROOT
    for query in ("SELECT max(number) FROM sessions", "SELECT max(number) FROM inbox"):
        found = max(found, connection.execute(query).fetchone()[0] or 0)
    return max(found, key_number(connection.execute("SELECT max(key) FROM entries").fetchone()[0] or 0))


def copy_sessions(
    folder: str, source: sqlite3.Connection, target: sqlite3.Connection, known: Mapping[int, int]
) -> CopyResult:
    """Copy the good beginning of every session, and its inbox. Raises sqlite3.Error.

    `known`: session number -> the last entry that it had at least. A session that is missing there may have lost some.
    """
    result, copied = CopyResult(), _CopiedSessions()
    rows = read_checked_rows(source, folder)
    about, whole, last = ("", 0, "", ""), True, 0
    try:
        for row in rows:
            insert_entry(target, row)
            last = entry_seq(row[0])
            about = _about(folder, row, about)
            _count_start(copied, folder, row)
    except LogDamage:
        whole = False
    if not last:
        return result
    result.note(ROOT, last, whole=whole and 0 < known.get(ROOT, 0) <= last)
    _copy_listing(source, target, ROOT, about)
    copied.reach[about[0]] = (last, ROOT not in result.cut)
    for number in _subagent_numbers(source):
        _copy_subagent(folder, source, target, number, copied, result, known.get(number, 0))
        result.dropped += number not in result.ends
    return result


def _subagent_numbers(source: sqlite3.Connection) -> Iterator[int]:
    """Iterate the numbers of the subagents, rising: a parent has a lower number than its children."""
    number = ROOT
    with contextlib.suppress(sqlite3.DatabaseError):
        while row := source.execute(
            "SELECT key FROM entries WHERE key >= ? ORDER BY key LIMIT 1", (entry_key(number + 1, 0),)
        ).fetchone():
            number = key_number(row[0])
            yield number


def _copy_subagent(
    folder: str,
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    number: int,
    copied: _CopiedSessions,
    result: CopyResult,
    known: int,
) -> None:
    """Copy subagent `number`, which had at least `known` entries (0: unknown), as far as it can be kept."""
    rows, whole = _good_rows(folder, source, number)
    session, parent = _opened_session(folder, rows[0]) if rows else ("", "")
    reach, parent_whole = copied.reach.get(parent, (-1, False))
    if not session or reach < entry_seq(rows[0][0]) - 1:
        return
    turns = len(rows) if parent_whole else copied.turns.get(session, 0)
    whole = whole and 0 < known <= entry_seq(rows[-1][0])
    size = _size_of_turns(folder, rows, turns, whole=whole)
    if not size:
        return
    about = ("", 0, "", "")
    for row in rows[:size]:
        insert_entry(target, row)
        about = _about(folder, row, about)
        _count_start(copied, folder, row)
    _copy_listing(source, target, number, about)
    result.note(number, entry_seq(rows[size - 1][0]), whole=whole and size == len(rows))
    copied.reach[session] = (result.ends[number], number not in result.cut)


def _good_rows(folder: str, source: sqlite3.Connection, number: int) -> tuple[list[Row], bool]:
    """Return the longest good beginning of session `number`, and whether that is all of it."""
    rows: list[Row] = []
    try:
        first = source.execute(
            "SELECT key FROM entries WHERE key > ? ORDER BY key LIMIT 1", (entry_key(number, 0),)
        ).fetchone()
        for row in read_checked_rows(source, folder, number, entry_seq(first[0])):
            rows.append(row)
    except LogDamage:
        return rows, False
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return rows, False
    return rows, True


def _decode_row(folder: str, row: Row) -> AnyEvent | None:
    """Decode the event of a row; None when it cannot be read (the row is copied as it is)."""
    try:
        return decode_event(stored_body(folder, row), row[2])
    except (SessionError, msgspec.DecodeError):
        return None


def _opened_session(folder: str, row: Row) -> tuple[str, str]:
    """Return (session, parent) when the row holds an `Opened`, else empty strings."""
    event = _decode_row(folder, row)
    if not isinstance(event, Opened):
        return "", ""
    return event.session, event.parent.session if event.parent else ""


def _size_of_turns(folder: str, rows: list[Row], turns: int, *, whole: bool) -> int:
    """Return how many of `rows` belong to turns up to `turns`; 0 for a log that ends before its first turn."""
    begun, idle = 0, True
    for at, row in enumerate(rows):
        match _decode_row(folder, row):
            case UserSpoke() if idle:
                if begun == turns:
                    return at if begun else 0
                begun, idle = begun + 1, False
            case Reminded(kind="wake"):
                idle = False
            case TurnEnded():
                idle = True
            case _:
                pass
    return len(rows) if begun or (whole and turns) else 0


def _count_start(copied: _CopiedSessions, folder: str, row: Row) -> None:
    """Count a start of a subagent, if the row is one."""
    if isinstance(row[4], str) or b'"type":"ChildStarted"' in row[4][:64]:
        event = _decode_row(folder, row)
        if isinstance(event, ChildStarted):
            copied.turns[event.child] = copied.turns.get(event.child, 0) + 1


def _about(folder: str, row: Row, about: tuple[str, int, str, str]) -> tuple[str, int, str, str]:
    """Return (session, created, cwd, title) from the entries up to `row`; `about` is the value before it."""
    session, created, cwd, title = about
    if session and title not in ("", NO_WORDS_TITLE):
        return about
    match _decode_row(folder, row):
        case Opened() as event:
            return event.session, row[1], event.cwd, title
        case UserSpoke() as event:
            return session, created, cwd, session_title(event)
    return about


def _copy_listing(
    source: sqlite3.Connection, target: sqlite3.Connection, number: int, about: tuple[str, int, str, str]
) -> None:
    """Write a session's row of `sessions` and copy its inbox as far as it was found."""
    add = "INSERT OR REPLACE INTO sessions(number, session, created, cwd, title) VALUES(?, ?, ?, ?, ?)"
    target.execute(add, (number, *about))
    query = "SELECT id, body, number FROM inbox WHERE number = ?"
    target.executemany(
        "INSERT OR REPLACE INTO inbox(id, body, number) VALUES(?, ?, ?)", source.execute(query, (number,))
    )


# --- Opening and rebuilding ------------------------------------------------------------------------------------------


KEEP_BYTES_MAX = 16 * 1024 * 1024
"""Rows of a log up to this size stay in memory after open, so that the first iteration need not read them again."""
_SMALL_TABLES = ("collected", "files", "sqlite_sequence")


class LogSummary:
    """Contents of a log when it was opened."""

    def __init__(self) -> None:
        self.size = 0
        """Number of entries."""
        self.rows: list[Row] | None = []
        """All rows; None when they are too large to keep."""
        self.inbox: list[tuple[int, bytes]] = []
        """The root's messages that were not taken yet."""
        self.last_message = 0
        """Highest message id in use."""
        self.last_number = ROOT
        """Highest session number in use."""
        self.about: tuple[int, str, str] = (0, "", "")
        """(created, cwd, title)."""
        self.snapshot: Snapshot | None = None
        """The snapshot, if it fits the log."""
        self.hash = LogHash()
        """Hash of the whole log."""
        self.unread = 0
        """Number of first entries that were not checked, because the snapshot covers them."""
        self.updated = 0
        """Time of the last entry."""
        self.cut: frozenset[int] = frozenset()
        """Numbers of sessions that have lost their last entries and were not written since."""


def open_or_repair(folder: str, blobs: Blobs, notes: list[str], *, network: bool) -> tuple[Database, LogSummary]:
    """Open the database of an existing session, repaired if need be; add the repairs to `notes`.

    A database of which nothing can be read begins anew. Raises `SessionReadOnly`, OSError, sqlite3.Error.
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
    _rebuild(folder, why, notes)
    return _open(folder, blobs, notes, network)


def _open_undamaged(folder: str, blobs: Blobs, notes: list[str], network: bool) -> tuple[Database, LogSummary]:
    """Open the database as it is.

    Raises `LogDamage` when its WAL ends before the high-water mark.

    If there is a WAL, a reader holds the database meanwhile. Otherwise SQLite would checkpoint and remove the WAL when
    it closes a damaged database, with everything behind its first wrong bit.
    """
    path = os.path.join(folder, DATABASE)
    if not _has_content(path + "-wal"):
        return _open(folder, blobs, notes, network)
    with contextlib.closing(read_only(path)) as reader:
        mark = read_mark(folder)
        if mark is not None and _find_losses(mark, reader):
            raise LogDamage("its write-ahead log is damaged")
        return _open(folder, blobs, notes, network)


def _has_content(path: str) -> bool:
    return os.path.exists(path) and os.path.getsize(path) > 0


def _find_losses(mark: HighWaterMark, connection: sqlite3.Connection) -> dict[int, tuple[int, int]]:
    """Return the sessions that end before their mark: number -> (last seq, last seq by the mark).

    Number 0 stands for the inbox and its message ids.
    """
    ends = {number: (entry_seq(last_key(connection, number)), seq) for number, seq in mark.entries.items()}
    ends[0] = (_last_message(connection), mark.message)
    return {number: (found, seq) for number, (found, seq) in ends.items() if found < seq}


def _last_message(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()[0] or 0)


def _open(folder: str, blobs: Blobs, notes: list[str], network: bool) -> tuple[Database, LogSummary]:
    database = Database(folder, blobs, notes, network=network)
    try:
        summary = _summarize_log(database.connection, folder)
        database.root_hash = summary.hash
        _compare_with_mark(database, summary, notes)
        if not summary.cut:  # else lost entries may have named them
            blobs.remove_unnamed(
                lambda: {row[0].hex() for row in database.connection.execute("SELECT hash FROM files")}
            )
    except BaseException:
        database.close()
        raise
    return database, summary


def _compare_with_mark(database: Database, summary: LogSummary, notes: list[str]) -> None:
    """Report what was lost since the last high-water mark, and bring the mark in line with the log."""
    mark = database.mark
    lost = _find_losses(mark, database.connection)
    summary.last_message = max(summary.last_message, mark.message)
    if lost:
        inbox = lost.pop(0, (0, 0))
        mark.message = inbox[0] if inbox[1] else mark.message
        database.record_losses({number: found for number, (found, _) in lost.items()})
        found, claimed = lost.get(ROOT, (summary.size, summary.size))
        gone = [f"the last {claimed - found} of its {claimed} entries"] if found < claimed else []
        gone += ["the last entries of subagents"] if len(lost) > (ROOT in lost) else []
        gone += ["messages to it"] if inbox[1] else []
        why = "its write-ahead log was removed or cut short, or the database replaced by an older one"
        notes.append(f"this session has lost {' and '.join(gone)}: {why}")
    mark.entries.setdefault(ROOT, summary.size)
    mark.updated = mark.updated or summary.updated
    if not mark.created:
        mark.created, mark.cwd, mark.title = summary.about
    summary.cut = frozenset(mark.cut)


def _summarize_log(connection: sqlite3.Connection, folder: str) -> LogSummary:
    summary, size_bytes, rows = LogSummary(), 0, []
    fitting = read_snapshot(folder, os.path.basename(folder), connection)
    if fitting is not None:
        summary.snapshot, log = fitting
        if os.path.getsize(os.path.join(folder, DATABASE)) > KEEP_BYTES_MAX:
            summary.hash, summary.rows = log, None
            summary.size = summary.unread = log.seq
    for row in read_checked_rows(connection, folder, first=summary.unread + 1):
        if row[2] > SCHEMA_VERSION:
            raise SessionReadOnly(
                f"entry {entry_seq(row[0])} of this session was written by a newer longrein; upgrade it, or export it"
            )
        summary.size += 1
        summary.hash.add(row)
        summary.updated = row[1]
        size_bytes += len(row[4])
        if size_bytes <= KEEP_BYTES_MAX and not summary.unread:
            rows.append(row)
        elif rows:
            rows, summary.rows = [], None
    summary.rows = rows if summary.rows is not None else None
    if summary.unread == summary.size:
        last = connection.execute("SELECT at FROM entries WHERE key = ?", (entry_key(ROOT, summary.size),)).fetchone()
        summary.updated = last[0] if last else 0
    summary.inbox = connection.execute("SELECT id, body FROM inbox WHERE number = ? ORDER BY id", (ROOT,)).fetchall()
    summary.last_number = last_number(connection)
    summary.last_message = _last_message(connection)
    about = connection.execute("SELECT created, cwd, title FROM sessions WHERE number = ?", (ROOT,)).fetchone()
    summary.about = about or (0, "", "")
    return summary


def _visible_damage(folder: str) -> str:
    """Return damage that shows without SQLite, which would delete the WAL of an empty main file; '' for none."""
    path = os.path.join(folder, DATABASE)
    if os.path.exists(os.path.join(folder, SUSPECT)):
        return "a write met damage"
    if not os.path.exists(path) and damaged_databases(folder):
        return "its repair was cut short"
    return "its main file is empty" if is_main_file_lost(path) else ""


def _rebuild(folder: str, why: str, notes: list[str]) -> None:
    """Set the database aside and build a new one from its good part."""
    damaged = _move_aside(folder)
    path = os.path.join(folder, DATABASE)
    building = path + ".new"
    mark = read_mark(folder) or HighWaterMark()
    result = _copy_good(folder, damaged, building, mark)
    flush_path(building)
    notes.append(_repair_note(result, mark.entries.get(ROOT, 0), why, damaged))
    mark.cut = {number for number in mark.cut | result.cut if number in result.ends}
    mark.entries, mark.size_bytes = result.ends, 0
    write_mark(folder, mark)  # before the database appears and can be written again
    os.rename(building, path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, SUSPECT))
    flush_path(folder)


def _repair_note(result: CopyResult, before: int, why: str, damaged: str) -> str:
    """Return the line for the user."""
    if not result.entries:
        text = f"nothing could be read, so it begins anew; the damaged file is {damaged}"
    elif ROOT not in result.cut:
        text = f"all {result.entries} entries were kept, the damaged file is {damaged}"
    else:
        of = f" of {before}" if before > result.entries else ""
        text = f"the first {result.entries}{of} entries were kept, the rest is in {damaged}"
        text += f", {result.later} later ones also in {damaged}.jsonl as text" if result.later else ""
    cut = len(result.cut - {ROOT})
    copied = f"; of its subagents' logs {cut} were cut and {result.dropped} dropped" if cut or result.dropped else ""
    return f"the session's database was damaged ({why}): {text}{copied}"


def _move_aside(folder: str) -> str:
    """Rename the database and its WAL to `….damaged-<n>`; return the new path.

    Continues where a killed process stopped.
    """
    path, before = os.path.join(folder, DATABASE), damaged_databases(folder)
    if os.path.exists(path):
        target = f"{path}.damaged-{len(before) + 1}"
        os.rename(path, target)
    else:
        target = before[-1] if before else f"{path}.damaged-1"
    for end in ("-wal", "-journal"):
        if os.path.exists(path + end) and not os.path.exists(target + end):
            os.rename(path + end, target + end)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + "-shm")  # unused: this process holds the lock
    flush_path(folder)
    return target


def _write_later_entries(folder: str, rows: sqlite3.Connection, last: int, path: str) -> int:
    """Write root entries behind entry `last` to the file `path` in export form.

    Returns their number.

    They cannot join the log, because entries before them are missing.
    """
    span = entry_key(ROOT, last), entry_key(ROOT + 1, 0)
    size = int(rows.execute("SELECT count(*) FROM entries WHERE key > ? AND key < ?", span).fetchone()[0])
    if not size:
        return 0
    query = "SELECT key, at, version, crc, body FROM entries WHERE key > ? AND key < ? ORDER BY key"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # left by a killed repair
    write_file(path, (_line(folder, row) for row in rows.execute(query, span)))
    return size


def _line(folder: str, row: Row) -> bytes:
    """Return one entry in export form; its event is null when the file that holds it is missing."""
    try:
        event = stored_body(folder, row)
    except StoreDamaged:
        event = b"null"
    return b'{"seq":%d,"at":%d,"event":%s}\n' % (entry_seq(row[0]), row[1], event)


def restore_moved_database(database: Database) -> str:
    """Write the contents of an open database back to its path, from which its files were removed or replaced.

    Files that took their place are set aside. Returns the message for the user.
    """
    path = database.path
    if not os.path.isdir(database.folder):
        return f"the folder {database.folder} was removed while the session in it was open; nothing more is kept of it"
    building = path + ".new"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(building)
        os.close(new_file(building))
        with contextlib.closing(sqlite3.connect(building)) as target:
            database.connection.backup(target)
        flush_path(building)
        if any(os.path.exists(path + end) for end in ("", "-wal", "-journal")):
            _move_aside(database.folder)
        os.rename(building, path)
        flush_path(database.folder)
    except (OSError, sqlite3.Error) as error:
        return f"{path} was removed or replaced while it was open, and could not be written again ({error})"
    name = os.path.basename(database.folder)
    return f"{path} was removed or replaced while it was open; it was written again, go on with `longrein -r {name}`"


def _copy_good(folder: str, damaged: str, building: str, mark: HighWaterMark) -> CopyResult:
    """Copy the good part of `damaged` into a new database.

    All readable rows are first gathered in a temporary database, then each session's longest good beginning is copied.
    """
    gathered = building + ".rows"
    rows, target = new_database(gathered), new_database(building)
    try:
        _salvage_rows(folder, damaged, rows)
        result = copy_sessions(folder, rows, target, mark.entries)
        copy_tables(rows, target, ("blobs", *_SMALL_TABLES))
        target.execute("COMMIT")
        result.later = _write_later_entries(folder, rows, result.entries, damaged + ".jsonl")
        return result
    finally:
        target.close()
        rows.close()
        os.unlink(gathered)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(damaged + "-shm")


def _salvage_rows(folder: str, damaged: str, rows: sqlite3.Connection) -> None:
    """Gather every readable row of `damaged`, by SQLite or page by page."""
    tables: tuple[str, ...] = ("inbox", *_SMALL_TABLES)
    if _has_content(damaged + "-journal"):  # pages may hold uncommitted rows
        tables = ("entries", "blobs", *tables)
    else:
        with contextlib.closing(PageScan(damaged)) as pages:
            rows.executemany("INSERT OR IGNORE INTO entries VALUES(?, ?, ?, ?, ?)", pages.entries())
            rows.executemany("INSERT OR IGNORE INTO blobs(hash, body) VALUES(?, ?)", pages.blobs())
    with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(read_only(damaged)) as source:
        source.execute("PRAGMA writable_schema=ON")  # else SQLite refuses a truncated file as a whole
        copy_tables(source, rows, tables)
    files = [(bytes.fromhex(name),) for _, name in blob_files(folder) if is_hash(name)]
    rows.executemany("INSERT OR IGNORE INTO files(hash) VALUES(?)", files)
