"""The inbox of a session, and the schedule of turns that start without the user.

Messages wait on disk until the loop takes them into the log, in one transaction with the entries
they become. The current move decides which may be taken: steering messages at once, queued ones
after the turn, answers while their call waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from longrein.agent.messages import (
    AddSchedule,
    Answer,
    CommandRun,
    Compact,
    Continue,
    ExternalEvent,
    InboxMessage,
    PendingMessage,
    Pin,
    RemoveSchedule,
    Rewind,
    SetMode,
    SetModel,
    SetTitle,
    StopChild,
    StopTask,
    Uncompact,
    Unpin,
    UserMessage,
)
from longrein.agent.redaction import Redact, redacted
from longrein.agent.schedules import ScheduleTimer
from longrein.agent.user_command_entry import command_events
from longrein.context import State, external_event, is_repeated, pending_notices
from longrein.events import (
    AnyEvent,
    AnyPart,
    ModeSet,
    PermissionAnswered,
    PinsSet,
    Reminded,
    TitleSet,
    UsageError,
    UserSpoke,
    marker,
    text_of,
    without_attachments,
)
from longrein.events.escape import one_line
from longrein.models import Clock
from longrein.settings_schema import Limits
from longrein.store import Log

if TYPE_CHECKING:
    from longrein.agent.session import Session

PENDING_MAX = 1_000
"""Limit of waiting messages, so that another process cannot fill the disk."""

COLLECT_EVERY_S = 0.5
"""Interval in which an idle session looks for messages of other processes."""

encode_message = msgspec.json.Encoder().encode
"""Encode an `InboxMessage` as it is stored; another process leaves it with
`store.leave_message`.
"""
_decoder = msgspec.json.Decoder(InboxMessage)


class Inbox:
    """Messages that are not in the log yet."""

    def __init__(self, log: Log, redact: Redact) -> None:
        self._log, self._redact = log, redact
        self._messages: list[tuple[int, InboxMessage]] = []
        self._foreign: set[int] = set()
        self._wake = asyncio.Event()
        self.first_entries: dict[str, int] = {}
        """Reference of a taken message -> the first entry that it became."""
        for message in log.inbox:
            self._admit(message.id, message.body)

    def _admit(self, number: int, body: bytes) -> None:
        try:
            message = _decoder.decode(body)
        except msgspec.DecodeError:
            message = Continue()
        if isinstance(message, UserMessage) and message.reference:  # of an earlier process
            message = msgspec.structs.replace(message, reference="")
        self._messages.append((number, message))

    def put(self, message: InboxMessage) -> Awaitable[None]:
        """Store a message; the awaitable is done when it is on disk. Raises `UsageError` when
        the inbox is full.
        """
        if len(self._messages) >= PENDING_MAX:
            raise UsageError(
                f"{PENDING_MAX} messages wait already; let the session take some first"
            )
        number, written = self._log.put(encode_message(redacted(message, self._redact)), flush=True)
        self._messages.append((number, message))
        self._wake.set()
        return asyncio.wrap_future(written)

    async def look(self) -> None:
        """Start to drain: a message put from now on wakes the next `wait`."""
        self._wake.clear()
        await self.collect()

    async def collect(self) -> None:
        """Read messages that other processes left in the session's folder."""
        for message in await self._log.collect():
            self._admit(message.id, message.body)
            self._foreign.add(message.id)
            self._wake.set()

    def is_foreign(self, number: int) -> bool:
        """Return True for a message of another process, which may neither answer questions nor
        set the mode.
        """
        return number in self._foreign

    @property
    def waiting(self) -> bool:
        """True when a message waits."""
        return bool(self._messages)

    @property
    def pending(self) -> list[PendingMessage]:
        """Waiting user messages, for the screen."""
        return [
            PendingMessage(n, w.how, text_of(typed(w)))
            for n, w in self._messages
            if isinstance(w, UserMessage)
        ]

    @property
    def mode_wanted(self) -> str:
        """The permission mode that waits to be set; '' for none."""
        return next(
            (
                message.mode
                for _, message in reversed(self._messages)
                if isinstance(message, SetMode)
            ),
            "",
        )

    def take_back(self, wanted: int = 0) -> tuple[int, UserMessage] | None:
        """Remove and return a waiting user message (the newest for 0); None when there is none."""
        for number, message in reversed(self._messages):
            if isinstance(message, UserMessage) and wanted in (0, number):
                self._messages.remove((number, message))
                return number, message
        return None

    def take(self, may: Callable[[InboxMessage], bool]) -> tuple[int, InboxMessage] | None:
        """Remove and return the first message for which `may` is true; None when there is none."""
        taken = next((one for one in self._messages if may(one[1])), None)
        if taken is not None:
            self._messages.remove(taken)
        return taken

    async def wait(self, clock: Clock) -> None:
        """Wait for a message, also from another process, or `poke`; return at once if one came
        since `look`.
        """
        while not self._wake.is_set():
            nap = asyncio.ensure_future(clock.sleep(COLLECT_EVERY_S))
            woken = asyncio.ensure_future(self._wake.wait())
            try:
                await asyncio.wait((nap, woken), return_when=asyncio.FIRST_COMPLETED)
            finally:
                nap.cancel()
                woken.cancel()
            if not self._wake.is_set():
                await self.collect()

    def poke(self) -> None:
        """Wake the waiter."""
        self._wake.set()


