"""News that wakes an agent which waits for its user, and how long a run of one prompt stays for such news.

The user's own words always come first; many ends are one wake. What was told is folded from the log, here is only time.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from longrein.agent.company import Company
from longrein.agent.ports import Crew, Limits
from longrein.agent.tasks.desk import TaskDesk
from longrein.context import State, untold
from longrein.events import Reminded

WAKING = ("bg_done", "bg_lost", "bg_stalled", "subagent_done", "subagent_failed", "teammate_message", "cron_fired")
"""Kinds of notices that are worth a turn of their own."""
IN_A_ROW_MAX = 100
"""Wakes without a word of the user; after that, news waits for one: nobody pays for an agent that wakes itself."""


class Host(Protocol):
    """The session that is woken."""

    crew: Crew
    state: State
    interrupting: bool
    company: Company | None
    commands: TaskDesk | None

    def poke(self) -> None: ...


class Wakes:
    """When the next turn of a session begins by itself."""

    def __init__(self, host: Host) -> None:
        self.since = host.state.seq
        """Notices up to this entry wake nobody: they were there at the open, or came back with a rewind."""
        self._host, self._clock = host, host.crew.clock
        self.wanted = host.crew.task_options.wake
        """Whether it may be woken at all."""
        self._due_s: float | None = None
        self._nap: asyncio.Task[None] | None = None
        self._in_a_row = 0
        self._until_s: float | None = None
        """Until when a run of one prompt stays, monotonic; None when it does not."""
        self._asks = 0
        """Requests before that run."""
        self._after = 0
        """Only tasks that were started after this entry are waited for."""
        self._end: asyncio.Task[None] | None = None

    def spoken(self) -> None:
        """The user said something."""
        self._in_a_row = 0

    # --- waking ----------------------------------------------------------------------------------------------

    def due(self) -> Reminded | None:
        """The wake, when its time has come; the first call after news begins the pause."""
        source = self._news() if self._may_ask else ""
        if not source:
            self._due_s = None
            return None
        now = self._clock.mono_s()
        if self._due_s is None:
            self._due_s = now + self._host.crew.task_options.wake_after_s
        if now < self._due_s:
            return None
        self._due_s = None
        self._in_a_row += 1
        return Reminded("wake", "", source)

    def _news(self) -> str:
        """The newest notice that is worth a wake and was not told; '' when there is none."""
        state = self._host.state
        if not self.wanted or state.turn_open or state.seq == self.since or self._in_a_row >= IN_A_ROW_MAX:
            return ""
        found = [one for one in untold(state) if one.seq > self.since and one.kind in WAKING]
        return f"{found[-1].kind} r{found[-1].seq}" if found else ""

    @property
    def pausing(self) -> bool:
        """Whether a wake is due in a moment."""
        return self._due_s is not None

    def rouse(self) -> None:
        """Let the session look again when the wake is due."""
        if self._due_s is not None and (self._nap is None or self._nap.done()):
            self._nap = self._later(self._due_s - self._clock.mono_s(), self._host.poke)

    def _later(self, seconds: float, call: Callable[[], None]) -> "asyncio.Task[None]":
        async def wait() -> None:
            await self._clock.sleep(max(0.0, seconds))
            call()

        return asyncio.ensure_future(wait())

    def stop(self) -> None:
        """Wake nobody any more."""
        for timer in (self._nap, self._end):
            if timer is not None:
                timer.cancel()

    # --- staying ---------------------------------------------------------------------------------------------

    def stay(self, how: str, limit_s: float) -> None:
        """See `SessionPort.stay`."""
        self.wanted = how == "steer"
        if self._end is not None:
            self._end.cancel()
        stays = how in ("drain", "steer")
        self._until_s = self._clock.mono_s() + limit_s if stays else None
        self._end = self._later(limit_s, self._host.poke) if stays else None
        self._asks = self._host.state.asks
        self._after = self._host.state.seq if how == "steer" else 0
        self._host.poke()

    @property
    def stays(self) -> bool:
        """Whether a run of one prompt waits for something in the background now."""
        host = self._host
        if self._until_s is None or host.interrupting or self._clock.mono_s() >= self._until_s:
            return False
        if host.company is not None and host.company.running:
            return True
        tellable = self._may_ask or not self.wanted  # the end of a task that nobody can be told of is not waited for
        return tellable and host.commands is not None and host.commands.unfinished(self._after)

    @property
    def _may_ask(self) -> bool:
        """Whether the run may begin a turn by itself: a limit of turns counts all of it."""
        most = self._host.crew.limits.turns_max
        return self._until_s is None or not most or self._host.state.asks - self._asks < most

    @property
    def limits(self) -> Limits:
        """Limits of the present turn; in a run that begins turns by itself, what is left of them."""
        limits, state = self._host.crew.limits, self._host.state
        before = max(0, state.asks - state.steps - self._asks)
        if self._until_s is None or not limits.turns_max or not before:
            return limits
        return msgspec.structs.replace(limits, turns_max=max(1, limits.turns_max - before))
