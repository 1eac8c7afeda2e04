"""Subscribers of a session: committed entries in order, and provisional updates between them.

There is no bus beside the log. A subscriber names the last seq it has and gets what follows, first
from disk, then live.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

from longrein.agent.messages import (
    FromSubagent,
    Output,
    ReplyDelta,
    SessionUpdate,
    TaskOver,
    UserNotice,
)
from longrein.agent.session_part import ParentPolicy
from longrein_context.events import Asked, Entry

History = Callable[[int, int], Iterable[Entry]]
NOTICES_MAX = 1_000
"""Lines for the user that are kept for a program that asks for them."""


class Subscribers:
    """All subscribers of one session."""

    def __init__(self, history: History, committed: int, above: ParentPolicy | None = None) -> None:
        self._history = history
        self._above = above
        self._queues: list[tuple[deque[SessionUpdate], asyncio.Event, bool]] = []
        self._closed = False
        self._held: list[ReplyDelta] = []
        """Deltas of a request that is not committed yet."""
        self.committed = committed
        """Last entry that subscribers may have seen."""
        self.notices: deque[str] = deque(maxlen=NOTICES_MAX)
        """The newest lines for the user."""
        self.asking: Callable[[], Iterable[FromSubagent]] = tuple
        """Returns the questions of subagents that wait for the user, for new subscribers."""

    @property
    def streaming(self) -> bool:
        """True if a subscriber wants replies and output while they grow."""
        if any(streaming for _, _, streaming in self._queues):
            return True
        return self._above is not None and self._above.streaming

    def publish(self, heard: SessionUpdate) -> None:
        """Send an update to all; entries only once they are committed, growing output only with
        `streaming`, and the reply to a request after the request.
        """
        if isinstance(heard, ReplyDelta) and heard.asked > self.committed:
            self._held.append(heard)
            return
        news = heard.heard if isinstance(heard, FromSubagent) else heard
        if isinstance(news, UserNotice):
            self.notices.append(news.text)
        growing = isinstance(news, ReplyDelta | Output | TaskOver)
        for queue, wake, streaming in self._queues:
            if streaming or not growing:
                queue.append(heard)
                wake.set()
        if self._above is not None:
            self._above.hear(heard)

    def commit(self, entries: list[Entry]) -> None:
        """Publish entries that were committed."""
        self.committed = entries[-1].seq
        for entry in entries:
            self.publish(entry)
            if isinstance(entry.event, Asked):
                held, self._held = self._held, []
                for delta in held:
                    self.publish(delta)

    def close(self) -> None:
        """Let every subscriber end after the updates it has been sent."""
        self._closed = True
        for _, wake, _ in self._queues:
            wake.set()

    async def follow(self, seq: int, *, streaming: bool) -> AsyncIterator[SessionUpdate]:
        """Yield entries after `seq`, then live updates, until the session closes."""
        queue: deque[SessionUpdate] = deque()
        wake = asyncio.Event()
        mine = (queue, wake, streaming)
        self._queues.append(mine)
        try:
            last, asking = self.committed, tuple(self.asking())
            if seq < last:
                for entry in self._history(seq + 1, last):
                    yield entry
            for question in asking:
                yield question
            while queue or not self._closed:
                if not queue:
                    wake.clear()
                    await wake.wait()
                while queue:
                    yield queue.popleft()
        finally:
            self._queues.remove(mine)
