"""Delete stored sessions, and keep what forks need of them.

A session is deleted by one rename, out of the list. Without forks its folder goes at once. With
forks it stays in `.kept/`, reduced to the entries that they refer to and its blobs, until the last
of them is deleted. After a kill in between, the next deletion finishes the work.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Container

from longrein.folder_trees import remove_tree, walk_folders
from longrein.store.database import ROOT, entry_key, transaction
from longrein.store.reader import FIRST_KEYS, FIRST_ROWS, ReadConnection, shared_entries
from longrein.store.session_folder import (
    BLOBS,
    DATABASE,
    FORKS,
    KEPT,
    LOCK,
    UNFINISHED,
    kept_folder,
    make_folder,
    session_id,
    sessions_folder,
    take_lock,
)
from longrein.store.session_store import existing_folder, store_with
from longrein_context.events import SessionError

NEEDED = {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", BLOBS, FORKS, LOCK}
"""Files of a deleted session that its forks may need."""


async def delete_session(state_dir: str, session: str, *, wall_us: Callable[[], int]) -> None:
    """Delete a stored session, but for what forks of it need. Raises `SessionUnknown`,
    `SessionBusy` and other `SessionError`.
    """
    folder = existing_folder(state_dir, session)
    try:
        lock = await take_lock(folder, wall_us)
    except OSError as error:
        raise SessionError(f"{folder} cannot be deleted: {error.strerror}") from None
    kept = kept_folder(folder)
    try:
        if store := store_with(folder):
            store.remove_session(session_id(session), folder)
            remove_tree(folder)
            return
        make_folder(os.path.dirname(kept))
        if os.path.isdir(kept):  # of a session with this id that was imported again
            if _forks(state_dir, folder):
                raise SessionError(f"{session} cannot be deleted: delete its forks first")
            remove_tree(folder)
        else:
            os.rename(folder, kept)  # a fork that is not registered by now cannot be made
        _finish_deletions(state_dir)
    except OSError as error:
        raise SessionError(f"{folder} cannot be deleted: {error.strerror}") from None
    finally:
        lock.release()


def freed_bytes(folder: str) -> int:
    """Return the bytes that the deletion of a session frees: those of its files; of checkpoints
    that forks share its part; without the log and the blobs if forks refer to them.
    """
    stays = (
        {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"}
        if _forks(_state_dir(folder), folder)
        else set()
    )
    return stored_bytes(folder, {*stays, BLOBS} if stays else ())


def stored_bytes(folder: str, left_out: Container[str] = ()) -> int:
    """Return the bytes of the files below `folder`; of a file with several links its part.
    `left_out`: names in the folder itself.
    """
    found = 0.0
    for at, folders, names in walk_folders(folder):
        if at == folder:
            folders[:] = [name for name in folders if name not in left_out]
        for name in names:
            if at == folder and name in left_out:
                continue
            with contextlib.suppress(OSError):
                seen = os.lstat(os.path.join(at, name))
                found += seen.st_size / max(1, seen.st_nlink)
    return round(found)


def _state_dir(folder: str) -> str:
    return os.path.dirname(os.path.dirname(folder))


def _forks(state_dir: str, folder: str) -> list[str]:
    """Return the folders of the existing forks of the session in `folder`; those that are being
    made too.
    """
    try:
        names = os.listdir(os.path.join(folder, FORKS))
    except OSError:
        return []
    sessions = sessions_folder(state_dir)
    places = (sessions, os.path.join(sessions, KEPT), os.path.join(sessions, UNFINISHED))
    found = (os.path.join(place, name) for name in names for place in places)
    return [path for path in found if os.path.isdir(path)]


def _finish_deletions(state_dir: str) -> None:
    """Remove deleted sessions that no fork needs, and reduce the others. Raises OSError."""
    place = os.path.join(sessions_folder(state_dir), KEPT)
    folders = [os.path.join(place, name) for name in sorted(os.listdir(place))]
    while unneeded := [folder for folder in folders if not _forks(state_dir, folder)]:
        for folder in unneeded:  # then its own original may be needed no longer
            with contextlib.suppress(FileNotFoundError):  # another process removes it too
                remove_tree(folder)
            folders.remove(folder)
    with contextlib.suppress(OSError):  # it holds others
        os.rmdir(place)
    for folder in folders:
        with contextlib.suppress(sqlite3.Error, SessionError, OSError):  # tried again next time
            _reduce(state_dir, folder)


def _reduce(state_dir: str, folder: str) -> None:
    """Remove from a deleted session what its forks do not refer to, except blobs."""
    for name in set(os.listdir(folder)) - NEEDED:
        path = os.path.join(folder, name)
        remove_tree(path) if os.path.isdir(path) else os.unlink(path)
    points = [_fork_point(path, folder) for path in _forks(state_dir, folder)]
    if 0 in points:
        return  # a fork that cannot be read now
    beyond = entry_key(ROOT, max(points))
    path = os.path.join(folder, DATABASE)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        with transaction(database):
            database.execute("DELETE FROM entries WHERE key > ?", (beyond,))
            database.execute("DELETE FROM inbox")
        if database.execute("PRAGMA freelist_count").fetchone()[0]:
            database.execute("VACUUM")


def _fork_point(fork: str, folder: str) -> int:
    """Return up to which entry `fork` refers to the session in `folder`; 0 where that is not
    known.
    """
    with contextlib.closing(ReadConnection(fork)) as source:
        shares = shared_entries(fork, source.all(FIRST_ROWS, *FIRST_KEYS))
    fits = shares is not None and shares.session == os.path.basename(folder)
    return shares.seq if shares is not None and fits else 0
