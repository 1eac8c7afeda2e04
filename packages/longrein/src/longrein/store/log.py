"""The log of one session, open for writing: `store_port.Log` on SQLite.

`open_log` opens the log of a root session. `SessionLog.child` opens the log of a subagent: the same
class, with its own entries and inbox and the root's database, lock, writer and blobs.
`leave_message` is for other processes.
"""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from threading import Event
from typing import TYPE_CHECKING

from longrein.atomic_file import flush_path, write_file
from longrein.store import store_port
from longrein.store.blobs import Blobs, GrowingBlob
from longrein.store.daemon_threads import run_in_thread
from longrein.store.database import ROOT, SEQ_MAX, Database, Row, SessionRows, Write
from longrein.store.disk_errors import mark_suspect, store_failure
from longrein.store.reader import Reader, StoredEntries, truncate_spans
from longrein.store.repair import LogDamage, LogSummary, check_rows, open_or_repair
from longrein.store.session_folder import (
    INBOX,
    SessionLock,
    is_on_network,
    make_folder,
    make_session_folder,
    session_id,
    take_lock,
)
from longrein.store.session_store import existing_folder, store_with
from longrein.store.snapshot import write_snapshot
from longrein.store.store_port import Message, Snapshot
from longrein.store.writer import Writer
from longrein_context.events import Entry, SessionError, StoreDamaged

if TYPE_CHECKING:
    from longrein.store.log_database import LogDatabase

# --- Shared by the logs of one database -----------------------------------------------------------


class SharedStore:
    """Lock, writer, blobs and number counters that the logs of one database share.

    For the event loop's thread; only the writer's thread uses the database itself.
    """

    def __init__(
        self,
        folder: str,
        lock: SessionLock,
        wall_us: Callable[[], int],
        *,
        fresh: bool,
        network: bool,
        create: bool,
    ) -> None:
        """Start the writer thread, which opens the database; `fresh`: it creates that of a new
        session. `create`: a store creates the session if it has none of that id.
        """
        self.folder = folder
        self.lock = lock
        self.blobs = Blobs(folder)
        self.notes: list[str] = []
        self.summary = LogSummary()
        """Contents of an existing log, once the writer's future `opened` is done."""
        self._numbers: dict[str, int] = {}
        self.writer = Writer(folder, lambda: self._open(fresh, network, create), wall_us)

    def _open(self, fresh: bool, network: bool, create: bool) -> "LogDatabase":
        if store := store_with(self.folder):
            database, self.summary = store.open_database(self.folder, self.blobs, create=create)
            return database
        if fresh:
            return Database(self.folder, self.blobs, self.notes, network=network)
        opened, self.summary = open_or_repair(self.folder, self.blobs, self.notes, network=network)
        return opened

    def next_message_id(self) -> int:
        """Return the id of a new inbox message; ids rise over all sessions of the database."""
        self.summary.last_message += 1
        return self.summary.last_message

    def number_for(self, session: str) -> int:
        """Return the number of a session that is not stored yet; the same one each time."""
        if session not in self._numbers:
            self.summary.last_number += 1
            self._numbers[session] = self.summary.last_number
        return self._numbers[session]


# --- Log ------------------------------------------------------------------------------------------


CHECK_AFTER_S = 2.0
"""Delay after open before the entries that the snapshot covers are checked."""
ORIGINAL = "the session from which this one was forked"


async def open_log(
    state_dir: str,
    session: str,
    *,
    create: bool,
    wall_us: Callable[[], int],
    network: bool | None = None,
) -> "SessionLog":
    """Open the log of `session`; with `create`, make it. The writer thread does the slow work.

    A new log is returned before its database exists, and appends wait for it. `wall_us` returns
    microseconds UTC and is also called in the writer thread. `network`: whether the folder is on a
    network file system; None finds out.

    Raises `SessionUnknown`, `SessionBusy`, `SessionReadOnly`, `StoreDamaged`, `StoreFull`,
    `SessionError`.
    """
    session = session_id(session)
    folder, fresh = (
        make_session_folder(state_dir, session)
        if create
        else (existing_folder(state_dir, session), False)
    )
    try:
        lock = await take_lock(folder, wall_us)
    except OSError as error:
        raise store_failure(error, folder) from None
    network = is_on_network(folder) if network is None else network
    reader, rows = Reader(state_dir, session), SessionRows(session, ROOT, listed=True)
    shared = SharedStore(folder, lock, wall_us, fresh=fresh, network=network, create=create)
    store = store_with(folder)
    log: SessionLog = (store.log_class if store else SessionLog)(shared, reader, rows)
    if fresh and not store:
        return log
    try:
        await asyncio.wrap_future(shared.writer.opened)
        log.take_over(shared.summary)
        if create and log.entries:
            raise SessionError(
                f"there is already a session {session}; go on with `longrein -r {session}`"
            )
    except BaseException:
        await log.close()
        raise
    return log


