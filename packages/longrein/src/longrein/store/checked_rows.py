"""Read the rows of a log and check them: by their checksums, and that none is missing."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from longrein.store.blobs import BlobDamaged, read_blob_file
from longrein.store.database import (
    ROOT,
    SELECT_ROWS,
    Row,
    entry_key,
    entry_seq,
    is_sound_row,
    last_key,
)
from longrein.store.disk_errors import is_damage
from longrein.store.reader import FIRST_KEYS, FIRST_ROWS, folder_of_blob, shared_entries


class LogDamage(Exception):
    """A log is damaged from an entry on."""


def read_checked_rows(
    connection: sqlite3.Connection, folder: str, number: int = ROOT, first: int = 1, shared: int = 0
) -> Iterator[Row]:
    """Iterate the rows of session `number` from seq `first` on.

    `shared`: last entry that a fork shares with its original and that is not among the rows.
    Raises `LogDamage` at the first row that is missing or damaged, and if the last row that an
    ascending read finds is not the last row: the B-tree is out of order.
    """
    query = f"{SELECT_ROWS} WHERE key > ? AND key < ? ORDER BY key"
    try:
        last = entry_seq(last_key(connection, number))
        rows = connection.execute(query, (entry_key(number, first - 1), entry_key(number + 1, 0)))
        yield from check_rows(rows, (folder,), first, last, shared)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        raise LogDamage(str(error)) from None


def check_rows(
    rows: Iterable[Row], folders: Sequence[str], first: int, last: int, shared: int = 0
) -> Iterator[Row]:
    """Pass on `rows` of one session while they are intact and without a gap, from seq `first` to
    seq `last` at least.

    `shared`: entries 2 to there are not among the rows. Raises `LogDamage` at the first row that is
    missing or damaged.
    """
    expected = first
    for row in rows:
        if 1 < expected <= shared:
            expected = shared + 1
        if entry_seq(row[0]) != expected:
            raise LogDamage(f"entry {expected} is missing")
        if problem := row_problem(row, folders):
            raise LogDamage(problem)
        yield row
        expected += 1
    if expected <= last:
        raise LogDamage(f"entry {expected} is missing")


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


def shared_to(connection: sqlite3.Connection, folder: str) -> int:
    """Return the last entry that the fork behind `connection` shares with its original; 0 for a
    session that has all of its entries. Raises sqlite3.Error.
    """
    shares = shared_entries(folder, connection.execute(FIRST_ROWS, FIRST_KEYS).fetchall())
    return shares.seq if shares is not None else 0
