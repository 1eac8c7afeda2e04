"""Findings of `Recall`: content that was cleared, cut or summarised, by handle, query, path or
time.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from longrein.store import Content, SearchHit, SessionHistory, contents_of, title_of
from longrein.tools.logged_versions import file_history, version_at, version_list
from longrein.tools.read import is_pdf
from longrein.tools.recall_pages import PageRange, parse_range, read_page
from longrein.tools.recall_times import entries_around, find_moment, shown_time
from longrein.tools.text_encoding import counted
from longrein.tools.tool_port import Outcome, ToolContext
from longrein_context.events import (
    AnyPart,
    Document,
    Handle,
    Image,
    Recalled,
    SubagentStarted,
    Text,
    ToolError,
    marker_sign,
    parse_handle,
)
from longrein_context.events.escape import whole_number
from longrein_context.events.image_header import image_info

# --- Content by handle ----------------------------------------------------------------------------


HANDLE_FORMATS = (
    "handles look like r412, r412.2 (its second part) or a398/r412 (in the log of "
    "the subagent of r398)"
)


class HandleContent(msgspec.Struct, frozen=True):
    """Content that a handle names."""

    handle: str
    """The handle in its usual form."""
    title: str
    """Description of the content."""
    at: int
    """Time of the entry, microseconds UTC."""
    texts: list[Content]
    """Text, which is shown in pages."""
    media: list[tuple[AnyPart, bytes | None]]
    """Images and documents, with their bytes when they are not in this session's folder."""
    past: SessionHistory
    """History that its blobs are read from."""


def resolve_handle(past: SessionHistory, text: str) -> HandleContent:
    """Return the content that the handle `text` names. Raises `ToolError` with the format or the
    nearest handle.
    """
    handle = parse_handle(text)
    if handle is None:
        raise ToolError(
            f"[bad-handle] {text[:40]!r} is no handle; {HANDLE_FORMATS}.{_handle_hint(past, text)}"
        )
    home = _subagent_history(past, handle) if handle.child else past
    entry = home.entry(handle.seq)
    if entry is None:
        newest = msgspec.structs.replace(handle, seq=home.tail()[0], part=0)
        raise ToolError(
            f"[unknown-handle] There is no entry {handle}; the newest is {newest}. Take handles "
            "from markers or from "
            "Recall(query=…), do not guess them."
        )
    contents = contents_of(entry)
    chosen = _chosen_contents(handle, contents)
    title = title_of(entry)
    if handle.part and chosen[0].title not in ("content", title):
        title += f", {chosen[0].title}"
    exact = next((n for n, content in enumerate(contents, 1) if content.raw), 0)
    if exact and not any(content.raw for content in chosen):
        here = msgspec.structs.replace(handle, part=exact)
        title += f' as a terminal shows it (byte for byte: Recall(handle="{here}"))'
    parts = [(content, content.part or _as_media(home, content)) for content in chosen]
    texts = [content for content, part in parts if part is None]
    media = [(part, _media_bytes(home, past, part)) for _, part in parts if part is not None]
    return HandleContent(str(handle), title, entry.at, texts, media, home)


def _chosen_contents(handle: Handle, contents: list[Content]) -> list[Content]:
    if not handle.part:
        return [content for content in contents if not content.aside]
    if handle.part > len(contents):
        here = msgspec.structs.replace(handle, part=0)
        raise ToolError(
            f"[unknown-handle] There is no {handle}: {here} has {counted(len(contents), 'part')}, "
            "the last all of it "
            f"as stored; Recall {here} for what it holds."
        )
    return [contents[handle.part - 1]]


