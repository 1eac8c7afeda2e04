"""A semaphore with round-robin fairness: for subagents that work, and for background tasks."""

import asyncio
from collections import deque


class FairSemaphore:
    """Semaphore with round-robin fairness between owners.

    At most `most` inside. An owner that returns from waiting for its subagents goes first, so that
    its work can end.
    """

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self.inside = 0
        """Holders; above `most` only after `force`."""
        self._back: deque[asyncio.Future[None]] = deque()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        """Number of waiters."""
        return len(self._back) + sum(map(len, self._waiting.values()))

    def try_enter(self) -> bool:
        """Take a slot; False when none is free or others wait."""
        if self.inside >= self.most or self.waiting:
            return False
        self.inside += 1
        return True

    async def enter(self, owner: str, *, back: bool = False) -> None:
        """Wait for a slot. `back`: the owner held one before. A cancelled wait holds nothing."""
        if self.try_enter():
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
        """Wait for a slot, or until `halt` is set: then return False and hold nothing."""
        if halt.is_set():
            return False
        entering, halting = (
            asyncio.ensure_future(self.enter(owner)),
            asyncio.ensure_future(halt.wait()),
        )
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
        """Enter without waiting, also above the limit."""
        self.inside += 1

    def leave(self) -> None:
        """Release a slot."""
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
            while queue and queue[0].done():  # cancelled waiter
                queue.popleft()
            if queue:
                place = queue.popleft()
                if queue:  # the owner's other waiters come after all other owners
                    self._waiting[owner] = queue
                return place
        return None
