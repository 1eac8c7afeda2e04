"""Messages between a frontend and a session.

A frontend puts an `InboxMessage` into the session's inbox and receives each `SessionUpdate`:
committed entries, and provisional news between them. Inbox messages are stored on disk as JSON with
the tag of their class, so a stored tag never changes (`Said`, `GoOn`, `Happened` and `StopChild`
are older names).
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec

from longrein.models import CallDelta, TextDelta, ThinkingDelta
from longrein_context import PROGRAM_KINDS, State, settled_usd
from longrein_context.events import AnyPart, Entry, FilePut, PermissionAsked, TaskEnded, UsageError

How = Literal["prompt", "steer", "queued", "command"]


class UserMessage(msgspec.Struct, frozen=True, tag="Said"):
    """A message of the user.

    `prompt` starts a turn, `steer` goes with the next request, `queued` waits for the end of the
    turn.
    """

    parts: tuple[AnyPart, ...]
    how: How = "prompt"
    to: str = ""
    """Session of the subagent that the message is for; '' for this session."""
    skill: str = ""
    """Skill or command whose text is the second part. `Session.tell` sets it; a frontend for a
    prompt of its own.
    """
    verbatim: bool = False
    """True if nothing that the text names is loaded: no skill, command or resource."""
    reference: str = ""
    """Name by which the sender finds the turn of the message in `Inbox.first_entries`; '' for
    none.
    """


class Answer(msgspec.Struct, frozen=True, tag=True):
    """The user's answer to a permission question.

    It allows exactly the bytes that were shown. `rule` holds the rules to grant, one per line; all
    of them must have been proposed.
    """

    call: str
    verdict: Literal["allow", "deny"]
    scope: Literal["once", "session", "always"] = "once"
    rule: str = ""
    message: str = ""
    by: str = "user"
    session: str = ""
    """Session of the subagent that made the call; '' for this session."""
    digest: str = ""
    """`approval_digest` of what was shown; '' for what the session asked last."""
    arguments: dict[str, Any] | None = None
    """With `allow`: arguments that the call is to run with, in place of the model's."""


def approval_digest(question: PermissionAsked) -> str:
    """Return the hash of what an approval covers: the tool, the exact text shown, the places
    that were judged.
    """
    covered = "\0".join((question.name, question.shown, *question.places))
    return sha256(covered.encode("utf-8", "surrogatepass")).hexdigest()


NETWORK_CALL = "network-"
"""Start of the ids of questions about hosts, which no call of the model asks."""


class SetMode(msgspec.Struct, frozen=True, tag=True):
    """Change the permission mode."""

    mode: str


class SetTitle(msgspec.Struct, frozen=True, tag=True):
    """Give the session a title."""

    title: str


class SetModel(msgspec.Struct, frozen=True, tag=True):
    """Change the model to `provider/model`. A break."""

    model: str


class Compact(msgspec.Struct, frozen=True, tag=True):
    """Compact the conversation before the next request."""

    focus: str = ""


class Uncompact(msgspec.Struct, frozen=True, tag=True):
    """Undo the clearing or summary at `seq`, the last one for 0. A break."""

    seq: int = 0


class Pin(msgspec.Struct, frozen=True, tag=True):
    """Keep a constraint word for word through every compaction, also in subagents."""

    text: str


class Unpin(msgspec.Struct, frozen=True, tag=True):
    """Drop the pinned constraint with this number, counted from 1."""

    number: int


class AddSchedule(msgspec.Struct, frozen=True, tag=True):
    """Let `prompt` come back at set times: `5m`, `2h`, `1d`, or a cron line of five fields."""

    when: str
    prompt: str


class RemoveSchedule(msgspec.Struct, frozen=True, tag=True):
    """Remove a schedule."""

    name: str


class Rewind(msgspec.Struct, frozen=True, tag=True):
    """Go back to entry `to`; with `files`, restore the files too."""

    to: int
    files: bool = False
    conversation: bool = True
    """False to restore only the files: the conversation stays, and the model is told of changed
    files.
    """
    overwrite: bool = False
    """True to restore also files that somebody else has changed since."""


class Continue(msgspec.Struct, frozen=True, tag="GoOn"):
    """Continue an open turn after a resume, or ask again after a turn without a reply.

    Sent by Enter on an empty line, and by `-p` with `-c`.
    """


class ExternalEvent(msgspec.Struct, frozen=True, tag="Happened"):
    """News from outside for the model: from an editor, a server, a timer or another agent.

    It starts no turn, and `text` reaches the model quoted, as data.
    """

    kind: str
    """An external kind of `context.KINDS`, such as `diagnostics`; any other is dropped."""
    source: str = ""
    """Subject of the news: a file, a server, a sender. For a state, the latest for each source
    counts.
    """
    text: str = ""
    """Text for the model; for a state, '' clears it."""