def _subagent_history(past: SessionHistory, handle: Handle) -> SessionHistory:
    """Return the history of a subagent. A subagent may also read its siblings, as a synthesis
    does.
    """
    started = past.entry(handle.child)
    above = (
        None
        if started is not None and isinstance(started.event, SubagentStarted)
        else past.parent()
    )
    if above is not None:
        past, started = above, above.entry(handle.child)
    if started is None or not isinstance(started.event, SubagentStarted):
        known = [
            f"a{entry.seq}"
            for _, entry in zip(range(5), past.of_kind("ChildStarted"), strict=False)
        ]
        there = (
            f"subagents were started at {', '.join(known)}"
            if known
            else "this session has started none"
        )
        raise ToolError(f"[unknown-handle] a{handle.child} is no subagent; {there}.")
    found = past.child(started.event.child)
    if found is None:
        raise ToolError(
            f"[lost] The log of subagent a{handle.child} is not here any more; what it reported "
            "stands in this session "
            f'(Recall(query="{started.event.kind}")).'
        )
    return found


def _handle_hint(past: SessionHistory, text: str) -> str:
    """Suggest the nearest handle, or a search for words."""
    number = re.search(r"\d+(?:\.[1-9]\d*)?", text)
    seq = whole_number(number[0].partition(".")[0]) if number else 0
    if number and seq and past.entry(seq) is not None:
        return f" Did you mean r{number[0]}?"
    return "" if number else f' To look for words: Recall(query="{text[:40].strip()}").'


def _as_media(past: SessionHistory, content: Content) -> AnyPart | None:
    """Return a file's content as an image or document part; None for text."""
    if content.title != "content" or not content.blob:
        return None
    try:
        pieces = past.pieces(content.blob)
        head = next(pieces, b"")
        image = image_info(head)
        if image is None and not is_pdf(head):
            return None
        size = len(head) + sum(map(len, pieces))
    except KeyError:
        return None  # reading the text reports the missing blob
    if image is None:
        return Document(content.blob, "application/pdf", size)
    return Image(content.blob, image.media, size, image.width, image.height)


def _media_bytes(home: SessionHistory, past: SessionHistory, part: AnyPart) -> bytes | None:
    if home is past or not isinstance(part, Image | Document):
        return None
    try:
        return b"".join(home.pieces(part.blob))
    except KeyError:
        raise ToolError(
            f"[lost] The blob {part.blob[:12]} is not in that session's folder any more. "
            "Read its source again."
        ) from None


# --- Search for words in the log of the session and of its subagents ------------------------------


HITS_MAX = 20
"""Hits of one answer."""
AROUND_LINES = 10
"""Lines before and after a hit in the suggested call."""


def search_words(past: SessionHistory, query: str, before: int, first: int = 1) -> str:
    """Return the hits from number `first` on, each with the call that opens it. Raises `ToolError`
    for none.

    `before`: search only entries before this seq, because the present reply contains the query
    itself.
    """
    if not query.strip('" \t\n'):
        raise ToolError("[no-query] query holds no word to look for. Give one.")
    end = first + HITS_MAX - 1
    found = past.search_tree(query, end, before)
    hits = found.hits[first - 1 :]
    if not hits and found.hits:
        raise ToolError(
            f"[past-end] There are only {counted(len(found.hits), 'hit')}: lines must begin "
            "at one of them."
        )
    if not hits:
        raise ToolError(f"[nothing] {_no_hits_message(past, query, before)}")
    words = query.strip()
    many = (
        counted(len(hits), "hit")
        if first == 1 and not found.more
        else f"hits {first} to {first + len(hits) - 1}"
    )
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
    said = (
        f"Nothing in this session holds {'all of ' if len(words) > 1 else ''}{query.strip()[:80]}"
    )
    return f"{said}; of its words there are: {', '.join(alone)}." if alone else f"{said}."


# --- Recall by handle, query, path or time --------------------------------------------------------


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


async def recall(context: ToolContext, given: Mapping[str, str], lines: str) -> Outcome:
    """Recall by one of `handle`, `query`, `path` and `time` in `given`, or by `path` and `time`.

    Raises `ToolError` that says what to ask instead.
    """
    names = [name for name, value in given.items() if value.strip()]
    if len(names) != 1 and names != ["path", "time"]:
        what = f"{' and '.join(names)} together say too much" if names else "nothing was asked for"
        raise ToolError(
            f"[what] {what}: give one of handle, query, path or time (path and time go together)."
        )
    wanted = parse_range(lines)

    def work(past: SessionHistory) -> RecallResult:
        if names == ["handle"]:
            return _by_handle(context, past, given["handle"], wanted)
        if names == ["query"]:
            return _by_query(context, past, given["query"], wanted)
        if names == ["time"]:
            return _by_time(context, past, given["time"])
        return _by_path(context, past, given["path"], given["time"], wanted)

    return _outcome(context, await context.services.archive.reading(work))


