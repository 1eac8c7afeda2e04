"""The inbox: what users say waits here, on disk, until the loop takes it into the log in one transaction.

Nothing reacts to the outside; the loop drains. What may be taken depends on the moment: steering at once, queued words
after the turn, answers when their call waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from longrein.agent.messages import (
    Answer,
    Compact,
    GoOn,
    Happened,
    Pending,
    Pin,
    Rewind,
    Said,
    SetMode,
    SetModel,
    StopChild,
    StopTask,
    Uncompact,
    Unpin,
    Word,
)
from longrein.agent.ports import Clock, Company, Crew, Limits, TaskDesk
from longrein.agent.redaction import Redact, redacted
from longrein.context import State, external_event, pending_notices
from longrein.events import (
    AnyEvent,
    ModeSet,
    PermissionAnswered,
    PinsSet,
    Reminded,
    UsageError,
    UserSpoke,
    marker,
    text_of,
)
from longrein.store import Log

PENDING_MAX = 1_000
"""Words that may wait; more are refused, so that no other process can fill the disk."""

COLLECT_EVERY_S = 0.5
"""How often an idle session looks for words that another process left."""

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Word)


class Inbox:
    """Words that were said and not yet taken."""

    def __init__(self, log: Log, redact: Redact) -> None:
        self._log, self._redact = log, redact
        self._words: list[tuple[int, Word]] = []
        self._wake = asyncio.Event()
        for message in log.inbox:
            self._admit(message.id, message.body)

    def _admit(self, number: int, body: bytes) -> None:
        try:
            self._words.append((number, _decoder.decode(body)))
        except msgspec.DecodeError:
            self._words.append((number, GoOn()))

    def put(self, word: Word) -> Awaitable[None]:
        """Keep a word; the awaitable is done when it is on disk."""
        if len(self._words) >= PENDING_MAX:
            raise UsageError(f"{PENDING_MAX} words wait already; let the session take some first")
        number, written = self._log.put(_encode(redacted(word, self._redact)), flush=True)
        self._words.append((number, word))
        self._wake.set()
        return asyncio.wrap_future(written)

    async def look(self) -> None:
        """Begin to drain: what is put from now on wakes the next `wait`."""
        self._wake.clear()
        await self.collect()

    async def collect(self) -> None:
        """Take in what other processes left in the session's folder."""
        for message in await self._log.collect():
            self._admit(message.id, message.body)
            self._wake.set()

    @property
    def waiting(self) -> bool:
        """Whether any word waits."""
        return bool(self._words)

    @property
    def pending(self) -> list[Pending]:
        """The user's words that wait, for the screen."""
        return [Pending(n, w.how, text_of(w.parts)) for n, w in self._words if isinstance(w, Said)]

    @property
    def mode_wanted(self) -> str:
        """The mode that the user has set and that is not in the log yet; '' for none."""
        return next((word.mode for _, word in reversed(self._words) if isinstance(word, SetMode)), "")

    def take_back(self, wanted: int = 0) -> tuple[int, Said] | None:
        """Waiting words of the user (the newest when 0), out of the inbox again."""
        for at in range(len(self._words) - 1, -1, -1):
            number, word = self._words[at]
            if isinstance(word, Said) and wanted in (0, number):
                del self._words[at]
                return number, word
        return None

    def take(self, may: Callable[[Word], bool]) -> tuple[int, Word] | None:
        """The first word that `may` be taken now, out of the inbox; None when there is none."""
        for at, (number, word) in enumerate(self._words):
            if may(word):
                del self._words[at]
                return number, word
        return None

    async def wait(self, clock: Clock) -> None:
        """Until a word is put, also by another process, or `poke`; at once if that was since `look`."""
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
        """Wake whoever waits."""
        self._wake.set()


def takes(state: State, word: Word, *, paused: bool, quiet: bool) -> bool:
    """Whether `word` may be taken into the log now, while nothing is running.

    `quiet`: all that was written so far is committed, so that the log can be read back for a rewind.
    """
    open_turn = state.turn_open and not paused
    match word:
        case Said(how=how):
            return how == "steer" or not open_turn
        case SetModel():
            return not state.calls
        case Rewind() | Uncompact():
            return quiet and not open_turn
        case Answer() | SetMode() | Compact() | Pin() | Unpin() | GoOn() | Happened() | StopChild() | StopTask():
            return True


def facts_of(word: Word, state: State) -> tuple[AnyEvent, ...]:  # noqa: PLR0911 - a line for each word
    """The entries a word becomes. Some, as `SetModel` and `GoOn`, are acts of the session, not facts by themselves."""
    match word:
        case Said(parts, how):
            # into a turn that is open (cut by a crash, or still going) words are steering, whatever they were meant as
            return (UserSpoke(parts, "steer" if state.turn_open else how),)
        case Answer(call, verdict, scope, rule, message, by):
            waits = call in state.calls and state.calls[call].answer is None
            return (PermissionAnswered(call, verdict, by, scope, rule, message),) if waits else ()
        case SetMode(mode):
            return (ModeSet(mode),) if mode != state.mode else ()
        case Compact(focus):
            return (Reminded("compact", "", "user", focus),)
        case Pin(text):
            return _pinned(state, (*state.pins, text)) if text.strip() and text not in state.pins else ()
        case Unpin(number):
            kept = tuple(pin for n, pin in enumerate(state.pins, 1) if n != number)
            return _pinned(state, kept) if kept != state.pins else ()
        case Happened(kind, source, text):
            return external_event(kind, source, text)
        case GoOn() if state.unanswered:
            return (Reminded("wake", "", "user"),)
        case SetModel() | Rewind() | Uncompact() | GoOn() | StopChild() | StopTask():
            return ()


def _pinned(state: State, pins: tuple[str, ...]) -> tuple[AnyEvent, ...]:
    return PinsSet(pins), told_pins(state.nonce, pins)


def told_pins(nonce: str, pins: tuple[str, ...]) -> Reminded:
    """The pins as the model is told of them, word for word."""
    head = marker(nonce, "pinned", "constraints of the user that hold until they are taken back")
    text = "\n".join([head, *(f"- {pin}" for pin in pins)]) if pins else f"{head}\n(none any more)"
    return Reminded("pins", text, "user")


# ---------------------------------------------------------------------------------------------------------------------
#
# News that wakes an agent which waits for its user, and how long a run of one prompt stays for such news.
#
# The user's own words always come first; many ends are one wake. What was told is folded from the log, here is only
# time.


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
        found = [one for one in pending_notices(state) if one.seq > self.since and one.kind in WAKING]
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
