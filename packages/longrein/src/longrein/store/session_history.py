"""Read-only access to the history of one session, of its subagents and of the session it was forked
from.

Needs no lock and works while another process writes. `SessionHistory` reads in the calling thread.
"""

import itertools
from collections.abc import Iterator

import msgspec

from longrein.store.database import ROOT
from longrein.store.log_search import search
from longrein.store.reader import Reader
from longrein.store.store_port import SearchResult
from longrein_context.events import Parent, SubagentStarted

CHILDREN_MAX = 20
"""Number of newest subagents that are searched with their parent."""
ORIGINALS_MAX = 100
"""Number of forks that are followed back to find a subagent."""


class SessionHistory(Reader):
    """Entries and blobs of one session and its subagents, and their search. For one thread at a
    time.
    """

    def search(self, query: str, limit: int, before: int = 0, *, own: bool = False) -> SearchResult:
        """Search this session, newest entries first.

        `before`: only entries before that seq, 0 for all. `own`: leave out entries that it shares
        with its parent.
        """
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
            if (found := origin.subagent(session)) is not None:
                return found
            origin = origin._original()
        return None

    def parent(self) -> "SessionHistory | None":
        """Return the history of the session that started this subagent, closed with this one;
        None for a root.
        """
        opener = self._opener()
        number = self.number_of(opener.session) if opener is not None and opener.call else 0
        return self.session_reader(number) if number else None

    def _original(self) -> "SessionHistory | None":
        """Return the session that this one, or the root of this subagent, was forked from."""
        if self.number != ROOT:
            return self.session_reader(ROOT)._original()
        opener = self._opener()
        return self.other(opener.session) if opener is not None and not opener.call else None

    def _opener(self) -> Parent | None:
        """Return the session and call from which this session was started, or the session it was
        forked from.
        """
        opened = self.opened()
        return opened.parent if opened is not None else None
