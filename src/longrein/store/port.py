"""What the agent needs of a session's log on disk."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol

import msgspec

from longrein.events import Entry

LEASE_US = 15 * 60 * 1_000_000
"""How long a claim of a goal holds without a sign of life."""
USER = "user"
"""The owner of goals that may take and change what others have claimed."""


class Message(msgspec.Struct, frozen=True):
    """One message in the inbox, stored before it is acknowledged."""

    id: int
    """Rising within a session."""
    body: bytes
    """JSON; its meaning is the agent's."""


class Snapshot(msgspec.Struct, frozen=True):
    """The folded state of a session at one entry."""

    seq: int
    """The entry."""
    state: bytes | bytearray
    """Its form is the agent's."""


class SessionInfo(msgspec.Struct, frozen=True):
    """One line of `longrein sessions`."""

    session: str
    """UUID."""
    folder: str
    """Where it is stored."""
    created_at: int
    """Microseconds UTC."""
    updated_at: int
    """Microseconds UTC of the last entry."""
    cwd: str
    """Where it started."""
    title: str
    """First words of the user."""
    entries: int
    """Number of entries."""
    open: bool
    """Whether a process holds it now."""
    damaged: bool = False
    """Whether it could not be read; opening it sets the damaged database aside and keeps what is good."""


class SearchHit(msgspec.Struct, frozen=True):
    """One part of one entry that answers a query."""

    handle: str
    """What brings it whole."""
    seq: int
    """Its entry."""
    at: int
    """When it was written, microseconds UTC."""
    title: str
    """What it is, in words."""
    line: int
    """Line of the snippet, from 1."""
    count: int
    """How often the query occurs in it."""
    snippet: str
    """That line, cut where it is long."""
    exact: bool
    """Whether the query stands there as it was written; else its words do."""


class SearchResult(msgspec.Struct, frozen=True):
    """What came of a search."""

    hits: tuple[SearchHit, ...]
    """Newest first, but those where the query stands as it was written before all others."""
    more: bool = False
    """Whether there may be more than were asked for."""


class Log(Protocol):
    """The log of one session, opened for writing: the lock is held until `close`.

    Writes are queued for one writer thread and done in order; those that wait together become one commit. Each
    future resolves when its write is committed, and with `flush` when it is on disk. Methods may be called from
    the loop's thread only and never block it.
    """

    session: str
    """Id."""
    entries: Sequence[Entry]
    """What was there when it was opened, in order."""
    inbox: Sequence[Message]
    """Messages that were there and not yet taken, in order."""
    notes: list[str]
    """What was repaired at open; each a line for the user."""
    snapshot: Snapshot | None
    """The one that was kept last, where it still fits the log; None for a subagent."""
    was_cut: bool
    """Whether entries that came after these were lost, and none were written since: what seems not to have begun may
    have been done."""

    def append(
        self,
        entries: Sequence[Entry],
        *,
        flush: bool,
        take: Sequence[int] = (),
        beside: "Sequence[tuple[Log, Sequence[Entry], Sequence[int]]]" = (),
    ) -> "Future[None]":
        """Write `entries` and delete the inbox messages `take`, in one transaction.

        `beside`: (log, entries, messages to delete) of other sessions in this database, in the same transaction.

        Without `flush` a `kill -9` loses nothing; a power cut may until the next flushing commit or 20 ms later.
        The future fails with `StoreFull` or `StoreDamaged`; then nothing of the call was written.
        """
        ...

    def put(self, body: bytes, *, flush: bool = True) -> "tuple[int, Future[None]]":
        """Store an inbox message; gives its id at once: rising, and no other of a root and its subagents has it."""
        ...

    def child(self, session: str, shares: int = 0) -> "Log":
        """The log of subagent `session` in this database, made with its first write when it is not there.

        `shares`: how many of this log's entries are its own first ones, by reference (a fork); its own go on from
        there, the first being an `Opened` whose `parent.seq` is `shares`. Of one that is there `shares` is read from
        it, and `entries` and `inbox` are what is committed at the call. It has its own inbox (`collect` gives
        nothing: the folder is the root's), shares blobs, the writer and the lock, and is closed with this one; its own
        `close` waits until what it has queued is written.

        Raises `StoreDamaged` when it cannot be read to its end; the next open of the root mends it.
        """
        ...

    def keep_snapshot(self, snapshot: Snapshot) -> "Future[bool] | None":
        """Keep it for the next open, beside all else and without a flush: whether that was done.

        It is not where the log ends at another entry. None while the last one is being written, and for a subagent.
        """
        ...

    def history(self, first: int, last: int) -> Iterator[Entry]:
        """Committed entries from seq `first` to `last`, shared ones included, a few at a time in memory."""
        ...

    async def adopt(self, path: str) -> str:
        """Make the file at `path` a blob; gives its hash. '' for an empty file. Raises `OSError`, `StoreFull`.

        The file stays where it is (a hard link, where none can be made a copy): its owner removes it when an entry
        that names the blob is on disk, so that a crash in between loses nothing. Nobody writes to it any more. It is
        hashed beside the loop and the writer.
        """
        ...

    async def collect(self) -> "list[Message]":
        """Take in what other processes left in the session's `inbox/` folder (`leave_message`), oldest first.

        Each is stored and on disk before its file goes, so it is given once, also when killed in between. Costs one
        look into a folder when there is nothing. Raises `StoreFull`, `StoreDamaged`.
        """
        ...

    def put_blob(self, data: bytes) -> str:
        """Keep `data`; gives its hash (SHA-256, hex). On disk before or with the next commit that flushes.

        Up to 64 kB it goes into the database with the next commit, larger ones become a file.
        """
        ...

    def read_blob(self, blob: str) -> bytes:
        """Bytes of a blob; `KeyError` when there is none."""
        ...

    def blob_path(self, blob: str) -> str:
        """Path of a blob file for streaming, or '' when it lies in the database or does not exist."""
        ...

    def new_blob(self) -> "BlobWriter":
        """A blob to be written piece by piece (command output), without holding it in memory."""
        ...

    async def close(self) -> None:
        """Flush what is queued, release the lock. Idempotent."""
        ...


class BlobWriter(Protocol):
    """A growing blob in a temporary file of the session's folder. Used by one thread at a time."""

    @property
    def size_bytes(self) -> int:
        """Bytes so far."""
        ...

    @property
    def path(self) -> str:
        """The file, readable while it grows."""
        ...

    def write(self, data: bytes) -> None:
        """Append. Raises OSError (full disk)."""
        ...

    def pieces(self) -> Iterator[bytes]:
        """All that was written so far, in order. Raises OSError."""
        ...

    def finish(self) -> str:
        """Name it by its hash; it survives the next flushing commit that names it. Gives the hash.

        The data is flushed to disk by the writer thread before that commit, not here.
        """
        ...

    def discard(self) -> None:
        """Forget it."""
        ...
