"""News that wakes an agent which waits for its user. The user's own words always come first; many ends are one wake."""

import asyncio
from collections.abc import Callable

from longrein.agent.ports import Clock
from longrein.context import State, untold
from longrein.events import Reminded

WAKING = ("bg_done", "bg_lost", "bg_stalled", "subagent_done", "subagent_failed", "teammate_message", "cron_fired")
"""Kinds of notices that are worth a turn of their own."""


IN_A_ROW_MAX = 100
"""Wakes without a word of the user; after that, news waits for one: nobody pays for an agent that wakes itself."""


class Stay:
    """How long a run of one prompt stays for what goes on in the background (`SessionPort.stay`)."""

    def __init__(self, clock: Clock, limit_s: float, asks: int, poke: Callable[[], None]) -> None:
        self.asks = asks
        """Requests that were made before the run."""
        self._clock, self._until_s = clock, clock.mono_s() + limit_s
        self._nap = asyncio.ensure_future(self._poke_at_end(limit_s, poke))

    @property
    def over(self) -> bool:
        """Whether its time has passed."""
        return self._clock.mono_s() >= self._until_s

    async def _poke_at_end(self, limit_s: float, poke: Callable[[], None]) -> None:
        await self._clock.sleep(limit_s)
        poke()

    def end(self) -> None:
        """Stay no longer."""
        self._until_s = self._clock.mono_s()
        self._nap.cancel()


class Wakes:
    """When the next turn begins by itself. What is told is folded from the log; here is only the pause before it."""

    def __init__(self, clock: Clock, after_s: float, since: int, *, wanted: bool) -> None:
        self.wanted = wanted
        """Whether it may be woken at all."""
        self.since = since
        """Notices up to this entry wake nobody: they were there at the open, or came back with a rewind."""
        self._clock, self._after_s = clock, after_s
        self._due_s: float | None = None
        self._nap: asyncio.Task[None] | None = None
        self._in_a_row = 0

    def spoken(self) -> None:
        """The user said something."""
        self._in_a_row = 0

    def due(self, state: State) -> Reminded | None:
        """The wake, when its time has come; the first call after news begins the pause."""
        source = self._news(state)
        if not source:
            self._due_s = None
            return None
        now = self._clock.mono_s()
        if self._due_s is None:
            self._due_s = now + self._after_s
        if now < self._due_s:
            return None
        self._due_s = None
        self._in_a_row += 1
        return Reminded("wake", "", source)

    def _news(self, state: State) -> str:
        """The newest notice that is worth a wake and was not told; '' when there is none."""
        if not self.wanted or state.turn_open or state.seq == self.since or self._in_a_row >= IN_A_ROW_MAX:
            return ""
        found = [one for one in untold(state) if one.seq > self.since and one.kind in WAKING]
        return f"{found[-1].kind} r{found[-1].seq}" if found else ""

    @property
    def pausing(self) -> bool:
        """Whether a wake is due in a moment."""
        return self._due_s is not None

    def rouse(self, poke: Callable[[], None]) -> None:
        """Call `poke` when the wake is due."""
        if self._due_s is not None and (self._nap is None or self._nap.done()):
            self._nap = asyncio.ensure_future(self._poke_later(self._due_s - self._clock.mono_s(), poke))

    async def _poke_later(self, seconds: float, poke: Callable[[], None]) -> None:
        await self._clock.sleep(max(0.0, seconds))
        poke()

    def stop(self) -> None:
        """Wake nobody any more."""
        if self._nap is not None:
            self._nap.cancel()
