"""Find stored sessions: lists, the latest one of a folder, an id by its first characters; remove
empty ones. `deletion` deletes others.

Needs no lock and scans no log.
"""

import itertools
import os
from collections.abc import Callable, Iterator

from longrein.folder_trees import remove_tree
from longrein.store.database import ROOT
from longrein.store.reader import Reader
from longrein.store.session_folder import (
    BLOBS,
    DATABASE,
    INBOX,
    LOCK,
    HighWaterMark,
    is_held,
    read_mark,
    session_id,
    sessions_folder,
    take_lock,
)
from longrein.store.session_folder import MARK_FILE as MARK
from longrein.store.session_store import existing_folder, store_of, store_with
from longrein.store.store_port import SessionInfo
from longrein_context.events import Entry, ModeSet, Opened, PrefixSet, SessionError, SessionUnknown

TIE_NS = 1_000_000_000
"""Files written within this time of each other are ordered by their last entries, because
closing a log touches it too.
"""


def list_sessions(state_dir: str, limit: int = 0) -> list[SessionInfo]:
    """Return stored sessions that have entries, latest first; at most `limit` unless it is 0."""
    return _newest(state_dir, lambda _: True, limit)


def chosen_session(state_dir: str, cwd: str, start: str) -> str:
    """Return the id of the session that begins with `start`, without one the latest of `cwd`; ''
    when there is none. Raises what `find_session` raises.
    """
    return find_session(state_dir, start) if start else latest_session(state_dir, cwd)


def latest_session(state_dir: str, cwd: str, *, closed: bool = False, one_shot: bool = True) -> str:
    """Return the id of the session that was started in `cwd` and written last; '' when there is
    none.

    `closed`: only sessions that no process has open. Without `one_shot`, a one-shot run is chosen
    only when there is no other session. A session without a user message is chosen only when there
    is no other.
    """

    def here(info: SessionInfo) -> bool:
        return info.cwd == cwd and not (closed and info.open)

    kept = (
        []
        if one_shot
        else _newest(
            state_dir, lambda info: here(info) and bool(info.title) and not info.one_shot, 1
        )
    )
    spoken = kept or _newest(state_dir, lambda info: here(info) and bool(info.title), 1)
    found = spoken or _newest(state_dir, here, 1)
    return found[0].session if found else ""


def _newest(state_dir: str, wanted: Callable[[SessionInfo], bool], limit: int) -> list[SessionInfo]:
    """Return the `wanted` sessions, latest first. Opens only as many as it takes to find
    `limit`.
    """
    found: list[SessionInfo] = []
    if store := store_of(state_dir):
        in_store = filter(wanted, store.infos(state_dir))
        found += itertools.islice(in_store, limit or None)
    enough_ns, folder = 0, sessions_folder(state_dir)
    paths = ((os.path.join(folder, name), name) for name in _ids(state_dir))
    writes = [(*_last_write(path), name) for path, name in paths if not store_with(path)]
    for written_ns, size_bytes, session in sorted(writes, reverse=True):
        if written_ns < enough_ns:
            break
        info = _info(state_dir, session, os.path.join(folder, session), written_ns, size_bytes)
        if info is None or not wanted(info):
            continue
        found.append(info)
        if len(found) == limit:
            enough_ns = written_ns - TIE_NS
    found.sort(key=lambda info: info.updated_at, reverse=True)
    return found[:limit] if limit else found


