"""Read-only access to the history of one session, of its subagents and of the session it was forked
from.

Needs no lock and works while another process writes. `SessionHistory` reads in the calling thread.
`HistoryReader` runs the reading in a thread with a connection of its own, because a long log takes
time.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from longrein.events import Opened, Parent, SessionUnknown, SubagentStarted
from longrein.store.daemon_threads import run_in_thread
from longrein.store.database import ROOT
from longrein.store.reader import Reader
from longrein.store.store_port import SearchResult

T = TypeVar("T")
CHILDREN_MAX = 20
"""Number of newest subagents that are searched with their parent."""
ORIGINALS_MAX = 100
"""Number of forks that are followed back to find a subagent."""


class SessionHistory(Reader):
    """Entries and blobs of one session and its subagents, and their search. For one thread at a
    time.
    """

    def __init__(self, state_dir: str, session: str, number: int = ROOT) -> None:
        """`number`: number in the database of root `session`, as for `Reader`."""
        super().__init__(state_dir, session, number)
        self._others: list[SessionHistory] = []

    def search(self, query: str, limit: int, before: int = 0, *, own: bool = False) -> SearchResult:
        """Search this session, newest entries first.

        `before`: only entries before that seq, 0 for all. `own`: leave out entries that it shares
        with its parent.
        """
        from longrein.store.log_search import search

        return search(self, query, limit, before, self.first - 1 if own else 0)

    def search_tree(self, query: str, limit: int, before: int = 0) -> SearchResult:
        """Search this session and its newest subagents, whose handles begin with `a<seq>/`."""
        found = self.search(query, limit, before)
        hits, more = [*found.hits], found.more
        for label, session in itertools.islice(self._children(), CHILDREN_MAX):
            subagent = self.child(session) if len(hits) < limit else None
            if subagent is not None:
                below = subagent.search(query, limit - len(hits), own=True)
                hits += [
                    msgspec.structs.replace(hit, handle=f"{label}/{hit.handle}")
                    for hit in below.hits
                ]
                more = more or below.more
        return SearchResult(tuple(hits), more)

    def _children(self) -> Iterator[tuple[str, str]]:
        """Iterate (label, session id) of the subagents, newest first; one that was asked again
        keeps its first label.
        """
        seen = set()
        for entry in self.of_kind("ChildStarted"):
            if isinstance(entry.event, SubagentStarted) and entry.event.child not in seen:
                seen.add(entry.event.child)
                yield f"a{entry.event.again or entry.seq}", entry.event.child

    def child(self, session: str) -> "SessionHistory | None":
        """Return the history of subagent `session`, closed with this one; None when it is gone.

        The subagent was started by this session, or by a session that this one was forked from.
        """
        origin: SessionHistory | None = self
        for _ in range(ORIGINALS_MAX):
            if origin is None:
                break
            if (found := origin._own_subagent(session)) is not None:
                return found
            origin = origin._original()
        return None

    def parent(self) -> "SessionHistory | None":
        """Return the history of the session that started this subagent, closed with this one;
        None for a root.
        """
        opener = self._opener()
        number = self.number_of(opener.session) if opener is not None and opener.call else 0
        return self._other(self.session, number) if number else None

    def _own_subagent(self, session: str) -> "SessionHistory | None":
        number = self.number_of(session)
        if number:
            return self._other(self.session, number)
        found = self._other(session)
        opener = found._opener() if found else None
        return found if opener is not None and opener.session == self.session else None

    def _original(self) -> "SessionHistory | None":
        """Return the session that this one, or the root of this subagent, was forked from."""
        if self.number != ROOT:
            root = self._other(self.session)
            return root._original() if root is not None else None
        opener = self._opener()
        return self._other(opener.session) if opener is not None and not opener.call else None

    def _opener(self) -> Parent | None:
        """Return the session and call from which this session was started, or the session it was
        forked from.
        """
        opened = self.opening_entry()
        return (
            opened.event.parent if opened is not None and isinstance(opened.event, Opened) else None
        )

    def _other(self, session: str, number: int = ROOT) -> "SessionHistory | None":
        try:
            found = SessionHistory(self._state_dir, session, number)
        except SessionUnknown:
            return None
        self._others.append(found)
        return found

    def close(self) -> None:
        """Close the files. Idempotent."""
        super().close()
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
                raise SessionUnknown(
                    f"there is no subagent {self._child} in session {self._session}"
                )
            return work(history)
        finally:
            root.close()
