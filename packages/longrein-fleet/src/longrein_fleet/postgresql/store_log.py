"""The log of one session in the store, open for writing: `store_port.Log` on PostgreSQL."""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import Future

from longrein.store.blobs import Blobs
from longrein.store.database import ROOT, Write, entry_key
from longrein.store.log import SessionLog
from longrein.store.reader import Reader
from longrein.store.repair import LogDamage, LogSummary, check_rows
from longrein.store.session_folder import make_folder
from longrein.store.store_port import Message, Snapshot
from longrein_context.events import SCHEMA_VERSION, Opened, SessionError, StoreDamaged, encode_event
from longrein_fleet.postgresql.connection import shown_address
from longrein_fleet.postgresql.store_connection import StoreConnection
from longrein_fleet.postgresql.store_database import StoreDatabase


def open_database(
    address: str, folder: str, blobs: Blobs, *, create: bool
) -> tuple[StoreDatabase, LogSummary]:
    """Take the lease of the session in `folder` and read its log, without what a snapshot covers.

    Raises `SessionBusy`, `SessionUnknown`, `SessionReadOnly`, `StoreDamaged`, `SessionError`.
    """
    database = StoreDatabase(address, folder, blobs, create=create)
    try:
        summary = _summarize_log(address, folder)
    except BaseException:
        database.close()
        raise
    database.root_hash = summary.hash
    return database, summary


def _summarize_log(address: str, folder: str) -> LogSummary:
    summary, source = LogSummary(), StoreConnection(folder, address)
    state_dir = os.path.dirname(os.path.dirname(folder))
    reader = Reader(state_dir, source.session, source=source)
    with contextlib.closing(reader):
        with contextlib.suppress(OSError):  # then the log is read from its start
            source.fetch_snapshot()
        fitting = reader.snapshot_and_hash()
        if fitting is not None:
            summary.snapshot, summary.hash = fitting
            summary.rows = None
            summary.size = summary.hash.seq
        try:
            first, last = summary.size + 1, reader.tail()[0]
            for row in check_rows(reader.rows(summary.size), reader.folders, first, last):
                summary.add(row)
        except LogDamage as damage:
            raise StoreDamaged(
                f"session {source.session} is damaged in {shown_address(address)} ({damage}); "
                "restore the store from a backup"
            ) from None
        if source.shares is not None:
            summary.size = max(summary.size, source.shares.seq)
        summary.inbox = reader.inbox()
        summary.about = reader.about()
        (summary.last_number,) = source.all("SELECT coalesce(max(number), 1) FROM sessions")[0]
        (summary.last_message,) = source.all("SELECT messages FROM roots")[0]
    return summary


def create_fork(address: str, folder: str, opened: Opened, at: int, title: str) -> None:
    """Create the session that `opened` opens, whose log begins with entries of its parent. Raises
    `SessionUnknown`, `SessionError`.
    """
    assert opened.parent is not None
    make_folder(folder)
    database = StoreDatabase(address, folder, Blobs(folder), create=True)
    with contextlib.closing(database):
        database.refer_to(opened.parent)
        row = (entry_key(ROOT, 1), at, SCHEMA_VERSION, 0, encode_event(opened))
        about = (ROOT, opened.session, at, opened.cwd, title)
        database.commit([Write(flush=True, rows=[row], about=[about])])
        database.refer_to(opened.parent)


class StoreLog(SessionLog):
    """A `SessionLog` whose database is in the store."""

    is_shared = True
    close_wait_s = 5.0
    """Time that `close` waits for the release of the lease, without which nobody else can go on
    until it expires.
    """

    async def collect(self) -> list[Message]:
        database = self._writer.opened.result()
        assert isinstance(database, StoreDatabase)
        if self.number != ROOT or not database.has_letters or self._collecting:
            return []
        self._collecting.add("letters")
        try:
            letters = await asyncio.wrap_future(self._writer.call(StoreDatabase.letters))
            return await self._take_letters(letters)
        finally:
            self._collecting.clear()

    async def _take_letters(self, letters: Sequence[tuple[int, bytes]]) -> list[Message]:
        found = [Message(self._shared.next_message_id(), body) for _, body in letters]
        put = [(message.id, message.body, ROOT) for message in found]
        names = [str(letter) for letter, _ in letters]
        if found:
            await asyncio.wrap_future(self._writer.write(Write(flush=True, put=put, names=names)))
        return found

    def _write_snapshot(self, snapshot: Snapshot, log: "Future[tuple[int, bytes]]") -> bool:
        if not super()._write_snapshot(snapshot, log):
            return False
        with contextlib.suppress(SessionError):  # it is on this machine at least
            self._writer.call(lambda database: database.keep_snapshot(snapshot.seq)).result()
        return True
