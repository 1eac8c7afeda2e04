"""Where words stand in this session's log and in those of its subagents."""

from longrein.events import ToolError
from longrein.store import Hit, search_tree
from longrein.tools.port import Past
from longrein.tools.recall_times import shown_time

HITS_MAX = 20
"""Hits of one answer."""
AROUND_LINES = 10
"""Lines before and after a hit in the call that opens it."""


def found_words(past: Past, query: str, before: int) -> str:
    """The hits, each with the call that opens it. Raises `ToolError` when there is none.

    `before`: the seq from which on nothing counts: the reply in hand holds the query itself.
    """
    if not query.strip('" \t\n'):
        raise ToolError("[no-query] query holds no word to look for.")
    found = search_tree(past, query, HITS_MAX, before)
    hits, more = found.hits, found.more
    if not hits:
        raise ToolError(f"[nothing] {_nothing(past, query, before)}")
    many = f"{'the newest ' if more else ''}{len(hits)} {'hit' if len(hits) == 1 else 'hits'}"
    rest = "; for others take more words, or quotes around them" if more else ""
    return "\n".join([f"[{many} for {query.strip()[:80]}{rest}]", *map(_row, hits)])


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
