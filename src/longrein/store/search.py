"""Full-text search over one session's log: an index says where to look, the log itself says what is there.

So a hit is never stale or wrong, whatever state the index is in; and where there is no index (too short a query, a
folder that cannot be written to, no room) the log is simply read through.
"""

import contextlib
import itertools
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from longrein.events import ChildStarted, Entry
from longrein.store.database import Row, entry_key, entry_seq
from longrein.store.entry_content import Content, contents_of, encoding_of, title_of
from longrein.store.port import SearchHit, SearchResult
from longrein.store.reader import Reader, entry_of
from longrein.store.session_folder import new_file

# ---------------------------------------------------------------------------------------------------------------------
#
# The disposable index of a session's texts: it knows which entries may hold a word, never what they hold.
#
# Three characters at a time (SQLite's trigram tokens), so that any piece of any script is found. It keeps neither
# texts nor places: 0.4 bytes for each byte of text where an index with both takes more than three. It is built at the
# first search, 14 MB of text a second, and brought up to date by each later one from the last entry it knows; a
# damaged or older file is made anew. Several processes may search at once; they take turns in bringing it up to date.


NAME = "search.sqlite"
"""File in the session's folder; it may be removed at any time."""
LAYOUT = 1
"""Version of the tables and of what is put into them."""
BUSY_S = 10.0
"""How long to wait for another process that brings the index up to date."""
BATCH_CHARS = 4_000_000
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


class IndexUnavailable(Exception):
    """There is no index to ask: read the log through."""


def find_in_index(reader: Reader, words: Sequence[str], texts_of: TextsOf, after: int = 0) -> Iterator[int]:
    """Entries after seq `after` that may hold all of `words`, the newest first; `texts_of` gives the texts of an entry
    in small letters. Entries that several sessions share are in the index once.

    Raises `IndexUnavailable` when the words are too short to be looked up or the index cannot be had. Raises what `Reader`
    raises.
    """
    long = [word for word in words if len(word) >= GRAM]
    if not long:
        raise IndexUnavailable("too short")
    path = os.path.join(reader.folder, NAME)
    try:
        return iter(_look_up(path, reader, long, texts_of, after))
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise IndexUnavailable(str(error)) from None
    except OSError as error:
        raise IndexUnavailable(str(error)) from None
    try:  # damaged: once more from nothing
        for end in ("", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + end)
        return iter(_look_up(path, reader, long, texts_of, after))
    except (sqlite3.Error, OSError) as error:
        raise IndexUnavailable(str(error)) from None


def _look_up(path: str, reader: Reader, words: Sequence[str], texts_of: TextsOf, after: int) -> list[int]:
    found: list[int] = []
    with contextlib.closing(_open_index(path)) as connection:
        for number, first, last in reader.newest_spans():
            if last <= after:
                break
            end = min(last, reader.tail()[0])
            while not _index_batch(connection, reader, number, end, texts_of):
                pass
            held = _entries_with_all(connection, number, words)
            found += sorted((seq for seq in held if max(first, after + 1) <= seq <= last), reverse=True)
    return found


def _entries_with_all(connection: sqlite3.Connection, number: int, words: Sequence[str]) -> set[int]:
    found: set[int] | None = None
    for word in words:
        held = _entries_with_word(connection, number, word)
        found = held if found is None else found & held
    return found or set()


def _open_index(path: str) -> sqlite3.Connection:
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


def _entries_with_word(connection: sqlite3.Connection, number: int, word: str) -> set[int]:
    """Entries of session `number` of which some piece has all tokens of `word`."""
    start = word[:NARROW_CHARS]
    ends = [*range(0, len(start) - GRAM, GRAM), len(start) - GRAM]
    grams = " AND ".join('"' + start[at : at + GRAM].replace('"', '""') + '"' for at in ends)
    query = "SELECT DISTINCT key FROM grams JOIN spans ON id = grams.rowid WHERE grams MATCH ? AND key BETWEEN ? AND ?"
    rows = connection.execute(query, (grams, entry_key(number, 0), entry_key(number + 1, 0) - 1))
    return {entry_seq(key) for (key,) in rows}


def _index_batch(connection: sqlite3.Connection, reader: Reader, number: int, last: int, texts_of: TextsOf) -> bool:
    """Take in what is new of session `number` up to entry `last`, as much as one transaction holds; whether that was
    all."""
    if _indexed_to(connection, reader, number) >= last:
        return True
    with _transaction(connection):
        after = _indexed_to(connection, reader, number)  # another process may have had its turn meanwhile
        row, room = None, BATCH_CHARS
        for row in reader.rows_of(number, after, last):
            room -= _index_entry(connection, row, texts_of(entry_of(reader.folder, row)))
            if room <= 0:
                break
        if row is not None:
            connection.execute(
                "INSERT OR REPLACE INTO reached VALUES(?, ?, ?)", (number, entry_seq(row[0]), _row_signature(row))
            )
    return row is None or entry_seq(row[0]) >= last


