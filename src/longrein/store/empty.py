"""Sessions in which nothing was ever said: they are not worth a place on the disk once their longrein has left."""

import os
import shutil
from collections.abc import Callable

from longrein.events import Entry, ModeSet, Opened, PrefixSet, SessionError
from longrein.store.folder import BLOBS, DATABASE, INBOX, LOCK, existing_folder
from longrein.store.high_water_mark import NAME as MARK
from longrein.store.lock import take_lock
from longrein.store.reading import Reader

BEGINNING = (Opened, PrefixSet, ModeSet)
"""What longrein writes before anybody has said or done anything."""
ENTRIES_MAX = 64
"""A log with more is not looked through."""
NAMES = {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", MARK, LOCK, BLOBS, INBOX}
"""All that lies in the folder of such a session; what is not known here keeps it."""


async def discard_empty(state_dir: str, session: str, *, wall_us: Callable[[], int]) -> bool:
    """Remove a closed session in which nobody said or did anything; whether it was one.

    Anything beyond its beginning keeps it: a word, also one that waits in its inbox, a task, a copy of another's
    entries, a damaged database. Raises nothing: what cannot be removed stays.
    """
    try:
        folder = existing_folder(state_dir, session)
        lock = await take_lock(folder, wall_us)
    except (SessionError, OSError):
        return False  # somebody has it open
    try:
        empty = _is_empty(state_dir, session, folder)
        if empty:
            shutil.rmtree(folder, ignore_errors=True)
        return empty
    except (SessionError, OSError):
        return False
    finally:
        lock.release()


def _is_empty(state_dir: str, session: str, folder: str) -> bool:
    names = set(os.listdir(folder))
    if names - NAMES or (INBOX in names and os.listdir(os.path.join(folder, INBOX))):
        return False
    reader = Reader(state_dir, session)
    try:
        last, _ = reader.tail()
        return last <= ENTRIES_MAX and not reader.inbox() and all(map(_is_beginning, reader.entries()))
    finally:
        reader.close()


def _is_beginning(entry: Entry) -> bool:
    event = entry.event
    if isinstance(event, Opened):
        return event.parent is None and not event.pins
    return isinstance(event, BEGINNING)
