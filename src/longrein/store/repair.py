"""Open an existing log: check its entries, and rebuild the database when it is damaged.

A damaged database is never written to. It is set aside as `log.sqlite.damaged-<n>`, and what can be
read of each log is copied into a new database; a reminder stands for each entry that cannot. After
a kill in between, the next open finds no `log.sqlite` and continues the repair.
"""

import contextlib
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from longrein.atomic_file import flush_path, move_into_place, replace_file
from longrein.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Opened,
    Reminded,
    SessionError,
    SessionReadOnly,
    StoreDamaged,
    SubagentStarted,
    TurnEnded,
    UserSpoke,
    decode_event,
    encode_event,
)
from longrein.store.blobs import BlobDamaged, Blobs, blob_files, is_hash, read_blob_file
from longrein.store.database import (
    INSERT_ENTRY,
    REPLACE_SESSION,
    ROOT,
    SELECT_ROWS,
    SEQ_MAX,
    TABLES,
    About,
    Database,
    LogHash,
    Row,
    copy_tables,
    entry_key,
    entry_seq,
    file_size,
    is_main_file_lost,
    is_sound_row,
    key_number,
    last_key,
    read_only,
    row_checksum,
    updated_about,
)
from longrein.store.disk_errors import SUSPECT, is_damage, is_damage_at_open
from longrein.store.page_scan import PageScan
from longrein.store.reader import stored_body
from longrein.store.session_folder import (
    DATABASE,
    HighWaterMark,
    damaged_databases,
    new_file,
    read_mark,
    unlink,
    write_mark,
)
from longrein.store.snapshot import read_snapshot
from longrein.store.store_port import Snapshot

# --- Copying rows (shared with fork) --------------------------------------------------------------
#
# Nothing here writes to the source.


LOST_NAMED_MAX = 20
"""Lost entries that the note names."""
LOST = "the entry that stood here was damaged on the disk and is lost"


class LogDamage(Exception):
    """A log is damaged from an entry on."""


def read_checked_rows(
    connection: sqlite3.Connection, folder: str, number: int = ROOT, first: int = 1
) -> Iterator[Row]:
    """Iterate the rows of session `number` from seq `first` on.

    Raises `LogDamage` at the first row that is missing or damaged.
    """
    query = f"{SELECT_ROWS} WHERE key > ? AND key < ? ORDER BY key"
    try:
        rows = connection.execute(query, (entry_key(number, first - 1), entry_key(number + 1, 0)))
        yield from check_rows(rows, folder, first)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        raise LogDamage(str(error)) from None


def check_rows(rows: Iterable[Row], folder: str, first: int) -> Iterator[Row]:
    """Pass on `rows` of one session while they are intact and without a gap, from seq `first` on.

    Raises `LogDamage` at the first row that is missing or damaged.
    """
    for expected, row in enumerate(rows, first):
        if entry_seq(row[0]) != expected:
            raise LogDamage(f"entry {expected} is missing")
        if problem := _problem(row, folder):
            raise LogDamage(problem)
        yield row


def _problem(row: Row, folder: str) -> str:
    """Return what is wrong with a row; '' for an intact one."""
    seq = entry_seq(row[0])
    if not is_sound_row(row):
        return f"entry {seq} is not what was written"
    try:
        if isinstance(row[4], str):
            read_blob_file(folder, row[4])
    except BlobDamaged:
        return f"the file of entry {seq} is not what was written"
    except KeyError:
        return f"the file of entry {seq} is missing"
    return ""


def new_database(path: str) -> sqlite3.Connection:
    """Create an empty database at `path`, in an open transaction, without flushes. Replaces an
    unfinished copy.
    """
    unlink(path)
    os.close(new_file(path))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.executescript(TABLES)
    connection.execute("BEGIN")
    return connection


# --- Salvage of a damaged database ----------------------------------------------------------------
#
# 1. Every readable row of the damaged database goes into a temporary one (`_gather_rows`).
# 2. Of each session all entries are copied from there into the new database (`_Salvage`), with a
# reminder in place of each that is missing before the last one, and never half of a joint write: a
# subagent was written together with the entry of its parent that started it. It is kept only with
# that entry and only if its first turn has begun. Turns of a subagent that was asked again are kept
# only if its parent has their start.
# 3. Where the first entry is missing, nothing says whose log it is: root entries behind it are
# written beside the database as text.
#
# The damaged database itself is set aside and stays.


