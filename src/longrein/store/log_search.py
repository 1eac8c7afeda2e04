"""Full-text search over one session's log and its subagents' logs.

A disposable index names the entries that may match; the log itself is read for the hits, so a hit
is never stale. Without an index (query too short, folder not writable, no room) the whole log is
read.
"""

import contextlib
import itertools
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from longrein.context import is_escaped_line, unescape_lines
from longrein.events import Entry
from longrein.store.database import LAYOUTS_MAX, Row, entry_key, entry_seq, transaction
from longrein.store.entry_parts import Content, contents_of, encoding_of, title_of
from longrein.store.reader import Reader, entry_of
from longrein.store.session_folder import new_file, unlink
from longrein.store.store_port import SearchHit, SearchResult

# --- Queries and matches (pure functions) ---------------------------------------------------------
#
# All words must occur, in any order; words in double quotes must occur as they stand. Words match
# as pieces of text, so `parse` finds `parser_of`. Case does not count. No language is assumed, so
# Chinese text is found too.


WORDS_MAX = 16
"""Words of a query; further ones are ignored."""
WORD_CHARS_MAX = 300
SNIPPET_CHARS = 160
MATCHES_MAX = 200
"""Matches of the longest word that are compared to find the best one."""
NEAR_CHARS = 200
"""Distance within which other words count as near."""


class Query(msgspec.Struct, frozen=True):
    """A parsed query, in lower case."""

    words: tuple[str, ...]
    """Words that must all occur; an empty query matches nothing."""
    phrase: str
    """The query as written; matches of it are preferred."""


class MatchPosition(msgspec.Struct, frozen=True):
    """The best match of a query in a text: its offset, and its length in characters."""

    start: int
    length: int
    count: int
    """Number of occurrences of the whole query or, if there is none, of its longest word."""
    exact: bool


def parse_query(text: str) -> Query:
    """Parse a query as the user or the model wrote it."""
    pairs = re.findall(r'"([^"]+)"|(\S+)', text)
    words = [lower_case(quoted or word.strip('"'))[:WORD_CHARS_MAX] for quoted, word in pairs]
    wanted = tuple(dict.fromkeys(word for word in words if word.strip()))[:WORDS_MAX]
    return Query(wanted, lower_case(" ".join(text.replace('"', " ").split())))


def lower_case(text: str) -> str:
    """Return `text` in lower case, with every character at its offset."""
    low = text.lower()
    if len(low) != len(text):
        low = "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)
    return low if low.isascii() else low.replace("ς", "σ")


def find_match(text: str, query: Query) -> MatchPosition | None:
    """Return the best match of `query` in lower-case `text`; None unless every word occurs."""
    if not query.words or any(word not in text for word in query.words):
        return None
    at = text.find(query.phrase)
    if at >= 0:
        return MatchPosition(at, len(query.phrase), text.count(query.phrase), exact=True)
    word = max(query.words, key=len)
    others = [other for other in query.words if other != word]
    return MatchPosition(
        _best_offset(text, word, others), len(word), text.count(word), exact=len(query.words) == 1
    )


def _best_offset(text: str, word: str, others: list[str]) -> int:
    """Return the offset of `word` with most of `others` near; the first of equals."""
    best = text.find(word)
    most = -1
    at = -1
    for _ in range(MATCHES_MAX if others else 0):
        at = text.find(word, at + 1)
        if at < 0:
            break
        around = text[max(0, at - NEAR_CHARS) : at + len(word) + NEAR_CHARS]
        near = sum(other in around for other in others)
        if near > most:
            best, most = at, near
    return best


def snippet(text: str, match: MatchPosition) -> str:
    """Return the line of `match`, shortened on both sides and without control characters."""
    first = text.rfind("\n", 0, match.start) + 1
    last = text.find("\n", match.start)
    last = len(text) if last < 0 else last
    room = max(SNIPPET_CHARS - match.length, 40) // 2
    start, end = (
        max(first, match.start - room),
        min(last, match.start + min(match.length, SNIPPET_CHARS) + room),
    )
    shown = " ".join(
        "".join(sign if sign.isprintable() else " " for sign in text[start:end]).split()
    )
    return ("…" if start > first else "") + shown + ("…" if end < last else "")


# --- Search ---------------------------------------------------------------------------------------


