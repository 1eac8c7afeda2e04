"""Where words stand in this session's log and in those of its subagents."""

from longrein.events import ToolError
from longrein.store import Hit
from longrein.tools.port import Past
from longrein.tools.recall_times import shown_time
from longrein.tools.text import counted

HITS_MAX = 20
"""Hits of one answer."""
AROUND_LINES = 10
"""Lines before and after a hit in the call that opens it."""


def found_words(past: Past, query: str, before: int, first: int = 1) -> str:
    """The hits from number `first` on, each with the call that opens it. Raises `ToolError` when there is none.

    `before`: the seq from which on nothing counts: the reply in hand holds the query itself.
    """
    if not query.strip('" \t\n'):
        raise ToolError("[no-query] query holds no word to look for.")
    end = first + HITS_MAX - 1
    found = past.search_tree(query, end, before)
    hits = found.hits[first - 1 :]
    if not hits and found.hits:
        raise ToolError(f"[past-end] There are only {counted(len(found.hits), 'hit')}.")
    if not hits:
        raise ToolError(f"[nothing] {_nothing(past, query, before)}")
    words = query.strip()
    many = counted(len(hits), "hit") if first == 1 and not found.more else f"hits {first} to {first + len(hits) - 1}"
    again = words.replace('"', '\\"')
    rest = f'; next: Recall(query="{again}", lines="{end + 1}-")' if found.more else ""
    return "\n".join([f"[{many} for {words[:80]}{rest}]", *map(_row, hits)])


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