def typed(message: UserMessage) -> tuple[AnyPart, ...]:
    """Return the parts that the user wrote, without the text of a skill and of attached files."""
    return without_attachments(
        (message.parts[0], *message.parts[2:]) if message.skill else message.parts
    )


def can_take(state: State, message: InboxMessage, *, paused: bool, quiet: bool) -> bool:
    """Return True if a message may be taken into the log now, while nothing runs.

    `quiet`: everything written so far is committed, so the log can be read back for a rewind.
    """
    open_turn = state.turn_open and not paused
    match message:
        case UserMessage(how=how):
            return how == "steer" or not open_turn
        case SetModel():
            return not state.calls
        case Rewind() | Uncompact():
            return quiet and not open_turn
        case _:
            return True


def events_of(message: InboxMessage, state: State) -> tuple[AnyEvent, ...]:  # noqa: C901, PLR0911 - a line for each message
    """Convert a message to log entries; none for a message such as `SetModel`, which the session
    acts on.
    """
    match message:
        case UserMessage(parts, how, skill=skill, verbatim=verbatim):
            # in an open turn, also one that a crash cut, every message is a steering message
            return (UserSpoke(parts, "steer" if state.turn_open else how, skill, verbatim),)
        case Answer(call, verdict, scope, rule, said, by):
            waits = call in state.calls and state.calls[call].answer is None
            return (
                (PermissionAnswered(call, verdict, by, scope, rule, said, message.arguments),)
                if waits
                else ()
            )
        case SetMode(mode):
            return (ModeSet(mode),) if mode != state.mode else ()
        case SetTitle(title):
            line = one_line(title)
            return (TitleSet(line),) if line and line != state.title else ()
        case Compact(focus):
            return (Reminded("compact", "", "user", focus),)
        case Pin(text):
            return (
                _pinned(state, (*state.pins, text))
                if text.strip() and text not in state.pins
                else ()
            )
        case Unpin(number):
            kept = tuple(pin for n, pin in enumerate(state.pins, 1) if n != number)
            return _pinned(state, kept) if kept != state.pins else ()
        case ExternalEvent(kind, source, text):
            return tuple(
                event
                for event in external_event(kind, source, text)
                if not is_repeated(state, event)
            )
        case CommandRun():
            return command_events(message, state.nonce, state.cwd)
        case Continue() if state.unanswered:
            return (Reminded("wake", "", "user"),)
        case SetModel() | Rewind() | Uncompact() | Continue() | StopChild() | StopTask():
            return ()
        case AddSchedule() | RemoveSchedule():
            return ()


def _pinned(state: State, pins: tuple[str, ...]) -> tuple[AnyEvent, ...]:
    return PinsSet(pins), pins_reminder(state.nonce, pins)


