"""Read a session's log without its lock: entries by seq or in order, blobs whole or in part."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Self, overload

import msgspec

from longrein.store.blobs import BlobDamaged, blob_file, is_hash, read_blob_file, verify_blob
from longrein.store.database import (
    HASH_QUERY,
    ROOT,
    ROW_COLUMNS,
    SELECT_ROWS,
    SEQ_MAX,
    LogHash,
    Row,
    entry_key,
    entry_seq,
    is_main_file_lost,
    is_sound_row,
    read_only,
)
from longrein.store.disk_errors import store_failure
from longrein.store.session_folder import DATABASE, damaged_databases, fork_limit, original_folder
from longrein.store.session_store import existing_folder, store_with
from longrein.store.snapshot import read_snapshot
from longrein.store.store_port import Snapshot
from longrein_context.events import (
    Entry,
    Opened,
    Parent,
    SessionError,
    SessionUnknown,
    StoreDamaged,
    decode_event,
    kind_of,
)

PIECE_BYTES = 1024 * 1024
BATCH_ROWS = 256
"""Rows per query, so that no read stays open long enough to delay the writer's checkpoints."""

Span = tuple[int, int]
"""(session number, last seq): entries of that session which belong to a log, after those of
earlier spans.
"""


def truncate_spans(spans: Sequence[Span], to: int) -> list[Span]:
    """Return `spans` up to entry `to`."""
    found: list[Span] = []
    for number, last in spans:
        if found and found[-1][1] >= to:
            break
        found.append((number, min(last, to)))
    return found if to else []


def shared_entries(folder: str, rows: Sequence[Row]) -> Parent | None:
    """Return original and fork point of a fork that refers to entries 2 to there of its original.

    `rows`: the first two rows of the root. None for any other session, and for a fork of an older
    longrein, which has copies of these entries.
    """
    try:
        first = entry_of((folder,), rows[0]) if rows else None
    except SessionError:
        return None
    if first is None or first.seq != 1 or not isinstance(first.event, Opened):
        return None
    parent = first.event.parent
    if parent is None or parent.call or parent.seq < 2:
        return None
    has_copies = len(rows) > 1 and entry_seq(rows[1][0]) <= parent.seq
    return None if has_copies else parent


FIRST_ROWS = f"{SELECT_ROWS} WHERE key > ? AND key < ? ORDER BY key LIMIT 2"
"""Query for the rows that `shared_entries` needs."""
FIRST_KEYS = (entry_key(ROOT, 0), entry_key(ROOT + 1, 0))


def shared_to(connection: sqlite3.Connection, folder: str) -> int:
    """Return the last entry that the fork behind `connection` shares with its original; 0 for a
    session that has all of its entries. Raises sqlite3.Error.
    """
    shares = shared_entries(folder, connection.execute(FIRST_ROWS, FIRST_KEYS).fetchall())
    return shares.seq if shares is not None else 0


