"""`MemoryDisk` and `MemoryLog`: a session's log in memory, as transactions, which can be cut after
any of them.

A disk outlives its logs. After a simulated kill (`disk.reopen`) committed transactions are there,
queued ones may be, and no transaction is there in part.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from hashlib import sha256
from typing import TypeVar

import msgspec

from longrein.store import HistoryReader, Log, Message, SearchResult, SessionHistory, Snapshot, scan
from longrein_context.events import Entry, SessionBusy, SessionError, StoreFull, kind_of

T = TypeVar("T")
SESSION = "00000000-0000-4000-8000-00000000beef"
"""Default session id."""


class MemoryWrite(msgspec.Struct):
    """A transaction."""

    entries: tuple[Entry, ...] = ()
    below: dict[str, tuple[Entry, ...]] = {}
    """Entries of subagents, by session."""
    owner: str = ""
    """Session whose inbox gets the messages; '' for the root."""
    put: tuple[Message, ...] = ()
    """Messages added to the inbox."""
    take: tuple[int, ...] = ()
    """Ids of messages removed from the inbox."""
    blobs: dict[str, bytes] = {}
    """New blobs by hash."""
    flush: bool = False
    """True if this and all earlier transactions survive a power cut."""


class MemoryDisk:
    """Storage of one session. Transactions are committed in the order in which they were queued."""

    def __init__(self, session: str = SESSION) -> None:
        self.session = session
        self.writes: list[MemoryWrite] = []
        """Committed transactions, then queued ones."""
        self.committed = 0
        """Number of committed transactions, which survive `kill -9`."""
        self.flushed = 0
        """Number of transactions that survive a power cut."""
        self.full = False
        """If set, every write fails with `StoreFull`."""
        self.left: list[bytes] = []
        """Messages that other processes left for the session (`leave_message`)."""
        self.delay: Callable[[], float] | None = None
        """Seconds of loop time that each commit takes; None: until the loop's next round."""
        self.shares: dict[str, tuple[str, int]] = {}
        """Forked subagent -> (session whose first entries it shares, number of shared entries)."""
        self.spool: dict[str, bytes] = {}
        """Files without a real folder, by path; `adopt` looks here first."""
        self.snapshot: tuple[Snapshot, Entry] | None = None
        """Last kept snapshot, and the entry it was made at."""
        self.was_cut = False
        """Value of `MemoryLog.was_cut` at the next open."""
        self._log: MemoryLog | None = None
        self._entries: dict[str, list[Entry]] = {}

    def open(self) -> "MemoryLog":
        """Open the session for writing. Raises `SessionBusy` while another log of this disk is
        open.
        """
        if self._log is not None:
            raise SessionBusy(f"session {self.session} is open in another process; close that one")
        del self.writes[self.committed :]
        self._log = MemoryLog(self)
        return self._log

    def reopen(
        self, upto: int | None = None, *, writes: int | None = None, whole: bool = True
    ) -> "MemoryLog":
        """Kill the writing process and open the disk again.

        By default the committed transactions are kept and the queued ones lost. `writes`: keep so
        many transactions. `upto`: keep entries up to that seq; a transaction across that seq is
        lost, or with `whole=False` kept up to it (which no real disk does).
        """
        if upto is not None:
            self._cut_after_entry(upto, whole=whole)
        else:
            del self.writes[self.committed if writes is None else writes :]
        self.kill()
        self.committed = self.flushed = len(self.writes)
        self._entries = {}
        for write in self.writes:
            self._keep(write)
        self.shares = {
            session: shared for session, shared in self.shares.items() if session in self._entries
        }
        return self.open()

    def kill(self) -> None:
        """End the writing process: later writes have no effect, and its futures never finish."""
        if self._log is not None:
            self._log.dead = True
        self._log = None

    def release(self) -> None:
        """Note that the log was closed."""
        self._log = None

    def _cut_after_entry(self, seq: int, *, whole: bool) -> None:
        for at, write in enumerate(self.writes):
            if write.entries and write.entries[-1].seq > seq:
                kept = tuple(entry for entry in write.entries if entry.seq <= seq)
                first_part = (
                    []
                    if whole or not kept
                    else [msgspec.structs.replace(write, entries=kept, below={})]
                )
                self.writes[at:] = first_part
                return

    def entries(self, session: str = "") -> list[Entry]:
        """Committed entries of the root or of a subagent, shared entries included."""
        above, shares = self.shares.get(session, ("", 0))
        shared = self.entries(above)[:shares] if shares else []
        return [*shared, *self._entries.get(session or self.session, ())]

    def history(self, first: int, last: int) -> list[Entry]:
        """Committed entries from seq `first` to seq `last`."""
        return self._entries.get(self.session, [])[max(first - 1, 0) : max(last, 0)]

    def children(self) -> list[str]:
        """Subagents with entries, in the order of their start."""
        return [session for session in self._entries if session != self.session]

    def _keep(self, write: MemoryWrite) -> None:
        for session, entries in {self.session: write.entries, **write.below}.items():
            if entries:
                self._entries.setdefault(session, []).extend(entries)

    def commit(self) -> MemoryWrite:
        """Commit the oldest queued transaction."""
        write = self.writes[self.committed]
        self.committed += 1
        self._keep(write)
        if write.flush:
            self.flushed = self.committed
        return write

    def inbox(self, writes: int | None = None, *, session: str = "") -> list[Message]:
        """Messages in the inbox after the committed transactions, or after the first `writes`."""
        waiting: dict[int, Message] = {}
        for write in self.writes[: self.committed if writes is None else writes]:
            if write.owner == session:
                waiting.update((message.id, message) for message in write.put)
            for number in write.take:
                waiting.pop(number, None)
        return [waiting[number] for number in sorted(waiting)]

    def blobs(self) -> dict[str, bytes]:
        """Return committed blobs by hash."""
        return {
            name: data
            for write in self.writes[: self.committed]
            for name, data in write.blobs.items()
        }

    def last_message(self) -> int:
        """Largest message id so far."""
        return max((message.id for write in self.writes for message in write.put), default=0)