def program_event(kind: str, text: str, source: str = "") -> ExternalEvent:
    """Return the message with which a program reports an event. Raises `UsageError` for another
    kind.
    """
    if kind not in PROGRAM_KINDS:
        raise UsageError(
            f"there is no kind of event {kind!r}; kinds are {', '.join(PROGRAM_KINDS)}"
        )
    return ExternalEvent(kind, source, text)


class CommandRun(msgspec.Struct, frozen=True, tag=True):
    """A command that the user ran with `!`, once it has ended. It starts no turn."""

    command: str
    output: str
    status: str = "ok"
    """`ok`, `failed` or `interrupted`."""
    cwd: str = ""
    """Folder that it changed to; '' when it did not."""


class StopSubagent(msgspec.Struct, frozen=True, tag="StopChild"):
    """Stop a subagent; its report holds what it has so far."""

    child: str
    """Session of the subagent."""


class StopTask(msgspec.Struct, frozen=True, tag=True):
    """Stop a background task."""

    task: str


InboxMessage = (
    UserMessage
    | Answer
    | SetMode
    | SetTitle
    | SetModel
    | Compact
    | Uncompact
    | Pin
    | Unpin
    | AddSchedule
    | RemoveSchedule
    | Rewind
    | Continue
    | ExternalEvent
    | CommandRun
    | StopSubagent
    | StopTask
)


def for_subagent(message: InboxMessage) -> str:
    """Return the session of the subagent that a message is for; '' for the receiving session."""
    match message:
        case UserMessage(to=session) | Answer(session=session) | StopSubagent(session):
            return session
        case _:
            return ""


class ReplyDelta(msgspec.Struct, frozen=True):
    """More of the streamed reply to request `asked`.

    Provisional: never stored, and replaced by its `Replied` or `AskFailed`.
    """

    asked: int
    deltas: Sequence[TextDelta | ThinkingDelta | CallDelta]
    purpose: Literal["turn", "summary"] = "turn"
    """Purpose of the request."""


class Output(msgspec.Struct, frozen=True):
    """More output of a running call. Provisional."""

    call: str
    data: bytes


class RetryPause(msgspec.Struct, frozen=True):
    """A pause before request `asked` is made again, or before the provider takes any request.
    Provisional.
    """

    asked: int
    kind: str
    status: int
    attempt: int
    """Failed attempts so far; 0 when another agent's request was refused."""
    attempts_max: int
    delay_s: float
    message: str


class UserNotice(msgspec.Struct, frozen=True):
    """A line for the user: a warning, a repair at open, a diagnosis. Provisional."""

    text: str


class TaskOver(msgspec.Struct, frozen=True):
    """The end of a background task while a move runs.

    Provisional: its entry, with the output, follows after that move.
    """

    ended: TaskEnded


class FromSubagent(msgspec.Struct, frozen=True):
    """An update of a subagent below this session; its entries are in its own log."""

    child: str
    """Session of the subagent."""
    label: str
    """Label of the subagent, such as `a398`; of a nested one `a398.a12`."""
    kind: str
    """Subagent type."""
    heard: "Entry | ReplyDelta | Output | RetryPause | UserNotice | TaskOver"


SessionUpdate = Entry | ReplyDelta | Output | RetryPause | UserNotice | TaskOver | FromSubagent


class PendingMessage(msgspec.Struct, frozen=True):
    """A user message that is still in the inbox."""

    id: int
    how: How
    text: str
    to: str = ""
    """Session of the subagent it is for; '' for this session."""


class SubagentView(msgspec.Struct, frozen=True):
    """Current state of one subagent, for display."""

    label: str
    """`a398`; of a nested one `a398.a12`."""
    child: str
    """Session of the subagent."""
    kind: str
    description: str
    state: str
    """`queued`, `running`, `asking` (waits for a permission answer), `done`, `failed`, `limit`
    or `interrupted`.
    """
    elapsed_s: float = 0.0
    steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    last: str = ""
    """Its latest action, in one line."""
    model: str = ""
    depth: int = 1


class RewindPreview(msgspec.Struct, frozen=True):
    """Effects that a rewind with files would have now. Paths are absolute."""

    restored: tuple[str, ...] = ()
    """Files that get their old content back."""
    removed: tuple[str, ...] = ()
    """Files that did not exist then."""
    kept: tuple[FilePut, ...] = ()
    """Files that stay as they are, with the reason."""
    notes: tuple[str, ...] = ()
    """What else the user should know, a line each."""
    missing: tuple[str, ...] = ()
    """Those of the notes that tell what commands changed and no checkpoint holds."""


def session_usd(state: State, agents: Sequence[SubagentView]) -> float:
    """Return the US dollars that an open session and its subagents have spent, without reserves."""
    working = working_agents(state, agents)
    return settled_usd(state, {}) + sum(one.cost_usd for one in working)


def working_agents(state: State, agents: Sequence[SubagentView]) -> Sequence[SubagentView]:
    """Return the subagents of a session itself whose end is not in its log yet."""
    working = {name for name, child in state.children.items() if child.ended is None}
    return [one for one in agents if one.child in working]
