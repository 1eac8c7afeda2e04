"""Rebuild a damaged database from what can be read of it.

A damaged database is never written to. It is set aside as `log.sqlite.damaged-<n>`, and what can be
read of each log is copied into a new database; a reminder stands for each entry that cannot. After
a kill in between, the next open finds no `log.sqlite` and continues the repair.
"""

import contextlib
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from longrein.atomic_file import flush_path, move_into_place, replace_file
from longrein.store.blobs import blob_files, is_hash
from longrein.store.database import (
    INSERT_ENTRY,
    REPLACE_SESSION,
    ROOT,
    SELECT_ROWS,
    SEQ_MAX,
    Database,
    Row,
    copy_tables,
    entry_key,
    entry_seq,
    file_size,
    key_number,
    new_database,
    read_only,
    row_checksum,
    updated_about,
)
from longrein.store.disk_errors import SUSPECT
from longrein.store.page_scan import PageScan
from longrein.store.reader import row_problem, shared_to, stored_body
from longrein.store.session_folder import (
    DATABASE,
    HighWaterMark,
    damaged_databases,
    limit_forks,
    new_file,
    read_mark,
    unlink,
    write_mark,
)
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Opened,
    Reminded,
    SessionError,
    StoreDamaged,
    SubagentStarted,
    TurnEnded,
    UserSpoke,
    decode_event,
    encode_event,
)

LOST_NAMED_MAX = 20
"""Lost entries that the note names."""
LOST = "the entry that stood here was damaged on the disk and is lost"
_SMALL_TABLES = ("collected", "files", "sqlite_sequence")

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
        self._shared = shared_to(source, folder)
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
        newest, times = 0, {}
        for row in self._rows(number, first, SEQ_MAX):
            newest = entry_seq(row[0])
            if not row_problem(row, (self._folder,)):
                times[newest] = row[1]
        if first not in times:
            self.shortened.add(number)
            return 0, False
        shared = self._shared if number == ROOT else 0
        times |= dict.fromkeys(range(2, shared + 1), times[first])
        last = max(times)
        lost = [seq for seq in range(first, last) if seq not in times]
        opened = next(self._events(number, first, first))
        if isinstance(opened, Opened):
            self._fill_gaps(number, lost, opened.nonce, times)
            self.lost += lost if number == ROOT else []
        elif lost:
            last = lost[0] - 1
        if last < newest or not 0 < self._known.get(number, 0) <= last:
            self.shortened.add(number)
        return last, not lost and number not in self.shortened

    def _fill_gaps(self, number: int, lost: list[int], nonce: str, times: dict[int, int]) -> None:
        """Put a reminder in place of each entry of `lost`. `times`: seq -> time of the others."""
        body = encode_event(Reminded("entry_lost", f"[longrein:{nonce} entry_lost] {LOST}"))
        for seq in lost:
            at = times[seq] = times[seq - 1]
            key = entry_key(number, seq)
            row = (key, at, SCHEMA_VERSION, row_checksum(key, at, SCHEMA_VERSION, body), body)
            self._source.execute(f"INSERT OR REPLACE INTO entries VALUES({'?, ' * 4}?)", row)

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
        return decode_event(stored_body((folder,), row), row[2])
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
        event = stored_body((folder,), row)
    except StoreDamaged:
        event = b"null"
    return b'{"seq":%d,"at":%d,"event":%s}\n' % (entry_seq(row[0]), row[1], event)


# --- Rebuilding -----------------------------------------------------------------------------------


def rebuild(folder: str, why: str, notes: list[str]) -> None:
    """Set the database aside and build a new one from its good part."""
    damaged = _move_aside(folder)
    path = os.path.join(folder, DATABASE)
    building = path + ".new"
    mark = read_mark(folder) or HighWaterMark()
    salvage = _salvage(folder, damaged, building, mark)
    notes.append(_repair_note(salvage, mark.entries.get(ROOT, 0), why, damaged))
    mark.cut = {number for number in mark.cut | salvage.cut if number in salvage.ends}
    mark.entries, mark.size_bytes = salvage.ends, 0
    limit_forks(folder, salvage.entries)
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
