"""Copying a log into a new database: what repair and fork have in common. Nothing here writes to the source."""

import contextlib
import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence

from longrein.store.blobs import BlobDamaged, read_file
from longrein.store.database import ROOT, TABLES, Row, entry_key, entry_seq, is_sound_row, row_checksum
from longrein.store.faults import is_damage
from longrein.store.folder import new_file


class Unsound(Exception):
    """The log is good up to here."""


def sound_rows(connection: sqlite3.Connection, folder: str, number: int = ROOT, first: int = 1) -> Iterator[Row]:
    """The entries of session `number` from seq `first` on. Raises `Unsound` at the first that is missing or not what
    was written."""
    query = "SELECT key, at, version, crc, body FROM entries WHERE key > ? AND key < ? ORDER BY key"
    values = (entry_key(number, first - 1), entry_key(number + 1, 0))
    with contextlib.closing(_until_damage(connection, query, values)) as rows:
        yield from sound(rows, folder, first)


def sound(rows: Iterable[Row], folder: str, first: int) -> Iterator[Row]:
    """`rows` of one session as far as they are what was written, from seq `first` on without a gap. Raises `Unsound`
    at the first that is not."""
    for expected, row in enumerate(rows, first):
        if entry_seq(row[0]) != expected:
            raise Unsound(f"entry {expected} is missing")
        if not is_sound_row(row):
            raise Unsound(f"entry {expected} is not what was written")
        if isinstance(row[4], str):
            _check_file(folder, row[4], expected)
        yield row


def _check_file(folder: str, blob: str, seq: int) -> None:
    """Raises `Unsound` when the file that holds entry `seq` is gone or not what was written."""
    try:
        read_file(folder, blob)
    except BlobDamaged:
        raise Unsound(f"the file of entry {seq} is not what was written") from None
    except KeyError:
        raise Unsound(f"the file of entry {seq} is missing") from None


def _until_damage(connection: sqlite3.Connection, query: str, values: tuple[int, int]) -> Generator[Row, None, None]:
    try:
        yield from connection.execute(query, values)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        raise Unsound(str(error)) from None


def new_database(path: str) -> sqlite3.Connection:
    """An empty database at `path`, in a transaction, without flushes. Replaces what a killed copy left there."""
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
    """A row of `entries`."""
    return key, at, version, row_checksum(key, at, version, body), body


def insert_entry(target: sqlite3.Connection, row: Row) -> None:
    """Add one entry as it is stored."""
    target.execute("INSERT INTO entries VALUES(?, ?, ?, ?, ?)", row)


def copy_tables(source: sqlite3.Connection, target: sqlite3.Connection, tables: Sequence[str]) -> None:
    """Copy `tables` row by row; of a damaged one, what can be read. The source may be of an older layout."""
    for table in tables:
        with contextlib.suppress(sqlite3.DatabaseError):
            rows = source.execute(f"SELECT * FROM {table}")
            names = ", ".join(column[0] for column in rows.description)
            marks = ", ".join("?" * len(rows.description))
            for row in rows:
                target.execute(f"INSERT OR REPLACE INTO {table}({names}) VALUES({marks})", row)