class SessionLog:
    """Implementation of `store_port.Log`, which describes the methods; made by `open_log`, and by
    `child` of another log.
    """

    is_shared = False
    close_wait_s = 0.01
    """Time that `close` waits for SQLite to checkpoint the WAL, once everything is on disk."""

    def __init__(self, shared: SharedStore, reader: Reader, rows: SessionRows) -> None:
        self.session = rows.session
        self.entries: Sequence[Entry] = ()
        self.inbox: Sequence[Message] = ()
        self.notes = shared.notes
        self.snapshot: Snapshot | None = None
        self.checked: Future[str] | None = None
        """Future of the check of entries that were not read at open, those of subagents among
        them: the damage, or ''. None when all were read.
        """
        self.was_cut = False
        self.reader = reader
        """Reads committed entries and blobs. For the event loop's thread."""
        self.folder = shared.folder
        self.number = rows.number
        self._shared = shared
        self._rows = rows
        self._blobs = shared.blobs
        self._writer = shared.writer
        self._collecting: set[str] = set()
        self._last_write: Future[None] | None = None
        self._stop: Future[None] | None = None
        self._snapshot_write: Future[bool] | None = None
        self._closing = Event()

    def take_over(self, summary: LogSummary) -> None:
        """Take over the contents of the log that was opened."""
        self.entries = StoredEntries(self.reader, summary.rows, summary.size)
        self.inbox = [Message(number, body) for number, body in summary.inbox]
        self.was_cut = ROOT in summary.cut
        self._rows.about = summary.about
        self.snapshot = summary.snapshot
        summary.rows = summary.snapshot = None  # they may be large
        self._writer.start_session(ROOT, summary.size)
        if summary.lost_from:
            self.reader.source.drop_shared(summary.lost_from)
        is_file = not store_with(self.folder)
        if is_file and (summary.unread or summary.last_number > ROOT):
            last, unread = summary.last_number, summary.unread
            self.checked = run_in_thread(lambda: self._check(unread, last), "check")

    def _check(self, unread: int, last_number: int) -> str:
        """Check what was not read at open: the entries up to seq `unread`, which the snapshot
        spared, and those of the subagents up to `last_number`. Return the damage or ''.
        """
        if self._closing.wait(CHECK_AFTER_S):
            return ""
        reader = Reader(os.path.dirname(os.path.dirname(self.folder)), self.session)
        whose = ""
        try:
            for part, rows, first, last in self._unread(reader, unread, last_number):
                whose = part
                for _ in check_rows(rows, reader.folders, first, last):
                    if self._closing.is_set():
                        return ""
        except (LogDamage, StoreDamaged) as damage:
            if whose == ORIGINAL:
                return f"{whose} is damaged ({damage}); open that session once to repair it"
            mark_suspect(self.folder)
            return (
                f"{whose} in {self.folder} is damaged ({damage}); open the session again to "
                "repair it"
            )
        except SessionError:
            return ""
        finally:
            reader.close()
        return ""

    def _unread(
        self, reader: Reader, unread: int, last_number: int
    ) -> Iterator[tuple[str, Iterator[Row], int, int]]:
        """Iterate (whose, rows, first seq, last seq) of what `_check` reads."""
        first = 1
        if unread and reader.source.sources()[1:] and reader.source.shares is not None:
            to = min(unread, reader.source.shares.seq)
            yield "the log", reader.rows(0, 1), 1, 1
            yield ORIGINAL, reader.rows(1, to), 2, to
            first = to + 1
        if unread >= first:
            yield "the log", reader.rows(first - 1, unread), first, unread
        for number in range(ROOT + 1, last_number + 1):
            own = reader.session_reader(number)
            rows = own.rows_of(number, 0, SEQ_MAX)
            yield "the log of a subagent", rows, own.first, own.tail()[0]

    # --- Subagents, history and snapshots

    def child(self, session: str, shares: int = 0) -> "SessionLog":
        session = session_id(session)
        try:
            return self._child(session, shares)
        except (LogDamage, StoreDamaged) as damage:
            mark_suspect(self.folder)
            why = (
                f"the log of a subagent in {self.folder} is damaged ({damage}); open the "
                "session again to repair it"
            )
            raise StoreDamaged(why) from None

    def _child(self, session: str, shares: int) -> "SessionLog":
        number = self.reader.number_of(session) or self._shared.number_for(session)
        reader = self.reader.session_reader(number)
        stored = reader.rows_of(number, 0, SEQ_MAX)
        rows = list(check_rows(stored, reader.folders, reader.first, reader.tail()[0]))
        if rows:
            shares = reader.first - 1
        else:
            reader = self.reader.session_reader(number, truncate_spans(self.reader.spans(), shares))
            self._writer.start_session(number, shares)
        own = SessionRows(session, number, listed=bool(rows))
        log = type(self)(self._shared, reader, own)
        log.entries = StoredEntries(reader, None if shares else rows, shares + len(rows))
        log.inbox = [Message(*row) for row in reader.inbox()]
        log.was_cut = number in self._shared.summary.cut
        if rows:
            log._rows.about = reader.about()
        return log

    def snapshot_before(self, seq: int) -> Snapshot | None:
        return self.reader.snapshot(seq) if self.number == ROOT else None

    def of_kind(self, *kinds: str, after: int = 0) -> Iterator[Entry]:
        return self.reader.of_kind(*kinds, after=after)

    def history(self, first: int, last: int) -> Iterator[Entry]:
        return self.reader.entries(max(first, 1) - 1, last) if last >= max(first, 1) else iter(())

    def keep_snapshot(self, snapshot: Snapshot) -> "Future[bool] | None":
        writing = self._snapshot_write is not None and not self._snapshot_write.done()
        if self.number != ROOT or writing or self._closing.is_set():
            return None
        log = self._writer.call(
            lambda database: (database.root_hash.seq, database.root_hash.digest())
        )
        self._snapshot_write = run_in_thread(
            lambda: self._write_snapshot(snapshot, log), "snapshot"
        )
        return self._snapshot_write

    def _write_snapshot(self, snapshot: Snapshot, log: "Future[tuple[int, bytes]]") -> bool:
        with contextlib.suppress(SessionError):  # the log can no longer be written
            seq, digest = log.result()
            if seq == snapshot.seq:
                return write_snapshot(self.folder, self.session, snapshot, digest)
        return False

    # --- Writing

    def append(
        self,
        entries: Sequence[Entry],
        *,
        flush: bool,
        take: Sequence[int] = (),
        beside: "Sequence[tuple[store_port.Log, Sequence[Entry], Sequence[int]]]" = (),
    ) -> "Future[None]":
        write = Write(flush=flush)
        self._rows.add(write, entries, take)
        logs = [self]
        for log, more, taken in beside:
            if not isinstance(log, SessionLog) or log._shared is not self._shared:
                raise ValueError(f"session {log.session} is not in the database of {self.session}")
            log._rows.add(write, more, taken)
            logs.append(log)
        future = self._writer.write(write)
        for log in logs:
            log._last_write = future
            log._rows.watch_commit(future)
        return future

    def put(self, body: bytes, *, flush: bool = True) -> "tuple[int, Future[None]]":
        message = self._shared.next_message_id()
        write = Write(flush=flush, put=[(message, body, self.number)])
        self._rows.add_listing(write)
        self._last_write = self._writer.write(write)
        self._rows.watch_commit(self._last_write)
        return message, self._last_write

    async def collect(self) -> list[Message]:
        if self.number != ROOT:
            return []
        names = [name for name in inbox_files(self.folder) if name not in self._collecting]
        if not names:
            return []
        self._collecting.update(names)
        try:
            return await self._store_messages(names)
        finally:
            self._collecting.difference_update(names)

    async def _store_messages(self, names: Sequence[str]) -> list[Message]:
        known = self.reader.collected(
            names
        )  # stored before, by a process that was killed before it removed the file
        found: dict[str, Message] = {}
        for name in [name for name in names if name not in known]:
            with (
                contextlib.suppress(OSError),  # an unreadable one stays
                open(os.path.join(self.folder, INBOX, name), "rb") as file,
            ):
                body = file.read(MESSAGE_BYTES_MAX)
                found[name] = Message(self._shared.next_message_id(), body)
        if found:
            put = [(message.id, message.body, ROOT) for message in found.values()]
            await asyncio.wrap_future(
                self._writer.write(Write(flush=True, put=put, names=list(found)))
            )
        for name in (*known, *found):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.folder, INBOX, name))
        return list(found.values())

    # --- Blobs

    def put_blob(self, data: bytes) -> str:
        return self._blobs.put(data)

    async def adopt(self, path: str) -> str:
        blob, content = await asyncio.wrap_future(
            run_in_thread(lambda: self._blobs.copy_for_adoption(path), "adopt")
        )
        if isinstance(content, bytes):
            return self._blobs.put(content) if content else ""
        self._blobs.adopt(blob, content)
        self._flush_files()
        return blob

    def read_blob(self, blob: str) -> bytes:
        pending = self._blobs.pending.get(blob)
        return self.reader.blob(blob) if pending is None else pending

    def blob_path(self, blob: str) -> str:
        return self.reader.blob_path(blob)

    def new_blob(self) -> GrowingBlob:
        return GrowingBlob(self._blobs, self._flush_files)

    def _flush_files(self) -> None:
        # start the flush now; if it fails, the commit that names the file tries again
        self._writer.call(lambda _: self._blobs.flush_files())

    async def close(self) -> None:
        if self.number != ROOT:
            if self._last_write is not None:  # the caller of that write learns of its error
                await asyncio.gather(asyncio.wrap_future(self._last_write), return_exceptions=True)
            return
        self._closing.set()
        pending = [
            asyncio.wrap_future(one)
            for one in (self._snapshot_write, self.checked)
            if one is not None
        ]
        # the next owner may write a snapshot too, and SQLite checkpoints only without other
        # connections
        if pending:
            await asyncio.wait(pending)
        if self._stop is None:
            # SQLite checkpoints the WAL when the last connection closes, and only a writer can
            self.reader.close()
            self._stop = self._writer.stop()
        try:
            await asyncio.wrap_future(self._stop)
        finally:
            self._shared.lock.release()
        closed = asyncio.wrap_future(self._writer.closed)
        await asyncio.wait([closed], timeout=self.close_wait_s)
        closed.cancel()  # else the thread would call an event loop that may be gone


