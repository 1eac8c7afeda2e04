"""Fork a session: a new session whose log begins with the entries of another one, by reference.

The fork's database holds entry 1, an `Opened` that names the original and the fork point, and the
entries after that point; `reader.ReadConnection` reads those in between from the original. The
original has a file `forks/<id>` for each fork, so that its deletion keeps what forks need
(`deletion`). Copies of the work tree are shared by hard links.
"""

import asyncio
import contextlib
import os
import shutil
import sqlite3

import msgspec

from longrein.atomic_file import flush_path
from longrein.folder_trees import remove_tree, walk_folders
from longrein.store.daemon_threads import run_in_thread
from longrein.store.database import (
    INSERT_ENTRY,
    NO_WORDS_TITLE,
    REPLACE_SESSION,
    ROOT,
    entry_key,
    new_database,
    row_checksum,
)
from longrein.store.disk_errors import store_failure
from longrein.store.reader import Reader
from longrein.store.session_folder import (
    CHECKPOINTS,
    DATABASE,
    FORKS,
    UNFINISHED,
    make_folder,
    new_file,
    session_folder,
    sessions_folder,
)
from longrein.store.session_store import existing_folder, store_with
from longrein_context.events import (
    SCHEMA_VERSION,
    Entry,
    Opened,
    Parent,
    SessionError,
    SessionUnknown,
    StoreDamaged,
    encode_event,
)

UNFINISHED_S = 3600.0
"""Age from which the beginnings of a fork count as left behind by a kill."""


async def fork_log(state_dir: str, source: str, to: int, first: Entry) -> None:
    """Create the session that `first` opens, with entries 2 to `to` of `source`; seqs and times
    stay.

    `first` is entry 1 of the new session: an `Opened` with its id, whose `parent` becomes the
    source. The source may be open elsewhere and its log is not changed. On return the new session
    is complete on disk; after an error it does not exist.

    Raises `SessionUnknown`, `StoreDamaged`, `StoreFull`, `SessionError`.
    """
    opened = first.event
    assert isinstance(opened, Opened)
    assert first.seq == 1
    origin = existing_folder(state_dir, source)
    folder = session_folder(state_dir, opened.session)
    if os.path.exists(folder):
        raise SessionError(f"there is already a session {opened.session}")
    opened = msgspec.structs.replace(opened, parent=Parent(os.path.basename(origin), to))

    if store := store_with(origin):

        def fork_in_store() -> None:
            title = _title_of_fork(state_dir, opened)
            store.create_fork(folder, opened, first.at, title)
            _link_checkpoints(os.path.join(origin, CHECKPOINTS), os.path.join(folder, CHECKPOINTS))

        await asyncio.wrap_future(run_in_thread(fork_in_store, "fork"))
        return

    def fork() -> None:
        building = os.path.join(sessions_folder(state_dir), UNFINISHED, os.path.basename(folder))
        mark = os.path.join(origin, FORKS, os.path.basename(folder))
        try:
            remove_tree(building, ignore_errors=True)
            make_folder(building)
            _remove_unfinished(building)
            _fork(state_dir, building, mark, opened, first.at)
            os.rename(building, folder)
            flush_path(os.path.dirname(folder))
        except (OSError, sqlite3.Error, SessionError) as error:
            remove_tree(building, ignore_errors=True)
            if not os.path.exists(folder):
                with contextlib.suppress(OSError):
                    os.unlink(mark)
            raise store_failure(error, folder) from None
        finally:
            with contextlib.suppress(OSError):  # others are being made
                os.rmdir(os.path.dirname(building))

    await asyncio.wrap_future(run_in_thread(fork, "fork"))


def _remove_unfinished(building: str) -> None:
    """Remove what killed processes have left of their forks, beside the new folder `building`."""
    now = os.stat(building).st_mtime
    for one in list(os.scandir(os.path.dirname(building))):
        with contextlib.suppress(OSError):
            if now - one.stat().st_mtime > UNFINISHED_S:
                remove_tree(one.path, ignore_errors=True)


FORK_OF = "fork of "


def _title_of_fork(state_dir: str, opened: Opened) -> str:
    """Return the title of a fork, by which lists tell it from its original; '' or no words where
    the first message names both. Raises an error unless the original has the entry.
    """
    assert opened.parent is not None
    with contextlib.closing(Reader(state_dir, opened.parent.session)) as source:
        _check_source(source, opened.parent.seq)
        title = source.about()[2]
    is_named = title not in ("", NO_WORDS_TITLE) and not title.startswith(FORK_OF)
    return FORK_OF * is_named + title


def _fork(state_dir: str, building: str, mark: str, opened: Opened, at: int) -> None:
    """Make the fork's folder at `building`, and the `mark` by which its original knows it."""
    assert opened.parent is not None
    title = _title_of_fork(state_dir, opened)
    origin = existing_folder(state_dir, opened.parent.session)
    make_folder(os.path.dirname(mark))
    with contextlib.suppress(FileExistsError):  # of a fork that was killed
        os.close(new_file(mark))
    if not os.path.isdir(origin):  # deleted meanwhile, which the mark has not prevented
        raise SessionUnknown(f"there is no session {opened.parent.session} any more")
    flush_path(os.path.dirname(mark))
    flush_path(origin)
    path = os.path.join(building, DATABASE)
    with contextlib.closing(new_database(path)) as target:
        key, body = entry_key(ROOT, 1), encode_event(opened)
        checksum = row_checksum(key, at, SCHEMA_VERSION, body)
        target.execute(INSERT_ENTRY, (key, at, SCHEMA_VERSION, checksum, body))
        target.execute(REPLACE_SESSION, (ROOT, opened.session, at, opened.cwd, title))
        target.execute("COMMIT")
    _link_checkpoints(os.path.join(origin, CHECKPOINTS), os.path.join(building, CHECKPOINTS))
    flush_path(path)
    flush_path(building)


def _check_source(source: Reader, to: int) -> None:
    """Raise an error unless the source has entry `to`."""
    try:
        if to < 1 or source.entry(to) is None:
            last = source.tail()[0]
            raise SessionError(f"cannot fork at entry {to}: session {source.session} has {last}")
    except StoreDamaged as damage:
        raise StoreDamaged(
            f"{source.folder} is damaged ({damage}); open that session once to repair it"
        ) from None


def _link_checkpoints(origin: str, folder: str) -> None:
    """Give the fork the copies of the work tree: files of a shadow repository are replaced and
    deleted, never changed, so that both may have them. A second look finds the pack of what its
    owner has packed meanwhile. What cannot be linked is missing, as after a loss.
    """
    for at, _, names in [*walk_folders(origin), *walk_folders(origin)]:
        target = os.path.join(folder, os.path.relpath(at, origin))
        with contextlib.suppress(OSError):
            make_folder(target)
        for name in names:
            there = os.path.join(target, name)
            with contextlib.suppress(OSError):
                if not name.endswith(".lock") and not os.path.lexists(there):
                    _link_file(os.path.join(at, name), there)


def _link_file(path: str, target: str) -> None:
    """Link a file, or copy it on a file system without links. Raises OSError."""
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, target)
        os.chmod(target, 0o600)