def _salvage(folder: str, damaged: str, building: str, mark: HighWaterMark) -> "_Salvage":
    """Copy the good part of `damaged` into the new database `building`."""
    gathered = building + ".rows"
    rows, target = new_database(gathered), new_database(building)
    try:
        _gather_rows(folder, damaged, rows)
        salvage = _Salvage(folder, rows, target, mark.entries)
        salvage.copy_sessions()
        copy_tables(rows, target, ("blobs", *_SMALL_TABLES))
        target.execute("COMMIT")
        salvage.later = _write_later_entries(folder, rows, salvage.entries, damaged + ".jsonl")
        return salvage
    finally:
        target.close()
        rows.close()
        os.unlink(gathered)
        unlink(damaged + "-shm")


def _gather_rows(folder: str, damaged: str, rows: sqlite3.Connection) -> None:
    """Gather every readable row of `damaged`, by SQLite or page by page."""
    tables: tuple[str, ...] = ("inbox", *_SMALL_TABLES)
    if file_size(damaged + "-journal"):  # pages may hold uncommitted rows
        tables = ("entries", "blobs", *tables)
    else:
        with contextlib.closing(PageScan(damaged)) as pages:
            rows.executemany("INSERT OR IGNORE INTO entries VALUES(?, ?, ?, ?, ?)", pages.entries())
            rows.executemany("INSERT OR IGNORE INTO blobs(hash, body) VALUES(?, ?)", pages.blobs())
    with (
        contextlib.suppress(sqlite3.DatabaseError),
        contextlib.closing(read_only(damaged)) as source,
    ):
        source.execute(
            "PRAGMA writable_schema=ON"
        )  # else SQLite refuses a truncated file as a whole
        copy_tables(source, rows, tables)
    files = [(bytes.fromhex(name),) for _, name in blob_files(folder) if is_hash(name)]
    rows.executemany("INSERT OR IGNORE INTO files(hash) VALUES(?)", files)


