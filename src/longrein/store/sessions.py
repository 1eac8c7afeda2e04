"""Which sessions there are: lists, the latest of a folder, an id by its first characters. No lock, no scan of a log."""

import os
from collections.abc import Callable, Iterator

from longrein.events import SessionError, SessionUnknown
from longrein.store.folder import DATABASE, session_id, sessions_folder
from longrein.store.lock import is_held
from longrein.store.port import SessionInfo
from longrein.store.reading import Reader

TIE_NS = 1_000_000_000
"""Files written within this time of each other are put in order by their last entries: closing a log touches it too."""


def list_sessions(state_dir: str, limit: int = 0) -> list[SessionInfo]:
    """Stored sessions that hold anything, the one written last first; at most `limit` of them when it is not 0."""
    return _newest(state_dir, lambda _: True, limit)


def latest_session(state_dir: str, cwd: str) -> str:
    """Id of the session that was started in `cwd` and written last; '' when there is none.

    One in which nothing was said yet is taken only where there is no other.
    """
    spoken = _newest(state_dir, lambda info: info.cwd == cwd and bool(info.title), 1)
    found = spoken or _newest(state_dir, lambda info: info.cwd == cwd, 1)
    return found[0].session if found else ""


def _newest(state_dir: str, wanted: Callable[[SessionInfo], bool], limit: int) -> list[SessionInfo]:
    """The sessions that are `wanted`, the latest first. Opens only as many as it takes to find `limit` of them."""
    found: list[SessionInfo] = []
    enough_ns = 0
    for written_ns, session in _by_time(state_dir):
        if written_ns < enough_ns:
            break
        info = session_info(state_dir, session)
        if info is None or not wanted(info):
            continue
        found.append(info)
        if len(found) == limit:
            enough_ns = written_ns - TIE_NS
    found.sort(key=lambda info: info.updated_at, reverse=True)
    return found[:limit] if limit else found


def find_session(state_dir: str, prefix: str) -> str:
    """The id that begins with `prefix`. Raises `SessionUnknown`, naming the nearest or those that fit."""
    start = prefix.lower()
    if not start or len(start) > 36 or start.strip("0123456789abcdef-"):
        return session_id(prefix)
    ids = sorted(_ids(state_dir))
    fitting = [name for name in ids if name.startswith(start)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        shown = ", ".join(fitting[:3]) + (" …" if len(fitting) > 3 else "")
        raise SessionUnknown(f"{len(fitting)} sessions begin with {prefix} ({shown}); write more of the id")
    nearest = max(ids, key=lambda name: _shared(name, start), default="")
    hint = f"; the nearest is {nearest}" if nearest and _shared(nearest, start) else ""
    raise SessionUnknown(f"no session begins with {prefix}{hint}; `longrein sessions` lists them")


def is_open(state_dir: str, session: str) -> bool:
    """Whether a process holds the session now; False for one that is not there."""
    return is_held(os.path.join(sessions_folder(state_dir), session_id(session)))


def session_info(state_dir: str, session: str) -> SessionInfo | None:
    """One line of the list; None for a session without an entry. A damaged one says so in its title."""
    reader = Reader(state_dir, session)
    open_now = is_held(reader.folder)
    try:
        created, cwd, title = reader.about()
        entries, updated = reader.tail()
    except SessionError:
        when = _written_ns(reader.folder) // 1000
        title = "(damaged; opening it repairs what can be)"
        return SessionInfo(session, reader.folder, 0, when, "", title, 0, open_now, damaged=True)
    finally:
        reader.close()
    if not entries:
        return None
    return SessionInfo(session, reader.folder, created, updated, cwd, title, entries, open_now)


def _by_time(state_dir: str) -> list[tuple[int, str]]:
    """(when it was written in nanoseconds, id) of every session, the latest first."""
    folder = sessions_folder(state_dir)
    return sorted(((_written_ns(os.path.join(folder, name)), name) for name in _ids(state_dir)), reverse=True)


def _ids(state_dir: str) -> Iterator[str]:
    try:
        names = os.listdir(sessions_folder(state_dir))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if len(name) == 36 and name.count("-") == 4 and not name.strip("0123456789abcdef-"):
            yield name


def _written_ns(folder: str) -> int:
    """When the log was last written, in nanoseconds; 0 when it has none."""
    latest = 0
    for end in ("", "-wal"):
        try:
            found = os.stat(os.path.join(folder, DATABASE + end))
        except OSError:
            continue
        if found.st_size:  # a mere reader leaves an empty WAL
            latest = max(latest, found.st_mtime_ns)
    return latest


def _shared(one: str, other: str) -> int:
    """Characters both begin with."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
