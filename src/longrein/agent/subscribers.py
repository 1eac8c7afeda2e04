"""The one channel out of a session: committed entries in order, and provisional news between them.

There is no bus beside the log: to publish is to append. A reader names the last seq it has and gets what follows, first
from disk, then live.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

from longrein.agent.messages import FromSubagent, Output, ReplyDelta, SessionUpdate, TaskOver
from longrein.agent.ports import ParentPolicy
from longrein.events import Entry

History = Callable[[int, int], Iterable[Entry]]


class Subscribers:
    """All who follow one session."""

    def __init__(self, history: History, committed: int, above: ParentPolicy | None = None) -> None:
        self._history = history
        self._above = above
        self._queues: list[tuple[deque[SessionUpdate], asyncio.Event, bool]] = []
        self._closed = False
        self.committed = committed
        """Last entry that readers may have seen."""
        self.asking: Callable[[], Iterable[FromSubagent]] = tuple
        """Questions of subagents that wait for the user, for those who begin to follow."""

    @property
    def streaming(self) -> bool:
        """Whether anybody wants to hear replies and output while they grow."""
        if any(streaming for _, _, streaming in self._queues):
            return True
        return self._above is not None and self._above.streaming

    def publish(self, heard: SessionUpdate) -> None:
        """Hand `heard` to everybody; entries only when they are committed."""
        for queue, wake, _ in self._queues:
            queue.append(heard)
            wake.set()
        if self._above is not None:
            self._above.hear(heard)

    def stream(self, heard: ReplyDelta | Output | TaskOver | FromSubagent) -> None:
        """Hand `heard` to those who want to hear what goes on before it is an entry."""
        for queue, wake, streaming in self._queues:
            if streaming:
                queue.append(heard)
                wake.set()
        if self._above is not None:
            self._above.hear(heard)

    def commit(self, entries: list[Entry]) -> None:
        """Hand out entries that are on disk now."""
        self.committed = entries[-1].seq
        for entry in entries:
            self.publish(entry)

    def close(self) -> None:
        """Let every reader end after what it has been given."""
        self._closed = True
        for _, wake, _ in self._queues:
            wake.set()

    async def follow(self, seq: int, *, streaming: bool) -> AsyncIterator[SessionUpdate]:
        """Entries after `seq`, then live news, until the session closes."""
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
