"""What a frontend may say to a session and what it hears from it. Words go in by the inbox, entries come out."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Literal, Protocol

import msgspec

from longrein.context import State
from longrein.events import AnyPart, Entry, TaskEnded
from longrein.models import CallDelta, TextDelta, ThinkingDelta
from longrein.tools import TaskView

How = Literal["prompt", "steer", "queued", "command"]


class UserMessage(msgspec.Struct, frozen=True, tag="Said"):
    """Words of the user. `steer` goes with the next request, `queued` after the turn, `prompt` starts a turn."""

    parts: tuple[AnyPart, ...]
    how: How = "prompt"
    to: str = ""
    """Session of the subagent that is spoken to; '' for this session."""


class Answer(msgspec.Struct, frozen=True, tag=True):
    """The user's word on a call that asked."""

    call: str
    verdict: Literal["allow", "deny"]
    scope: Literal["once", "session", "always"] = "once"
    rule: str = ""
    message: str = ""
    by: str = "user"
    session: str = ""
    """Session of the subagent whose call it is; '' for this session."""


class SetMode(msgspec.Struct, frozen=True, tag=True):
    """Change the permission mode."""

    mode: str


class SetModel(msgspec.Struct, frozen=True, tag=True):
    """Change the model, `provider/model`. A break."""

    model: str


class Compact(msgspec.Struct, frozen=True, tag=True):
    """Make room now."""

    focus: str = ""


class Uncompact(msgspec.Struct, frozen=True, tag=True):
    """Undo a clearing or summary: the one at `seq`, or the last one when 0. A break."""

    seq: int = 0


class Pin(msgspec.Struct, frozen=True, tag=True):
    """Keep this constraint word for word through every compaction, here and in subagents."""

    text: str


class Unpin(msgspec.Struct, frozen=True, tag=True):
    """Drop the pinned constraint with this number, from 1."""

    number: int


class Rewind(msgspec.Struct, frozen=True, tag=True):
    """Go back to entry `to`; with `files`, put files back too."""

    to: int
    files: bool = False


class Continue(msgspec.Struct, frozen=True, tag="GoOn"):
    """Go on with a turn that is open after a resume, or that ended without a reply (Enter on an empty line; `-p` with
    `-c`)."""


class ExternalEvent(msgspec.Struct, frozen=True, tag="Happened"):
    """Something outside that the model should hear of, from an editor, a server, a timer or another agent.

    It is no word of the user: it starts no turn, and `text` reaches the model quoted, as data.
    """

    kind: str
    """A kind of `context.KINDS` that is fed from outside, such as `diagnostics`; any other is dropped."""
    source: str = ""
    """What it is about: a file, a server, a sender. Of a state the latest for each source counts."""
    text: str = ""
    """What is to be told; of a state '' when there is nothing any more."""


class StopChild(msgspec.Struct, frozen=True, tag=True):
    """End this subagent; it keeps what it had and its report says so."""

    child: str
    """Its session."""


class StopTask(msgspec.Struct, frozen=True, tag=True):
    """End this background task."""

    task: str


InboxMessage = (
    UserMessage
    | Answer
    | SetMode
    | SetModel
    | Compact
    | Uncompact
    | Pin
    | Unpin
    | Rewind
    | Continue
    | ExternalEvent
    | StopChild
    | StopTask
)


def for_child(word: InboxMessage) -> str:
    """Session of the subagent that a word is for; '' for the session it was said to."""
    match word:
        case UserMessage(to=child) | Answer(session=child) | StopChild(child):
            return child
        case _:
            return ""


class ReplyDelta(msgspec.Struct, frozen=True):
    """Provisional: more of the reply to request `asked`. Never stored; superseded by its `Replied` or `AskFailed`."""

    asked: int
    deltas: Sequence[TextDelta | ThinkingDelta | CallDelta]


class Output(msgspec.Struct, frozen=True):
    """Provisional: more output of a running call."""

    call: str
    data: bytes


class RetryPause(msgspec.Struct, frozen=True):
    """Provisional: request `asked` failed and is made again after a pause, or the provider wants none for a while."""

    asked: int
    kind: str
    status: int
    attempt: int
    """Attempts that have failed; 0 when it is another request, of this tree of agents, that was refused."""
    attempts_max: int
    delay_s: float
    message: str


