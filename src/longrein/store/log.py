"""The log of one session, opened for writing: what `port.Log` promises, on SQLite."""

import asyncio
from binascii import crc32
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from longrein.events import SCHEMA_VERSION, Entry, Opened, SessionError, UserSpoke, encode_event, text_of
from longrein.store.blobs import Blobs, GrowingBlob
from longrein.store.database import ROOT, Database, Write, entry_key
from longrein.store.faults import store_failure
from longrein.store.folder import existing_folder, make_session_folder, on_network, session_id
from longrein.store.inbox import read_message, remove_message, waiting_files
from longrein.store.lock import SessionLock, take_lock
from longrein.store.port import Message
from longrein.store.reading import Reader, StoredEntries
from longrein.store.repair import Survey, open_sound
from longrein.store.writer import Writer

CLOSE_WAIT_S = 0.01
"""How long `close` waits for SQLite to fold the WAL into the main file, once everything is on disk."""
TITLE_CHARS_MAX = 80
"""Of a session's title."""


async def open_log(
    state_dir: str, session: str, *, create: bool, wall_us: Callable[[], int], network: bool | None = None
) -> "SessionLog":
    """Open the log of `session`, or make it with `create`. Everything slow happens in the log's writer thread.

    A new log is given back before its database exists: what is appended waits for it. `wall_us` gives microseconds
    UTC, also in the writer thread. `network` says what kind of file system it is; None finds out. Raises
    `SessionUnknown`, `SessionBusy`, `SessionReadOnly`, `StoreDamaged`, `StoreFull`, `SessionError`.
    """
    session, fresh = session_id(session), False
    if create:
        folder, fresh = make_session_folder(state_dir, session)
    else:
        folder = existing_folder(state_dir, session)
    try:
        lock = await take_lock(folder, wall_us)
    except OSError as error:
        raise store_failure(error, folder) from None
    log = SessionLog(state_dir, session, lock)
    network = on_network(folder) if network is None else network
    if fresh:
        log.start(wall_us, network)
        return log
    try:
        await log.load(wall_us, network)
        if create and log.entries:
            raise SessionError(f"there is already a session {session}; go on with `longrein -r {session}`")
    except BaseException:
        await log.close()
        raise
    return log


