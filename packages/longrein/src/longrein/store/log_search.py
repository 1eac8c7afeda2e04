"""Full-text search over one session's log and its subagents' logs.

The log is read from its newest entry on, until there are enough hits. Most entries are ruled out by
the bytes of their row and never decoded.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from longrein.store.database import SEQ_MAX
from longrein.store.entry_parts import Content, contents_of, encoding_of, title_of
from longrein.store.reader import Reader, entry_of, stored_body
from longrein.store.store_port import SearchHit, SearchResult
from longrein_context import is_escaped_line, unescape_lines
from longrein_context.events import SCHEMA_VERSION, Entry

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


OLD_INDEX = "search.sqlite"
"""File that earlier versions left in a session's folder."""


def search(reader: Reader, query: str, limit: int, before: int = 0, after: int = 0) -> SearchResult:
    """Return at most `limit` hits for `query`, the newest entries first.

    `before`, `after`: only entries before or after that seq; 0 for all. Raises what `Reader`
    raises.
    """
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(reader.folder, OLD_INDEX))
    wanted = parse_query(query)
    return _collect_hits(reader, wanted, _candidates(reader, wanted.words, before, after), limit)


def scan(texts: Reader, query: str, limit: int, before: int = 0, after: int = 0) -> SearchResult:
    """Do what `search` does, with every entry decoded."""
    first = min(texts.tail()[0], before - 1) if before else texts.tail()[0]
    entries = (texts.entry(seq) for seq in range(first, after, -1))
    found = (entry for entry in entries if entry is not None)
    return _collect_hits(texts, parse_query(query), found, limit)


def _collect_hits(
    texts: Reader, query: Query, entries: Iterable[Entry], limit: int
) -> SearchResult:
    searched = entries if query.words else ()
    every = (hit for entry in searched for hit in _entry_hits(entry, texts, query))
    hits = list(itertools.islice(every, limit + 1))
    best = sorted(hits[:limit], key=lambda hit: not hit.exact)
    return SearchResult(tuple(best), len(hits) > limit)


def _entry_hits(entry: Entry, texts: Reader, query: Query) -> Iterator[SearchHit]:
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


def _searched_contents(entry: Entry, texts: Reader) -> Iterator[tuple[str, Content, str]]:
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


def _blob_text(texts: Reader, blob: str) -> str:
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


# --- Entries that may match -----------------------------------------------------------------------
#
# A row's body is compact JSON with every sign as it is, except for quotation marks, backslashes and
# control characters. A piece of a word that has none of them, and no sign that joins the parts of
# an entry, stands in the body as it stands in the text.


PIECE = re.compile(r"""[^\s"\\/:,{}\[\]\x00-\x1f\x7f]+""")
KELVIN = "\N{KELVIN SIGN}".encode()
"""The only sign outside ASCII that is an ASCII letter in lower case: `k`."""
BLOB_FIELD = b',"blob":"'
RAW_FIELD = b'"raw"'
RAW_BYTES_MAX = 90
"""Bytes at the end of the body of a result in which its field `raw` names a blob."""
WITH_BLOBS = (b'{"type":"AskFailed"', b'{"type":"TaskEnded"')
"""Starts of bodies that name a blob in other fields."""
NEVER_SEARCHED = b'{"type":"FileSeen"'


Test = Callable[[bytes, bytes], bool]
"""Whether a body, given as it is and in lower case, may hold a piece of a word."""


def _candidates(reader: Reader, words: Sequence[str], before: int, after: int) -> Iterator[Entry]:
    """Iterate the entries that may hold all of `words`, newest first. Raises what `Reader`
    raises.
    """
    pieces = {piece for word in words for piece in PIECE.findall(word)}
    tests = [_piece_test(piece) for piece in sorted(pieces, key=len, reverse=True)]
    folders = reader.folders
    for row in reader.newest_rows(after, before - 1 if before else SEQ_MAX):
        body = stored_body(folders, row)
        if row[2] != SCHEMA_VERSION or _names_blob(body) or _may_match(body, tests):
            yield entry_of(folders, row)


def _names_blob(body: bytes) -> bool:
    """Return True if the entry may have text in a blob, of which the body does not tell."""
    if BLOB_FIELD in body:
        return not body.startswith(NEVER_SEARCHED)
    return RAW_FIELD in body[-RAW_BYTES_MAX:] or body.startswith(WITH_BLOBS)


def _may_match(body: bytes, tests: Sequence[Test]) -> bool:
    low = body.lower()
    return all(test(body, low) for test in tests)


def _piece_test(piece: str) -> Test:
    data = piece.encode("utf-8", "surrogatepass")
    if not piece.isascii():
        return lambda body, _: piece in lower_case(body.decode("utf-8", "replace"))
    if b"k" in data:
        return lambda body, low: data in low or KELVIN in body
    return lambda _, low: data in low
