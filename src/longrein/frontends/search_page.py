"""What a search of stored sessions found, as text for people or JSON for programs."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from longrein.events import SessionError
from longrein.store import Found, Past, SessionInfo

HITS_MAX = 50
"""Hits shown of one session."""


class InSession(msgspec.Struct, frozen=True):
    """What one session holds."""

    info: SessionInfo
    found: Found


def found_in(state_dir: str, infos: Sequence[SessionInfo], query: str, say: Callable[[str], None]) -> list[InSession]:
    """Sessions that hold `query`, in the order of `infos`. One that cannot be read is said and passed over."""
    every = []
    for info in infos:
        try:
            past = Past(state_dir, info.session)
            try:
                found = past.search_tree(query, HITS_MAX)
            finally:
                past.close()
        except SessionError as error:
            say(f"session {info.session} was passed over: {error}")
            continue
        if found.hits:
            every.append(InSession(info, found))
    return every


def as_json(every: Sequence[InSession]) -> bytes:
    """One JSON array, an object a hit."""
    hits = [{"session": one.info.session, **msgspec.to_builtins(hit)} for one in every for hit in one.found.hits]
    return msgspec.json.format(msgspec.json.encode(hits)) + b"\n"


def as_text(every: Sequence[InSession]) -> bytes:
    """Under each session its hits: handle, time, what it is, line and the words around."""
    return "".join(_session(one) for one in every).encode("utf-8", "replace")


def _session(one: InSession) -> str:
    info = one.info
    rows = [f"{info.session}  {info.cwd}  {' '.join(info.title.split())}"]
    for hit in one.found.hits:
        times = f" ({hit.count} times)" if hit.count > 1 else ""
        rows.append(f"  {hit.handle:<8} {_when(hit.at)}  {hit.title}, line {hit.line}{times}: {hit.snippet}")
    rows += ["  … and more: take more words"] if one.found.more else []
    return "\n".join(rows) + "\n"


def _when(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def nothing(query: str, sessions: int, *, widest: bool) -> str:
    """The line for the person when nothing was found."""
    where = f"{sessions} session{'' if sessions == 1 else 's'}" + ("" if widest else " of this folder")
    return f"nothing in {where} holds {query!r}" + ("" if widest else "; --all searches those of every folder")