class SessionLog:
    """See `port.Log`; made by `open_log`."""

    def __init__(self, state_dir: str, session: str, lock: SessionLock) -> None:
        self.session = session
        self.entries: Sequence[Entry] = ()
        self.inbox: Sequence[Message] = ()
        self.notes: list[str] = []
        self.reader = Reader(state_dir, session)
        """Reads what is committed: entries by seq, blobs. For the loop's thread."""
        self.folder = self.reader.folder
        """Folder of the session."""
        self._lock = lock
        self._blobs = Blobs(self.folder)
        self._writer: Writer
        self._about = (0, "", "")
        self._listed = True  # whether the database holds `_about`
        self._last_message = 0
        self._collecting: set[str] = set()
        self._stopped: Future[None] | None = None

    def start(self, wall_us: Callable[[], int], network: bool) -> None:
        """Make the database of a new session, in the writer thread."""
        self._writer = Writer(
            self.folder, lambda: Database(self.folder, self._blobs, self.notes, network=network), wall_us
        )

    async def load(self, wall_us: Callable[[], int], network: bool) -> None:
        """Open the database that is there, in the writer thread, and say what is in it."""
        surveys: list[Survey] = []

        def open_database() -> Database:
            database, survey = open_sound(self.folder, self._blobs, self.notes, network=network)
            surveys.append(survey)
            return database

        self._writer = Writer(self.folder, open_database, wall_us)
        await asyncio.wrap_future(self._writer.opened)
        survey = surveys[0]
        self.entries = StoredEntries(self.reader, survey.rows, survey.size)
        self.inbox = [Message(number, body) for number, body in survey.inbox]
        self._about, self._last_message = survey.about, survey.last_message

    def append(self, entries: Sequence[Entry], *, flush: bool, take: Sequence[int] = ()) -> "Future[None]":
        """See `port.Log.append`."""
        write = Write(flush=flush)
        for entry in entries:
            body = encode_event(entry.event)
            write.rows.append((entry_key(ROOT, entry.seq), entry.at, SCHEMA_VERSION, crc32(body), body))
            if not self._about[2]:
                self._learn(entry)
        write.take = take
        if self._listed:
            return self._writer.write(write)
        write.about = (self.session, *self._about)
        future, about = self._writer.write(write), self._about
        future.add_done_callback(lambda written: self._mark_listed(written, about))
        return future

    def _learn(self, entry: Entry) -> None:
        """What lists show of the session comes from its first entries."""
        created, cwd, title = self._about
        match entry.event:
            case Opened():
                self._about = (entry.at, entry.event.cwd, title)
            case UserSpoke():
                self._about = (created, cwd, title_of(entry.event))
            case _:
                return
        self._listed = False

    def _mark_listed(self, written: "Future[None]", about: tuple[int, str, str]) -> None:
        # in the writer thread; a write that failed leaves it to the next
        if written.exception() is None and about == self._about:
            self._listed = True

    def put(self, body: bytes, *, flush: bool = True) -> "tuple[int, Future[None]]":
        """See `port.Log.put`."""
        self._last_message += 1
        write = Write(flush=flush)
        write.put = [(self._last_message, body)]
        return self._last_message, self._writer.write(write)

    async def collect(self) -> list[Message]:
        """See `port.Log.collect`."""
        names = [name for name in waiting_files(self.folder) if name not in self._collecting]
        if not names:
            return []
        self._collecting.update(names)
        try:
            return await self._take_in(names)
        finally:
            self._collecting.difference_update(names)

    async def _take_in(self, names: Sequence[str]) -> list[Message]:
        known = self.reader.collected(names)  # committed, but killed before its file was removed
        found = []
        write = Write(flush=True)
        for name in names:
            if name not in known:
                self._last_message += 1
                found.append(Message(self._last_message, read_message(self.folder, name)))
        write.put = [(message.id, message.body) for message in found]
        write.names = [name for name in names if name not in known]
        if found:
            await asyncio.wrap_future(self._writer.write(write))
        for name in names:
            remove_message(self.folder, name)
        return found

    def put_blob(self, data: bytes) -> str:
        """See `port.Log.put_blob`."""
        return self._blobs.put(data)

    def read_blob(self, blob: str) -> bytes:
        """See `port.Log.read_blob`."""
        waiting = self._blobs.waiting(blob)
        return self.reader.blob(blob) if waiting is None else waiting

    def blob_path(self, blob: str) -> str:
        """See `port.Log.blob_path`."""
        return self.reader.blob_path(blob)

    def new_blob(self) -> GrowingBlob:
        """See `port.Log.new_blob`."""
        # its flush begins at once in the writer thread; when that fails, the commit that names it tries again
        return GrowingBlob(self._blobs, lambda: self._writer.call(lambda _: self._blobs.flush_files()))

    async def close(self) -> None:
        """See `port.Log.close`."""
        if self._stopped is None:
            self.reader.close()  # SQLite folds the WAL in when the last connection goes, and only a writing one can
            self._stopped = self._writer.stop()
        try:
            await asyncio.wrap_future(self._stopped)
        finally:
            self._lock.release()
        closed = asyncio.wrap_future(self._writer.closed)
        await asyncio.wait([closed], timeout=CLOSE_WAIT_S)
        closed.cancel()  # else the thread would call a loop that may be gone


def title_of(event: UserSpoke) -> str:
    """First words of the user, on one line."""
    words = " ".join(text_of(event.parts)[: 4 * TITLE_CHARS_MAX].split())
    return words if len(words) <= TITLE_CHARS_MAX else words[: TITLE_CHARS_MAX - 1] + "…"