def _indexed_to(connection: sqlite3.Connection, reader: Reader, number: int) -> int:
    """The last entry of session `number` that is in. Raises sqlite3.DatabaseError when the log is another by now."""
    found = connection.execute("SELECT seq, sign FROM reached WHERE number = ?", (number,)).fetchone()
    if found is None:
        return 0
    row = next(reader.rows_of(number, found[0] - 1, found[0]), None)
    if row is None or _row_signature(row) != found[1]:
        raise sqlite3.DatabaseError("the log is not the one that was indexed")
    return int(found[0])


def _index_entry(connection: sqlite3.Connection, row: Row, texts: Iterable[str]) -> int:
    """Put the texts of one entry in; how many characters."""
    taken = 0
    for text in texts:
        for start in range(0, len(text), SPAN_CHARS):
            span = connection.execute("INSERT INTO spans(key) VALUES(?)", (row[0],)).lastrowid
            piece = text[start : start + SPAN_CHARS + OVERLAP_CHARS].replace("\0", " ")
            connection.execute("INSERT INTO grams(rowid, text) VALUES(?, ?)", (span, piece))
        taken += len(text)
    return taken


def _row_signature(row: Row) -> str:
    _, at, _, crc, body = row
    return f"{at}:{body if isinstance(body, str) else crc}"


# --- What a query means, and where a text answers it. Pure -----------------------------------------------------------
#
# Words apart are all wanted, in any order; words in double quotes are wanted as they stand. Every word is a piece of
# text, so `parse` finds `parser_of`; case does not count. That needs no notion of a language, and so finds Chinese
# too.


WORDS_MAX = 16
"""Words of a query; further ones are dropped."""
WORD_CHARS_MAX = 300
"""Of one word or quoted phrase."""
SNIPPET_CHARS = 160
"""Of a line that is shown with what was found in it."""
MATCHES_MAX = 200
"""Places of the rarest word that are compared for the one with most of the others near."""
NEAR_CHARS = 200
"""How near."""


class Query(msgspec.Struct, frozen=True):
    """What is looked for, in small letters."""

    words: tuple[str, ...]
    """All of them must occur; none: nothing is looked for."""
    phrase: str
    """All of it as it was written; a place where it stands like that is shown before others."""


class MatchPosition(msgspec.Struct, frozen=True):
    """Where a text answers a query."""

    start: int
    """Offset of the best match."""
    length: int
    """Characters there."""
    count: int
    """How often the whole query, or where it never stands as it was written its longest word, occurs."""
    exact: bool
    """Whether the query stands there as it was written."""


def parse_query(text: str) -> Query:
    """`text` as the user or the model wrote it."""
    pairs = re.findall(r'"([^"]+)"|(\S+)', text)
    words = [lower_case(quoted or word.strip('"'))[:WORD_CHARS_MAX] for quoted, word in pairs]
    wanted = tuple(dict.fromkeys(word for word in words if word.strip()))[:WORDS_MAX]
    return Query(wanted, lower_case(" ".join(text.replace('"', " ").split())))


def lower_case(text: str) -> str:
    """`text` in small letters, each character still in its match."""
    low = text.lower()
    if len(low) != len(text):
        low = "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)
    return low if low.isascii() else low.replace("ς", "σ")


def find_match(text: str, query: Query) -> MatchPosition | None:
    """The best place for `query` in `text`, which is in small letters; None unless every word occurs."""
    if not query.words or any(word not in text for word in query.words):
        return None
    at = text.find(query.phrase)
    if at >= 0:
        return MatchPosition(at, len(query.phrase), text.count(query.phrase), exact=True)
    word = max(query.words, key=len)
    others = [other for other in query.words if other != word]
    return MatchPosition(_best_offset(text, word, others), len(word), text.count(word), exact=len(query.words) == 1)


def _best_offset(text: str, word: str, others: list[str]) -> int:
    """Offset of `word` where most of `others` are near; the first of equals."""
    best, most, at = text.find(word), -1, -1
    for _ in range(MATCHES_MAX if others else 0):
        at = text.find(word, at + 1)
        if at < 0:
            break
        around = text[max(0, at - NEAR_CHARS) : at + len(word) + NEAR_CHARS]
        near = sum(other in around for other in others)
        if near > most:
            best, most = at, near
    return best


def line_number(text: str, at: int) -> int:
    """Number of the line that holds offset `at`, from 1."""
    return text.count("\n", 0, at) + 1


def snippet(text: str, match: MatchPosition) -> str:
    """The line around `place`, cut on both sides where it is long, on one line and without control characters."""
    first = text.rfind("\n", 0, match.start) + 1
    last = text.find("\n", match.start)
    last = len(text) if last < 0 else last
    room = max(SNIPPET_CHARS - match.length, 40) // 2
    start, end = max(first, match.start - room), min(last, match.start + min(match.length, SNIPPET_CHARS) + room)
    shown = " ".join("".join(sign if sign.isprintable() else " " for sign in text[start:end]).split())
    return ("…" if start > first else "") + shown + ("…" if end < last else "")


# --- search ----------------------------------------------------------------------------------------------------------


