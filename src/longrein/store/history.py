"""Read-only access to the history of one session, of its subagents and of the session it was forked from.

Needs no lock and works while another process writes. `SessionHistory` reads in the calling thread. `HistoryReader`
runs the reading in a thread with a connection of its own, because a long log takes time.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

from longrein.events import Entry, Opened, SessionUnknown
from longrein.store.database import ROOT
from longrein.store.port import SearchResult
from longrein.store.reader import Reader
from longrein.store.search import search, search_tree
from longrein.store.threads import run_in_thread

T = TypeVar("T")
PIECE_BYTES = 1024 * 1024
"""Bytes of a blob that are read at once."""
ORIGINALS_MAX = 100
"""Number of forks that are followed back to find a subagent."""


class SessionHistory:
    """Entries and blobs of one session. For one thread at a time. Raises what `Reader` raises."""

    def __init__(self, state_dir: str, session: str, number: int = 0) -> None:
        """`number`: number in the database of `session`, as for `Reader`; 0 for the root."""
        self._state_dir = state_dir
        self._reader = Reader(state_dir, session, number) if number else Reader(state_dir, session)
        self._others: list[SessionHistory] = []

    def tail(self) -> tuple[int, int]:
        """Return (seq, time) of the last entry; zeros when there is none."""
        return self._reader.tail()

    def entry(self, seq: int) -> Entry | None:
        """Return entry `seq`, or None."""
        return self._reader.entry(seq)

    def entries(self, after: int = 0, to: int = 0) -> Iterator[Entry]:
        """Iterate entries after seq `after` up to `to` (0: the last one), in order."""
        return self._reader.entries(after, to)

    def of_kind(self, *kinds: str) -> Iterator[Entry]:
        """Iterate entries whose events have these class names, newest first."""
        return self._reader.of_kind(*kinds)

    def seq_at(self, at: int) -> int:
        """Return the seq of the last entry written up to time `at` (microseconds UTC); 0 when there is none."""
        return self._reader.seq_at(at)

    def seq_ago(self, ago_us: int, now_us: int) -> int:
        """See `Reader.seq_ago`."""
        return self._reader.seq_ago(ago_us, now_us)

    def pieces(self, blob: str) -> Iterator[bytes]:
        """Iterate a blob piece by piece. Raises `KeyError` when it does not exist.

        A blob that is a file is not checked against its hash.
        """
        path = self._reader.blob_path(blob)
        if not path:
            yield self._reader.blob(blob)
            return
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def search(self, query: str, limit: int, before: int = 0, *, own: bool = False) -> SearchResult:
        """Search this session, newest entries first.

        `before`: only entries before that seq, 0 for all. `own`: leave out entries that it shares with its parent.
        """
        after = self._reader.first - 1 if own else 0
        found: SearchResult = search(self._reader, self, query, limit, before, after)
        return found

    def search_tree(self, query: str, limit: int, before: int = 0) -> SearchResult:
        """Search this session and its newest subagents, whose handles begin with `a<seq>/`."""
        found: SearchResult = search_tree(self, query, limit, before)
        return found

    def child(self, session: str) -> "SessionHistory | None":
        """Return the history of subagent `session`; None when it is gone.

        The subagent was started by this session, or by a session that this one was forked from. Closed with this
        history.
        """
        found = self._own_child(session)
        origin = self if found is None else None
        for _ in range(ORIGINALS_MAX):
            origin = origin._original() if origin else None
            if origin is None:
                break
            if (found := origin._own_child(session)) is not None:
                break
        return found

    def parent(self) -> "SessionHistory | None":
        """Return the history of the session that started this subagent; None for a root.

        Closed with this one.
        """
        opener = self._parent()
        number = self._reader.number_of(opener[0]) if opener is not None and opener[1] else 0
        return self._other(self._reader.session, number) if number else None

    def _own_child(self, session: str) -> "SessionHistory | None":
        number = self._reader.number_of(session)
        if number:
            return self._other(self._reader.session, number)
        found = self._other(session)
        parent = found._parent() if found else None
        return found if parent is not None and parent[0] == self._reader.session else None

    def _original(self) -> "SessionHistory | None":
        """Return the session that this one, or the root of this subagent, was forked from."""
        if self._reader.number != ROOT:
            root = self._other(self._reader.session)
            return root._original() if root is not None else None
        parent = self._parent()
        return self._other(parent[0]) if parent is not None and not parent[1] else None

    def _parent(self) -> tuple[str, str] | None:
        """Return (session, call) from which this session was started or forked."""
        opened = self._reader.opening_entry()
        if opened is None or not isinstance(opened.event, Opened) or opened.event.parent is None:
            return None
        return opened.event.parent.session, opened.event.parent.call

    def _other(self, session: str, number: int = 0) -> "SessionHistory | None":
        try:
            found = SessionHistory(self._state_dir, session, number)
        except SessionUnknown:
            return None
        self._others.append(found)
        return found

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._reader.close()
        for other in self._others:
            other.close()
        self._others = []


class HistoryReader:
    """Runs functions on the history of one session, in a thread."""

    def __init__(self, state_dir: str, session: str, child: str = "") -> None:
        """`child`: id of the subagent of `session` whose history is read."""
        self._state_dir = state_dir
        self._session = session
        self._child = child

    async def reading(self, work: Callable[[SessionHistory], T]) -> T:
        """Run `work` with the history in a thread; return its result or raise its error.

        On cancellation the thread runs on to its end.
        """
        return await asyncio.wrap_future(run_in_thread(lambda: self._read(work), "recall"))

    def child(self, session: str) -> "HistoryReader":
        """Return a reader of the history of subagent `session`."""
        return HistoryReader(self._state_dir, self._session, session)

    def _read(self, work: Callable[[SessionHistory], T]) -> T:
        root = SessionHistory(self._state_dir, self._session)
        try:
            history = root.child(self._child) if self._child else root
            if history is None:
                raise SessionUnknown(f"there is no subagent {self._child} in session {self._session}")
            return work(history)
        finally:
            root.close()