# --- Messages from other processes ----------------------------------------------------------------
#
# Each message is a file in the session's `inbox/` until it is stored in the database, exactly once.


MESSAGE_BYTES_MAX = 1024 * 1024
MESSAGES_MAX = 256
"""Most messages that may wait in the folder, and that are taken in at once."""

_numbers = itertools.count(1)


def leave_message(state_dir: str, session: str, body: bytes) -> None:
    """Leave `body` in the inbox of `session`, for the process that has it open or opens it next.

    It is on disk on return. Raises `SessionUnknown`, `StoreFull`, `SessionError`.
    """
    folder = existing_folder(state_dir, session)
    inbox = os.path.join(folder, INBOX)
    if len(body) > MESSAGE_BYTES_MAX:
        raise SessionError(
            f"a message of {len(body)} bytes is too long; {MESSAGE_BYTES_MAX} is the limit"
        )
    if len(inbox_files(folder)) >= MESSAGES_MAX:
        raise SessionError(
            f"{MESSAGES_MAX} messages wait in {inbox} already; open the session to take them in"
        )
    if store := store_with(folder):
        store.leave_message(session_id(session), body, MESSAGES_MAX)
        return
    number = next(_numbers)
    temporary = os.path.join(inbox, f".{os.getpid()}-{number}")
    try:
        make_folder(inbox)
        write_file(temporary, (body,), durable=True)
        # ordered by the kernel's time; pid and number make the name unique
        name = f"{os.stat(temporary).st_mtime_ns:020d}-{os.getpid()}-{number:06d}"
        os.rename(temporary, os.path.join(inbox, name))
        flush_path(inbox)
    except OSError as error:
        raise store_failure(error, folder) from None


def inbox_files(folder: str) -> list[str]:
    """Return the names of the message files in the inbox of the session in `folder`, oldest
    first.
    """
    try:
        return sorted(name for name in os.listdir(os.path.join(folder, INBOX)) if name[0] != ".")[
            :MESSAGES_MAX
        ]
    except FileNotFoundError:
        return []