class MemoryLog:
    """A `store.Log` on a `MemoryDisk`, made by `MemoryDisk.open`. Needs a running loop to commit.

    The log of a subagent, made by `child`, writes through the root's log.
    """

    is_shared = False

    def __init__(
        self, disk: MemoryDisk, session: str = "", root: "MemoryLog | None" = None
    ) -> None:
        self.disk = disk
        self.session = session or disk.session
        self.entries: Sequence[Entry] = disk.entries(session)
        self.inbox: Sequence[Message] = disk.inbox(session=session)
        self.notes: list[str] = []
        self.snapshot = None if session else self._fitting()
        self.was_cut = disk.was_cut
        self.root = root or self
        self.dead = False
        """True if the process was killed."""
        self.closed = False
        """True if `close` was called."""
        self._last_seq = len(self.entries)
        if not self.entries and session in disk.shares:
            self._last_seq = disk.shares[session][1]
        self._last_message = disk.last_message()
        self._blobs = disk.blobs()
        self._fresh: dict[str, bytes] = {}
        self._queue: deque[Future[None]] = deque()
        self._idle: list[asyncio.Future[None]] = []

    def _fitting(self) -> Snapshot | None:
        kept, entry = self.disk.snapshot or (Snapshot(0, b""), None)
        fits = 0 < kept.seq <= len(self.entries) and self.entries[kept.seq - 1] is entry
        return kept if fits else None

    def keep_snapshot(self, snapshot: Snapshot) -> "Future[bool] | None":
        if self.root is not self or self.dead:
            return None
        entries, done = self.disk.entries(), Future[bool]()
        done.set_result(len(entries) == snapshot.seq)
        if done.result():
            self.disk.snapshot = snapshot, entries[-1]
        return done

    def append(
        self,
        entries: Sequence[Entry],
        *,
        flush: bool,
        take: Sequence[int] = (),
        beside: "Sequence[tuple[Log, Sequence[Entry], Sequence[int]]]" = (),
    ) -> "Future[None]":
        written: list[tuple[MemoryLog, Sequence[Entry]]] = [(self, entries)]
        for log, more, taken in beside:
            if not isinstance(log, MemoryLog) or log.root is not self.root:
                raise ValueError(f"session {log.session} is not on the disk of {self.session}")
            written.append((log, more))
            take = (*take, *taken)
        for log, more in written:
            for seq, entry in enumerate(more, log._last_seq + 1):
                if entry.seq != seq:
                    return _failed(
                        SessionError(f"entry {entry.seq} was refused: the log ends at {seq - 1}")
                    )
        root = self.root
        own = tuple(entry for log, more in written if log is root for entry in more)
        below: dict[str, tuple[Entry, ...]] = {}
        for log, more in written:
            if log is not root:
                below[log.session] = (*below.get(log.session, ()), *more)
        blobs, root._fresh = root._fresh, {}
        future = root._write(MemoryWrite(own, below, take=tuple(take), blobs=blobs, flush=flush))
        if future.done() and future.exception() is not None:
            root._fresh = {**blobs, **root._fresh}
        else:
            for log, more in written:
                log._last_seq += len(more)
        return future

    def child(self, session: str, shares: int = 0) -> "MemoryLog":
        if shares and session not in self.disk.children():
            self.disk.shares[session] = ("" if self.root is self else self.session, shares)
        return MemoryLog(self.disk, session, self.root)

    def snapshot_before(self, seq: int) -> Snapshot | None:
        kept = self.disk.snapshot[0] if self.disk.snapshot and self.root is self else None
        return kept if kept is not None and kept.seq <= seq else None

    def of_kind(self, *kinds: str, after: int = 0) -> Iterator[Entry]:
        entries = self.disk.entries("" if self.root is self else self.session)
        found = (entry for entry in entries if entry.seq > after and kind_of(entry.event) in kinds)
        return reversed([*found])

    def history(self, first: int, last: int) -> Iterator[Entry]:
        entries = self.disk.entries("" if self.root is self else self.session)
        return iter(entries[max(first - 1, 0) : max(last, 0)])

    async def adopt(self, path: str) -> str:
        if path in self.disk.spool:
            data = self.disk.spool[path]
        else:
            with open(path, "rb") as file:
                data = file.read()
        return self.put_blob(data) if data else ""

    def put(self, body: bytes, *, flush: bool = True) -> "tuple[int, Future[None]]":
        root, owner = self.root, "" if self.root is self else self.session
        root._last_message += 1
        message = Message(root._last_message, body)
        return message.id, root._write(MemoryWrite(owner=owner, put=(message,), flush=flush))

    async def collect(self) -> list[Message]:
        if self.root is not self or self.dead or not self.disk.left:
            return []
        bodies, self.disk.left = self.disk.left, []
        stored = [(self.put(body), body) for body in bodies]
        for (_, written), _ in stored:
            await asyncio.wrap_future(written)
        return [Message(number, body) for (number, _), body in stored]

    def _write(self, write: MemoryWrite) -> "Future[None]":
        if self.disk.full:
            return _failed(
                StoreFull(
                    "no room is left for the session; free some, then go on with `longrein -c`"
                )
            )
        future = _future()
        if self.dead or self.closed:
            return future  # the process is gone: the future never finishes
        self.disk.writes.append(write)
        self._queue.append(future)
        if len(self._queue) == 1:
            self._begin()
        return future

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self.disk.delay is None:
            loop.call_soon(self._commit)
        else:
            loop.call_later(self.disk.delay(), self._commit)

    def _commit(self) -> None:
        """Commit the oldest queued transaction and finish its future."""
        if self.dead:
            return
        write = self.disk.commit()
        self._blobs.update(write.blobs)
        future = self._queue.popleft()
        if self._queue:
            self._begin()
        future.set_result(None)
        if not self._queue:
            self._wake()

    def _wake(self) -> None:
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
        self._idle.clear()

    # --- blobs ------------------------------------------------------------------------------------

    def put_blob(self, data: bytes) -> str:
        name = sha256(data).hexdigest()
        if name not in self.root._blobs:
            self.root._fresh[name] = data
        return name

    def read_blob(self, blob: str) -> bytes:
        root = self.root
        return root._fresh[blob] if blob in root._fresh else root._blobs[blob]

    def blob_path(self, blob: str) -> str:  # noqa: ARG002 - the port's signature
        """See `store.Log.blob_path`: no blob of a memory disk is a file."""
        return ""

    def new_blob(self) -> "MemoryBlob":
        return MemoryBlob(self.put_blob)

    async def close(self) -> None:
        if self.closed or self.dead:
            return
        if self.root is not self:
            self.closed = True
            return
        while self._queue:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter
        self.closed = True
        self.disk.release()


