"""Stored sessions and search hits, as text or JSON."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec import Struct, to_builtins

from longrein.steps.human_text import counted, escape_line, json_page, size
from longrein.store import SearchResult, SessionHistory, SessionInfo
from longrein_context.events import SessionError
from longrein_context.events.escape import one_line, shortened

TITLE_CHARS_MAX = 60
NO_PROMPT = "(nothing was said)"
ONE_SHOT = b"-- one-shot runs (longrein -p) --\n"


def table(rows: Sequence[Sequence[str]]) -> bytes:
    """Rows of escaped cells with aligned columns, in UTF-8. The last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1:] = [0]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows]
    return "".join(lines).encode("utf-8", "replace")


def as_json(infos: Sequence[SessionInfo]) -> bytes:
    """A JSON list, newest first."""
    return json_page(infos)


def as_table(infos: Sequence[SessionInfo]) -> bytes:
    """A line per session, newest first: id, time of the last entry, entries, folder, title.

    Sessions without a prompt come last, and after a heading the one-shot runs.
    """
    if not infos:
        return b'no sessions yet: start one with longrein, or longrein -p "..."\n'
    infos = sorted(infos, key=lambda info: (info.one_shot, not info.title))
    lines = table(
        [("session", "last entry", "entries", "folder", "title"), *map(_row, infos)]
    ).splitlines(keepends=True)
    kept = sum(not info.one_shot for info in infos)
    apart = [ONE_SHOT] if 0 < kept < len(infos) else []
    return b"".join([*lines[: kept + 1], *apart, *lines[kept + 1 :]])


def _row(info: SessionInfo) -> tuple[str, ...]:
    title = shortened(escape_line(one_line(info.title)) or NO_PROMPT, TITLE_CHARS_MAX)
    mark = "(open) " if info.open else ""
    return (
        info.session,
        _when(info.updated_at),
        str(info.entries),
        escape_line(info.cwd),
        mark + title,
    )


def _when(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


Sized = tuple[SessionInfo, int]
"""A session and the bytes of its folder."""


def to_prune(
    sized: Sequence[Sized], before_us: int, one_shot_before_us: int, bytes_max: int | None
) -> list[Sized]:
    """Return the sessions that go, oldest first: those whose last entry is older than
    `before_us`, runs of `longrein -p` also where it is older than `one_shot_before_us`; then the
    oldest until the rest has at most `bytes_max` bytes.
    """
    oldest_first = sorted(sized, key=lambda one: one[0].updated_at)
    limits = {False: before_us, True: max(before_us, one_shot_before_us)}
    old = [one for one in oldest_first if one[0].updated_at < limits[one[0].one_shot]]
    rest, left = [one for one in oldest_first if one not in old], 0
    if bytes_max is not None:
        for number, (_, size_bytes) in enumerate(reversed(rest)):
            left += size_bytes
            if left > bytes_max:
                return [*old, *rest[: len(rest) - number]]
    return old


def pruned_table(chosen: Sequence[Sized]) -> bytes:
    """A line per session that goes, and their sum."""
    rows = [
        (info.session, _when(info.updated_at), size(size_bytes), *_row(info)[3:])
        for info, size_bytes in chosen
    ]
    whole = size(sum(size_bytes for _, size_bytes in chosen))
    lines = table([("session", "last entry", "size", "folder", "title"), *rows])
    return lines + f"{counted(len(chosen), 'session')}, {whole}\n".encode()


HITS_MAX = 1_000
PAGE_HITS = 20


class SessionHits(Struct, frozen=True):
    """Hits of one session."""

    info: SessionInfo
    found: SearchResult


def search_sessions(
    state_dir: str, infos: Sequence[SessionInfo], query: str, say: Callable[[str], None]
) -> list[SessionHits]:
    """Search sessions for `query`, in the order of `infos`. Unreadable sessions are reported and
    skipped.
    """
    every = []
    for info in infos:
        try:
            past = SessionHistory(state_dir, info.session)
            try:
                found = past.search_tree(query, HITS_MAX)
            finally:
                past.close()
        except SessionError as error:
            say(f"session {info.session} was passed over: {error}")
            continue
        if found.hits:
            every.append(SessionHits(info, found))
    return every


def hits_as_json(every: Sequence[SessionHits]) -> bytes:
    """A JSON array with one object per hit."""
    return json_page(
        [
            {"session": its.info.session, **to_builtins(hit)}
            for its in every
            for hit in its.found.hits
        ]
    )


def hits_as_text(every: Sequence[SessionHits], page: int = 1) -> bytes:
    """A page of hits under their sessions: handle, time, title, line number, snippet.

    When there are more pages, the last line gives the number of hits and the flag for the next
    page.
    """
    hits = [(its.info, hit) for its in every for hit in its.found.hits]
    first = (page - 1) * PAGE_HITS
    rows: list[str] = []
    shown = None
    for info, hit in hits[first : first + PAGE_HITS]:
        if info is not shown:
            rows.append(f"{info.session}  {info.cwd}  {' '.join(info.title.split())}")
            shown = info
        times = f" ({hit.count} times)" if hit.count > 1 else ""
        rows.append(
            f"  {hit.handle:<8} {_when(hit.at)}  {hit.title}, line {hit.line}{times}: {hit.snippet}"
        )
    more = any(its.found.more for its in every)
    rows += [_place(len(hits), more, first, page)] if first or more or len(hits) > PAGE_HITS else []
    return "".join(row + "\n" for row in rows).encode("utf-8", "replace")


def _place(total: int, more: bool, first: int, page: int) -> str:
    """Position of the page among all hits, and the flag for the next page."""
    of = f"{'more than ' * more}{total:,}"
    if first >= total:
        return f"page {page} is empty: there are {of} hits, {-(-total // PAGE_HITS)} pages"
    last = min(first + PAGE_HITS, total)
    if last < total:
        after = f"; --page {page + 1} shows the next"
    elif more:
        after = "; take more words"
    else:
        after = ""
    return f"hits {first + 1:,} to {last:,} of {of}{after}"


def no_hits_text(query: str, sessions: int, *, widest: bool) -> str:
    """Message when nothing was found."""
    where = counted(sessions, "session") + ("" if widest else " of this folder")
    return f"nothing in {where} holds {query!r}" + (
        "" if widest else "; --all searches those of every folder"
    )