class _Salvage:
    """Copies the sessions in `source`, and records what was left out."""

    def __init__(
        self,
        folder: str,
        source: sqlite3.Connection,
        target: sqlite3.Connection,
        known: Mapping[int, int],
    ) -> None:
        """`known`: session number -> the last entry that it had at least. A session that is
        missing there may have lost some.
        """
        self.ends: dict[int, int] = {}
        """Session number -> its last copied entry."""
        self.cut: set[int] = set()
        """Numbers of sessions that were not copied completely."""
        self.shortened: set[int] = set()
        """Those of which the end is missing: turns of their subagents are left out with it."""
        self.dropped = 0
        """Number of subagents that were left out."""
        self.later = 0
        """Number of readable root entries where the first is missing."""
        self.lost: list[int] = []
        """Root entries in whose place a reminder stands."""
        self._folder = folder
        self._source = source
        self._target = target
        self._known = known
        self._numbers: dict[str, int] = {}  # session id -> number, of the copied sessions
        self._turns: Counter[str] = (
            Counter()
        )  # session id -> number of times it was started or asked again

    @property
    def entries(self) -> int:
        """Number of copied root entries."""
        return self.ends.get(ROOT, 0)

    def copy_sessions(self) -> None:
        """Copy every session; a parent has a lower number than its subagents."""
        good, whole = self._good_end(ROOT, 1)
        if not good:
            return
        self._copy(ROOT, 1, good, whole=whole)
        first = "SELECT min(key) FROM entries WHERE key >= ? GROUP BY key >> 40 ORDER BY 1"
        for (key,) in self._source.execute(first, (entry_key(ROOT + 1, 0),)).fetchall():
            self._copy_subagent(key_number(key), entry_seq(key))

    def _copy_subagent(self, number: int, first: int) -> None:
        """Copy the subagent that begins with entry `first`, as far as it can be kept."""
        good, whole = self._good_end(number, first)
        opened = next(self._events(number, first, good), None)
        parent = (
            self._numbers.get(opened.parent.session)
            if isinstance(opened, Opened) and opened.parent
            else None
        )
        if isinstance(opened, Opened) and parent is not None and self.ends[parent] >= first - 1:
            turns = self._turns[opened.session] if parent in self.shortened else good
            if last := self._end_of_turns(number, first, good, turns, whole=whole):
                self._copy(number, first, last, whole=whole and last == good)
                return
        self.dropped += 1

    def _good_end(self, number: int, first: int) -> tuple[int, bool]:
        """Return the last readable entry, 0 without the first one, and whether the session is
        whole. Puts reminders in place of missing entries.
        """
        last = 0
        if lost := self._fill_gaps(number, first):
            self.lost += lost if number == ROOT else []
        with contextlib.suppress(LogDamage):
            for row in read_checked_rows(self._source, self._folder, number, first):
                last = entry_seq(row[0])
            if not 0 < self._known.get(number, 0) <= last:
                self.shortened.add(number)
            return last, not lost and number not in self.shortened
        self.shortened.add(number)
        return last, False

    def _fill_gaps(self, number: int, first: int) -> list[int]:
        """Put a reminder in place of each entry that is missing or damaged between the first and
        the last readable one; return their seqs.
        """
        times = {
            entry_seq(row[0]): row[1]
            for row in self._rows(number, first, SEQ_MAX)
            if not _problem(row, self._folder)
        }
        opened = next(self._events(number, first, first), None) if first in times else None
        if not isinstance(opened, Opened):
            return []
        lost = [seq for seq in range(first, max(times)) if seq not in times]
        event = Reminded("entry_lost", f"[longrein:{opened.nonce} entry_lost] {LOST}")
        body = encode_event(event)
        for seq in lost:
            at = times[seq] = times[seq - 1]
            key = entry_key(number, seq)
            row = (key, at, SCHEMA_VERSION, row_checksum(key, at, SCHEMA_VERSION, body), body)
            self._source.execute(f"INSERT OR REPLACE INTO entries VALUES({'?, ' * 4}?)", row)
        return lost

    def _end_of_turns(self, number: int, first: int, good: int, turns: int, *, whole: bool) -> int:
        """Return the last entry of the first `turns` turns; 0 for a log that ends before its
        first turn.
        """
        begun, idle = 0, True
        for seq, event in enumerate(self._events(number, first, good), first):
            match event:
                case UserSpoke() if idle:
                    if begun == turns:
                        return seq - 1 if begun else 0
                    begun, idle = begun + 1, False
                case Reminded(kind="wake"):
                    idle = False
                case TurnEnded():
                    idle = True
                case _:
                    pass
        return good if begun or (whole and turns) else 0

    def _copy(self, number: int, first: int, last: int, *, whole: bool) -> None:
        """Copy entries `first` to `last` of a session, its row of `sessions` and its inbox."""
        session, about = "", (0, "", "")
        for row in self._rows(number, first, last):
            self._target.execute(INSERT_ENTRY, row)
            event = _decode_row(self._folder, row)
            if event is not None:
                about = updated_about(about, row[1], event)
            if isinstance(event, Opened):
                session = event.session
            elif isinstance(event, SubagentStarted):
                self._turns[event.child] += 1
        self._target.execute(REPLACE_SESSION, (number, session, *about))
        inbox = self._source.execute(
            "SELECT id, body, number FROM inbox WHERE number = ?", (number,)
        )
        self._target.executemany(
            "INSERT OR REPLACE INTO inbox(id, body, number) VALUES(?, ?, ?)", inbox
        )
        self._numbers[session], self.ends[number] = number, last
        if not whole:
            self.cut.add(number)

    def _rows(self, number: int, first: int, last: int) -> Iterator[Row]:
        span = entry_key(number, first), entry_key(number, last)
        return iter(
            self._source.execute(f"{SELECT_ROWS} WHERE key BETWEEN ? AND ? ORDER BY key", span)
        )

    def _events(self, number: int, first: int, last: int) -> Iterator[AnyEvent | None]:
        """Iterate the events of entries; None for one that cannot be read, whose row is copied
        as it is.
        """
        return (_decode_row(self._folder, row) for row in self._rows(number, first, last))


