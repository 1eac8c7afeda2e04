"""The disposable index of a session's texts: it knows which entries may hold a word, never what they hold.

Three characters at a time (SQLite's trigram tokens), so that any piece of any script is found. It keeps neither texts
nor places: 0.4 bytes for each byte of text where an index with both takes more than three. It is built at the first
search, 14 MB of text a second, and brought up to date by each later one from the last entry it knows; a damaged or
older file is made anew. Several processes may search at once; they take turns in bringing it up to date.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence

from longrein.events import Entry
from longrein.store.database import Row, entry_key, entry_seq
from longrein.store.folder import new_file
from longrein.store.reading import Reader, entry_of

NAME = "search.sqlite"
"""File in the session's folder; it may be removed at any time."""
LAYOUT = 1
"""Version of the tables and of what is put into them."""
BUSY_S = 10.0
"""How long to wait for another process that brings the index up to date."""
TURN_CHARS = 4_000_000
"""Text that goes in with one transaction: then another process has its turn."""
SPAN_CHARS = 32_000
"""A longer text goes in piece by piece, so that a large one does not answer to every word."""
OVERLAP_CHARS = 80
"""Pieces overlap by this much, so that no word of up to `NARROW_CHARS` is cut apart."""
NARROW_CHARS = 60
"""Of a word, this much is looked up; the text itself decides."""
GRAM = 3
"""Characters of a token."""

OPTIONS = "content='', detail=none, columnsize=0, tokenize='trigram case_sensitive 1'"
TABLES = (
    "DROP TABLE IF EXISTS reached",
    "DROP TABLE IF EXISTS spans",
    "DROP TABLE IF EXISTS grams",
    "CREATE TABLE reached(number INTEGER PRIMARY KEY, seq INTEGER NOT NULL, sign TEXT NOT NULL)",
    "CREATE TABLE spans(id INTEGER PRIMARY KEY, key INTEGER NOT NULL)",
    f"CREATE VIRTUAL TABLE grams USING fts5(text, {OPTIONS})",
    f"PRAGMA user_version={LAYOUT}",
)
# reached: how far each session of the database is in, and a sign of that entry: a log that was repaired has another

TextsOf = Callable[[Entry], Iterable[str]]


class IndexTrouble(Exception):
    """There is no index to ask: read the log through."""


def indexed(reader: Reader, words: Sequence[str], texts_of: TextsOf, after: int = 0) -> Iterator[int]:
    """Entries after seq `after` that may hold all of `words`, the newest first; `texts_of` gives the texts of an entry
    in small letters. Entries that several sessions share are in the index once.

    Raises `IndexTrouble` when the words are too short to be looked up or the index cannot be had. Raises what `Reader`
    raises.
    """
    long = [word for word in words if len(word) >= GRAM]
    if not long:
        raise IndexTrouble("too short")
    path = os.path.join(reader.folder, NAME)
    try:
        return iter(_looked_up(path, reader, long, texts_of, after))
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise IndexTrouble(str(error)) from None
    except OSError as error:
        raise IndexTrouble(str(error)) from None
    try:  # damaged: once more from nothing
        for end in ("", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + end)
        return iter(_looked_up(path, reader, long, texts_of, after))
    except (sqlite3.Error, OSError) as error:
        raise IndexTrouble(str(error)) from None


def _looked_up(path: str, reader: Reader, words: Sequence[str], texts_of: TextsOf, after: int) -> list[int]:
    found: list[int] = []
    with contextlib.closing(_open(path)) as connection:
        for number, first, last in reader.newest_spans():
            if last <= after:
                break
            end = min(last, reader.tail()[0])
            while not _turn(connection, reader, number, end, texts_of):
                pass
            held = _holding_all(connection, number, words)
            found += sorted((seq for seq in held if max(first, after + 1) <= seq <= last), reverse=True)
    return found


def _holding_all(connection: sqlite3.Connection, number: int, words: Sequence[str]) -> set[int]:
    found: set[int] | None = None
    for word in words:
        held = _holding(connection, number, word)
        found = held if found is None else found & held
    return found or set()


def _open(path: str) -> sqlite3.Connection:
    with contextlib.suppress(FileExistsError):
        os.close(new_file(path))
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=NORMAL")
        if _layout(connection) != LAYOUT:
            with _transaction(connection):
                if _layout(connection) != LAYOUT:  # another process may have made them meanwhile
                    for table in TABLES:
                        connection.execute(table)
    except BaseException:
        connection.close()
        raise
    return connection


def _layout(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _holding(connection: sqlite3.Connection, number: int, word: str) -> set[int]:
    """Entries of session `number` of which some piece has all tokens of `word`."""
    start = word[:NARROW_CHARS]
    ends = [*range(0, len(start) - GRAM, GRAM), len(start) - GRAM]
    grams = " AND ".join('"' + start[at : at + GRAM].replace('"', '""') + '"' for at in ends)
    query = "SELECT DISTINCT key FROM grams JOIN spans ON id = grams.rowid WHERE grams MATCH ? AND key BETWEEN ? AND ?"
    rows = connection.execute(query, (grams, entry_key(number, 0), entry_key(number + 1, 0) - 1))
    return {entry_seq(key) for (key,) in rows}


def _turn(connection: sqlite3.Connection, reader: Reader, number: int, last: int, texts_of: TextsOf) -> bool:
    """Take in what is new of session `number` up to entry `last`, as much as one transaction holds; whether that was
    all."""
    if _reached(connection, reader, number) >= last:
        return True
    with _transaction(connection):
        after = _reached(connection, reader, number)  # another process may have had its turn meanwhile
        row, room = None, TURN_CHARS
        for row in reader.rows_of(number, after, last):
            room -= _take(connection, row, texts_of(entry_of(reader.folder, row)))
            if room <= 0:
                break
        if row is not None:
            connection.execute(
                "INSERT OR REPLACE INTO reached VALUES(?, ?, ?)", (number, entry_seq(row[0]), _sign(row))
            )
    return row is None or entry_seq(row[0]) >= last


def _reached(connection: sqlite3.Connection, reader: Reader, number: int) -> int:
    """The last entry of session `number` that is in. Raises sqlite3.DatabaseError when the log is another by now."""
    found = connection.execute("SELECT seq, sign FROM reached WHERE number = ?", (number,)).fetchone()
    if found is None:
        return 0
    row = next(reader.rows_of(number, found[0] - 1, found[0]), None)
    if row is None or _sign(row) != found[1]:
        raise sqlite3.DatabaseError("the log is not the one that was indexed")
    return int(found[0])


def _take(connection: sqlite3.Connection, row: Row, texts: Iterable[str]) -> int:
    """Put the texts of one entry in; how many characters."""
    taken = 0
    for text in texts:
        for start in range(0, len(text), SPAN_CHARS):
            span = connection.execute("INSERT INTO spans(key) VALUES(?)", (row[0],)).lastrowid
            piece = text[start : start + SPAN_CHARS + OVERLAP_CHARS].replace("\0", " ")
            connection.execute("INSERT INTO grams(rowid, text) VALUES(?, ?)", (span, piece))
        taken += len(text)
    return taken


def _sign(row: Row) -> str:
    _, at, _, crc, body = row
    return f"{at}:{body if isinstance(body, str) else crc}"
