"""`TornDisk`: the real store in virtual time, on files that a crash can tear.

The database is real SQLite. Its writer thread is a callback of the simulated loop, and each flush
is noted instead of done. A power cut keeps what was flushed: of every other write any sector may be
missing, and names that were not flushed may be gone. The `MemoryDisk` that it extends is the model:
after each crash the files must hold the first writes of the model, at least those that count.
"""

import asyncio
import errno
import os
import shutil
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from longrein.store import Message, Reader, SessionLog, leave_message, open_log
from longrein.store.database import ROOT, Database, entry_seq, key_number
from longrein.store.database import Write as StoreWrite
from longrein.store.session_folder import DATABASE, LOCK, MARK_FILE
from longrein.store.writer import FLUSH_AFTER_S, Writer
from longrein.testing import store as model
from longrein_context.events import Entry, Opened
from longrein_context.events.codec import decode_event

T = TypeVar("T")
SECTOR_BYTES = 512
HEAD_BYTES = 32
"""Start of a file that tells whether it was begun anew, as SQLite's write-ahead log is."""
CHECK_AFTER_S = 2.0
SHARED_MEMORY = "-shm"


class Broken(BaseException):
    """A law did not hold. Not an AssertionError, because the session catches those of tools."""


def hold(law: str, fine: object, what: object = "") -> None:
    if not fine:
        raise Broken(f"{law}: {what}")


def close_logs_below(folder: str) -> None:
    """Close the write-ahead logs below a folder that this process still has open."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{name}")
            if path.startswith(f"{folder}/") and path.endswith("-wal"):
                os.close(int(name))


class VirtualWriter(Writer):
    """The store's writer; jobs run as callbacks of the loop, after the delay of the disk."""

    def __init__(self, disk: "TornDisk", folder: str, *rest: Any) -> None:
        self.disk = disk
        disk.writer = self
        self.database: Database | None = None
        self.is_dead = False
        """True after a kill: nothing happens any more."""
        self._is_planned = False
        super().__init__(folder, *rest)
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(disk.delay_s(), self._open, rest[0])

    def write(self, write: StoreWrite) -> "Future[None]":
        """See `Writer.write`; the model gets the write too."""
        if self.is_dead:
            return Future()
        future = super().write(write)
        self.disk.queue(write, future)
        self._plan()
        return future

    def call(self, work: Callable[[Any], Any]) -> "Future[Any]":
        """See `Writer.call`."""
        future = super().call(work)
        self._plan()
        return future

    def stop(self) -> "Future[None]":
        """See `Writer.stop`."""
        future = super().stop()
        self._plan()
        return future

    def _open(self, open_database: Callable[[], Database]) -> None:
        if self.is_dead:
            return
        self.database = database = open_database()
        commit = database.commit

        def commit_with_room(writes: Any) -> None:
            if self.disk.full:
                raise OSError(errno.ENOSPC, "No space left on device", self._folder)
            commit(writes)

        database.commit = commit_with_room  # type: ignore[method-assign]
        self.opened.set_result(database)
        self._plan()

    def _plan(self) -> None:
        if self.database is not None and not self._is_planned and not self._jobs.empty():
            self._is_planned = True
            self._loop.call_later(self.disk.delay_s(), self.step)

    def step(self) -> None:
        """Do all queued jobs."""
        self._is_planned = False
        if self.is_dead or self.database is None or self.closed.done():
            return
        try:
            self._serve(self.database)
        except _NothingQueued:
            if self.database.has_idle_work:
                self._loop.call_later(FLUSH_AFTER_S, self._idle)
            return
        self.database.close()
        self.closed.set_result(None)
        self.disk.release()

    def _wait(self, database: Database, ready: deque[Any]) -> None:
        if self._jobs.empty():
            raise _NothingQueued
        while not self._jobs.empty():
            ready.append(self._jobs.get())

    def _idle(self) -> None:
        """Flush and checkpoint, as the thread does when no job comes."""
        if self.is_dead or self.database is None or self.closed.done() or not self._jobs.empty():
            return
        if self.database.unflushed and not self._fatal:
            self._sync(self.database)
        self.database.checkpoint(idle=True)

    def commit_queued(self, count: int) -> None:
        """Commit the first queued writes without a flush and without telling anybody, as a
        process does that is killed in between.
        """
        writes = []
        while len(writes) < count and not self._jobs.empty():
            job, _ = self._jobs.get()
            if not isinstance(job, StoreWrite) or self.database is None or self.closed.done():
                break
            if self._order_error(self.database, job) is None:
                writes.append(job)
        if writes and self.database is not None:
            try:
                self.database.make_durable()
                self.database.commit(writes)
            except (OSError, sqlite3.Error):  # the disk is full, or a write before it has failed
                return