class ReadConnection:
    """Read-only connection to a session's database, opened at the first query.

    Of a fork it knows the databases in which the log of the root begins.
    """

    hash_query = HASH_QUERY
    """Query for what `LogHash.take` needs."""
    in_file = "typeof(body) = 'text'"
    """Test of a row whose body lies in a file."""

    def __init__(self, folder: str, fork: str = "") -> None:
        """`fork`: id of the fork that reads `folder` as its original, which may be deleted
        meanwhile.
        """
        self._folder = folder
        self._fork = fork
        self._connection: sqlite3.Connection | None = None
        self._parts: list[tuple[ReadConnection, int]] = []
        self.shares: Parent | None = None
        """Original and fork point, if this is a fork that refers to entries of its original."""

    @property
    def folder(self) -> str:
        """Folder of the session, also after the deletion of an original."""
        if not self._fork:
            return self._folder
        return original_folder(self._folder, self._fork) or self._folder

    @property
    def session(self) -> str:
        """Id of the root session."""
        return os.path.basename(self._folder)

    def root_parts(self) -> "list[tuple[ReadConnection, int]]":
        """Return (database, last seq) of the parts of the root's log, oldest first."""
        if self._parts:
            return self._parts
        rows = self.all(FIRST_ROWS, *FIRST_KEYS)
        self.shares = shared_entries(self.folder, rows)
        parts: list[tuple[ReadConnection, int]] = []
        if self.shares is not None:
            parts = [(self, 1), *self._original_parts(self.shares)]
        parts.append((self, SEQ_MAX))
        if rows:
            self._parts = parts
        return parts

    def _original_parts(self, shares: Parent) -> "list[tuple[ReadConnection, int]]":
        """Return the parts of the original up to the fork point, without its first entry; empty
        when it is gone or cannot be opened.
        """
        found: list[tuple[ReadConnection, int]] = []
        original, end = self._original(shares)
        with contextlib.suppress(SessionError):  # opening the fork tells the user
            for source, last in original.root_parts() if end else ():
                if last > 1 and (not found or found[-1][1] < end):
                    found.append((source, min(last, end)))
        return found

    def _original(self, shares: Parent) -> "tuple[ReadConnection, int]":
        """Return the database of the original, and up to which entry it may be read."""
        folder = os.path.join(os.path.dirname(self._folder), shares.session)
        place = original_folder(folder, self.session)
        end = min(shares.seq, fork_limit(place, self.session)) if place else 0
        return ReadConnection(folder, self.session), end

    def parts(self, number: int, first: int, last: int) -> "list[tuple[ReadConnection, int, int]]":
        """Return (database, first seq, last seq) of the parts of entries `first` to `last` of
        session `number`, oldest first.
        """
        if number != ROOT:
            return [(self, first, last)]
        found = []
        for source, end in self.root_parts():
            if first <= min(end, last):
                found.append((source, first, min(end, last)))
                first = end + 1
        return found

    def drop_shared(self, first: int) -> None:
        """Read nothing more of the original from entry `first` on, which is damaged or gone."""
        parts = [(source, min(end, first - 1)) for source, end in self.root_parts()[:-1]]
        self._parts = [*parts, (self, SEQ_MAX)]

    def sources(self) -> "list[ReadConnection]":
        """Return the databases that hold the log's entries and blobs: this one, then that of the
        original, and so on.
        """
        originals = (source for source, _ in reversed(self.root_parts()))
        return list(dict.fromkeys([self, *originals]))

    @property
    def folders(self) -> list[str]:
        """Folders of `sources`."""
        return [source.folder for source in self.sources()]

    def all(self, query: str, *values: object) -> list[Any]:
        """Return every row. Raises `StoreDamaged`, `StoreFull`, `SessionError`."""
        for is_last in (False, True):  # the file may be created in between
            try:
                if self._connection is None:
                    self._connection = read_only(os.path.join(self.folder, DATABASE))
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                if self._is_being_made(error):
                    break
                if is_last:
                    raise store_failure(error, self.folder) from None
                self.close()
        return []

    def one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        """Return the first row, or None."""
        found = self.all(query, *values)
        return found[0] if found else None

    def blob(self, blob: str) -> bytes | None:
        """Return the bytes of a blob in the database, unchecked; None when it is not there."""
        row = self.one("SELECT body FROM blobs WHERE hash = ?", bytes.fromhex(blob))
        return row[0] if row else None

    def fetch_file(self, blob: str) -> str:  # noqa: ARG002 - a store has it
        """Make the file of a large blob of a store; return its path, '' where it is not there."""
        return ""

    def _is_being_made(self, error: sqlite3.Error) -> bool:
        """Return True if another process has not created the file or its tables yet. Raises
        `StoreDamaged`.
        """
        path = os.path.join(self.folder, DATABASE)
        if os.path.exists(path) or is_main_file_lost(path):
            return "no such table" in str(error)
        if aside := damaged_databases(self.folder):
            raise StoreDamaged(
                f"the database of this session is damaged and was set aside as {aside[-1]}"
            )
        return True

    def close(self) -> None:
        """Close the files. Idempotent; the next query opens them again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for source, _ in self._parts:
            if source is not self:
                source.close()


def read_connection(folder: str) -> ReadConnection:
    """Return a connection to the database of the session in `folder`: its file, or the store."""
    store = store_with(folder)
    return store.read_connection(folder) if store else ReadConnection(folder)


class Reader:
    """Reads one session from its files, also while another process writes it. For one thread at a
    time.

    The log of a forked subagent begins with entries of its parent, which are stored once, with the
    parent. The constructor raises `SessionUnknown`; reading raises `StoreDamaged` and
    `SessionReadOnly`.
    """

    def __init__(
        self,
        state_dir: str,
        session: str,
        number: int = ROOT,
        *,
        source: ReadConnection | None = None,
        spans: Sequence[Span] = (),
    ) -> None:
        """Open session `number` in the database of root `session`; see `number_of`.

        `source`: connection of another reader of that database. `spans`: entries that it shares, if
        that is not stored yet.
        """
        self.session = session
        """Id of the root session, which names the folder."""
        self.number = number
        self.folder = existing_folder(state_dir, session)
        self._state_dir = state_dir
        self._source = source or read_connection(self.folder)
        self._spans = [*spans, (number, SEQ_MAX)] if spans or number == ROOT else []
        self._others: list[Reader] = []

    def session_reader(self, number: int, spans: Sequence[Span] = ()) -> Self:
        """Return a reader of session `number` in the same database, on the same connection."""
        return type(self)(self._state_dir, self.session, number, source=self._source, spans=spans)

    def subagent(self, session: str) -> Self | None:
        """Return a reader of the log of a subagent, in this database or, where another process has
        run it, of its own. None when it is gone. Closed with this one.
        """
        if number := self.number_of(session):
            return self.session_reader(number)
        found, own = self.other(session), self.opened()
        opened = found.opened() if found is not None else None
        parent = opened.parent if opened is not None else None
        is_own = own is not None and parent is not None and parent.session == own.session
        return found if is_own else None

    def other(self, session: str) -> Self | None:
        """Return a reader of another root session, closed with this one; None when it is gone."""
        try:
            found = type(self)(self._state_dir, session)
        except SessionUnknown:
            return None
        self._others.append(found)
        return found

    def opened(self) -> Opened | None:
        """Return the event of `opening_entry`."""
        entry = self.opening_entry()
        return entry.event if entry is not None and isinstance(entry.event, Opened) else None

    def spans(self) -> Sequence[Span]:
        """Return the spans of the log, oldest first; the last span is the session's own."""
        if self._spans:
            return self._spans
        opened = self.opening_entry()
        if opened is None or not isinstance(opened.event, Opened):
            return [(self.number, SEQ_MAX)]
        parent, seq = opened.event.parent, opened.seq
        number = self.number_of(parent.session) if seq > 1 and parent is not None else 0
        shared = (
            truncate_spans(self.session_reader(number).spans(), seq - 1)
            if 0 < number < self.number
            else []
        )
        self._spans = [*shared, (self.number, SEQ_MAX)]
        return self._spans

    @property
    def first(self) -> int:
        """Seq of the session's first own entry, not shared with its parent."""
        spans = self.spans()
        return spans[-2][1] + 1 if len(spans) > 1 else 1

    def opening_entry(self) -> Entry | None:
        """Return the session's first own entry, if it is an `Opened`; None when nothing is
        stored yet.
        """
        row = next(self.rows_of(self.number, 0, SEQ_MAX, batch=1), None)
        entry = entry_of(self.folders, row) if row else None
        return entry if entry and isinstance(entry.event, Opened) else None

    @property
    def folders(self) -> list[str]:
        """Folders with files of the log: the session's, then that of its original, and so on."""
        return self._source.folders

    @property
    def source(self) -> ReadConnection:
        """Connection to the database."""
        return self._source

    def log_hash(self, seq: int) -> LogHash:
        """Return the hash of the root's log up to entry `seq`. Reads only the heads of the rows."""
        return _log_hash(self._source, seq)

    def snapshot(self, most: int = SEQ_MAX) -> Snapshot | None:
        """Return the newest snapshot up to entry `most` that fits the log of a root session; None
        without one, and where the database cannot be read.
        """
        found = self.snapshot_and_hash(most)
        return found[0] if found else None

    def snapshot_and_hash(self, most: int = SEQ_MAX) -> tuple[Snapshot, LogHash] | None:
        """Return that snapshot with the hash of the log up to there. A fork without one of its own
        uses that of its original.
        """
        with contextlib.suppress(SessionError):  # the check of the rows reports the damage
            return _find_snapshot(self._source, most)
        return None

    def tail(self) -> tuple[int, int]:
        """Return (seq, time) of the last committed entry; zeros when there is none."""
        key, at = next(self._newest("key, at", batch=1), (0, 0))
        return entry_seq(key), at

    def newest_rows(self, after: int = 0, to: int = SEQ_MAX) -> Iterator[Row]:
        """Iterate the rows of the log after seq `after` up to `to`, newest first."""
        return self._newest(ROW_COLUMNS, after=after, to=to)

    def _newest(
        self,
        columns: str,
        where: str = "1 = 1",
        *values: object,
        batch: int = BATCH_ROWS,
        after: int = 0,
        to: int = SEQ_MAX,
    ) -> Iterator[Any]:
        """Iterate `columns`, of which the first is `key`, of the rows of the log that fit
        `where`, newest first: those after seq `after` up to `to`.
        """
        query = (
            f"SELECT {columns} FROM entries WHERE key >= ? AND key <= ? AND ({where}) ORDER "
            "BY key DESC LIMIT ?"
        )
        for number, begin, end in self.newest_spans():
            for source, low, high in reversed(self._source.parts(number, begin, end)):
                start, key = (
                    entry_key(number, max(low, after + 1)),
                    entry_key(number, min(high, to)),
                )
                while rows := source.all(query, start, key, *values, batch):
                    yield from rows
                    key = rows[-1][0] - 1

    def newest_spans(self) -> Iterator[tuple[int, int, int]]:
        """Iterate (session number, first seq, last seq) of the spans, newest first."""
        spans = self.spans()
        for at in range(len(spans) - 1, -1, -1):
            yield spans[at][0], spans[at - 1][1] + 1 if at else 1, spans[at][1]

    def entry(self, seq: int) -> Entry | None:
        """Return entry `seq`, or None."""
        number = next((number for number, last in self.spans() if seq <= last), 0)
        for source, _, _ in self._source.parts(number, seq, seq):
            row = source.one(f"{SELECT_ROWS} WHERE key = ?", entry_key(number, seq))
            if row is not None:
                return entry_of(self.folders, row)
        return None

    def entries(self, after: int = 0, to: int = 0) -> Iterator[Entry]:
        """Iterate entries after seq `after` up to `to` (0: the last one), in order and in small
        batches.
        """
        folders = self.folders
        for row in self.rows(after, to):
            yield entry_of(folders, row)

    def rows(self, after: int = 0, to: int = 0) -> Iterator[Row]:
        """Iterate the rows of the log after seq `after` up to `to` (0: the last one), in order."""
        for number, last in self.spans():
            end = min(last, to or last)
            if after < end:
                yield from self.rows_of(number, after, end)
                after = end

    def rows_of(self, number: int, after: int, to: int, batch: int = BATCH_ROWS) -> Iterator[Row]:
        """Iterate the rows of session `number` alone, after seq `after` up to `to`.

        Raises `StoreDamaged` if a descending read finds a row behind the last one of the
        ascending read: the B-tree is out of order.
        """
        query = f"{SELECT_ROWS} WHERE key >= ? AND key <= ? ORDER BY key LIMIT ?"
        newest = "SELECT key FROM entries WHERE key >= ? AND key <= ? ORDER BY key DESC LIMIT 1"
        for source, first, last in self._source.parts(number, after + 1, to):
            key, end = entry_key(number, first), entry_key(number, last)
            known = 0
            while True:
                rows = source.all(query, key, end, batch)
                if not rows and known >= key:
                    raise StoreDamaged(f"entry {entry_seq(key)} in {source.folder} is missing")
                yield from rows
                key = rows[-1][0] + 1 if rows else key
                if len(rows) < batch:
                    (known,) = source.one(newest, key, end) or (0,)
                    if known < key:
                        break

    def of_kind(self, *kinds: str, after: int = 0) -> Iterator[Entry]:
        """Iterate entries behind seq `after` whose events have these stored types, newest
        first.
        """
        starts = [b'{"type":"%s"' % kind.encode() for kind in kinds]
        tests = " OR ".join([self._source.in_file, *["substr(body, 1, ?) = ?"] * len(starts)])
        wanted = [value for start in starts for value in (len(start), start)]
        folders = self.folders
        for row in self._newest(ROW_COLUMNS, tests, *wanted, after=after):
            entry = entry_of(folders, row)
            if kind_of(entry.event) in kinds:
                yield entry

    def seq_at(self, at: int) -> int:
        """Return the last entry written up to time `at` (microseconds UTC); 0 when there is
        none.
        """
        (key,) = next(self._newest("key", "at <= ?", at, batch=1), (0,))
        return entry_seq(key)

    def seq_ago(self, ago_us: int, now_us: int) -> int:
        """Return the last entry that is at least `ago_us` old; 0 when there is none.

        Ages are summed from the forward steps between entries, so entries written before the clock
        was set back count as older than those after it.
        """
        newer, left = now_us, ago_us
        for key, at in self._newest("key, at"):
            left, newer = left - max(0, newer - at), at
            if left <= 0:
                return entry_seq(key)
        return 0

    def number_of(self, session: str) -> int:
        """Return the number of a session in this database; 0 when it is not there."""
        row = self._source.one("SELECT number FROM sessions WHERE session = ?", session)
        return int(row[0]) if row else 0

    def inbox(self) -> list[tuple[int, bytes]]:
        """Return (id, body) of waiting inbox messages, in order. The database must have the
        present layout.
        """
        return self._source.all(
            "SELECT id, body FROM inbox WHERE number = ? ORDER BY id", self.number
        )

    def blob(self, blob: str) -> bytes:
        """Return the bytes of a blob. Raises `KeyError` when it does not exist, `BlobDamaged`."""
        if not is_hash(blob):
            raise KeyError(blob)
        for source in self._source.sources():
            data = source.blob(blob)
            if data is not None:
                return verify_blob(data, blob, source.folder)
        return read_blob_file(folder_of_blob(self.folders, blob), blob)

    def pieces(self, blob: str) -> Iterator[bytes]:
        """Iterate a blob piece by piece. Raises `KeyError` when it does not exist.

        A blob that is a file is not checked against its hash.
        """
        path = self.blob_path(blob)
        if not path:
            yield self.blob(blob)
            return
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def blob_path(self, blob: str) -> str:
        """Return the path of a blob's file; '' when it lies in the database or does not exist."""
        if not is_hash(blob):
            return ""
        path = blob_file(folder_of_blob(self.folders, blob), blob)
        if os.path.isfile(path):
            return path
        return next(filter(None, (one.fetch_file(blob) for one in self._source.sources())), "")

    def collected(self, names: Sequence[str]) -> set[str]:
        """Return which of the inbox files `names` were taken in already."""
        marks = ", ".join("?" * len(names))
        return {
            row[0]
            for row in self._source.all(
                f"SELECT name FROM collected WHERE name IN ({marks})", *names
            )
        }

    def about(self) -> tuple[int, str, str]:
        """Return (created in microseconds UTC, cwd, title); empty values when unknown."""
        row = self._source.one(
            "SELECT created, cwd, title FROM sessions WHERE number = ?", self.number
        )
        return (row[0], row[1], row[2]) if row else (0, "", "")

    def close(self) -> None:
        """Close the files. Idempotent; the next read opens them again."""
        self._source.close()
        for other in self._others:
            other.close()