def pins_reminder(nonce: str, pins: tuple[str, ...]) -> Reminded:
    """Build the reminder that tells the model the pins, word for word."""
    head = marker(nonce, "pinned", "constraints of the user that hold until they are taken back")
    text = "\n".join([head, *(f"- {pin}" for pin in pins)]) if pins else f"{head}\n(none any more)"
    return Reminded("pins", text, "user")


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


class WakeSchedule:
    """Decide when a session starts a turn by itself, and how long a one-prompt run waits."""

    def __init__(self, host: "Session") -> None:
        self.since = host.state.seq
        """Notices up to this entry wake nobody: they were there at the open, or a rewind brought
        them back.
        """
        self._host, self._clock = host, host.deps.clock
        self.wanted = host.deps.task_options.wake
        """False when wakes are disabled."""
        self._due_s: float | None = None
        self._nap: asyncio.Task[None] | None = None
        self.schedules = ScheduleTimer(host)
        self.in_a_row = 0
        """Wakes since the user's last message."""
        self._until_s: float | None = None
        """Monotonic end of a one-prompt run's wait; None when it does not wait."""
        self._asks = 0
        """Requests before that run."""
        self._after = 0
        """Only tasks started after this entry are waited for."""
        self._end: asyncio.Task[None] | None = None

    # --- waking -----------------------------------------------------------------------------------

    def due(self) -> Reminded | None:
        """Return the wake when its time has come; the first call after news starts the delay."""
        source = self._news() if self._may_ask else ""
        if not source:
            self._due_s = None
            return None
        now = self._clock.mono_s()
        if self._due_s is None:
            self._due_s = now + self._host.deps.task_options.wake_after_s
        if now < self._due_s:
            return None
        self._due_s = None
        self.in_a_row += 1
        return Reminded("wake", "", source)

    def _news(self) -> str:
        """Return the newest untold notice that is worth a wake; '' for none."""
        state = self._host.state
        if state.turn_open or state.seq == self.since or self.in_a_row >= IN_A_ROW_MAX:
            return ""
        kinds = WAKING if self.wanted else SCHEDULED
        found = [
            one for one in pending_notices(state) if one.seq > self.since and one.kind in kinds
        ]
        return f"{found[-1].kind} r{found[-1].seq}" if found else ""

    @property
    def pausing(self) -> bool:
        """True while a wake is about to become due."""
        return self._due_s is not None

    def rouse(self) -> None:
        """Wake the session's loop when the wake or a schedule is due."""
        self.schedules.arm()
        if self._due_s is not None and (self._nap is None or self._nap.done()):
            self._nap = self._later(self._due_s - self._clock.mono_s(), self._host.poke)

    def _later(self, seconds: float, call: Callable[[], None]) -> "asyncio.Task[None]":
        async def wait() -> None:
            await self._clock.sleep(max(0.0, seconds))
            call()

        return asyncio.ensure_future(wait())

    def stop(self) -> None:
        """Cancel all timers."""
        self.schedules.stop()
        for timer in (self._nap, self._end):
            if timer is not None:
                timer.cancel()

    # --- staying ----------------------------------------------------------------------------------

    def stay(self, how: str, limit_s: float) -> None:
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
        """True while a one-prompt run waits for background work."""
        host = self._host
        if self._until_s is None or host.interrupting or self._clock.mono_s() >= self._until_s:
            return False
        if host.subagents is not None and host.subagents.running:
            return True
        tellable = self._may_ask or not self.wanted  # do not wait for an end that cannot be told
        return (
            tellable
            and host.own_background_tasks is not None
            and host.own_background_tasks.unfinished(self._after)
        )

    @property
    def _may_ask(self) -> bool:
        """True while the run may start a turn by itself: a limit of turns counts all of them."""
        most = self._host.deps.limits.turns_max
        return self._until_s is None or not most or self._host.state.asks - self._asks < most

    @property
    def limits(self) -> Limits:
        """Limits of the present turn; in a run that starts turns by itself, what is left of
        them.
        """
        limits, state = self._host.deps.limits, self._host.state
        before = max(0, state.asks - state.steps - self._asks)
        if self._until_s is None or not limits.turns_max or not before:
            return limits
        return msgspec.structs.replace(limits, turns_max=max(1, limits.turns_max - before))