CHILDREN_MAX = 20
"""Newest subagents whose logs are searched with their parent's."""
BLOB_BYTES_MAX = 8 * 1024 * 1024
"""Of a text in a blob, so much from its start is searched."""


class TextSource(Protocol):
    """Where entries and blobs are read from."""

    def entry(self, seq: int, /) -> Entry | None: ...
    def tail(self) -> tuple[int, int]: ...
    def pieces(self, blob: str, /) -> Iterator[bytes]: ...


class SearchableSession(Protocol):
    """A session that can be searched, and those below it."""

    def of_kind(self, *kinds: str) -> Iterator[Entry]: ...
    def search(self, query: str, limit: int, before: int = 0, *, own: bool = False) -> SearchResult: ...
    def child(self, session: str, /) -> "SearchableSession | None": ...


def search_tree(session: SearchableSession, query: str, limit: int, before: int = 0) -> SearchResult:
    """The same as `search` for a session and its newest subagents, whose handles begin with `a<seq>/`."""
    found = session.search(query, limit, before)
    hits, more = [*found.hits], found.more
    for label, child_id in itertools.islice(_children(session), CHILDREN_MAX):
        child = session.child(child_id) if len(hits) < limit else None
        if child is not None:
            below = child.search(query, limit - len(hits), own=True)
            hits += [msgspec.structs.replace(hit, handle=f"{label}/{hit.handle}") for hit in below.hits]
            more = more or below.more
    return SearchResult(tuple(hits), more)


def _children(session: SearchableSession) -> Iterator[tuple[str, str]]:
    """(label, session) of the subagents, the newest first; one that was asked again keeps its first label."""
    seen = set()
    for entry in session.of_kind("ChildStarted"):
        if isinstance(entry.event, ChildStarted) and entry.event.child not in seen:
            seen.add(entry.event.child)
            yield f"a{entry.event.again or entry.seq}", entry.event.child


def search(reader: Reader, texts: TextSource, query: str, limit: int, before: int = 0, after: int = 0) -> SearchResult:
    """At most `limit` places where `query` stands, with the help of the index, which is brought up to date first.

    `before`, `after`: only in entries before or after that seq; 0 for all. Raises what `Reader` raises.
    """
    wanted = parse_query(query)
    try:
        seqs: Iterable[int] = find_in_index(reader, wanted.words, lambda entry: texts_of(entry, texts), after)
    except IndexUnavailable:
        return scan(texts, query, limit, before, after)
    return _collect_hits(texts, wanted, seqs, limit, before)


def scan(texts: TextSource, query: str, limit: int, before: int = 0, after: int = 0) -> SearchResult:
    """The same without an index: reads every entry, from the newest on."""
    return _collect_hits(texts, parse_query(query), range(texts.tail()[0], after, -1), limit, before)


def _collect_hits(texts: TextSource, query: Query, seqs: Iterable[int], limit: int, before: int) -> SearchResult:
    entries = (texts.entry(seq) for seq in seqs if not before or seq < before) if query.words else iter(())
    every = (hit for entry in entries if entry is not None for hit in _entry_hits(entry, texts, query))
    hits = list(itertools.islice(every, limit + 1))
    best = sorted(hits[:limit], key=lambda hit: not hit.exact)
    return SearchResult(tuple(best), len(hits) > limit)


def _entry_hits(entry: Entry, texts: TextSource, query: Query) -> Iterator[SearchHit]:
    for handle, content, text in _searched_contents(entry, texts):
        match = find_match(lower_case(text), query)
        if match is not None:
            title = title_of(entry)
            title += "" if content.title in title or "." not in handle else f", {content.title}"
            line, shown = line_number(text, match.start), snippet(text, match)
            yield SearchHit(handle, entry.seq, entry.at, title, line, match.count, shown, match.exact)


def texts_of(entry: Entry, texts: TextSource) -> Iterator[str]:
    """Every text of an entry that a search looks into, in small letters."""
    for _, _, text in _searched_contents(entry, texts):
        yield lower_case(text)


def _searched_contents(entry: Entry, texts: TextSource) -> Iterator[tuple[str, Content, str]]:
    """(handle, part, its text). Recalls repeat what stands elsewhere, and their calls hold the query itself."""
    contents = contents_of(entry)
    alone = sum(not content.aside for content in contents) == 1
    for number, content in enumerate(contents, 1):
        if content.searchable and content.tool != "Recall" and not content.part:
            text = content.text or (blob_text(texts, content.blob) if content.blob else "")
            if text:
                yield f"r{entry.seq}" if alone and not content.aside else f"r{entry.seq}.{number}", content, text


def blob_text(texts: TextSource, blob: str) -> str:
    """The start of a text in a blob, as far as a search looks; '' when it is gone."""
    data = bytearray()
    try:
        for piece in texts.pieces(blob):
            data += piece
            if len(data) >= BLOB_BYTES_MAX:
                break
    except KeyError:
        return ""
    return bytes(data[:BLOB_BYTES_MAX]).decode(encoding_of(data), "replace")
