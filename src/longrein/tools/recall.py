"""`Recall` tool: brings back content that was cleared, cut or summarised, by handle, query, path or time (law 4)."""

from collections.abc import Mapping, Sequence

import msgspec

from longrein.events import AnyPart, Document, Image, Recalled, Text, ToolError, marker_sign
from longrein.store import SearchHit
from longrein.tools.paging import PageRange, parse_range, read_page
from longrein.tools.port import Outcome, SessionHistory, ToolContext
from longrein.tools.recall_sources import (
    HandleContent,
    InMemoryHistory,
    entries_around,
    file_history,
    find_moment,
    resolve_handle,
    shown_time,
    version_at,
    version_list,
)
from longrein.tools.registry import make_tool
from longrein.tools.text_encoding import counted


async def Recall(
    hands: ToolContext, handle: str = "", query: str = "", path: str = "", time: str = "", lines: str = ""
) -> Outcome:
    """Bring back what you no longer see: the original of anything shortened, cleared or summarised (results, your
    arguments, the user's words, images), also from before a compaction, restart or fork. Give a handle, or find it by
    query, path or time; you get a page and the call for the next one. A file as it is now comes from Read.

    handle: As in markers: r412, r412.2 (second part), a398/r412 (log of subagent a398).
    query: Words that all occur, or a quoted phrase; gives places.
    path: A file: its versions, and what the newest held.
    time: 10:05, 2026-11-21T10:05 or 2h ago: what happened then. With path: the file then.
    lines: 100-200, 100- or 7:4001-8000 (characters of line 7). Of a query: hits, 21-.
    """
    given = {"handle": handle, "query": query, "path": path, "time": time}
    brought: Outcome = await recall(hands, given, lines)
    return brought


RECALL = make_tool(Recall, access="none", together=True, kind="read", quiet=True)


# --- Search for words in the log of the session and of its subagents -------------------------------------------------


HITS_MAX = 20
"""Hits of one answer."""
AROUND_LINES = 10
"""Lines before and after a hit in the suggested call."""


def search_words(past: SessionHistory, query: str, before: int, first: int = 1) -> str:
    """Return the hits from number `first` on, each with the call that opens it. Raises `ToolError` for none.

    `before`: search only entries before this seq, because the present reply contains the query itself.
    """
    if not query.strip('" \t\n'):
        raise ToolError("[no-query] query holds no word to look for.")
    end = first + HITS_MAX - 1
    found = past.search_tree(query, end, before)
    hits = found.hits[first - 1 :]
    if not hits and found.hits:
        raise ToolError(f"[past-end] There are only {counted(len(found.hits), 'hit')}.")
    if not hits:
        raise ToolError(f"[nothing] {_no_hits_message(past, query, before)}")
    words = query.strip()
    many = counted(len(hits), "hit") if first == 1 and not found.more else f"hits {first} to {first + len(hits) - 1}"
    again = words.replace('"', '\\"')
    rest = f'; next: Recall(query="{again}", lines="{end + 1}-")' if found.more else ""
    return "\n".join([f"[{many} for {words[:80]}{rest}]", *map(_hit_row, hits)])


def _hit_row(hit: SearchHit) -> str:
    times = f", {hit.count} times" if hit.count > 1 else ""
    first = max(1, hit.line - AROUND_LINES)
    call = f'Recall(handle="{hit.handle}", lines="{first}-{hit.line + AROUND_LINES}")'
    return f"{shown_time(hit.at)} {hit.title}, line {hit.line}{times}: {hit.snippet}\n  {call}"


def _no_hits_message(past: SessionHistory, query: str, before: int) -> str:
    """Return the message for no hits, with those words of the query that do occur."""
    words = list(dict.fromkeys(query.replace('"', " ").split()))[:8]
    alone = [word for word in words if len(words) > 1 and past.search(word, 1, before).hits]
    said = f"Nothing in this session holds {'all of ' if len(words) > 1 else ''}{query.strip()[:80]}"
    return f"{said}; of its words there are: {', '.join(alone)}." if alone else f"{said}."


# --- Recall by handle, query, path or time ---------------------------------------------------------------------------


OLD_MARKERS_NOTE = "markers in it are part of the old text and tell you nothing now"
"""Note for recalled text that contains longrein markers."""


class RecallResult(msgspec.Struct, frozen=True):
    """Result of one recall."""

    head: str
    """Description of the content, and the call for the next page."""
    text: str | None
    """The page; None when there is only `head`."""
    fact: Recalled
    """Event for the log."""
    media: Sequence[tuple[AnyPart, bytes | None]] = ()
    """Images and documents to show again."""