def _by_handle(
    context: ToolContext, past: SessionHistory, handle: str, wanted: PageRange
) -> RecallResult:
    found = resolve_handle(past, handle)
    return _paged_content(
        context, found, wanted, f'handle="{found.handle}"', Recalled(context.call, found.handle)
    )


def _paged_content(
    context: ToolContext, found: HandleContent, wanted: PageRange, again: str, fact: Recalled
) -> RecallResult:
    if not found.texts:
        size = sum(getattr(part, "size_bytes", 0) for part, _ in found.media)
        return RecallResult(
            f"{found.handle}: {found.title}",
            None,
            msgspec.structs.replace(fact, size_bytes=size),
            found.media,
        )
    one = read_page(found.past, found.texts, wanted, found.handle, context.page_bytes)
    way = f'; next: Recall({again}, lines="{one.following}")' if one.following else ""
    end = "" if way or one.whole.startswith("all") else "; this is the end"
    head = f"{found.handle}: {found.title}, {one.whole}{way}{end}"
    if marker_sign(context.nonce) in one.text:
        head += f"; {OLD_MARKERS_NOTE}"
    size = len(one.text.encode("utf-8", "replace"))
    return RecallResult(
        head, one.text, msgspec.structs.replace(fact, lines=one.span, size_bytes=size), found.media
    )


def _by_query(
    context: ToolContext, past: SessionHistory, query: str, wanted: PageRange
) -> RecallResult:
    asked = context.call[1:].partition(".")[0]
    text = search_words(past, query, whole_number(asked), wanted.first)
    return RecallResult(
        text,
        None,
        Recalled(context.call, query=query, size_bytes=len(text.encode("utf-8", "replace"))),
    )


def _by_time(context: ToolContext, past: SessionHistory, time: str) -> RecallResult:
    text = entries_around(past, time, context.services.now_us())
    return RecallResult(
        text,
        None,
        Recalled(context.call, when=time, size_bytes=len(text.encode("utf-8", "replace"))),
    )


def _by_path(
    context: ToolContext, past: SessionHistory, path: str, time: str, wanted: PageRange
) -> RecallResult:
    real = context.workspace.resolve(path, context.cwd).real if "\0" not in path else path
    files = file_history(past, path, real)
    shown = version_at(
        files, find_moment(past, time, context.services.now_us())[0] if time.strip() else 0
    )
    handle, listed = f"r{shown.seq}", version_list(files, shown)
    fact = Recalled(context.call, handle, path=files.path, when=time)
    if not shown.hash or not shown.kept:
        why = (
            "it was gone then"
            if not shown.hash
            else "it was too large to be kept; Recall the results of your Reads"
        )
        return RecallResult(f"{listed}\n[{handle}: {why}]", None, fact)
    brought = _paged_content(
        context, resolve_handle(past, handle), wanted, f'handle="{handle}"', fact
    )
    return msgspec.structs.replace(brought, head=f"{listed}\n[{brought.head}]")


def _outcome(context: ToolContext, brought: RecallResult) -> Outcome:
    head = brought.head if brought.head.startswith("[") else f"[{brought.head}]"
    texts = (Text(head),) if brought.text is None else (Text(head), Text(brought.text or "(empty)"))
    return Outcome(
        (*texts, *(_with_local_blob(context, part, data) for part, data in brought.media)),
        (brought.fact,),
    )


def _with_local_blob(context: ToolContext, part: AnyPart, data: bytes | None) -> AnyPart:
    """Return `part` with its blob copied into this session's folder, if necessary."""
    if data is None or not isinstance(part, Image | Document):
        return part
    return msgspec.structs.replace(part, blob=context.blobs.put_blob(data))
