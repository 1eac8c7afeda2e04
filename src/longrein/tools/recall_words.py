"""Where words stand in this session's log and in those of its subagents."""

import msgspec

from longrein.events import ChildStarted, ToolError
from longrein.store import Found, Hit
from longrein.tools.port import Past
from longrein.tools.recall_times import shown_time

HITS_MAX = 20
"""Hits of one answer."""
CHILDREN_MAX = 20
"""Newest subagents whose logs are searched too."""
AROUND_LINES = 10
"""Lines before and after a hit in the call that opens it."""


def found_words(past: Past, query: str, before: int) -> str:
    """The hits, each with the call that opens it. Raises `ToolError` when there is none.

    `before`: the seq from which on nothing counts: the reply in hand holds the query itself.
    """
    if not query.strip('" \t\n'):
        raise ToolError("[no-query] query holds no word to look for.")
    found = past.search(query, HITS_MAX, before)
    hits, more = [*found.hits], found.more
    for entry in past.of_kind("ChildStarted"):
        if len(hits) >= HITS_MAX or not isinstance(entry.event, ChildStarted):
            break
        below = _below(past, entry.event.child, query, entry.seq, HITS_MAX - len(hits))
        hits, more = [*hits, *below.hits], more or below.more
    if not hits:
        raise ToolError(f"[nothing] {_nothing(past, query, before)}")
    many = f"{'the newest ' if more else ''}{len(hits)} {'hit' if len(hits) == 1 else 'hits'}"
    rest = "; for others take more words, or quotes around them" if more else ""
    return "\n".join([f"[{many} for {query.strip()[:80]}{rest}]", *map(_row, hits)])


def _below(past: Past, session: str, query: str, started: int, limit: int) -> Found:
    child = past.child(session)
    found = child.search(query, limit) if child is not None else Found(())
    hits = tuple(msgspec.structs.replace(hit, handle=f"a{started}/{hit.handle}") for hit in found.hits)
    return Found(hits, found.more)


def _row(hit: Hit) -> str:
    times = f", {hit.count} times" if hit.count > 1 else ""
    first = max(1, hit.line - AROUND_LINES)
    call = f'Recall(handle="{hit.handle}", lines="{first}-{hit.line + AROUND_LINES}")'
    return f"{shown_time(hit.at)} {hit.title}, line {hit.line}{times}: {hit.snippet}\n  {call}"


def _nothing(past: Past, query: str, before: int) -> str:
    """Which of several words do occur, each by itself."""
    words = list(dict.fromkeys(query.replace('"', " ").split()))[:8]
    alone = [word for word in words if len(words) > 1 and past.search(word, 1, before).hits]
    said = f"Nothing in this session holds {'all of ' if len(words) > 1 else ''}{query.strip()[:80]}"
    return f"{said}; of its words there are: {', '.join(alone)}." if alone else f"{said}."