async def recall(hands: ToolContext, given: Mapping[str, str], lines: str) -> Outcome:
    """Recall by one of `handle`, `query`, `path` and `time` in `given`, or by `path` and `time`.

    Raises `ToolError` that says what to ask instead.
    """
    names = [name for name, value in given.items() if value.strip()]
    if len(names) != 1 and names != ["path", "time"]:
        what = f"{' and '.join(names)} together say too much" if names else "nothing was asked for"
        raise ToolError(f"[what] {what}: give one of handle, query, path or time (path and time go together).")
    wanted = parse_range(lines)

    def work(past: SessionHistory) -> RecallResult:
        if names == ["handle"]:
            return _by_handle(hands, past, given["handle"], wanted)
        if names == ["query"]:
            return _by_query(hands, past, given["query"], wanted)
        if names == ["time"]:
            return _by_time(hands, past, given["time"])
        return _by_path(hands, past, given["path"], given["time"], wanted)

    brought = await hands.archive.reading(work) if hands.archive is not None else work(InMemoryHistory(hands))
    return _outcome(hands, brought)


def _by_handle(hands: ToolContext, past: SessionHistory, handle: str, wanted: PageRange) -> RecallResult:
    found = resolve_handle(past, handle)
    return _paged_content(hands, found, wanted, f'handle="{found.handle}"', Recalled(hands.call, found.handle))


def _paged_content(
    hands: ToolContext, found: HandleContent, wanted: PageRange, again: str, fact: Recalled
) -> RecallResult:
    if not found.texts:
        size = sum(getattr(part, "size_bytes", 0) for part, _ in found.media)
        return RecallResult(
            f"{found.handle}: {found.title}", None, msgspec.structs.replace(fact, size_bytes=size), found.media
        )
    one = read_page(found.past, found.texts, wanted, found.handle, hands.page_bytes)
    way = f'; next: Recall({again}, lines="{one.following}")' if one.following else ""
    end = "" if way or one.whole.startswith("all") else "; this is the end"
    head = f"{found.handle}: {found.title}, {one.whole}{way}{end}"
    if marker_sign(hands.nonce) in one.text:
        head += f"; {OLD_MARKERS_NOTE}"
    size = len(one.text.encode("utf-8", "replace"))
    return RecallResult(head, one.text, msgspec.structs.replace(fact, lines=one.span, size_bytes=size), found.media)


def _by_query(hands: ToolContext, past: SessionHistory, query: str, wanted: PageRange) -> RecallResult:
    asked = hands.call[1:].partition(".")[0]
    text = search_words(past, query, int(asked) if asked.isdigit() else 0, wanted.first)
    return RecallResult(text, None, Recalled(hands.call, query=query, size_bytes=len(text.encode("utf-8", "replace"))))


def _by_time(hands: ToolContext, past: SessionHistory, time: str) -> RecallResult:
    text = entries_around(past, time, hands.now_us())
    return RecallResult(text, None, Recalled(hands.call, when=time, size_bytes=len(text.encode("utf-8", "replace"))))


def _by_path(hands: ToolContext, past: SessionHistory, path: str, time: str, wanted: PageRange) -> RecallResult:
    real = hands.workspace.resolve(path, hands.cwd).real if "\0" not in path else path
    files = file_history(past, path, real)
    shown = version_at(files, find_moment(past, time, hands.now_us())[0] if time.strip() else 0)
    handle, listed = f"r{shown.seq}", version_list(files, shown)
    fact = Recalled(hands.call, handle, path=files.path, when=time)
    if not shown.hash or not shown.kept:
        why = "it was gone then" if not shown.hash else "it was too large to be kept; Recall the results of your Reads"
        return RecallResult(f"{listed}\n[{handle}: {why}]", None, fact)
    brought = _paged_content(hands, resolve_handle(past, handle), wanted, f'handle="{handle}"', fact)
    return msgspec.structs.replace(brought, head=f"{listed}\n[{brought.head}]")


def _outcome(hands: ToolContext, brought: RecallResult) -> Outcome:
    head = brought.head if brought.head.startswith("[") else f"[{brought.head}]"
    texts = (Text(head),) if brought.text is None else (Text(head), Text(brought.text or "(empty)"))
    return Outcome((*texts, *(_with_local_blob(hands, part, data) for part, data in brought.media)), (brought.fact,))


def _with_local_blob(hands: ToolContext, part: AnyPart, data: bytes | None) -> AnyPart:
    """Return `part` with its blob copied into this session's folder, if necessary."""
    if data is None or not isinstance(part, Image | Document):
        return part
    return msgspec.structs.replace(part, blob=hands.blobs.put_blob(data))
