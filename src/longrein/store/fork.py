"""Fork a session: copy its entries up to a point into a new session, and share its blob files by
hard links.
"""

import asyncio
import contextlib
import os
import shutil
import sqlite3

from longrein.atomic_file import flush_path, move_into_place
from longrein.events import SCHEMA_VERSION, Entry, Opened, SessionError, StoreDamaged, encode_event
from longrein.store.blobs import blob_file
from longrein.store.daemon_threads import run_in_thread
from longrein.store.database import (
    INSERT_ENTRY,
    ROOT,
    copy_tables,
    entry_key,
    entry_seq,
    read_only,
    row_checksum,
)
from longrein.store.disk_errors import store_failure
from longrein.store.repair import LogDamage, new_database, read_checked_rows
from longrein.store.session_folder import (
    BLOBS,
    CHECKPOINTS,
    DATABASE,
    existing_folder,
    make_folder,
    make_session_folder,
)


async def fork_log(state_dir: str, source: str, to: int, first: Entry) -> None:
    """Create the session that `first` opens, with entries 2 to `to` of `source`; seqs and times
    stay.

    `first` is entry 1 of the new session: an `Opened` with its id. The source may be open elsewhere
    and is not changed. On return the new session is complete on disk; after an error it does not
    exist.

    Raises `SessionUnknown`, `StoreDamaged`, `StoreFull`, `SessionError`.
    """
    opened = first.event
    assert isinstance(opened, Opened)
    assert first.seq == 1
    origin = existing_folder(state_dir, source)
    folder, fresh = make_session_folder(state_dir, opened.session)
    if not fresh:
        raise SessionError(f"there is already a session {opened.session}")

    def fork() -> None:
        try:
            _copy(origin, folder, to, first, opened)
        except (OSError, sqlite3.Error, SessionError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise store_failure(error, folder) from None

    await asyncio.wrap_future(run_in_thread(fork, "fork"))


def _copy(origin: str, folder: str, to: int, first: Entry, opened: Opened) -> None:
    building = os.path.join(folder, DATABASE + ".new")
    with (
        contextlib.closing(read_only(os.path.join(origin, DATABASE))) as source,
        contextlib.closing(new_database(building)) as target,
    ):
        source.execute("BEGIN")  # a consistent view of the source while its owner writes
        _copy_entries(origin, source, target, to)
        key, body = entry_key(ROOT, 1), encode_event(opened)
        checksum = row_checksum(key, first.at, SCHEMA_VERSION, body)
        target.execute(INSERT_ENTRY, (key, first.at, SCHEMA_VERSION, checksum, body))
        copy_tables(source, target, ("blobs", "files"))
        title = source.execute("SELECT title FROM sessions WHERE number = ?", (ROOT,)).fetchone()
        about = (ROOT, opened.session, first.at, opened.cwd, title[0] if title else "")
        target.execute("INSERT INTO sessions VALUES(?, ?, ?, ?, ?)", about)
        target.execute("COMMIT")
        for row in source.execute("SELECT hash FROM files"):
            _link(origin, folder, row[0].hex())
    _link_checkpoints(os.path.join(origin, CHECKPOINTS), os.path.join(folder, CHECKPOINTS))
    blobs = os.path.join(folder, BLOBS)
    if os.path.isdir(blobs):
        for name in os.listdir(blobs):
            flush_path(os.path.join(blobs, name))
        flush_path(blobs)
    move_into_place(building, os.path.join(folder, DATABASE))
    flush_path(os.path.dirname(folder))


def _copy_entries(
    origin: str, source: sqlite3.Connection, target: sqlite3.Connection, to: int
) -> None:
    last = 0
    try:
        for row in read_checked_rows(source, origin):
            last = entry_seq(row[0])
            if 1 < last <= to:
                target.execute(INSERT_ENTRY, row)
            if last >= to:
                return
    except LogDamage as damage:
        raise StoreDamaged(
            f"{origin} is damaged ({damage}); open that session once to repair it"
        ) from None
    raise SessionError(f"cannot fork at entry {to}: session {os.path.basename(origin)} has {last}")


def _link_checkpoints(origin: str, folder: str) -> None:
    """Give the fork the copies of the work tree: files of a shadow repository are replaced and
    deleted, never changed, so that both may have them. A second look finds the pack of what its
    owner has packed meanwhile. What cannot be linked is missing, as after a loss.
    """
    for at, _, names in [*os.walk(origin), *os.walk(origin)]:
        target = os.path.join(folder, os.path.relpath(at, origin))
        with contextlib.suppress(OSError):
            make_folder(target)
        for name in names:
            there = os.path.join(target, name)
            with contextlib.suppress(OSError):
                if not name.endswith(".lock") and not os.path.lexists(there):
                    _link_file(os.path.join(at, name), there)


def _link(origin: str, folder: str, blob: str) -> None:
    target = blob_file(folder, blob)
    make_folder(os.path.dirname(target))
    with contextlib.suppress(FileNotFoundError):  # in the source too; reading the blob reports it
        if not _link_file(blob_file(origin, blob), target):
            flush_path(target)


def _link_file(path: str, target: str) -> bool:
    """Link a file; return False where it had to be copied. Raises OSError."""
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        shutil.copyfile(path, target)
        os.chmod(target, 0o600)
        return False
    return True
