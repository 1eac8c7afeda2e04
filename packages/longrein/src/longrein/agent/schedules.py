"""Schedules of a session: prompts of the user that come back at set times while the session is open
and idle.

A schedule is in the log (`SchedulesSet`), and so is each time it fires (`Reminded` of kind
`cron_fired`); the next time follows from both. Times that were missed while longrein was closed or
busy fire once. Times are local.
"""

import asyncio
import re
from datetime import datetime, timedelta
from hashlib import sha256

import msgspec

from longrein.agent.messages import (
    AddSchedule,
    Continue,
    InboxMessage,
    RemoveSchedule,
    Rewind,
    UserMessage,
)
from longrein.agent.session_part import BackgroundTasks, SessionPart, Subagents
from longrein.settings_schema import Limits
from longrein_context import State, external_event, pending_notices
from longrein_context.events import Reminded, Schedule, SchedulesSet, ToolError, UsageError

SCHEDULES_MAX = 50
PROMPT_CHARS_MAX = 4_000
EXPIRY_US = 7 * 86_400_000_000
"""A schedule ends after this time, so that a forgotten one does not cost money for ever."""
NAP_MAX_S = 60.0
"""Longest sleep between two looks, because a suspended machine does not count it."""
SHORTEST_S = 60
NEVER_US = 253_370_764_800_000_000
"""The year 9999."""
JITTER_SHARE, JITTER_MAX_S = 0.1, 900.0
"""A time of a cron line is later by up to this share of its interval, and at most so many
seconds.
"""
YEARS_MAX = 5
"""A cron line with no time in so many years has none."""

