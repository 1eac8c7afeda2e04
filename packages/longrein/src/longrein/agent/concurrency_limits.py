"""Limits that the agents of a tree share: working subagents and tasks, requests to providers."""

import asyncio
from collections import deque

import msgspec

from longrein_context.events import AskFailed, Replied


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


# --- Requests to a provider -----------------------------------------------------------------------

HOLD_MAX_S = 60.0
"""Longest wait because of another agent's refusal."""
HOLD_S = 1.0
"""Wait when the provider names none."""
GAP_MIN_S, GAP_MAX_S = 0.05, 2.0
"""Limits of the gap between two requests after a refusal."""


class ProviderRate(msgspec.Struct):
    """Times of a provider, and its refusal."""

    free_s: float = 0.0
    """Time of the next free request slot."""
    held_s: float = 0.0
    """Time until which the provider refuses."""
    filled_s: dict[str, float] = {}
    """Limit of tokens -> time until which earlier replies fill it."""
    gap_s: float = 0.0
    refusal: AskFailed | None = None
    """The latest refusal."""


class RateLimit:
    """Request slots by provider, shared by a tree of agents.

    When a provider tells one agent to wait, all wait. Afterwards their requests are spaced by a gap
    that doubles with each refusal and halves with each answer, so that they do not all come back at
    once. Each agent decides from its own log how often it retries.
    """

    def __init__(self) -> None:
        self._providers: dict[str, ProviderRate] = {}

    def take_turn(self, provider: str, now_s: float) -> tuple[float, AskFailed | None]:
        """Reserve the next slot; return seconds until then, and the refusal that delayed it.

        `now_s`: monotonic time.
        """
        known = self._providers.get(provider)
        if known is None:
            return 0.0, None
        at = max(now_s, known.free_s)
        known.free_s = at + known.gap_s
        return at - now_s, known.refusal

    def heard(self, provider: str, outcome: Replied | AskFailed, now_s: float) -> None:
        """Register the outcome of a request."""
        known = self._providers.get(provider)
        if isinstance(outcome, AskFailed) and outcome.kind in ("rate", "overload"):
            known = self._providers.setdefault(provider, ProviderRate())
            known.refusal, told = outcome, outcome.retry_after_s
            known.held_s = max(known.held_s, now_s + min(HOLD_MAX_S, told if told >= 0 else HOLD_S))
            known.free_s = max(known.free_s, known.held_s)
            known.gap_s = min(GAP_MAX_S, max(GAP_MIN_S, known.gap_s * 2))
        elif known is not None and isinstance(outcome, Replied) and now_s >= known.held_s:
            known.gap_s /= 2
            if known.gap_s < GAP_MIN_S:
                del self._providers[provider]
