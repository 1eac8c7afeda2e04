"""Read a session's log without its lock: entries by seq or in order, blobs whole or in part."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, overload

import msgspec

from longrein.events import Entry, Opened, StoreDamaged, decode_event, kind_of
from longrein.store.blobs import BlobDamaged, blob_file, is_hash, read_blob_file, verify_blob
from longrein.store.database import (
    ROOT,
    ROW_COLUMNS,
    SELECT_ROWS,
    SEQ_MAX,
    Row,
    entry_key,
    entry_seq,
    is_main_file_lost,
    is_sound_row,
    read_only,
)
from longrein.store.disk_errors import store_failure
from longrein.store.session_folder import DATABASE, damaged_databases, existing_folder
from longrein.store.snapshot import read_snapshot
from longrein.store.store_port import Snapshot

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


class ReadConnection:
    """Read-only connection to a session's database, opened at the first query."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._connection: sqlite3.Connection | None = None

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
        self._source = source or ReadConnection(self.folder)
        self._spans = [*spans, (number, SEQ_MAX)] if spans or number == ROOT else []

    def session_reader(self, number: int, spans: Sequence[Span] = ()) -> "Reader":
        """Return a reader of session `number` in the same database, on the same connection."""
        return Reader(self._state_dir, self.session, number, source=self._source, spans=spans)

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
        entry = entry_of(self.folder, row) if row else None
        return entry if entry and isinstance(entry.event, Opened) else None

    def snapshot(self) -> Snapshot | None:
        """Return the snapshot that fits the log of a root session; None without one, and where the
        database cannot be opened.
        """
        path = os.path.join(self.folder, DATABASE)
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(read_only(path)) as connection,
        ):
            found = read_snapshot(self.folder, self.session, connection)
            return found[0] if found else None
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
        where: str = "1",
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
        for number, first, last in self.newest_spans():
            start = entry_key(number, max(first, after + 1))
            key = entry_key(number, min(last, to))
            while rows := self._source.all(query, start, key, *values, batch):
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
        row = (
            self._source.one(f"{SELECT_ROWS} WHERE key = ?", entry_key(number, seq))
            if number
            else None
        )
        return entry_of(self.folder, row) if row else None

    def entries(self, after: int = 0, to: int = 0) -> Iterator[Entry]:
        """Iterate entries after seq `after` up to `to` (0: the last one), in order and in small
        batches.
        """
        for row in self.rows(after, to):
            yield entry_of(self.folder, row)

    def rows(self, after: int = 0, to: int = 0) -> Iterator[Row]:
        """Iterate the rows of the log after seq `after` up to `to` (0: the last one), in order."""
        for number, last in self.spans():
            end = min(last, to or last)
            if after < end:
                yield from self.rows_of(number, after, end)
                after = end

    def rows_of(self, number: int, after: int, to: int, batch: int = BATCH_ROWS) -> Iterator[Row]:
        """Iterate the rows of session `number` alone, after seq `after` up to `to`."""
        key, end = entry_key(number, after), entry_key(number, to)
        while True:
            rows = self._source.all(
                f"{SELECT_ROWS} WHERE key > ? AND key <= ? ORDER BY key LIMIT ?", key, end, batch
            )
            yield from rows
            if len(rows) < batch:
                return
            key = rows[-1][0]

    def of_kind(self, *kinds: str) -> Iterator[Entry]:
        """Iterate entries whose events have these stored types, newest first."""
        starts = [b'{"type":"%s"' % kind.encode() for kind in kinds]
        tests = " OR ".join(["typeof(body) = 'text'", *["substr(body, 1, ?) = ?"] * len(starts)])
        wanted = [value for start in starts for value in (len(start), start)]
        for row in self._newest(ROW_COLUMNS, tests, *wanted):
            entry = entry_of(self.folder, row)
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
        row = self._source.one("SELECT body FROM blobs WHERE hash = ?", bytes.fromhex(blob))
        return verify_blob(row[0], blob, self.folder) if row else read_blob_file(self.folder, blob)

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
        path = blob_file(self.folder, blob) if is_hash(blob) else ""
        return path if os.path.isfile(path) else ""

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
        return (entry_of(self._reader.folder, row) for row in rows)

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


def entry_of(folder: str, row: Row) -> Entry:
    """Decode a stored row. Raises `StoreDamaged`, `SessionReadOnly`."""
    key, at, version, _, _ = row
    try:
        return Entry(entry_seq(key), at, decode_event(stored_body(folder, row), version))
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"entry {entry_seq(key)} in {folder} cannot be read ({error})") from None


def stored_body(folder: str, row: Row) -> bytes:
    """Return the event's bytes of a row, from the row or its file. Raises `StoreDamaged` when
    they are damaged.
    """
    seq, body = entry_seq(row[0]), row[4]
    if not is_sound_row(row):
        raise StoreDamaged(f"entry {seq} in {folder} is not what was written")
    if isinstance(body, bytes):
        return body
    try:
        return read_blob_file(folder, body)
    except BlobDamaged:
        raise
    except KeyError:
        raise StoreDamaged(f"the file of entry {seq} in {folder} is gone") from None