class _NothingQueued(Exception):
    """The writer has done all jobs."""


class _NoThread:
    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        """Do nothing: the loop runs the writer."""


class TornDisk(model.MemoryDisk):
    """Storage of one session in real files; `model.MemoryDisk` says what must be in them."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.log: SessionLog | None = None
        """The open log of this life."""
        self.crashes = 0
        self.torn = 0
        """Files that a power cut has torn."""
        self.acknowledged = asyncio.Event()
        """Set with each write that is acknowledged."""
        self.folder = TemporaryDirectory(prefix="longrein-disk-", ignore_cleanup_errors=True)
        self.state = Path(self.folder.name) / "0"
        self.state.mkdir()
        self.writer: VirtualWriter | None = None
        self._sessions: dict[int, str] = {}
        self._flushed_files: dict[int, tuple[int, bytes]] = {}
        """Inode -> (size, start) at the last flush."""
        self._flushed_names: dict[str, dict[str, int]] = {}
        """Folder -> (name -> inode) at the last flush."""
        self._wall_us: Callable[[], int] = lambda: 0

    def delay_s(self) -> float:
        """Return the seconds that the next job takes."""
        return self.delay() if self.delay is not None else 0.0

    def close(self) -> None:
        """Remove the files."""
        self._abandon()
        self.folder.cleanup()

    # --- The store in virtual time ----------------------------------------------------------------

    @contextmanager
    def in_virtual_time(self) -> Iterator[None]:
        """Let the store run on the simulated loop while the block runs."""
        disk = self

        class TornLog(SessionLog):
            def abandon(self) -> None:
                """Let go of the files as the death of the process does."""
                self.reader.close()
                self._shared.lock.release()

            async def adopt(self, path: str) -> str:
                """Adopt also files of the memory supervision."""
                if path not in disk.spool:
                    return await super().adopt(path)
                spooled = Path(disk.folder.name) / "spooled"
                spooled.unlink(missing_ok=True)
                spooled.write_bytes(disk.spool[path])
                return await super().adopt(str(spooled))

        changes = {
            "longrein.store.log.Writer": lambda *given: VirtualWriter(disk, *given),
            "longrein.store.log.SessionLog": TornLog,
            "longrein.store.log.run_in_thread": self._run_later,
            "longrein.store.log.CHECK_AFTER_S": 0.0,
            "longrein.store.writer.threading": SimpleNamespace(Thread=_NoThread),
            "os.fsync": self._note_flush,
            "os.fdatasync": self._note_flush,
        }
        applied = [patch(name, new) for name, new in changes.items()]
        for one in applied:
            one.start()
        try:
            yield
        finally:
            for one in applied:
                one.stop()

    def _run_later(self, work: Callable[[], T], name: str) -> "Future[T]":
        future: Future[T] = Future()
        writer = self.writer

        def run() -> None:
            if writer is None or writer.is_dead or not future.set_running_or_notify_cancel():
                return
            writer.step()  # a snapshot waits for it
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        delay_s = CHECK_AFTER_S if name == "check" else self.delay_s()
        asyncio.get_running_loop().call_later(delay_s, run)
        return future

    def _note_flush(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            self._flushed_names[path] = {one.name: one.inode() for one in os.scandir(path)}
        else:
            self._flushed_files[status.st_ino] = (status.st_size, _head(path))

    # --- What a session and a simulation ask of a disk --------------------------------------------

    async def begin(self, wall_us: Callable[[], int]) -> None:
        """Open the files for the next life, unless a crash has done it; then `open` returns the
        log.
        """
        self._wall_us = wall_us
        if self.log is None:
            await self._load(self.committed)

    async def _load(self, least: int) -> None:
        """Open the files, which must hold at least the first `least` writes."""
        create = not (self.state / "sessions").exists()
        self.log = await open_log(
            str(self.state), self.session, create=create, wall_us=self._wall_us, network=False
        )
        self._check_read_back(self.log, least)

    def open(self) -> Any:
        """See `MemoryDisk.open`; `begin` must have been awaited."""
        return self.log

    def release(self) -> None:
        """See `MemoryDisk.release`."""
        self.log = None

    def kill(self) -> None:
        """See `MemoryDisk.kill`."""
        if self.writer is not None:
            self.writer.is_dead = True

    def leave(self, body: bytes) -> None:
        """Leave a message for the session as another process does."""
        if (self.state / "sessions" / self.session).exists():
            leave_message(str(self.state), self.session, body)

    def blobs(self) -> Any:
        """Return a container of the blobs that can be read."""
        return _StoredBlobs(str(self.state), self.session)

    def history(self, first: int, last: int) -> list[Entry]:
        """Committed entries, as an open log reads them from its files."""
        if self.log is None:
            return super().history(first, last)
        return list(self.log.history(first, last))

    # --- The model --------------------------------------------------------------------------------

    def queue(self, write: StoreWrite, future: "Future[None]") -> None:
        """Add a queued write to the model; it is committed once `future` says so."""
        for number, session, *_ in write.about:
            self._sessions[number] = session
        entries: dict[str, tuple[Entry, ...]] = {}
        for key, at, version, _, body in write.rows:
            session = self._sessions[key_number(key)]
            event = decode_event(body, version)
            if isinstance(event, Opened) and event.parent is not None and event.parent.seq:
                above = event.parent.session
                self.shares[session] = ("" if above == self.session else above, event.parent.seq)
            entries[session] = (*entries.get(session, ()), Entry(entry_seq(key), at, event))
        owner = next((number for _, _, number in write.put), ROOT)
        modelled = model.MemoryWrite(
            entries.pop(self.session, ()),
            entries,
            "" if owner == ROOT else self._sessions[owner],
            tuple(Message(message, body) for message, body, _ in write.put),
            tuple(write.take),
            flush=write.flush,
        )
        self.writes.append(modelled)
        future.add_done_callback(lambda done: self._settle(modelled, done))

    def _settle(self, write: model.MemoryWrite, done: "Future[None]") -> None:
        if done.exception() is None:
            hold("writes are acknowledged in order", self.writes[self.committed] is write, write)
            self.commit()
            self.acknowledged.set()
        else:
            self.writes = [one for one in self.writes if one is not write]

    # --- Crashes ----------------------------------------------------------------------------------

    async def crash(self, *, power: bool) -> None:
        """End the process, or cut the power; check what the files hold afterwards."""
        least = self.flushed if power else self.committed
        writer = self.writer
        self.kill()
        if writer is not None and self.random.random() < 0.6:
            writer.commit_queued(self.random.randrange(1, 4))
        self.crashes += 1
        after = Path(self.folder.name) / str(self.crashes)
        self._copy(self.state, after, power=power)
        self._abandon()
        shutil.rmtree(self.state)
        self.state = after
        self._flushed_files, self._flushed_names = {}, {}
        self._note_all()
        if not (after / "sessions" / self.session / DATABASE).exists():
            hold("law 7: what counts is on disk", not least, f"{least} writes, and no database")
            shutil.rmtree(after)
            after.mkdir()
            self._cut_model(0)
            return
        await self._load(least)

    def _abandon(self) -> None:
        """Let go of the files of a killed process."""
        log, self.log = self.log, None
        writer, self.writer = self.writer, None
        if log is not None:
            log.abandon()
        if writer is not None and writer.database is not None and not writer.closed.done():
            writer.database.connection.close()
            close_logs_below(str(self.state))

    def _copy(self, source: Path, target: Path, *, power: bool) -> None:
        """Copy what a crash leaves."""
        target.mkdir()
        names = self._flushed_names.get(str(source), {})
        for one in sorted(os.scandir(source), key=lambda one: one.name):
            if one.name.endswith(SHARED_MEMORY):
                continue
            named = names.get(one.name) == one.inode() or one.name == LOCK
            if power and not named and self.random.random() < 0.5:
                continue
            if one.is_dir():
                self._copy(Path(one.path), target / one.name, power=power)
            elif power:
                (target / one.name).write_bytes(self._after_power_cut(Path(one.path)))
            else:
                shutil.copyfile(one.path, target / one.name)

    def _after_power_cut(self, path: Path) -> bytes:
        data = path.read_bytes()
        if path.name == DATABASE and len(data) > 4096:
            return data  # SQLite flushes it whenever it changes it
        if path.name == MARK_FILE:
            return self.random.choice([data, data[:0]])
        size, head = self._flushed_files.get(path.stat().st_ino, (0, b""))
        size = size if data[:HEAD_BYTES] == head else 0
        luck = self.random.random()
        if luck < 0.3 or size >= len(data):
            return data[:size]
        self.torn += 1
        torn = bytearray(data)
        for at in range(size, len(data), SECTOR_BYTES):
            if luck < 0.8 and self.random.random() < 0.3:
                torn[at : at + SECTOR_BYTES] = bytes(len(torn[at : at + SECTOR_BYTES]))
        return bytes(torn[: self.random.randrange(size, len(data) + 1)])

    def _note_all(self) -> None:
        """Note that all that a crash has left is on disk."""
        for at, _, _ in os.walk(self.state):
            self._flushed_names[at] = {one.name: one.inode() for one in os.scandir(at)}
            for one in os.scandir(at):
                if one.is_file():
                    self._flushed_files[one.inode()] = (one.stat().st_size, _head(one.path))

    def _check_read_back(self, log: SessionLog, least: int) -> None:
        """Compare the opened files with the model, and cut the model to what they hold."""
        reader = log.reader
        found: Counter[str] = Counter({self.session: len(log.entries)})
        logs = {"": list(log.entries)}
        for session in self._sessions.values():
            number = reader.number_of(session)
            if number in (0, ROOT):
                continue
            own = reader.session_reader(number)
            logs[session] = list(own.entries())
            found[session] = len(logs[session]) - own.first + 1
        messages = reader.source.all("SELECT id FROM inbox")
        waiting = frozenset(message for (message,) in messages)
        kept = self._writes_with(found, waiting)
        hold("a crash leaves whole transactions, the first ones", kept >= 0, found)
        hold("law 7: what counts is on disk", kept >= least, f"{kept} of {least} writes")
        self._cut_model(kept)
        for session, entries in logs.items():
            same = entries == self.entries(session)
            hold("what is read is what was written", same, session)
        hold("nothing is told as lost or damaged", not log.was_cut and not log.notes, log.notes)

    def _writes_with(self, found: Counter[str], waiting: frozenset[int]) -> int:
        """Return the largest number of first writes that give these numbers of entries and these
        messages; -1 when none does.
        """
        counts: Counter[str] = Counter()
        messages: set[int] = set()
        fitting = 0 if not +found and not waiting else -1
        for number, write in enumerate(self.writes, 1):
            counts[self.session] += len(write.entries)
            counts.update({session: len(entries) for session, entries in write.below.items()})
            messages |= {message.id for message in write.put}
            messages -= set(write.take)
            if +counts == +found and messages == waiting:
                fitting = number
        return fitting

    def _cut_model(self, writes: int) -> None:
        writer, self.writer = self.writer, None
        self.reopen(writes=writes)
        self.writer = writer


class _StoredBlobs:
    """The blobs of the files; each is read and checked when it is looked for."""

    def __init__(self, state: str, session: str) -> None:
        self._state, self._session = state, session
        self._known: dict[str, bool] = {}

    def __contains__(self, blob: object) -> bool:
        return self._known.setdefault(str(blob), self._is_stored(str(blob)))

    def _is_stored(self, blob: str) -> bool:
        reader = Reader(self._state, self._session)
        try:
            reader.blob(blob)
        except KeyError:
            return False
        finally:
            reader.close()
        return True


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(HEAD_BYTES)