BLOB_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of a text blob, from its start, that are searched."""


class TextSource(Protocol):
    """Source of entries and blobs."""

    def entry(self, seq: int, /) -> Entry | None: ...
    def tail(self) -> tuple[int, int]: ...
    def pieces(self, blob: str, /) -> Iterator[bytes]: ...


def search(reader: Reader, query: str, limit: int, before: int = 0, after: int = 0) -> SearchResult:
    """Return at most `limit` hits for `query`, by the index, which is updated first.

    `before`, `after`: only entries before or after that seq; 0 for all. Raises what `Reader`
    raises.
    """
    wanted = parse_query(query)
    try:
        seqs = _find_in_index(reader, wanted.words, after)
    except IndexUnavailable as error:
        found = scan(reader, query, limit, before, after)
        return msgspec.structs.replace(found, note=error.note)
    return _collect_hits(reader, wanted, seqs, limit, before)


def scan(
    texts: TextSource, query: str, limit: int, before: int = 0, after: int = 0
) -> SearchResult:
    """Search without an index: read every entry from the newest on."""
    return _collect_hits(
        texts, parse_query(query), range(texts.tail()[0], after, -1), limit, before
    )


def _collect_hits(
    texts: TextSource, query: Query, seqs: Iterable[int], limit: int, before: int
) -> SearchResult:
    entries = (
        (texts.entry(seq) for seq in seqs if not before or seq < before)
        if query.words
        else iter(())
    )
    every = (
        hit for entry in entries if entry is not None for hit in _entry_hits(entry, texts, query)
    )
    hits = list(itertools.islice(every, limit + 1))
    best = sorted(hits[:limit], key=lambda hit: not hit.exact)
    return SearchResult(tuple(best), len(hits) > limit)


def _entry_hits(entry: Entry, texts: TextSource, query: Query) -> Iterator[SearchHit]:
    for handle, content, text in _searched_contents(entry, texts):
        match = find_match(lower_case(text), query)
        if match is not None:
            title = title_of(entry)
            title += "" if content.title in title or "." not in handle else f", {content.title}"
            line, shown = _line_number(text, match.start), snippet(text, match)
            yield SearchHit(
                handle, entry.seq, entry.at, title, line, match.count, shown, match.exact
            )


def _line_number(text: str, at: int) -> int:
    """Return the line of a position, as `Recall` counts the lines of the text."""
    before = text[:at]
    if is_escaped_line(text.count("\n"), text.count("\\n")):
        before = unescape_lines(before)
    return before.count("\n") + 1


def _searched_contents(entry: Entry, texts: TextSource) -> Iterator[tuple[str, Content, str]]:
    """Iterate (handle, part, text), without those of `Recall`: its results repeat the log, its
    calls hold the query.
    """
    contents = contents_of(entry)
    alone = sum(not content.aside for content in contents) == 1
    for number, content in enumerate(contents, 1):
        if content.searchable and content.tool != "Recall" and not content.part:
            text = content.text or (_blob_text(texts, content.blob) if content.blob else "")
            if text:
                yield (
                    f"r{entry.seq}" if alone and not content.aside else f"r{entry.seq}.{number}",
                    content,
                    text,
                )


def _blob_text(texts: TextSource, blob: str) -> str:
    """Return the searchable start of a text blob; '' when the blob is missing."""
    data = bytearray()
    try:
        for piece in texts.pieces(blob):
            data += piece
            if len(data) >= BLOB_BYTES_MAX:
                break
    except KeyError:
        return ""
    return bytes(data[:BLOB_BYTES_MAX]).decode(encoding_of(data), "replace")


# --- Index ----------------------------------------------------------------------------------------
#
# SQLite's trigram tokens find any piece of text in any script. The index stores neither texts nor
# positions: 0.4 bytes per byte of text, where an index with both takes more than 3. The first
# search builds it at 14 MB of text a second, later ones add new entries. A damaged or older file is
# rebuilt. Processes that search at once take turns to update it.


NAME = "search.sqlite"
"""File in a session's folder; it may be removed at any time."""
LAYOUT = 1
BUSY_S = 10.0
"""Time to wait for another process that updates the index."""
BATCH_CHARS = 4_000_000
"""Text indexed in one transaction, so that processes take turns."""
SPAN_CHARS = 32_000
"""A longer text is indexed in pieces, so that a large one does not match every word."""
OVERLAP_CHARS = 80
"""Overlap of pieces, so that no word of up to `NARROW_CHARS` is cut apart."""
NARROW_CHARS = 60
"""Characters of a word that are looked up in the index."""
GRAM = 3

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
# reached: the last indexed entry of each session and its signature, which differs after a repair of
# the log


NEWER_INDEX = (
    "its search index was made by a newer longrein; its log is read instead, which takes longer"
)


class IndexUnavailable(Exception):
    """The index cannot be used, and the log must be read."""

    def __init__(self, why: str, note: str = "") -> None:
        """`note`: what the user should know of it."""
        super().__init__(why)
        self.note = note