def _decode_row(folder: str, row: Row) -> AnyEvent | None:
    try:
        return decode_event(stored_body(folder, row), row[2])
    except (SessionError, msgspec.DecodeError, RecursionError):
        return None


def _write_later_entries(folder: str, rows: sqlite3.Connection, last: int, path: str) -> int:
    """Write root entries behind entry `last` to the file `path` in export form; return their
    number.
    """
    span = entry_key(ROOT, last), entry_key(ROOT + 1, 0)
    size = int(
        rows.execute("SELECT count(*) FROM entries WHERE key > ? AND key < ?", span).fetchone()[0]
    )
    if size:
        later = rows.execute(f"{SELECT_ROWS} WHERE key > ? AND key < ? ORDER BY key", span)
        replace_file(path, (_line(folder, row) for row in later), durable=True)
    return size


def _line(folder: str, row: Row) -> bytes:
    """Return one entry in export form; its event is null when the file that holds it is missing."""
    try:
        event = stored_body(folder, row)
    except StoreDamaged:
        event = b"null"
    return b'{"seq":%d,"at":%d,"event":%s}\n' % (entry_seq(row[0]), row[1], event)


def salvage_cwd(folder: str) -> str:
    """Return the cwd of a session whose database cannot be opened; '' when it cannot be read."""
    for path in (os.path.join(folder, DATABASE), *reversed(damaged_databases(folder))):
        with contextlib.closing(PageScan(path)) as pages:
            for row in pages.entries():
                if row[0] == entry_key(ROOT, 1) and isinstance(
                    event := _decode_row(folder, row), Opened
                ):
                    return event.cwd
    return ""


# --- Opening and rebuilding -----------------------------------------------------------------------


KEEP_BYTES_MAX = 16 * 1024 * 1024
"""Rows of a log up to this size stay in memory after open, so that the first iteration need not
read them again.
"""
_SMALL_TABLES = ("collected", "files", "sqlite_sequence")


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
    unread: int = 0
    """Number of first entries that were not checked, because the snapshot covers them."""
    updated: int = 0
    cut: frozenset[int] = frozenset()


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
    _rebuild(folder, why, notes)
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
        if mark is not None and _find_losses(mark, reader):
            raise LogDamage("its write-ahead log is damaged")
        return _open(folder, blobs, notes, network)


def _find_losses(mark: HighWaterMark, connection: sqlite3.Connection) -> dict[int, tuple[int, int]]:
    """Return the sessions that end before their mark: number -> (last seq, last seq by the mark).

    Number 0 stands for the inbox and its message ids.
    """
    ends = {
        number: (entry_seq(last_key(connection, number)), seq)
        for number, seq in mark.entries.items()
    }
    ends[0] = (_last_message(connection), mark.message)
    return {number: (found, seq) for number, (found, seq) in ends.items() if found < seq}