class StoredEntries(Sequence[Entry]):
    """Entries that a session had at open, read and decoded during iteration and never all in
    memory.
    """

    def __init__(self, reader: Reader, rows: Sequence[Row] | None, size: int) -> None:
        """`rows`: all rows, if they are small enough to keep until the first iteration."""
        self._reader = reader
        self._rows = rows
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry]:
        if not self._size:
            return iter(())
        rows, self._rows = self._rows, None
        if rows is None:
            return self._reader.entries(0, self._size)
        folders = self._reader.folders
        return (entry_of(folders, row) for row in rows)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._size))]
        entry = self._reader.entry(range(1, self._size + 1)[index])
        if entry is None:
            raise IndexError(index)
        return entry


def read_entries(state_dir: str, session: str, after: int = 0) -> Iterator[Entry]:
    """Iterate the entries of a session after seq `after`, without a lock. Raises what `Reader`
    raises.
    """
    with contextlib.closing(Reader(state_dir, session)) as reader:
        yield from reader.entries(after)


def _log_hash(source: ReadConnection, seq: int) -> LogHash:
    log = LogHash()
    for part, first, last in source.parts(ROOT, 1, seq):
        row = part.one(part.hash_query, entry_key(ROOT, first - 1), entry_key(ROOT, last))
        assert row is not None  # it is an aggregate
        log.take(row)
    return log


