"""The inbox of a session.

Messages wait on disk until the loop takes them into the log, in one transaction with the entries
they become. The current move decides which may be taken: steering messages at once, queued ones
after the turn, answers while their call waits.
"""

import asyncio
from collections.abc import Awaitable, Callable

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
    StopSubagent,
    StopTask,
    Uncompact,
    Unpin,
    UserMessage,
)
from longrein.agent.redaction import Redact, redacted
from longrein.models import Clock
from longrein.store import Log
from longrein_context import State, external_event, is_repeated
from longrein_context.events import (
    AnyEvent,
    AnyPart,
    CwdSet,
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
from longrein_context.events.escape import one_line
from longrein_context.state.quoting import quote_external

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

    def note_first_entry(self, reference: str, seq: int) -> None:
        """Remember the entry with which the message of a reference begins; '' is none."""
        if reference:
            self.first_entries[reference] = seq

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
        case SetModel() | Rewind() | Uncompact() | Continue() | StopSubagent() | StopTask():
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


# --- Commands of the user -------------------------------------------------------------------------

USER_COMMAND = "user_command"
OUTPUT_CHARS_MAX = 20_000
"""Output that the model and the log get: half of it from the beginning, half from the end."""
USER_COMMAND_HEAD = (
    "the user ran this command in the session's folder; its output follows. It is no request "
    "of its own"
)


def shortened_output(text: str) -> str:
    """Return `text`, without its middle when it is longer than `OUTPUT_CHARS_MAX`."""
    if len(text) <= OUTPUT_CHARS_MAX:
        return text
    half = OUTPUT_CHARS_MAX // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def command_events(ran: CommandRun, nonce: str, cwd: str) -> tuple[AnyEvent, ...]:
    """Return the entries for a command that has ended: what the model reads, and the folder that
    it changed to.
    """
    quoted = quote_external(f"$ {ran.command}\n{ran.output}", nonce)
    head = marker(nonce, USER_COMMAND, USER_COMMAND_HEAD)
    told = Reminded(USER_COMMAND, f"{head}\n{quoted}", ran.command, ran.output)
    return (told, CwdSet(ran.cwd)) if ran.cwd and ran.cwd != cwd else (told,)
