"""Copying a log into a new database: what repair and fork have in common. Nothing here writes to the source."""

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence

from longrein.store.blobs import blob_file
from longrein.store.database import ROOT, TABLES, Row, entry_key
from longrein.store.faults import is_damage
from longrein.store.folder import new_file


class Unsound(Exception):
    """The log is good up to here."""


def sound_rows(connection: sqlite3.Connection, folder: str) -> Iterator[Row]:
    """The entries of a log from the first on. Raises `Unsound` at the first that is missing or not what was written."""
    query = "SELECT key, at, version, crc, body FROM entries WHERE key > ? AND key < ? ORDER BY key"
    expected = 1
    for row in _until_damage(connection, query, (entry_key(ROOT, 0), entry_key(ROOT + 1, 0))):
        key, _, _, crc, body = row
        if key != entry_key(ROOT, expected):
            raise Unsound(f"entry {expected} is missing")
        if isinstance(body, str):
            if not os.path.exists(blob_file(folder, body)):
                raise Unsound(f"the file of entry {expected} is missing")
        elif zlib.crc32(body) != crc:
            raise Unsound(f"entry {expected} is not what was written")
        yield row
        expected += 1


def _until_damage(connection: sqlite3.Connection, query: str, values: tuple[int, int]) -> Iterator[Row]:
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


def insert_entry(target: sqlite3.Connection, row: Row) -> None:
    """Add one entry as it is stored."""
    target.execute("INSERT INTO entries VALUES(?, ?, ?, ?, ?)", row)


def copy_tables(source: sqlite3.Connection, target: sqlite3.Connection, tables: Sequence[str]) -> None:
    """Copy `tables` row by row; of a damaged one, what can be read."""
    for table in tables:
        with contextlib.suppress(sqlite3.DatabaseError):
            for row in source.execute(f"SELECT * FROM {table}"):
                target.execute(f"INSERT OR REPLACE INTO {table} VALUES({', '.join('?' * len(row))})", row)
