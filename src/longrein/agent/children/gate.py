"""A door for so many at once: who must wait is let in in turn, one of each owner at a time, so that none is starved."""

import asyncio
from collections import deque


class Gate:
    """At most `most` inside. Who comes back from waiting for others goes first: what hangs on it can then end."""

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self.inside = 0
        """How many are; above `most` only after `force`."""
        self._back: deque[asyncio.Future[None]] = deque()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        """How many want in."""
        return len(self._back) + sum(map(len, self._waiting.values()))

    async def enter(self, owner: str, *, back: bool = False) -> None:
        """Wait for a place. `back`: one that was inside before. Cancelled, nothing is held."""
        if self.inside < self.most and not self.waiting:
            self.inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._back if back else self._waiting.setdefault(owner, deque())).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()
            raise

    async def enter_or(self, halt: asyncio.Event, owner: str) -> bool:
        """Wait for a place, or until `halt` is set: False, and nothing is held then."""
        if halt.is_set():
            return False
        entering, halting = asyncio.ensure_future(self.enter(owner)), asyncio.ensure_future(halt.wait())
        try:
            await asyncio.wait((entering, halting), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if entering.done():
                self.leave()
            raise
        finally:
            halting.cancel()
            entered = entering.done()
            entering.cancel()
        return entered

    def force(self) -> None:
        """Go in without waiting: for one that has only to write down how it was cut."""
        self.inside += 1

    def leave(self) -> None:
        """Make room for the next."""
        self.inside -= 1
        while self.inside < self.most and (place := self._next()) is not None:
            self.inside += 1
            place.set_result(None)

    def _next(self) -> "asyncio.Future[None] | None":
        while self._back:
            place = self._back.popleft()
            if not place.done():
                return place
        while self._waiting:
            owner, queue = next(iter(self._waiting.items()))
            del self._waiting[owner]
            place = queue.popleft()
            if queue:  # its others come after everybody else's
                self._waiting[owner] = queue
            if not place.done():
                return place
        return None