def find_session(state_dir: str, prefix: str) -> str:
    """Return the id that begins with `prefix`. Raises `SessionUnknown`, naming the candidates or
    the nearest id.
    """
    start = prefix.lower()
    if not start or len(start) > 36 or start.strip("0123456789abcdef-"):
        return session_id(prefix)
    known = {*_ids(state_dir)}
    if store := store_of(state_dir):
        known.update(store.ids_from(start))
    ids = sorted(known)
    fitting = [name for name in ids if name.startswith(start)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        shown = ", ".join(fitting[:3]) + (" …" if len(fitting) > 3 else "")
        raise SessionUnknown(
            f"{len(fitting)} sessions begin with {prefix} ({shown}); write more of the id"
        )
    nearest = max(ids, key=lambda name: _common_length(name, start), default="")
    hint = f"; the nearest is {nearest}" if _common_length(nearest, start) else ""
    raise SessionUnknown(f"no session begins with {prefix}{hint}; `longrein sessions` lists them")


def is_open(state_dir: str, session: str) -> bool:
    """Return True if a process has the session open; False for a missing one."""
    folder = os.path.join(sessions_folder(state_dir), session_id(session))
    store = store_with(folder)
    return store.is_open(session_id(session), folder) if store else is_held(folder)


def session_info(state_dir: str, session: str) -> SessionInfo | None:
    """Return the summary of one session; None without an entry. The title of a damaged one says
    so.
    """
    folder = existing_folder(state_dir, session)
    if store := store_with(folder):
        return next(store.infos(state_dir, session_id(session)), None)
    return _info(state_dir, session, folder, *_last_write(folder))


def _info(
    state_dir: str, session: str, folder: str, written_ns: int, size_bytes: int
) -> SessionInfo | None:
    """Return the summary from the high-water mark, or from the database if the mark is out of
    date.
    """
    mark = read_mark(folder, since_ns=written_ns) if size_bytes else None
    if mark is not None and mark.updated and size_bytes >= mark.size_bytes:
        return _info_from_mark(session, folder, mark)
    reader = Reader(state_dir, session)
    try:
        created, cwd, title = reader.about()
        entries, updated = reader.tail()
        one_shot = _is_one_shot(reader)
    except SessionError:
        return _info_of_damaged(session, folder)
    finally:
        reader.close()
    if entries:
        return SessionInfo(
            session,
            folder,
            created,
            updated,
            cwd,
            title,
            entries,
            is_held(folder),
            one_shot=one_shot,
        )
    mark = read_mark(folder)  # every entry may be lost
    return None if mark is None else _info_from_mark(session, folder, mark)


def _info_from_mark(session: str, folder: str, mark: HighWaterMark) -> SessionInfo | None:
    entries = mark.entries.get(ROOT, 0)
    if not entries:
        return None
    about = (mark.created, mark.updated, mark.cwd, mark.title)
    return SessionInfo(session, folder, *about, entries, is_held(folder), one_shot=mark.one_shot)


def _is_one_shot(reader: Reader) -> bool:
    opened = reader.opening_entry()
    ran_once = opened is not None and isinstance(opened.event, Opened) and opened.event.one_shot
    return ran_once and next(reader.of_kind("TitleSet"), None) is None


def _info_of_damaged(session: str, folder: str) -> SessionInfo:
    """Return what is known of a session whose database cannot be read, with its cwd for `-c`."""
    mark = read_mark(folder) or HighWaterMark()
    return SessionInfo(
        session,
        folder,
        mark.created,
        _last_write(folder)[0] // 1000,
        mark.cwd,
        "(damaged; opening it repairs what can be)",
        0,
        is_held(folder),
        damaged=True,
    )


def _ids(state_dir: str) -> Iterator[str]:
    try:
        names = os.listdir(sessions_folder(state_dir))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if len(name) == 36 and name.count("-") == 4 and not name.strip("0123456789abcdef-"):
            yield name


def _last_write(folder: str) -> tuple[int, int]:
    """Return when the log was last written, in nanoseconds, and the size of its main file; zeros
    without one.
    """
    latest, size_bytes = 0, 0
    for end in ("-wal", ""):
        try:
            found = os.stat(f"{folder}/{DATABASE}{end}")
        except OSError:
            continue
        size_bytes = 0 if end else found.st_size
        if found.st_size:  # a reader leaves an empty WAL
            latest = max(latest, found.st_mtime_ns)
    return latest, size_bytes


def _common_length(one: str, other: str) -> int:
    """Return the length of the common beginning."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


# --- Removing empty sessions ----------------------------------------------------------------------


START_EVENTS = (Opened, PrefixSet, ModeSet)
"""Events that longrein writes before anybody says or does anything."""
ENTRIES_MAX = 64
"""A log with more entries counts as not empty."""
KNOWN_NAMES = {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", MARK, LOCK, BLOBS, INBOX}
"""Files of an empty session; any other file keeps the folder."""


async def discard_empty(state_dir: str, session: str, *, wall_us: Callable[[], int]) -> bool:
    """Remove a closed session in which nobody said or did anything; return whether it was removed.

    Anything more keeps it: a message, also one in its inbox, a task, entries of a fork, a damaged
    database. Raises nothing; what cannot be removed stays.
    """
    try:
        folder = existing_folder(state_dir, session)
        lock = await take_lock(folder, wall_us)
    except (SessionError, OSError):
        return False  # open in another process
    try:
        empty = _is_empty(state_dir, session, folder)
        if empty and (store := store_with(folder)):
            store.remove_session(session_id(session), folder, with_letters=False)
        if empty:
            remove_tree(folder, ignore_errors=True)
        return empty
    except (SessionError, OSError):
        return False
    finally:
        lock.release()


def _is_empty(state_dir: str, session: str, folder: str) -> bool:
    names = set(os.listdir(folder))
    if names - KNOWN_NAMES or (INBOX in names and os.listdir(os.path.join(folder, INBOX))):
        return False
    reader = Reader(state_dir, session)
    try:
        last, _ = reader.tail()
        return last <= ENTRIES_MAX and not reader.inbox() and all(map(_is_start, reader.entries()))
    finally:
        reader.close()


def _is_start(entry: Entry) -> bool:
    event = entry.event
    if isinstance(event, Opened):
        return event.parent is None and not event.pins
    return isinstance(event, START_EVENTS)
