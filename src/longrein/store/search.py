"""Full-text search over one session's log: an index says where to look, the log itself says what is there.

So a hit is never stale or wrong, whatever state the index is in; and where there is no index (too short a query, a
folder that cannot be written to, no room) the log is simply read through.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from longrein.events import ChildStarted, Entry
from longrein.store.contents import Content, contents_of, encoding_of, title_of
from longrein.store.port import Found, Hit
from longrein.store.reading import Reader
from longrein.store.search_index import IndexTrouble, indexed
from longrein.store.search_words import Query, line_of, place_of, query_of, small, snippet

CHILDREN_MAX = 20
"""Newest subagents whose logs are searched with their parent's."""
BLOB_BYTES_MAX = 8 * 1024 * 1024
"""Of a text in a blob, so much from its start is searched."""


class Texts(Protocol):
    """Where entries and blobs are read from."""

    def entry(self, seq: int, /) -> Entry | None: ...
    def tail(self) -> tuple[int, int]: ...
    def pieces(self, blob: str, /) -> Iterator[bytes]: ...


class Tree(Protocol):
    """A session that can be searched, and those below it."""

    def of_kind(self, *kinds: str) -> Iterator[Entry]: ...
    def search(self, query: str, limit: int, before: int = 0, *, own: bool = False) -> Found: ...
    def child(self, session: str, /) -> "Tree | None": ...


def search_tree(tree: Tree, query: str, limit: int, before: int = 0) -> Found:
    """The same as `search` for a session and its newest subagents, whose handles begin with `a<seq>/`."""
    found = tree.search(query, limit, before)
    hits, more = [*found.hits], found.more
    for label, session in itertools.islice(_children(tree), CHILDREN_MAX):
        child = tree.child(session) if len(hits) < limit else None
        if child is not None:
            below = child.search(query, limit - len(hits), own=True)
            hits += [msgspec.structs.replace(hit, handle=f"{label}/{hit.handle}") for hit in below.hits]
            more = more or below.more
    return Found(tuple(hits), more)


def _children(tree: Tree) -> Iterator[tuple[str, str]]:
    """(label, session) of the subagents, the newest first; one that was asked again keeps its first label."""
    seen = set()
    for entry in tree.of_kind("ChildStarted"):
        if isinstance(entry.event, ChildStarted) and entry.event.child not in seen:
            seen.add(entry.event.child)
            yield f"a{entry.event.again or entry.seq}", entry.event.child


def search(reader: Reader, texts: Texts, query: str, limit: int, before: int = 0, after: int = 0) -> Found:
    """At most `limit` places where `query` stands, with the help of the index, which is brought up to date first.

    `before`, `after`: only in entries before or after that seq; 0 for all. Raises what `Reader` raises.
    """
    wanted = query_of(query)
    try:
        seqs: Iterable[int] = indexed(reader, wanted.words, lambda entry: texts_of(entry, texts), after)
    except IndexTrouble:
        return scan(texts, query, limit, before, after)
    return _found(texts, wanted, seqs, limit, before)


def scan(texts: Texts, query: str, limit: int, before: int = 0, after: int = 0) -> Found:
    """The same without an index: reads every entry, from the newest on."""
    return _found(texts, query_of(query), range(texts.tail()[0], after, -1), limit, before)


def _found(texts: Texts, query: Query, seqs: Iterable[int], limit: int, before: int) -> Found:
    entries = (texts.entry(seq) for seq in seqs if not before or seq < before) if query.words else iter(())
    every = (hit for entry in entries if entry is not None for hit in _hits(entry, texts, query))
    hits = list(itertools.islice(every, limit + 1))
    best = sorted(hits[:limit], key=lambda hit: not hit.exact)
    return Found(tuple(best), len(hits) > limit)


def _hits(entry: Entry, texts: Texts, query: Query) -> Iterator[Hit]:
    for handle, content, text in _sought(entry, texts):
        place = place_of(small(text), query)
        if place is not None:
            title = title_of(entry)
            title += "" if content.title in title or "." not in handle else f", {content.title}"
            line, shown = line_of(text, place.start), snippet(text, place)
            yield Hit(handle, entry.seq, entry.at, title, line, place.count, shown, place.exact)


def texts_of(entry: Entry, texts: Texts) -> Iterator[str]:
    """Every text of an entry that a search looks into, in small letters."""
    for _, _, text in _sought(entry, texts):
        yield small(text)


def _sought(entry: Entry, texts: Texts) -> Iterator[tuple[str, Content, str]]:
    """(handle, part, its text). Recalls repeat what stands elsewhere, and their calls hold the query itself."""
    contents = contents_of(entry)
    alone = sum(not content.aside for content in contents) == 1
    for number, content in enumerate(contents, 1):
        if content.sought and content.tool != "Recall" and not content.part:
            text = content.text or (blob_text(texts, content.blob) if content.blob else "")
            if text:
                yield f"r{entry.seq}" if alone and not content.aside else f"r{entry.seq}.{number}", content, text


def blob_text(texts: Texts, blob: str) -> str:
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