def _find_in_index(reader: Reader, words: Sequence[str], after: int) -> list[int]:
    """Return seqs of entries after `after` that may hold all of `words`, newest first.

    Entries that several sessions share are indexed once. Raises `IndexUnavailable` when the words
    are too short or the index cannot be used, and what `Reader` raises.
    """
    long = [word for word in words if len(word) >= GRAM]
    if not long:
        raise IndexUnavailable("too short")
    path = os.path.join(reader.folder, NAME)
    try:
        try:
            return _look_up(path, reader, long, after)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise
        for end in ("", "-journal"):  # damaged: rebuild once
            unlink(path + end)
        return _look_up(path, reader, long, after)
    except (sqlite3.Error, OSError) as error:
        raise IndexUnavailable(str(error)) from None


def _look_up(path: str, reader: Reader, words: Sequence[str], after: int) -> list[int]:
    found: list[int] = []
    with contextlib.closing(_open_index(path)) as connection:
        for number, first, last in reader.newest_spans():
            if last <= after:
                break
            end = min(last, reader.tail()[0])
            while not _index_batch(connection, reader, number, end):
                pass
            held = set.intersection(
                *(_entries_with_word(connection, number, word) for word in words)
            )
            found += sorted(
                (seq for seq in held if max(first, after + 1) <= seq <= last), reverse=True
            )
    return found


def _open_index(path: str) -> sqlite3.Connection:
    with contextlib.suppress(FileExistsError):
        os.close(new_file(path))
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=BUSY_S, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA synchronous=NORMAL")
        layout = _layout(connection)
        if LAYOUT < layout < LAYOUTS_MAX:
            raise IndexUnavailable("newer", NEWER_INDEX)
        if layout != LAYOUT:
            with transaction(connection):
                if _layout(connection) != LAYOUT:  # another process may have created them meanwhile
                    for table in TABLES:
                        connection.execute(table)
    except BaseException:
        connection.close()
        raise
    return connection


def _layout(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _entries_with_word(connection: sqlite3.Connection, number: int, word: str) -> set[int]:
    """Return seqs of entries of session `number` of which a piece has all tokens of `word`."""
    start = word[:NARROW_CHARS]
    ends = [*range(0, len(start) - GRAM, GRAM), len(start) - GRAM]
    grams = " AND ".join('"' + start[at : at + GRAM].replace('"', '""') + '"' for at in ends)
    query = (
        "SELECT DISTINCT key FROM grams JOIN spans ON id = grams.rowid WHERE grams MATCH ? "
        "AND key BETWEEN ? AND ?"
    )
    rows = connection.execute(query, (grams, entry_key(number, 0), entry_key(number + 1, 0) - 1))
    return {entry_seq(key) for (key,) in rows}


def _index_batch(connection: sqlite3.Connection, reader: Reader, number: int, last: int) -> bool:
    """Index new entries of session `number` up to `last` in one transaction; return whether all
    are indexed.
    """
    if _indexed_to(connection, reader, number) >= last:
        return True
    with transaction(connection):
        after = _indexed_to(
            connection, reader, number
        )  # another process may have indexed more meanwhile
        row, room = None, BATCH_CHARS
        for row in reader.rows_of(number, after, last):
            room -= _index_entry(connection, reader, row)
            if room <= 0:
                break
        if row is not None:
            connection.execute(
                "INSERT OR REPLACE INTO reached VALUES(?, ?, ?)",
                (number, entry_seq(row[0]), _row_signature(row)),
            )
    return row is None or entry_seq(row[0]) >= last


def _indexed_to(connection: sqlite3.Connection, reader: Reader, number: int) -> int:
    """Return the last indexed entry of session `number`. Raises sqlite3.DatabaseError when the
    log has changed.
    """
    found = connection.execute(
        "SELECT seq, sign FROM reached WHERE number = ?", (number,)
    ).fetchone()
    if found is None:
        return 0
    row = next(reader.rows_of(number, found[0] - 1, found[0]), None)
    if row is None or _row_signature(row) != found[1]:
        raise sqlite3.DatabaseError("the log is not the one that was indexed")
    return int(found[0])


def _index_entry(connection: sqlite3.Connection, reader: Reader, row: Row) -> int:
    """Index the texts of one entry; return their number of characters."""
    taken = 0
    for _, _, content in _searched_contents(entry_of(reader.folders, row), reader):
        text = lower_case(content)
        for start in range(0, len(text), SPAN_CHARS):
            span = connection.execute("INSERT INTO spans(key) VALUES(?)", (row[0],)).lastrowid
            piece = text[start : start + SPAN_CHARS + OVERLAP_CHARS].replace("\0", " ")
            connection.execute("INSERT INTO grams(rowid, text) VALUES(?, ?)", (span, piece))
        taken += len(text)
    return taken


def _row_signature(row: Row) -> str:
    _, at, _, crc, body = row
    return f"{at}:{body if isinstance(body, str) else crc}"