def _open(
    folder: str, blobs: Blobs, notes: list[str], network: bool
) -> tuple[Database, LogSummary]:
    database = Database(folder, blobs, notes, network=network)
    try:
        summary = _summarize_log(database.connection, folder)
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
    """
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
        why = (
            "its write-ahead log was removed or cut short, or the database replaced by an older one"
        )
        notes.append(f"this session has lost {' and '.join(gone)}: {why}")
    mark.entries.setdefault(ROOT, summary.size)
    mark.updated = mark.updated or summary.updated
    if not mark.created:
        mark.created, mark.cwd, mark.title = summary.about
    summary.cut = frozenset(mark.cut)


def _summarize_log(connection: sqlite3.Connection, folder: str) -> LogSummary:
    """Read and check the root's log, without the entries that a fitting snapshot of a large log
    covers.
    """
    summary, size_bytes = LogSummary(), 0
    fitting = read_snapshot(folder, os.path.basename(folder), connection)
    if fitting is not None:
        summary.snapshot, log = fitting
        if os.path.getsize(os.path.join(folder, DATABASE)) > KEEP_BYTES_MAX:
            summary.hash, summary.rows = log, None
            summary.size = summary.unread = log.seq
    for row in read_checked_rows(connection, folder, first=summary.unread + 1):
        if row[2] > SCHEMA_VERSION:
            raise SessionReadOnly(
                f"entry {entry_seq(row[0])} of this session was written by a newer longrein; "
                "upgrade it, or export it"
            )
        summary.size += 1
        summary.hash.add(row)
        size_bytes += len(row[4])
        if size_bytes > KEEP_BYTES_MAX:
            summary.rows = None
        if summary.rows is not None:
            summary.rows.append(row)
    last = connection.execute(
        "SELECT at FROM entries WHERE key = ?", (entry_key(ROOT, summary.size),)
    ).fetchone()
    summary.updated = last[0] if last else 0
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


def _rebuild(folder: str, why: str, notes: list[str]) -> None:
    """Set the database aside and build a new one from its good part."""
    damaged = _move_aside(folder)
    path = os.path.join(folder, DATABASE)
    building = path + ".new"
    mark = read_mark(folder) or HighWaterMark()
    salvage = _salvage(folder, damaged, building, mark)
    notes.append(_repair_note(salvage, mark.entries.get(ROOT, 0), why, damaged))
    mark.cut = {number for number in mark.cut | salvage.cut if number in salvage.ends}
    mark.entries, mark.size_bytes = salvage.ends, 0
    write_mark(folder, mark, durable=True)  # before the database appears and can be written again
    move_into_place(building, path)
    unlink(os.path.join(folder, SUSPECT))
    flush_path(folder)


def _repair_note(result: _Salvage, before: int, why: str, damaged: str) -> str:
    """Return the line for the user."""
    if not result.entries:
        text = f"nothing could be read, so it begins anew; the damaged file is {damaged}"
        text += f", {result.later} entries of it are in {damaged}.jsonl" if result.later else ""
    elif ROOT not in result.cut:
        text = f"all {result.entries} entries were kept, the damaged file is {damaged}"
    else:
        size = max(before, result.entries)
        kept = result.entries - len(result.lost)
        names = ", ".join(map(str, result.lost[:LOST_NAMED_MAX]))
        more = " …" if len(result.lost) > LOST_NAMED_MAX else ""
        text = f"{kept} of {size} entries were kept, the rest is in {damaged}"
        word = "entries" if len(result.lost) > 1 else "entry"
        text += f"; lost in between: {word} {names}{more}" if result.lost else ""
    cut = len(result.cut - {ROOT})
    copied = (
        f"; of its subagents' logs {cut} were cut and {result.dropped} dropped"
        if cut or result.dropped
        else ""
    )
    return f"the session's database was damaged ({why}): {text}{copied}"


def _move_aside(folder: str) -> str:
    """Rename the database and its WAL to `….damaged-<n>`; return the new path. Continues a move
    that was cut short.
    """
    path, before = os.path.join(folder, DATABASE), damaged_databases(folder)
    if os.path.exists(path):
        last = int(before[-1].rpartition("-")[2]) if before else 0
        target = f"{path}.damaged-{last + 1}"
        os.rename(path, target)
    else:
        target = before[-1] if before else f"{path}.damaged-1"
    for end in ("-wal", "-journal"):
        if os.path.exists(path + end) and not os.path.exists(target + end):
            os.rename(path + end, target + end)
    unlink(path + "-shm")  # unused: this process holds the lock
    flush_path(folder)
    return target


def restore_moved_database(database: Database) -> str:
    """Write the contents of an open database back to its path, from which its files were removed or
    replaced.

    Files that took their place are set aside. Returns the message for the user.
    """
    path = database.path
    if not os.path.isdir(database.folder):
        return (
            f"the folder {database.folder} was removed while the session in it was open; "
            "nothing more is kept of it"
        )
    building = path + ".new"
    try:
        unlink(building)
        os.close(new_file(building))
        with contextlib.closing(sqlite3.connect(building)) as target:
            database.connection.backup(target)
        flush_path(building)
        if any(os.path.exists(path + end) for end in ("", "-wal", "-journal")):
            _move_aside(database.folder)
        move_into_place(building, path)
    except (OSError, sqlite3.Error) as error:
        return (
            f"{path} was removed or replaced while it was open, and could not be written again "
            f"({error})"
        )
    name = os.path.basename(database.folder)
    return (
        f"{path} was removed or replaced while it was open; it was written again, go on with "
        f"`longrein -r {name}`"
    )
