"""`Recall` tool: brings back content that was cleared, cut or summarised, by handle, query, path
or time.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from longrein.events import (
    AnyPart,
    Document,
    Entry,
    FileChanged,
    FileSeen,
    Handle,
    Image,
    Recalled,
    SubagentStarted,
    Text,
    ToolError,
    kind_of,
    marker_sign,
    parse_handle,
)
from longrein.events.escape import one_line, shortened
from longrein.store import Content, SearchHit, SearchResult, contents_of, title_of
from longrein.tools.arguments import nearest
from longrein.tools.read import image_info, is_pdf
from longrein.tools.registry import make_tool
from longrein.tools.text_encoding import counted
from longrein.tools.tool_port import Outcome, SessionHistory, ToolContext

if TYPE_CHECKING:
    from longrein.tools.recall_pages import PageRange


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
    if (
        number
        and int(float(number[0]))
        and past.entry(int(number[0].partition(".")[0])) is not None
    ):
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
            f"[lost] The blob {part.blob[:12]} is not in that session's folder any more."
        ) from None


# --- Entries around a time, which is local on screen and UTC in the log ---------------------------


AROUND = 12
"""Entries shown on either side."""
LINE_CHARS_MAX = 110
"""Characters shown of an entry."""
SECOND_US = 1_000_000
TIME_FORMATS = 'times look like "10:05", "2026-11-21T10:05" or "2h ago"'
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
UNLISTED_EVENTS = ("Asked", "ToolStarted", "FileSeen", "Recalled", "PermissionAnswered", "ModeSet")
"""Events that are left out of the list."""


def shown_time(at: int, *, day: bool = True) -> str:
    """Return the local time of an entry."""
    return (
        datetime.fromtimestamp(at / 1e6, UTC)
        .astimezone()
        .strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")
    )


def find_moment(past: SessionHistory, text: str, now_us: int) -> tuple[int, int]:
    """Return (seq of the last entry at the time `text`, that time in microseconds UTC). Raises
    `ToolError`.

    The seq is 0 when the time is before all entries.
    """
    words = text.strip().lower().removeprefix("at ").removesuffix(" ago").strip()
    ago = re.fullmatch(r"(?:about )?(\d+(?:\.\d+)?)\s*([smhdw])[a-z]*", words)
    if not ago and words != "now":
        at = _parse_moment(text, words, now_us)
        return past.seq_at(at), at
    if not now_us:
        raise ToolError(
            f"[bad-time] the present time is not known here, so not {text[:40]!r}; write "
            '"2026-11-21T10:05".'
        )
    ago_us = round(float(ago[1]) * UNITS[ago[2]] * SECOND_US) if ago else 0
    return past.seq_ago(ago_us, now_us), now_us - ago_us


def _parse_moment(text: str, words: str, now_us: int) -> int:
    """Parse a time of day or a date to microseconds UTC; a time without seconds means its end."""
    clock = re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?", words)
    try:
        return _last_time_of_day(clock, now_us) if clock else _parse_date(text.strip())
    except ValueError:
        raise ToolError(f"[bad-time] {text[:40]!r} is no time; {TIME_FORMATS}.") from None


def _last_time_of_day(clock: "re.Match[str]", now_us: int) -> int:
    """Return the latest past moment with this time of day."""
    hour, minute, second = (int(part or 0) for part in clock.groups())
    now = datetime.fromtimestamp(now_us / 1e6, UTC).astimezone()
    then = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    then = then if then <= now else then - timedelta(days=1)
    return round(then.timestamp()) * SECOND_US + (0 if clock[3] else 59 * SECOND_US) + SECOND_US - 1


def _parse_date(text: str) -> int:
    """Parse a date, or date and time, as local unless it has a zone."""
    then = datetime.fromisoformat(
        text.replace(" ", "T", 1) if re.match(r"\d{4}-\d\d-\d\d ", text) else text
    )
    at = round(then.astimezone(UTC).timestamp() * SECOND_US)
    if re.search(r":\d\d\.\d", text):
        return at
    length_s = 1 if re.search(r":\d\d:\d\d", text) else 60
    if re.fullmatch(r"\d{4}-?\d\d-?\d\d", text):
        length_s = 86_400
    return at + length_s * SECOND_US - 1


def entries_around(past: SessionHistory, text: str, now_us: int) -> str:
    """List the entries before and after the time `text`, a line each, with the calls for earlier
    and later ones.
    """
    (middle, at), last = find_moment(past, text, now_us), past.tail()[0]
    before = _entry_lines(past, range(middle, 0, -1))[::-1]
    after = _entry_lines(past, range(middle + 1, last + 1))
    rows = [*before, *after]
    if not rows:
        raise ToolError("[nothing] Nothing has happened in this session yet.")
    mark = [f"--- {shown_time(at)} ---"]
    first, end = rows[0][0], rows[-1][0]
    head = f"[around {shown_time(at)}: r{first.seq} to r{end.seq}; the log has r1 to r{last}]"
    if not before:
        head = (
            f"[nothing is as old as {shown_time(at)}: it began {shown_time(first.at)}; "
            f"r{first.seq} to r{end.seq}]"
        )
    steps = [_time_link("earlier", first)] if first.seq > 2 else []
    steps += [_time_link("later", end)] if end.seq < last - 1 else []
    foot = [
        f"[any of them: Recall(handle=…); {'; '.join(steps)}]"
        if steps
        else "[any of them: Recall(handle=…)]"
    ]
    return "\n".join([head, *(row for _, row in before), *mark, *(row for _, row in after), *foot])


def _time_link(word: str, entry: Entry) -> str:
    """Return the call for entries around `entry`, in microseconds: a second may hold hundreds of
    entries.
    """
    exact = (
        datetime.fromtimestamp(entry.at / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")
    )
    return f'{word}: Recall(time="{exact}")'


def _entry_lines(past: SessionHistory, seqs: range) -> list[tuple[Entry, str]]:
    found: list[tuple[Entry, str]] = []
    for seq in seqs:
        entry = past.entry(seq)
        if entry is not None and kind_of(entry.event) not in UNLISTED_EVENTS:
            found.append((entry, _entry_line(entry)))
            if len(found) == AROUND:
                break
    return found


def _entry_line(entry: Entry) -> str:
    texts = (content.text or content.title for content in contents_of(entry) if not content.aside)
    said = "".join(sign if sign.isprintable() else " " for sign in " / ".join(texts)[:1000])
    said = shortened(one_line(said), LINE_CHARS_MAX)
    return f"r{entry.seq} {shown_time(entry.at, day=False)} {title_of(entry)}: {said}"


# --- Versions of a file ---------------------------------------------------------------------------


VERSIONS_SHOWN = 12
"""Newest versions that are listed."""
FILES_SHOWN = 30
"""Files that are listed when a path is ambiguous."""


class Version(msgspec.Struct):
    """A version of a file that the session has read or written."""

    seq: int
    """Entry that holds the content."""
    at: int
    """Time of the newest entry with this content, microseconds UTC."""
    how: str
    """Origin of the version: read, changed or removed, and by whom."""
    hash: str
    """Hash of the whole file; '' when the file was gone."""
    kept: bool
    """True if the log has the content."""
    since: int = 0
    """Oldest of the consecutive entries with the same content."""


class FileHistory(msgspec.Struct, frozen=True):
    """All known versions of one file."""

    path: str
    """Absolute."""
    versions: list[Version]
    """Newest first."""


def file_history(past: SessionHistory, path: str, real: str) -> FileHistory:
    """Return the versions of the file `real`, else of the one file whose path ends with `path`.

    Raises `ToolError` with the candidates.
    """
    known: dict[str, list[Version]] = {}
    for entry in past.of_kind("FileSeen", "FileChanged"):
        _add_version(known, entry)
    wanted = path.strip().removeprefix("./")
    meant = (
        [real]
        if real in known
        else [name for name in known if name.endswith("/" + wanted.lstrip("/"))]
    )
    if len(meant) == 1:
        return FileHistory(meant[0], known[meant[0]])
    raise ToolError(_file_problem(known, wanted, real, meant))


def _add_version(known: dict[str, list[Version]], entry: Entry) -> None:
    event = entry.event
    if not isinstance(event, FileSeen | FileChanged):
        return
    versions = known.setdefault(event.path, [])
    if versions and versions[-1].hash == event.hash:
        same = versions[-1]
        same.since = entry.seq
        if event.blob and not same.kept:
            same.seq, same.kept = entry.seq, True
        if isinstance(event, FileChanged):
            same.how = _version_origin(event)
    else:
        versions.append(
            Version(
                entry.seq, entry.at, _version_origin(event), event.hash, bool(event.blob), entry.seq
            )
        )


def _version_origin(event: FileSeen | FileChanged) -> str:
    if isinstance(event, FileSeen):
        return "read"
    verb = "changed" if event.hash else "removed"
    who = {"agent": "you", "user": "the user"}.get(event.by, f"a {event.by}")
    return f"{verb} by {who}"


def _file_problem(known: dict[str, list[Version]], wanted: str, real: str, meant: list[str]) -> str:
    below = [name for name in known if name.startswith(real.rstrip("/") + "/")] if not meant else []
    if meant or below:
        why = (
            f"{len(meant)} files are called {wanted}"
            if meant
            else f"{wanted} is a folder; of it I know"
        )
        return f"[which-file] {why}: {_name_list(meant or below)}. Name one."
    if not known:
        return "[no-file] This session has read or changed no file yet."
    base = nearest(wanted.rpartition("/")[2], [name.rpartition("/")[2] for name in known])
    near = next((name for name in known if base and name.endswith("/" + base)), "")
    hint = f" Did you mean {near}?" if near else f" It knows {_name_list(known)}."
    return f"[no-file] This session has neither read nor changed {wanted[:200]}.{hint}"


def _name_list(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - FILES_SHOWN} more" if len(every) > FILES_SHOWN else ""
    return ", ".join(every[:FILES_SHOWN]) + more


def version_at(found: FileHistory, seq: int) -> Version:
    """Return the version at entry `seq`; with 0 the newest that exists. Raises `ToolError` when
    none is so old.
    """
    standing = [one for one in found.versions if not seq or one.since <= seq]
    if not standing:
        first = found.versions[-1]
        raise ToolError(
            f"[no-file] {found.path} was first seen {shown_time(first.at)} (r{first.since}); "
            "nothing older is known."
        )
    return next((one for one in standing if one.hash), standing[0]) if not seq else standing[0]


def version_list(found: FileHistory, shown: Version) -> str:
    """List the versions, a line each, and mark the one whose content follows."""
    rows = [_version_row(one, one is shown) for one in found.versions[:VERSIONS_SHOWN]]
    left = len(found.versions) - VERSIONS_SHOWN
    rows += [f"  and {left} older"] if left > 0 else []
    many = (
        "one version"
        if len(found.versions) == 1
        else f"{len(found.versions)} versions, newest first"
    )
    other = (
        ""
        if len(found.versions) == 1
        else '; another: Recall(handle="r…") or time="…" with this path'
    )
    return "\n".join([f"[{found.path}: {many}{other}]", *rows])


def _version_row(one: Version, shown: bool) -> str:
    lost = "" if one.kept or not one.hash else ", content not kept (too large)"
    return f"{'>' if shown else ' '} r{one.seq} {shown_time(one.at)} {one.how}{lost}"


# --- History of a session whose log is not on disk ------------------------------------------------


class InMemoryHistory:
    """`port.SessionHistory` over a `ToolContext`. Each method scans the entries, so it suits
    short logs only.
    """

    def __init__(self, context: ToolContext) -> None:
        self._entry = context.entry
        self._blobs = context.blobs

    def tail(self) -> tuple[int, int]:
        """See `store.SessionHistory`. Finds the last seq by doubling and bisection, since seqs
        have no gaps.
        """
        low, high = 0, 1
        while self._entry(high) is not None:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._entry(middle) is not None else (low, middle)
        last = self._entry(low) if low else None
        return (low, last.at) if last is not None else (0, 0)

    def entry(self, seq: int) -> Entry | None:
        return self._entry(seq)

    def entries(self, after: int = 0, to: int = 0) -> Iterator[Entry]:
        last = self.tail()[0]
        found = map(self._entry, range(after + 1, min(to or last, last) + 1))
        return (entry for entry in found if entry is not None)

    def of_kind(self, *kinds: str) -> Iterator[Entry]:
        found = map(self._entry, range(self.tail()[0], 0, -1))
        return (entry for entry in found if entry is not None and kind_of(entry.event) in kinds)

    def seq_at(self, at: int) -> int:
        return next((entry.seq for entry in reversed([*self.entries()]) if entry.at <= at), 0)

    def seq_ago(self, ago_us: int, now_us: int) -> int:
        newer, left = now_us, ago_us
        for entry in reversed([*self.entries()]):
            left, newer = left - max(0, newer - entry.at), entry.at
            if left <= 0:
                return entry.seq
        return 0

    def pieces(self, blob: str) -> Iterator[bytes]:
        """See `store.SessionHistory`: in one piece."""
        yield self._blobs.read_blob(blob)

    def search(self, query: str, limit: int, before: int = 0) -> SearchResult:
        """See `store.SessionHistory`: reads every entry."""

        from longrein.store.log_search import scan

        return scan(self, query, limit, before)

    def search_tree(self, query: str, limit: int, before: int = 0) -> SearchResult:
        """See `store.SessionHistory`: other logs are not available."""
        return self.search(query, limit, before)

    def child(self, session: str) -> SessionHistory | None:  # noqa: ARG002 - the port's signature
        """See `store.SessionHistory`: other logs are not available."""
        return None

    def parent(self) -> SessionHistory | None:
        """See `store.SessionHistory`: other logs are not available."""
        return None


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
        raise ToolError("[no-query] query holds no word to look for.")
    end = first + HITS_MAX - 1
    found = past.search_tree(query, end, before)
    hits = found.hits[first - 1 :]
    if not hits and found.hits:
        raise ToolError(f"[past-end] There are only {counted(len(found.hits), 'hit')}.")
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
    from longrein.tools.recall_pages import parse_range

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

    brought = (
        await context.archive.reading(work)
        if context.archive is not None
        else work(InMemoryHistory(context))
    )
    return _outcome(context, brought)


def _by_handle(
    context: ToolContext, past: SessionHistory, handle: str, wanted: "PageRange"
) -> RecallResult:
    found = resolve_handle(past, handle)
    return _paged_content(
        context, found, wanted, f'handle="{found.handle}"', Recalled(context.call, found.handle)
    )


def _paged_content(
    context: ToolContext, found: HandleContent, wanted: "PageRange", again: str, fact: Recalled
) -> RecallResult:
    from longrein.tools.recall_pages import read_page

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
    context: ToolContext, past: SessionHistory, query: str, wanted: "PageRange"
) -> RecallResult:
    asked = context.call[1:].partition(".")[0]
    text = search_words(past, query, int(asked) if asked.isdigit() else 0, wanted.first)
    return RecallResult(
        text,
        None,
        Recalled(context.call, query=query, size_bytes=len(text.encode("utf-8", "replace"))),
    )


def _by_time(context: ToolContext, past: SessionHistory, time: str) -> RecallResult:
    text = entries_around(past, time, context.now_us())
    return RecallResult(
        text,
        None,
        Recalled(context.call, when=time, size_bytes=len(text.encode("utf-8", "replace"))),
    )


def _by_path(
    context: ToolContext, past: SessionHistory, path: str, time: str, wanted: "PageRange"
) -> RecallResult:
    real = context.workspace.resolve(path, context.cwd).real if "\0" not in path else path
    files = file_history(past, path, real)
    shown = version_at(files, find_moment(past, time, context.now_us())[0] if time.strip() else 0)
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


# --- The tool -------------------------------------------------------------------------------------


async def Recall(
    context: ToolContext,
    handle: str = "",
    query: str = "",
    path: str = "",
    time: str = "",
    lines: str = "",
) -> Outcome:
    """Bring back the original of what was shortened, cleared or summarised (results, arguments, the
    user's words, images), also from before a restart or fork. Give a handle, or search by query,
    path or time; you get a page and the call for the next. For a file as it is now: Read.

    handle: From a marker or `⋮ 9 lines, r412`: r412, r412.2 (part), a398/r412 (subagent a398).
    query: Words that all occur, or a quoted phrase.
    path: A file: its versions, and the newest content.
    time: 10:05, 2026-11-21T10:05 or 2h ago: what happened then; with path, the file then.
    lines: 100-200, 100- or 7:4001-8000 (characters of line 7). Of a query: hits, 21-.
    """
    given = {"handle": handle, "query": query, "path": path, "time": time}
    brought: Outcome = await recall(context, given, lines)
    return brought


RECALL = make_tool(Recall, access="none", together=True, kind="read", quiet=True)
