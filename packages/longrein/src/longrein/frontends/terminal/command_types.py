"""Types of the slash commands: a command, its context, its result, and how the terminal is left."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from longrein.agent import InboxMessage, OpenSession, PendingMessage
from longrein.app import AppSession
from longrein.frontends.secret_input import SecretQuestion
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.event_lines import Line
from longrein.frontends.terminal.page_view import Page
from longrein.frontends.terminal.view_model import ViewModel
from longrein.frontends.terminal.window import TerminalWindow
from longrein_context.events.escape import whole_number

END_REASONS = {
    "exit": "prompt_input_exit",
    "switch": "resume",
    "new": "clear",
    "watch": "resume",
    "copy": "resume",
}
"""Kind of an outcome -> reason for hooks of the session's end."""


OutcomeKind = Literal["exit", "switch", "new", "watch", "copy"]


class Outcome(msgspec.Struct, frozen=True):
    """Reason for leaving the terminal. The session is closed by then."""

    kind: OutcomeKind
    """`switch`: open `session` next; `new`: open a new one; `watch`: show `session`, then come
    back; `copy`: open a copy of `session`.
    """
    session: str = ""
    folder: str = ""
    """Folder that the next session may work in, too."""
    code: int = 0
    tasks: Literal["", "stop", "keep"] = ""
    """The user's decision about running tasks; '' for each task's own policy."""

    @property
    def end_reason(self) -> str:
        """Reason for hooks of the session's end; a signal is `other`."""
        return "other" if self.code else END_REASONS[self.kind]


class Choices(msgspec.Struct, frozen=True):
    """A list to choose from. The plain terminal shows each row as the command to type."""

    title: str
    rows: Sequence[Row]
    chosen: "Callable[[str], MaybeAwaitable] | None" = None
    """Called with the value of a row; None: run the same command with the value as its argument."""
    hint: str = ""
    """Text under the rows on the plain terminal."""
    lasts: str = ""
    """How long the choice holds."""
    keeps: bool = False
    """True if `KEEP` after a value keeps the choice for new sessions."""
    preview: "Callable[[str], Awaitable[Sequence[str]]] | None" = None
    """Value of a row -> lines about it, shown below the list."""


class CommandResult(msgspec.Struct, frozen=True):
    """Output of a command, and the actions it asks for."""

    title: str = ""
    rows: Sequence[Line] = ()
    notice: str = ""
    """Line in place of the rows."""
    is_done: bool = False
    """True if `notice` tells what was done, so that it has no mark."""
    edit: str = ""
    """Text for the input."""
    edit_file: str = ""
    """File to open in the user's editor."""
    message: InboxMessage | None = None
    """A message to the session. Its effect arrives as an update, or is described by `notice`."""
    choices: Choices | None = None
    page: Page | None = None
    """Page that fills the screen; printed on the plain terminal."""
    outcome: Outcome | None = None
    secret: SecretQuestion | None = None
    """A question for a secret; the line that its function returns is shown."""
    follow_up: "Callable[[], CommandResult] | None" = None
    """Result to apply once the secret was taken."""


MaybeAwaitable = CommandResult | Awaitable[CommandResult]
"""Commands that need not wait return directly, so that messages reach the session in the order
typed.
"""


class Command(msgspec.Struct, frozen=True):
    """A command."""

    name: str
    argument: str
    summary: str
    run: "Callable[[CommandContext, str], MaybeAwaitable]"
    """Function of the context and the argument. May raise `LongreinError`."""
    aliases: tuple[str, ...] = ()
    idle_only: bool = False
    """True if the screen refuses it while a turn runs. The plain terminal accepts it: its lines
    run ahead of turns.
    """
    many_lines: bool = False


class MessageQueue:
    """Waiting messages of one session and its subagents.

    Their numbers are stable, so that `/queue N` never takes back another message.
    """

    def __init__(self, session: OpenSession) -> None:
        self._session = session
        self._numbers: dict[int, int] = {}
        self._last = 0

    def numbered(self) -> Sequence[tuple[int, PendingMessage]]:
        """Waiting messages with their numbers, in order of delivery.

        Numbers are given on the first call that sees a message. A prompt has 0: it waits for a
        moment only.
        """
        for waiting in self._session.pending:
            if waiting.id not in self._numbers:
                counts = waiting.how != "prompt" or bool(waiting.to)
                self._last += counts
                self._numbers[waiting.id] = self._last if counts else 0
        return [(self._numbers[waiting.id], waiting) for waiting in self._session.pending]

    def take(self, number: int = 0) -> PendingMessage | None:
        """Take a message back before delivery, the newest when `number` is 0. None when it was
        delivered.
        """
        found = [(its, waiting) for its, waiting in self.numbered() if number in (0, its)]
        if not found:
            return None
        newest = max(found, key=lambda pair: pair[0])[1]
        text = self._session.unqueue(newest.id)
        return msgspec.structs.replace(newest, text=text) if text else None


class CommandContext:
    """Open session and view model for the commands."""

    def __init__(self, opened: AppSession, view: ViewModel) -> None:
        self.opened = opened
        self.session: OpenSession = opened.session
        self.view = view
        self.queued_messages = MessageQueue(self.session)
        self.window: TerminalWindow | None = None
        """None on the plain terminal and without colours."""

    def label(self, subagent: str) -> str:
        known = self.view.activity.subagents.get(subagent)
        return (
            known.label
            if known
            else next((v.label for v in self.session.agents() if v.child == subagent), "")
        )

    def command_line_for(self, taken: PendingMessage) -> str:
        """Input text that sends a message again after it was taken back."""
        return f"/agents tell {self.label(taken.to)} {taken.text}" if taken.to else taken.text


def notice(text: str, *, edit: str = "") -> CommandResult:
    """Result that is one line of text."""
    return CommandResult(notice=text, edit=edit)


def done(text: str, *, edit: str = "") -> CommandResult:
    """Result that is one line about what was done."""
    return CommandResult(notice=text, edit=edit, is_done=True)


KEEP = "--keep"
"""Word after a choice that keeps it for new sessions, too."""
KEEPS = "for this session; Ctrl-S keeps it for new sessions, too"
KEEPS_LINE = f"for this session; {KEEP} after it keeps it for new sessions, too"
"""The same on the plain terminal."""


def without_keep(argument: str) -> tuple[str, bool]:
    """Return a choice without `KEEP`, and whether that word followed it."""
    choice, *more = argument.split()[:2] or [""]
    return (choice, True) if more == [KEEP] else (argument, False)


def leave(kind: OutcomeKind, session: str = "") -> CommandResult:
    """Result that leaves the session."""
    return CommandResult(outcome=Outcome(kind, session))


def number(text: str) -> int:
    """`text` as a number; -1 when it is not a number."""
    return whole_number(text, -1)