class UserNotice(msgspec.Struct, frozen=True):
    """Provisional: one line for the user (a warning, a repair at open, a floor diagnosis)."""

    text: str


class TaskOver(msgspec.Struct, frozen=True):
    """Provisional: a task has ended in the middle of an act. Its entry follows between two acts, with its output."""

    ended: TaskEnded


class FromSubagent(msgspec.Struct, frozen=True):
    """Something that a subagent below this session made heard; its entries are in its own log."""

    child: str
    """Its session."""
    label: str
    """How it is called, such as `a398`; of one further down `a398.a12`."""
    kind: str
    """Its type."""
    heard: "Entry | ReplyDelta | Output | RetryPause | UserNotice | TaskOver"


SessionUpdate = Entry | ReplyDelta | Output | RetryPause | UserNotice | TaskOver | FromSubagent


class PendingMessage(msgspec.Struct, frozen=True):
    """A message that has not been taken into the log."""

    id: int
    how: How
    text: str
    to: str = ""
    """Session of the subagent it is for."""


class SubagentView(msgspec.Struct, frozen=True):
    """One subagent, now."""

    label: str
    """`a398`; one further down `a398.a12`."""
    child: str
    """Its session."""
    kind: str
    description: str
    state: str
    """`queued`, `running`, `asking` (waits for the user's word), `done`, `failed`, `limit` or `interrupted`."""
    elapsed_s: float = 0.0
    steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    last: str = ""
    """What it did last, in one line."""
    model: str = ""
    depth: int = 1


class SessionPort(Protocol):
    """One open session. All methods belong to the loop's thread.

    `longrein.agent.Session` is the one implementation; `app.open_session` builds it.
    """

    id: str
    state: State
    """The log folded so far; read, never change."""

    @property
    def pending(self) -> Sequence[PendingMessage]:
        """Queued and steering messages not yet taken, in order."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a turn is going on."""
        ...

    def tell(self, word: InboxMessage) -> Awaitable[None]:
        """Put a word into the inbox at once; the awaitable is done when it is on disk. Need not be awaited."""
        ...

    def interrupt(self) -> None:
        """Stop what is running, now. Nothing that was queued is lost. No effect when idle."""
        ...

    def unqueue(self, number: int = 0) -> str:
        """Take a pending message (the newest when 0) back for editing; '' when there is none."""
        ...

    def agents(self) -> Sequence[SubagentView]:
        """Subagents below this session, each followed by its own; those that are over too."""
        ...

    def tasks(self) -> Sequence[TaskView]:
        """Background tasks of this session and its subagents."""
        ...

    def background(self) -> bool:
        """Send the command that runs in the foreground to the background (Ctrl-B); False when none can be."""
        ...

    def cancel(self, call: str) -> None:
        """Stop one running call; the others go on. No effect on one that does not run."""
        ...

    def follow(self, seq: int = 0, *, streaming: bool = True) -> AsyncIterator[SessionUpdate]:
        """Entries after `seq`, then live ones as they are committed, mixed with provisional ones. Ends at `close`.

        Without `streaming` no `ReplyDelta` and no `Output` come, which saves their cost.
        """
        ...

    def stay(self, how: str, limit_s: float = 0.0) -> None:
        """How `run(once=True)` ends, from now on, when tasks or subagents still work in the background: `exit` (it
        returns), `drain` (it waits for them and writes their ends down) or `steer` (each end begins a turn; it waits
        for what is started from now on, not for what was there before), both for at most `limit_s`. A limit of turns
        counts all requests since this was said."""
        ...

    async def leave(self, policy: str) -> Sequence[TaskView]:
        """Before `close`, when nothing runs: with `stop` every background task is ended, with `keep` those that may
        not outlive longrein; their ends are written down. Gives those that go on."""
        ...

    async def run(self, *, once: bool) -> None:
        """The loop. With `once` it returns when the turn has ended and nothing is queued (headless); else it waits
        for more words until `close`. Raises only our own errors (`StoreFull` …)."""
        ...

    async def close(self) -> None:
        """End running tools, flush the log, release the lock."""
        ...
