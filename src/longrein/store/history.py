"""The past of one session: every entry and blob that was ever written down, its subagents' and its original's too.

Read only, without the lock, beside whoever writes. Reading a long log takes its time, so `HistoryReader` does it in a thread
of its own and with a connection of its own.
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
"""Of a blob that is read piece by piece."""
ORIGINALS_MAX = 100
"""Forks of forks that are followed back to find a subagent."""


class SessionHistory:
    """One session as it was written. For one thread at a time. Raises what `Reader` raises."""

    def __init__(self, state_dir: str, session: str, number: int = 0) -> None:
        """`number`: see `Reader`; 0 for the session that the folder is named after."""
        self._state_dir = state_dir
        self._reader = Reader(state_dir, session, number) if number else Reader(state_dir, session)
        self._others: list[SessionHistory] = []

    def tail(self) -> tuple[int, int]:
        """(seq, time) of the last entry; zeros when there is none."""
        return self._reader.tail()

    def entry(self, seq: int) -> Entry | None:
        """One entry; None when there is none of that seq."""
        return self._reader.entry(seq)

    def entries(self, after: int = 0, to: int = 0) -> Iterator[Entry]:
        """Entries after seq `after`, up to `to` (0: the last there is), in order."""
        return self._reader.entries(after, to)

    def of_kind(self, *kinds: str) -> Iterator[Entry]:
        """Entries whose events have these names, the newest first."""
        return self._reader.of_kind(*kinds)

    def seq_at(self, at: int) -> int:
        """The last entry that was written up to time `at`, microseconds UTC; 0 when there is none."""
        return self._reader.seq_at(at)

    def seq_ago(self, ago_us: int, now_us: int) -> int:
        """See `Reader.seq_ago`."""
        return self._reader.seq_ago(ago_us, now_us)

    def pieces(self, blob: str) -> Iterator[bytes]:
        """A blob piece by piece. `KeyError` when there is none; a large one is not checked against its hash."""
        path = self._reader.blob_path(blob)
        if not path:
            yield self._reader.blob(blob)
            return
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def search(self, query: str, limit: int, before: int = 0, *, own: bool = False) -> SearchResult:
        """Where `query` stands in this session, the newest first; only entries before seq `before` when it is not 0,
        and with `own` none that it shares with its parent.
        """
        after = self._reader.first - 1 if own else 0
        found: SearchResult = search(self._reader, self, query, limit, before, after)
        return found

    def search_tree(self, query: str, limit: int, before: int = 0) -> SearchResult:
        """The same in this session and its newest subagents, whose handles begin with `a<seq>/`."""
        found: SearchResult = search_tree(self, query, limit, before)
        return found

    def child(self, session: str) -> "SessionHistory | None":
        """The past of the subagent `session`, which this session or the original of this fork has started.

        None when it is gone. It is closed with this one.
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
        """The past of the session that has started this subagent; None for one of the user. Closed with this one."""
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
        """Of a fork, or of the fork that this subagent belongs to."""
        if self._reader.number != ROOT:
            root = self._other(self._reader.session)
            return root._original() if root is not None else None
        parent = self._parent()
        return self._other(parent[0]) if parent is not None and not parent[1] else None

    def _parent(self) -> tuple[str, str] | None:
        """(session, call) that this one comes from."""
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
        """Let go of the files. Idempotent."""
        self._reader.close()
        for other in self._others:
            other.close()
        self._others = []


class HistoryReader:
    """The past of one session, read beside the event loop."""

    def __init__(self, state_dir: str, session: str, child: str = "") -> None:
        """`child`: id of a subagent of `session` whose past it is."""
        self._state_dir = state_dir
        self._session = session
        self._child = child

    async def reading(self, work: Callable[[SessionHistory], T]) -> T:
        """`work` with the past of the session, in a thread of its own; gives what it gives and raises what it raises.

        Cancelled, it lets the thread finish: nothing it reads does anything.
        """
        return await asyncio.wrap_future(run_in_thread(lambda: self._read(work), "recall"))

    def child(self, session: str) -> "HistoryReader":
        """The past of the subagent `session`."""
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