def _find_snapshot(source: ReadConnection, most: int) -> tuple[Snapshot, LogHash] | None:
    found = read_snapshot(source.folder, source.session, lambda seq: _log_hash(source, seq), most)
    originals = source.sources()[1:]
    if found is not None or source.shares is None or not originals:
        return found
    found = _find_snapshot(originals[0], min(most, source.shares.seq))
    if found is None or not _begins_like(source, originals[0]):
        return None
    original = found[0].original or originals[0].session
    snapshot = msgspec.structs.replace(found[0], original=original)
    return snapshot, _log_hash(source, snapshot.seq)


def _begins_like(fork: ReadConnection, original: ReadConnection) -> bool:
    """Return True if the first entry of a fork folds to the state of its original's, but for the
    session's id.
    """
    events = [
        entry_of(source.folders, row).event
        for source in (fork, original)
        for row in source.all(FIRST_ROWS, *FIRST_KEYS)[:1]
    ]
    alike = [
        msgspec.structs.replace(event, session="", parent=None, one_shot=False)
        for event in events
        if isinstance(event, Opened)
    ]
    return len(alike) == 2 and alike[0] == alike[1]


# --- Rows and their files -------------------------------------------------------------------------


def entry_of(folders: Sequence[str], row: Row) -> Entry:
    """Decode a stored row, whose file lies in one of `folders`. Raises `StoreDamaged`,
    `SessionReadOnly`.
    """
    key, at, version, _, _ = row
    try:
        return Entry(entry_seq(key), at, decode_event(stored_body(folders, row), version))
    except msgspec.DecodeError as error:
        raise StoreDamaged(
            f"entry {entry_seq(key)} in {folders[0]} cannot be read ({error})"
        ) from None


