"""Protocols and data types of the session log."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol

import msgspec

from longrein_context.events import Entry

LEASE_US = 15 * 60 * 1_000_000
"""Time in microseconds for which a claim of a goal holds without renewal."""
USER = "user"
"""Owner name of the user, who may change and take goals that others have claimed."""


class Message(msgspec.Struct, frozen=True):
    """An inbox message: its id, which rises within a session, and JSON that only the agent
    interprets.
    """

    id: int
    body: bytes


class Snapshot(msgspec.Struct, frozen=True):
    """The folded state of a session at entry `seq`, as the agent has encoded it."""

    seq: int
    state: bytes | bytearray
    original: str = ""
    """Id of the session of which it is the state: of a fork's original, up to the fork point."""


class SessionInfo(msgspec.Struct, frozen=True):
    """Summary of one stored session, as `longrein sessions` lists it. Times are microseconds
    UTC.
    """

    session: str
    folder: str
    created_at: int
    updated_at: int
    """Time of the last entry."""
    cwd: str
    title: str
    entries: int
    open: bool
    """True if a process has the session open."""
    damaged: bool = False
    """True if its database cannot be read. Opening the session sets the file aside and keeps the
    good entries.
    """
    one_shot: bool = False
    """True for a run of `longrein -p` that nobody has given a title or opened in the terminal."""


class SearchHit(msgspec.Struct, frozen=True):
    """A part of one entry that matches a query: `seq` and `at` (microseconds UTC) are those of
    the entry.
    """

    handle: str
    seq: int
    at: int
    title: str
    line: int
    """Line number of the snippet, from 1."""
    count: int
    """Number of matches in the part."""
    snippet: str
    """The matching line, shortened."""
    exact: bool
    """True for a match of the query as written, False for a match of its single words."""


class SearchResult(msgspec.Struct, frozen=True):
    """Hits of one search: exact matches first, then the others; each group newest first."""

    hits: tuple[SearchHit, ...]
    more: bool = False
    """True if more matches exist than the limit allowed."""


class Log(Protocol):
    """The log of one session, open for writing. The session is locked until `close`.

    One writer thread does all writes in order; writes that wait together become one commit. Each
    future resolves when its write is committed, and with `flush` when it is on disk. Call the
    methods from the event loop's thread only; none of them blocks it.
    """

    session: str
    """Session id."""
    entries: Sequence[Entry]
    """Entries that were stored when the log was opened, in order."""
    inbox: Sequence[Message]
    """Inbox messages that were stored when the log was opened and not taken yet, in order."""
    notes: list[str]
    """Repairs made at open, one line each for the user."""
    snapshot: Snapshot | None
    """The last snapshot, if it fits the log; always None for a subagent."""
    is_shared: bool
    """True if the log is in a store of which other machines read it."""
    was_cut: bool
    """True if the last entries were lost and none were written since. An act that the log does
    not show may have happened.
    """

    def append(
        self,
        entries: Sequence[Entry],
        *,
        flush: bool,
        take: Sequence[int] = (),
        beside: "Sequence[tuple[Log, Sequence[Entry], Sequence[int]]]" = (),
    ) -> "Future[None]":
        """Write `entries` and delete the inbox messages `take`, in one transaction.

        `beside`: (log, entries, messages to delete) of other sessions of this database, written in
        the same transaction.

        Without `flush`, `kill -9` loses nothing, and a power cut may lose the write until the next
        flushing commit or 20 ms later. The future fails with `StoreFull` or `StoreDamaged`; then
        nothing of this call was written.
        """

    def put(self, body: bytes, *, flush: bool = True) -> "tuple[int, Future[None]]":
        """Store an inbox message; return its id at once, with the future of the write.

        Ids rise, and are unique over a root session and its subagents.
        """

    def child(self, session: str, shares: int = 0) -> "Log":
        """Open the log of subagent `session` in this database; its first write creates it.

        `shares`: number of entries of this log with which a new, forked subagent begins, by
        reference. Its own first entry is an `Opened` whose `parent.seq` is `shares`. For a stored
        subagent the number is read from the database.

        `entries` and `inbox` hold what is committed at the call. The subagent has its own inbox
        (`collect` returns nothing, because the folder belongs to the root), and shares blobs,
        writer and lock. Closing this log closes it too; its own `close` waits for its queued
        writes.

        Raises `StoreDamaged` when the subagent's log cannot be read to its end; the next open of
        the root repairs it.
        """

    def keep_snapshot(self, snapshot: Snapshot) -> "Future[bool] | None":
        """Write the snapshot for the next open, in a thread and without a flush.

        Returns a future that says whether it was written: it is not when the log ends at another
        entry. Returns None for a subagent and while another snapshot is being written.
        """

    def snapshot_before(self, seq: int) -> Snapshot | None:
        """Return the newest stored snapshot of entry `seq` or before, if it fits the log; always
        None for a subagent.
        """

    def of_kind(self, *kinds: str, after: int = 0) -> Iterator[Entry]:
        """Iterate committed entries behind seq `after` whose events have these stored types,
        newest first.
        """

    def history(self, first: int, last: int) -> Iterator[Entry]:
        """Iterate committed entries from seq `first` to `last`, shared ones included, in small
        batches.
        """

    async def adopt(self, path: str) -> str:
        """Make the file at `path` a blob; return its hash, '' for an empty file.

        Raises `OSError`, `StoreFull`.

        Nobody may write to the file any more. The file stays: it is linked, or copied where links
        are not possible. Its owner removes it once an entry that names the blob is on disk, so a
        crash in between loses nothing. A thread of its own does the hashing.
        """

    async def collect(self) -> "list[Message]":
        """Take in messages that other processes left with `leave_message`, oldest first.

        Each message is on disk in the database before its file is removed, so each is returned
        once, also after a kill. An empty inbox folder costs one listing. Raises `StoreFull`,
        `StoreDamaged`.
        """

    def put_blob(self, data: bytes) -> str:
        """Keep `data` as a blob; return its hash (SHA-256, hex).

        It is on disk no later than the next commit that flushes. Up to 64 kB go into the database
        with the next commit, larger data becomes a file.
        """

    def read_blob(self, blob: str) -> bytes:
        """Return the bytes of a blob. Raises `KeyError` when it does not exist."""

    def blob_path(self, blob: str) -> str:
        """Return the path of a blob's file; '' when it lies in the database or does not exist."""

    def new_blob(self) -> "BlobWriter":
        """Start a blob that is written piece by piece, such as the output of a command."""

    async def close(self) -> None:
        """Flush queued writes and release the lock. Idempotent."""


class BlobWriter(Protocol):
    """A growing blob in a temporary file of the session's folder. For one thread at a time."""

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""

    @property
    def path(self) -> str:
        """Path of the file, readable while it grows."""

    def write(self, data: bytes) -> None:
        """Append `data`. Raises OSError, such as for a full disk."""

    def pieces(self) -> Iterator[bytes]:
        """Iterate everything written so far, in order. Raises OSError."""

    def finish(self) -> str:
        """Complete the blob; return its hash.

        The writer thread flushes the data before the next commit that flushes, which must name the
        blob to keep it.
        """

    def discard(self) -> None:
        """Drop the blob."""
