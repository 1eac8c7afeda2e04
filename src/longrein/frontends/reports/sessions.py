"""Stored sessions and search hits, as text or JSON."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from longrein.events import SessionError
from longrein.frontends.text_format import escape_line
from longrein.store import SearchResult, SessionHistory, SessionInfo

TITLE_CHARS_MAX = 60
"""Characters of a session's title in the table."""
NO_PROMPT = "(nothing was said)"


def as_json(infos: Sequence[SessionInfo]) -> bytes:
    """One JSON list, newest first."""
    return msgspec.json.format(msgspec.json.encode(infos)) + b"\n"


def as_table(infos: Sequence[SessionInfo]) -> bytes:
    """One line per session, newest first: id, time of the last entry, entries, folder, first words.

    Sessions without a prompt come last.
    """
    if not infos:
        return b'no sessions yet: start one with longrein, or longrein -p "..."\n'
    rows = [("session", "last entry", "entries", "folder", "first words")]
    rows += [_row(info) for info in sorted(infos, key=lambda info: not info.title)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4])) for row in rows
    ]
    return ("\n".join(line.rstrip() for line in lines) + "\n").encode("utf-8", "replace")


def _row(info: SessionInfo) -> tuple[str, str, str, str, str]:
    last = datetime.fromtimestamp(info.updated_at / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    title = escape_line(" ".join(info.title.split())) or NO_PROMPT
    shown = title if len(title) <= TITLE_CHARS_MAX else title[: TITLE_CHARS_MAX - 1] + "…"
    return info.session, last, str(info.entries), escape_line(info.cwd), ("(open) " if info.open else "") + shown


# --- Search hits ---------------------------------


HITS_MAX = 1_000
"""Largest number of hits of one session."""
PAGE_HITS = 20
"""Hits on one page of text."""


class SessionHits(msgspec.Struct, frozen=True):
    """Hits of one session."""

    info: SessionInfo
    found: SearchResult


def search_sessions(
    state_dir: str, infos: Sequence[SessionInfo], query: str, say: Callable[[str], None]
) -> list[SessionHits]:
    """Search sessions for `query`, in the order of `infos`. Unreadable sessions are reported and skipped."""
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
    """One JSON array with one object per hit."""
    hits = [{"session": one.info.session, **msgspec.to_builtins(hit)} for one in every for hit in one.found.hits]
    return msgspec.json.format(msgspec.json.encode(hits)) + b"\n"


def hits_as_text(every: Sequence[SessionHits], page: int = 1) -> bytes:
    """One page of hits under their sessions: handle, time, title, line number, snippet.

    When there are more pages, the last line gives the number of hits and the flag for the next page.
    """
    hits = [(one.info, hit) for one in every for hit in one.found.hits]
    first = (page - 1) * PAGE_HITS
    rows: list[str] = []
    shown = None
    for info, hit in hits[first : first + PAGE_HITS]:
        if info is not shown:
            rows.append(f"{info.session}  {info.cwd}  {' '.join(info.title.split())}")
            shown = info
        times = f" ({hit.count} times)" if hit.count > 1 else ""
        rows.append(f"  {hit.handle:<8} {_when(hit.at)}  {hit.title}, line {hit.line}{times}: {hit.snippet}")
    more = any(one.found.more for one in every)
    rows += [_place(len(hits), more, first, page)] if first or more or len(hits) > PAGE_HITS else []
    return "".join(row + "\n" for row in rows).encode("utf-8", "replace")


def _place(total: int, more: bool, first: int, page: int) -> str:
    """Position of the page among all hits, and the flag for the next page."""
    of = f"{'more than ' * more}{total:,}"
    if first >= total:
        return f"page {page} is empty: there are {of} hits, {-(-total // PAGE_HITS)} pages"
    last = min(first + PAGE_HITS, total)
    after = f"; --page {page + 1} shows the next" if last < total else "; take more words" if more else ""
    return f"hits {first + 1:,} to {last:,} of {of}{after}"


def _when(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def no_hits_text(query: str, sessions: int, *, widest: bool) -> str:
    """Message when nothing was found."""
    where = f"{sessions} session{'' if sessions == 1 else 's'}" + ("" if widest else " of this folder")
    return f"nothing in {where} holds {query!r}" + ("" if widest else "; --all searches those of every folder")