def stored_body(folders: Sequence[str], row: Row) -> bytes:
    """Return the event's bytes of a row, from the row or its file in one of `folders`. Raises
    `StoreDamaged` when they are damaged.
    """
    seq, body = entry_seq(row[0]), row[4]
    if not is_sound_row(row):
        raise StoreDamaged(f"entry {seq} in {folders[0]} is not what was written")
    if isinstance(body, bytes):
        return body
    folder = folder_of_blob(folders, body)
    try:
        return read_blob_file(folder, body)
    except BlobDamaged:
        raise
    except KeyError:
        raise StoreDamaged(f"the file of entry {seq} in {folder} is gone") from None


def folder_of_blob(folders: Sequence[str], blob: str) -> str:
    """Return the first of `folders` that has the file of a blob; the first one where none has."""
    having = (folder for folder in folders if os.path.exists(blob_file(folder, blob)))
    return next(having, folders[0])


def row_problem(row: Row, folders: Sequence[str]) -> str:
    """Return what is wrong with a row; '' for an intact one."""
    seq = entry_seq(row[0])
    if not is_sound_row(row):
        return f"entry {seq} is not what was written"
    try:
        if isinstance(row[4], str):
            read_blob_file(folder_of_blob(folders, row[4]), row[4])
    except BlobDamaged:
        return f"the file of entry {seq} is not what was written"
    except KeyError:
        return f"the file of entry {seq} is missing"
    return ""
