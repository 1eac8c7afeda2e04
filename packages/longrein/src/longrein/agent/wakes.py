"""Wakes: when a session starts a turn by itself, and how long a run of one prompt waits.

Background news wakes an agent that waits for its user. The user's own messages come first, and
several ends are one wake. What was told is folded from the log; only times are kept here.
"""

import asyncio

import msgspec

from longrein.agent.messages import Continue, InboxMessage, Rewind, UserMessage
from longrein.agent.session_part import BackgroundTasks, SessionPart, Subagents
from longrein.settings_schema import Limits
from longrein_context import pending_notices
from longrein_context.events import Reminded

WAKING = (
    "bg_done",
    "bg_lost",
    "bg_stalled",
    "subagent_done",
    "subagent_failed",
    "teammate_message",
    "cron_fired",
)
"""Kinds of notices that start a turn."""
SCHEDULED = ("cron_fired",)
"""Kinds that do so even when the user wants no wakes, because the user scheduled them."""
IN_A_ROW_MAX = 100
"""Wakes without a user message in between; after that, news waits for the user, which limits the
cost.
"""


class WakeSchedule(SessionPart):
    """Decide when a session starts a turn by itself, and how long a one-prompt run waits."""

    rank = 45

    def __init__(self) -> None:
        self.since = 0
        """Notices up to this entry wake nobody: they were there at the open, or a rewind brought
        them back.
        """
        self.wanted = True
        """False when wakes are disabled."""
        self._due_s: float | None = None
        self._nap: asyncio.Task[None] | None = None
        self.in_a_row = 0
        """Wakes since the user's last message."""
        self._promoted = True
        self._until_s: float | None = None
        """Monotonic end of a one-prompt run's wait; None when it does not wait."""
        self._asks = 0
        """Requests before that run."""
        self._after = 0
        """Only tasks started after this entry are waited for."""
        self._end: asyncio.Task[None] | None = None

    def opened(self) -> None:
        self.since = self.session.state.seq
        self.wanted = self.session.deps.task_options.wake

    def _mono_s(self) -> float:
        return self.session.deps.clock.mono_s()

    def take(self, message: InboxMessage) -> None:
        match message:
            case Rewind(conversation=True):
                self.since = self.session.state.seq
            case UserMessage() | Continue():
                self.in_a_row = 0
            case _:
                pass

    # --- waking -----------------------------------------------------------------------------------

    def due(self) -> Reminded | None:
        """Return the wake when its time has come; the first call after news starts the delay."""
        source = self._news() if self._may_ask else ""
        if not source:
            self._due_s = None
            return None
        now = self._mono_s()
        if self._due_s is None:
            self._due_s = now + self.session.deps.task_options.wake_after_s
        if now < self._due_s:
            return None
        self._due_s = None
        self.in_a_row += 1
        return Reminded("wake", "", source)

    def _news(self) -> str:
        """Return the newest untold notice that is worth a wake; '' for none."""
        state = self.session.state
        if state.turn_open or state.seq == self.since or self.in_a_row >= IN_A_ROW_MAX:
            return ""
        kinds = WAKING if self.wanted else SCHEDULED
        found = [
            one for one in pending_notices(state) if one.seq > self.since and one.kind in kinds
        ]
        return f"{found[-1].kind} r{found[-1].seq}" if found else ""

    def rouse(self) -> None:
        """Wake the session's loop when the wake or a schedule is due."""
        if self._due_s is not None and (self._nap is None or self._nap.done()):
            wait_s = self._due_s - self._mono_s()
            self._nap = asyncio.ensure_future(poke_after(self, wait_s))

    @property
    def idle(self) -> bool:
        return not (self._due_s is not None or self.stays)

    async def close(self) -> None:
        """Cancel all timers."""
        for timer in (self._nap, self._end):
            if timer is not None:
                timer.cancel()

    # --- staying ----------------------------------------------------------------------------------

    def stay(self, how: str, limit_s: float, *, promoted: bool) -> None:
        self.wanted, self._promoted = how == "steer", promoted
        if self._end is not None:
            self._end.cancel()
        self._until_s = self._end = None
        if how in ("drain", "steer"):
            self._until_s = self._mono_s() + limit_s
            self._end = asyncio.ensure_future(poke_after(self, limit_s))
        self._asks = self.session.state.asks
        self._after = self.session.state.seq if how == "steer" else 0
        self.session.poke()

    @property
    def stays(self) -> bool:
        """True while a one-prompt run waits for background work."""
        host = self.session
        if self._until_s is None or host.interrupting or self._mono_s() >= self._until_s:
            return False
        subagents = host.find(Subagents)
        if subagents is not None and subagents.running:
            return True
        tasks = host.find(BackgroundTasks)
        tellable = self._may_ask or not self.wanted  # do not wait for an end that cannot be told
        return tellable and tasks is not None and tasks.unfinished(self._after, self._promoted)

    @property
    def _may_ask(self) -> bool:
        """True while the run may start a turn by itself: a limit of turns counts all of them."""
        most = self.session.deps.limits.turns_max
        return self._until_s is None or not most or self.session.state.asks - self._asks < most

    def within(self, limits: Limits) -> Limits:
        """Return `limits`; in a run that starts turns by itself, what is left of them."""
        state = self.session.state
        before = max(0, state.asks - state.steps - self._asks)
        if self._until_s is None or not limits.turns_max or not before:
            return limits
        return msgspec.structs.replace(limits, turns_max=max(1, limits.turns_max - before))


async def poke_after(part: SessionPart, seconds: float) -> None:
    """Wake the loop of a part's session after a time, at once for a negative one."""
    await part.session.deps.clock.sleep(max(0.0, seconds))
    part.session.poke()