class MemoryBlob:
    """A `store.BlobWriter` in memory."""

    def __init__(self, keep: Callable[[bytes], str]) -> None:
        self.size_bytes = 0
        self._data = bytearray()
        self._keep = keep

    @property
    def path(self) -> str:
        """See `store.BlobWriter.path`: there is no file."""
        return ""

    def write(self, data: bytes) -> None:
        self._data += data
        self.size_bytes += len(data)

    def pieces(self) -> Iterator[bytes]:
        yield bytes(self._data)

    def finish(self) -> str:
        return self._keep(bytes(self._data))

    def discard(self) -> None:
        self._data.clear()


# --- History --------------------------------------------------------------------------------------


class MemoryHistory(SessionHistory):
    """History of a session in memory. Each method scans the entries, so it suits short logs only.
    Other logs are not available.
    """

    def __init__(self, entries: Sequence[Entry], read_blob: Callable[[str], bytes]) -> None:
        self._all = entries
        self._read_blob = read_blob

    def tail(self) -> tuple[int, int]:
        return (self._all[-1].seq, self._all[-1].at) if self._all else (0, 0)

    def entry(self, seq: int) -> Entry | None:
        return next((entry for entry in self._all if entry.seq == seq), None)

    def entries(self, after: int = 0, to: int = 0) -> Iterator[Entry]:
        return (entry for entry in self._all if after < entry.seq <= (to or entry.seq))

    def of_kind(self, *kinds: str, after: int = 0) -> Iterator[Entry]:
        found = [entry for entry in self.entries(after) if kind_of(entry.event) in kinds]
        return reversed(found)

    def seq_at(self, at: int) -> int:
        return next((entry.seq for entry in reversed(self._all) if entry.at <= at), 0)

    def seq_ago(self, ago_us: int, now_us: int) -> int:
        newer, left = now_us, ago_us
        for entry in reversed(self._all):
            left, newer = left - max(0, newer - entry.at), entry.at
            if left <= 0:
                return entry.seq
        return 0

    def pieces(self, blob: str) -> Iterator[bytes]:
        """See `SessionHistory.pieces`: in one piece."""
        yield self._read_blob(blob)

    def search(self, query: str, limit: int, before: int = 0, *, own: bool = False) -> SearchResult:  # noqa: ARG002 - it shares nothing
        """See `SessionHistory.search`: reads every entry."""
        return scan(self, query, limit, before)

    def child(self, session: str) -> SessionHistory | None:  # noqa: ARG002 - the base's signature
        return None

    def parent(self) -> SessionHistory | None:
        return None


class MemoryArchive(HistoryReader):
    """Reads the history of a session in memory, at once."""

    def __init__(
        self,
        entries: Callable[[str], Sequence[Entry]],
        read_blob: Callable[[str], bytes],
        session: str = "",
    ) -> None:
        """`entries`: function from a subagent, or '' for the session, to its log."""
        self._entries = entries
        self._read_blob = read_blob
        self._subagent = session

    async def reading(self, work: Callable[[SessionHistory], T]) -> T:
        return work(MemoryHistory(self._entries(self._subagent), self._read_blob))

    def child(self, session: str) -> HistoryReader:
        return MemoryArchive(self._entries, self._read_blob, session)


def _future() -> "Future[None]":
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def _failed(error: SessionError) -> "Future[None]":
    future = _future()
    future.set_exception(error)
    return future