ONCE = ("in", "at", "once")
"""First words of a time that comes once."""
UNITS = {"m": 60, "h": 3_600, "d": 86_400}
FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
)
NAMES = {
    "month": (
        "",
        "jan",
        "feb",
        "mar",
        "apr",
        "may",
        "jun",
        "jul",
        "aug",
        "sep",
        "oct",
        "nov",
        "dec",
    ),
    "day of the week": ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
USAGE = (
    "write an interval such as 5m, 2h or 1d, `in 30m` or `at 14:30` for once, or a cron line such "
    'as "0 9 * * 1-5", '
    "and then the prompt"
)


# --- Times ----------------------------------------------------------------------------------------


def split_when(text: str) -> tuple[str, str]:
    """Split `5m PROMPT`, `in 5m PROMPT` or `0 9 * * 1-5 PROMPT` into the time and the prompt.
    Raises `UsageError`.
    """
    words = text.split(maxsplit=1)
    if words and words[0] in ONCE:
        once, at, prompt = [*text.split(maxsplit=2), "", ""][:3]
        words = [f"{once} {at}", prompt]
    if words and re.fullmatch(r"\d+[a-z]|(in|at) .*", words[0]):
        when, prompt = words[0], words[1] if len(words) > 1 else ""
    else:
        *cron, prompt = [*text.split(maxsplit=5), *[""] * 6][:6]
        when = " ".join(cron)
    if not prompt.strip():
        raise UsageError(f"what is to be done, and when? {USAGE}")
    next_time(when, 0)
    return when, prompt.strip()


def next_time(when: str, after_us: int) -> int:
    """Return the first time of `when` after `after_us`, in microseconds UTC. Raises `UsageError`
    for no such time.
    """
    when = when.removeprefix("once ")
    if clock := re.fullmatch(r"at (\d{1,2}):(\d\d)", when):
        when = f"{clock[2]} {clock[1]} * * *"
    if interval := re.fullmatch(r"(?:in )?(\d{1,6})([mhd])", when):
        seconds = int(interval[1]) * UNITS[interval[2]]
        if seconds < SHORTEST_S or seconds * 1_000_000 > EXPIRY_US:
            raise UsageError(f"{when} is no interval from 1m to 7d")
        return after_us + seconds * 1_000_000
    fields = when.split()
    if len(fields) != len(FIELDS):
        raise UsageError(f"{when.strip()!r} is no time: {USAGE}")
    minutes, hours, days, months, weekdays = (
        _values(field, *row) for field, row in zip(fields, FIELDS, strict=True)
    )
    weekdays |= {0} if 7 in weekdays else set()
    at = datetime.fromtimestamp(after_us // 1_000_000).replace(second=0) + timedelta(minutes=1)
    last = at.year + YEARS_MAX
    while at.year <= last:
        weekday = (at.weekday() + 1) % 7
        any_day = fields[2][0] == "*"
        any_weekday = fields[4][0] == "*"
        fits = (at.day in days, weekday in weekdays)
        if at.month not in months:
            at = (at.replace(day=1, hour=0, minute=0) + timedelta(days=32)).replace(day=1)
        elif not (all(fits) if any_day or any_weekday else any(fits)):
            at = at.replace(hour=0, minute=0) + timedelta(days=1)
        elif at.hour not in hours:
            at = at.replace(minute=0) + timedelta(hours=1)
        elif at.minute not in minutes or at.timestamp() * 1e6 <= after_us:
            at += timedelta(minutes=1)
        else:
            return int(at.timestamp()) * 1_000_000
    raise UsageError(f"{when!r} never comes")


def _values(field: str, name: str, least: int, most: int) -> set[int]:
    """Return the values of one field: `*`, `5`, `1-5`, `*/15`, `mon,wed`."""
    found: set[int] = set()
    names = NAMES.get(name, ())
    for part in field.lower().split(","):
        match = re.fullmatch(
            r"(?:\*|([a-z]{3}|[0-9]{1,3})(?:-([a-z]{3}|[0-9]{1,3}))?)(?:/([0-9]{1,3}))?", part
        )
        words = match.groups("")[:2] if match else ()
        if match is None or any(word.isalpha() and word not in names for word in words):
            raise UsageError(f"{part!r} is no {name}: {USAGE}")
        ends = [names.index(word) if word.isalpha() else int(word) for word in words if word]
        first, last = (ends[0], ends[-1]) if ends else (least, most)
        if match[3] and len(ends) == 1:
            last = most
        if not least <= first <= last <= most or match[3] == "0":
            raise UsageError(f"{part!r} is no {name}: it is from {least} to {most}")
        found |= set(range(first, last + 1, int(match[3] or 1)))
    return found


def fire_time(schedule: Schedule, state: State) -> int:
    """Return the time at which a schedule fires next. One with an interval fires for the first
    time at once.
    """
    fired = state.fired.get(schedule.id, 0)
    if fires_once(schedule) and fired:
        return NEVER_US
    if " " not in schedule.when and not fired:
        return schedule.created_at
    try:
        at = next_time(schedule.when, max(fired, schedule.created_at))
    except UsageError:
        return NEVER_US  # of a log that somebody has edited
    if " " not in schedule.when or fires_once(schedule):
        return at
    share = int.from_bytes(sha256(f"{state.session} {schedule.id}".encode()).digest()[:4]) / 2**32
    interval_s = (next_time(schedule.when, at) - at) / 1e6
    return at + round(share * min(interval_s * JITTER_SHARE, JITTER_MAX_S) * 1e6)


def fires_once(schedule: Schedule) -> bool:
    """Return whether a schedule is over once it has fired."""
    return schedule.when.startswith(ONCE)


# --- Schedules of a session -----------------------------------------------------------------------


def _source(schedule: Schedule) -> str:
    whose = ", which you have scheduled yourself" if schedule.by_model else ""
    return f"{schedule.id} ({schedule.when}){whose}"


class ScheduleTimer(SessionPart):
    """Adds, removes and fires the schedules of one open session."""

    rank = 44

    def __init__(self) -> None:
        self._nap: asyncio.Task[None] | None = None

    def take(self, message: InboxMessage) -> None:
        """Add or remove a schedule of the user; a notice says why that is not possible."""
        try:
            match message:
                case AddSchedule(when, prompt):
                    self.session.append(self._with(when, prompt, by_model=False))
                case RemoveSchedule(name):
                    self.session.append(self._without(name))
                case _:
                    pass
        except UsageError as error:
            self.session.notice(str(error))

    def _with(self, when: str, prompt: str, *, by_model: bool) -> SchedulesSet:
        state = self.session.state
        next_time(when, 0)
        if not prompt.strip():
            raise UsageError(f"what is to be done, and when? {USAGE}")
        if len(state.schedules) >= SCHEDULES_MAX:
            raise UsageError(f"{SCHEDULES_MAX} things are scheduled already; remove one first")
        at, name = self.session.deps.clock.wall_us(), f"s{state.last_schedule + 1}"
        return SchedulesSet(
            (*state.schedules, Schedule(name, when, prompt[:PROMPT_CHARS_MAX], at, by_model))
        )

    def _without(self, name: str) -> SchedulesSet:
        known = self.session.state.schedules
        kept = tuple(one for one in known if one.id != name)
        if kept == known:
            raise UsageError(f"nothing is scheduled as {name}")
        return SchedulesSet(kept)

    # --- For the tools ---

    def created(self, when: str, prompt: str) -> tuple[str, SchedulesSet]:
        try:
            event = self._with(when, prompt, by_model=True)
        except UsageError as error:
            raise ToolError(f"[when] {error}.") from None
        return f"Scheduled: {describe(event.schedules[-1], self.session.state)}", event

    def removed(self, name: str) -> SchedulesSet:
        try:
            return self._without(name)
        except UsageError as error:
            raise ToolError(f"[no-schedule] {error}.") from None

    def lines(self) -> list[str]:
        return [describe(one, self.session.state) for one in self.session.state.schedules]

    # --- Firing ---

    def fire(self) -> None:
        """Record the schedules that are due, and drop those that have expired."""
        host, state = self.session, self.session.state
        now_us = host.deps.clock.wall_us()
        if not state.schedules or state.turn_open or host.deps.parent_policy is not None:
            return
        kept = tuple(
            one for one in state.schedules if now_us < one.created_at + EXPIRY_US or fires_once(one)
        )
        for one in state.schedules:
            if one not in kept:
                host.notice(
                    f"{one.id} ({one.when}) has ended after 7 days; schedule it again if it is "
                    "still needed"
                )
        if kept != state.schedules:
            host.append(SchedulesSet(kept))
        for one in kept:
            if fire_time(one, state) <= now_us:
                host.append(*external_event("cron_fired", _source(one), one.prompt))
        left = tuple(one for one in kept if not (fires_once(one) and one.id in host.state.fired))
        if left != kept:
            host.append(SchedulesSet(left))

    def arm(self) -> None:
        """Wake the session's loop when the next schedule is due."""
        state = self.session.state
        if not state.schedules or (self._nap is not None and not self._nap.done()):
            return
        now_us = self.session.deps.clock.wall_us()
        due_s = min(fire_time(one, state) for one in state.schedules) / 1e6 - now_us / 1e6
        self._nap = asyncio.ensure_future(_poke_after(self, min(NAP_MAX_S, due_s)))

    async def close(self) -> None:
        """Cancel the timer."""
        if self._nap is not None:
            self._nap.cancel()


async def _poke_after(part: SessionPart, seconds: float) -> None:
    """Wake the loop of a part's session after a time, at once for a negative one."""
    await part.session.deps.clock.sleep(max(0.0, seconds))
    part.session.poke()


def describe(schedule: Schedule, state: State) -> str:
    """Return a schedule as one line: name, time, next time, prompt."""
    at = datetime.fromtimestamp(fire_time(schedule, state) // 1_000_000)
    return (
        f"{schedule.id}  {schedule.when}  next {at:%a %d %b %H:%M}  "
        f"{msgspec.json.encode(schedule.prompt).decode()}"
    )


# --- Wake schedule --------------------------------------------------------------------------------
#
# Background news wakes an agent that waits for its user. The user's own messages come first, and
# several ends are one wake. What was told is folded from the log; only times are kept here.


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
            self._nap = asyncio.ensure_future(_poke_after(self, wait_s))

    @property
    def idle(self) -> bool:
        return not (self._due_s is not None or self.stays)

    async def close(self) -> None:
        """Cancel all timers."""
        for timer in (self._nap, self._end):
            if timer is not None:
                timer.cancel()

    # --- staying ----------------------------------------------------------------------------------

    def stay(self, how: str, limit_s: float) -> None:
        self.wanted = how == "steer"
        if self._end is not None:
            self._end.cancel()
        self._until_s = self._end = None
        if how in ("drain", "steer"):
            self._until_s = self._mono_s() + limit_s
            self._end = asyncio.ensure_future(_poke_after(self, limit_s))
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
        return tellable and tasks is not None and tasks.unfinished(self._after)

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
