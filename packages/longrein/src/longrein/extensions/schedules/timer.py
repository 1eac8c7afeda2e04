"""Schedules of a session: prompts of the user that come back at set times while the session is open
and idle.

A schedule is in the log (`SchedulesSet`), and so is each time it fires (`Reminded` of kind
`cron_fired`); the next time follows from both. Times that were missed while longrein was closed or
busy fire once.
"""

import asyncio
from collections.abc import Sequence

from longrein.agent.extension_part import ExtensionPart, SlashCommand, Surroundings
from longrein.agent.messages import AddSchedule, InboxMessage, RemoveSchedule
from longrein.agent.wakes import poke_after
from longrein.app.additions import Additions
from longrein.app.run_context import RunContext
from longrein.extensions.schedules.cron_tools import CREATE, cron_tools
from longrein.extensions.schedules.times import (
    EXPIRY_US,
    USAGE,
    describe,
    fire_time,
    fires_once,
    next_time,
    split_when,
)
from longrein.steps.human_text import escape_line
from longrein.tools import Tool
from longrein_context import external_event
from longrein_context.events import Schedule, SchedulesSet, ToolError, UsageError

SCHEDULES_MAX = 50
PROMPT_CHARS_MAX = 4_000
NAP_MAX_S = 60.0
"""Longest sleep between two looks, because a suspended machine does not count it."""
NOTHING = "nothing is scheduled; /loop 30m PROMPT does PROMPT now and every 30 minutes"


def _source(schedule: Schedule) -> str:
    whose = ", which you have scheduled yourself" if schedule.by_model else ""
    return f"{schedule.id} ({schedule.when}){whose}"


class ScheduleTimer(ExtensionPart):
    """Adds, removes and fires the schedules of one open session."""

    rank = 44

    _tools: Sequence[Tool] = ()

    def __init__(self, *, for_model: bool = False) -> None:
        """`for_model`: the model may schedule, too."""
        self._for_model = for_model
        self._nap: asyncio.Task[None] | None = None

    def attach(self, place: Surroundings) -> None:
        if (prefix := place.state.prefix) is not None:
            self._for_model = CREATE in {spec.name for spec in prefix.callable_tools}
        if self._for_model:
            self._tools = cron_tools(self)
            place.tools.update({tool.spec.name: tool for tool in self._tools})

    @property
    def offered(self) -> Sequence[Tool]:
        return self._tools

    def slash_commands(self) -> Sequence[SlashCommand]:
        return (
            SlashCommand(
                "loop",
                "EVERY PROMPT",
                "do PROMPT now and again every 5m, 2h …, for 7 days",
                lambda text: AddSchedule(*split_when(text)),
            ),
            SlashCommand(
                "schedule",
                "[CRON PROMPT | remove ID]",
                "what comes back at set times, such as 0 9 * * 1-5",
                self._schedule,
                "scheduled in this session",
            ),
        )

    def _schedule(self, text: str) -> Sequence[str] | InboxMessage:
        word, _, rest = text.partition(" ")
        if word == "remove":
            return RemoveSchedule(rest.strip())
        if text:
            return AddSchedule(*split_when(text))
        return [escape_line(row) for row in self.lines()] or [NOTHING]

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
            raise ToolError(f"[when] {error}. Nothing was scheduled; give another time.") from None
        return f"Scheduled: {describe(event.schedules[-1], self.session.state)}", event

    def removed(self, name: str) -> SchedulesSet:
        try:
            return self._without(name)
        except UsageError as error:
            raise ToolError(f"[no-schedule] {error}. List what is scheduled first.") from None

    def lines(self) -> list[str]:
        return [describe(one, self.session.state) for one in self.session.state.schedules]

    # --- Firing ---

    def rest(self) -> None:
        """Record the schedules that are due, drop those that have expired, and wake the session's
        loop when the next one is due.
        """
        self._fire()
        self._arm()

    def _fire(self) -> None:
        host, state = self.session, self.session.state
        now_us = host.deps.clock.wall_us()
        if not state.schedules or state.turn_open:
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

    def _arm(self) -> None:
        state = self.session.state
        if not state.schedules or (self._nap is not None and not self._nap.done()):
            return
        now_us = self.session.deps.clock.wall_us()
        due_s = min(fire_time(one, state) for one in state.schedules) / 1e6 - now_us / 1e6
        self._nap = asyncio.ensure_future(poke_after(self, min(NAP_MAX_S, due_s)))

    async def close(self) -> None:
        """Cancel the timer."""
        if self._nap is not None:
            self._nap.cancel()


def schedule_timer(run_context: RunContext, additions: Additions) -> ScheduleTimer:
    """Make the timer of a session. The model may schedule where the settings say so and somebody
    waits for it.
    """
    return ScheduleTimer(for_model=additions.asks_user and run_context.settings.tools.schedules)
