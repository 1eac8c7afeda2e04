"""The facts: the closed union of events a session's log consists of.

Each event is frozen, in the past tense and complete in itself. A log is a list of entries `(seq, at, event)`; all
else (the conversation, the screen, the token count, what to do next) is a function of it.
"""

from typing import Any, Literal

import msgspec

from longrein.events.content import AnyPart, ProviderBlock

# --- What a request used, and the words for why one failed -----------------------------------------------------------


COUNT_MAX = 1_000_000_000
"""A larger count of tokens is no count."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider counted them. The four kinds do not overlap: they are priced apart."""

    input_tokens: int = 0
    """Input neither read from nor written to the cache."""
    cache_read_tokens: int = 0
    """Input read from the prompt cache."""
    cache_write_tokens: int = 0
    """Input written to the prompt cache."""
    output_tokens: int = 0
    """Output, reasoning included."""
    reasoning_tokens: int = 0
    """The part of the output that was reasoning."""

    @property
    def context_tokens(self) -> int:
        """All input, however it was priced."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


def is_count(value: object) -> bool:
    """Whether `value` can be a count of tokens: a whole number from 0 to `COUNT_MAX`."""
    return type(value) is int and 0 <= value <= COUNT_MAX


def counts_of(usage: Usage) -> Usage:
    """`usage` with 0 for every field that cannot be a count, such as -5, NaN or a text."""
    fields = [getattr(usage, name) for name in Usage.__struct_fields__]
    return usage if all(map(is_count, fields)) else Usage(*(value if is_count(value) else 0 for value in fields))


FailureKind = Literal[
    "rate",  # 429: wait as told
    "overload",  # 529 or 503 of an overloaded provider
    "server",  # other 5xx, 408, 409
    "network",  # no connection, reset
    "timeout",  # connect or first byte too late
    "stalled",  # silent in mid-stream: the idle watchdog
    "truncated",  # the stream ended without its terminal event
    "empty",  # an answer with neither text nor call
    "overflow",  # the context does not fit
    "auth",  # the key was refused
    "billing",  # no money, no quota
    "refused",  # the provider would not serve this request (policy)
    "invalid",  # 400, 404, 422: asking again is of no use
    "lost",  # longrein died while it waited
    "cancelled",  # the user interrupted before anything came
]

RETRYABLE: frozenset[str] = frozenset(
    {"rate", "overload", "server", "network", "timeout", "stalled", "truncated", "empty"}
)
"""Kinds that the same request may survive later. `lost` is asked again too, but without a wait."""


# --- facts -----------------------------------------------------------------------------------------------------------


SCHEMA_VERSION = 1
"""Version written into `Opened`. Older ones are lifted by `codec.UPCASTERS`, newer ones open read-only."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag=True):
    """One fact. Subclasses are the closed union `AnyEvent`."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value inside an event."""


# --- the values inside -------------------------------------------------------------------------------------------


class Parent(Record, frozen=True):
    """Where a subagent or a fork comes from."""

    session: str
    """Id of the parent or, for a fork, of the original."""
    seq: int
    """Last entry of the parent that this session shares."""
    call: str = ""
    """The `Agent` call that started it; empty for a fork."""


class Grant(Record, frozen=True):
    """What a session may spend. 0 means no limit of that kind."""

    usd: float = 0.0
    """Money."""
    tokens: int = 0
    """Input and output tokens together."""
    turns: int = 0
    """Requests of purpose `turn` in one run."""
    spawns: int = 0
    """Subagents that may be started below it, on all levels together."""
    depth: int = 0
    """Levels of subagents below it; here 0 means none."""
    seconds: float = 0.0
    """Wall time of one task, first entry to last."""


class ToolSpec(Record, frozen=True):
    """One tool as the model is told of it."""

    name: str
    """Name the model calls."""
    description: str
    """When to use it and how."""
    schema: dict[str, Any]
    """JSON schema of the arguments, keys in a fixed order."""


class SourceFile(Record, frozen=True):
    """A file whose text stands in the static context."""

    path: str
    """Absolute path."""
    hash: str
    """Content hash when it was read."""


class Form(Record, frozen=True):
    """How one item is shown from now on."""

    handle: str
    """Handle of the item: `r<seq>` or `r<seq>.<part>`."""
    form: str
    """`trimmed`, `placeholder` or `folded`: the last is no longer shown at all, a line elsewhere stands for it."""
    text: str
    """Exactly the text the model sees in its place. For a call: its arguments as JSON, with the same keys."""


class Todo(Record, frozen=True):
    """One line of the todo list."""

    content: str
    """What to do."""
    status: str = "pending"
    """`pending`, `in_progress` or `completed`."""
    active: str = ""
    """The same in the present participle, for the screen."""


class Goal(Record, frozen=True):
    """A goal of the project's graph as it is now."""

    id: int
    """Never reused."""
    title: str
    """What is to be reached."""
    status: str = "pending"
    """`pending`, `in_progress`, `completed` or `deleted`."""
    blocked_by: tuple[int, ...] = ()
    """Goals that must be completed first."""
    body: str = ""
    """What is known of it: criteria, notes, what came of it."""
    owner: str = ""
    """Who works on it: a session, or `a<seq>` of it; empty for nobody."""
    lease_until: int = 0
    """Until when the claim of `owner` holds, microseconds UTC."""
    revision: int = 0
    """Rises with each change, so that nobody overwrites what they have not seen."""


class FilePut(Record, frozen=True):
    """What a rewind did to one file."""

    path: str
    """Absolute path."""
    done: bool
    """Whether it is again as it was then."""
    why: str = ""
    """Why not."""
    removed: bool = False
    """It did not exist then, so that it was removed."""


# --- the session -------------------------------------------------------------------------------------------------


class Opened(Event, frozen=True):
    """The first entry of every session."""

    version: int
    """`SCHEMA_VERSION` of the writer."""
    session: str
    """UUID of the session."""
    nonce: str
    """Random sign that the harness's own markers carry."""
    roots: tuple[str, ...]
    """Absolute folders the session may work in; the first is where it started."""
    cwd: str
    """Absolute folder commands start in."""
    profile: str = "default"
    """Context policy: `default` or `seed`."""
    parent: Parent | None = None
    """Parent of a subagent or original of a fork."""
    grant: Grant | None = None
    """What it may spend."""
    pins: tuple[str, ...] = ()
    """Constraints inherited from the parent, verbatim."""
    kind: str = ""
    """Type of a subagent; empty for a session of the user."""
    label: str = ""
    """How a subagent is called on the screen and in task ids, such as `a398`."""


class PrefixSet(Event, frozen=True):
    """What stands before the conversation in each request from now on. A break."""

    reason: str
    """`start`, `model`, `tools`, `upgrade` or `compaction`."""
    provider: str
    """Provider as named in the settings."""
    model: str
    """Model id as the provider knows it."""
    wire: str
    """`anthropic`, `openai-chat`, `openai-responses`, `gemini` or `scripted`."""
    system: str
    """System text."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools in their fixed order."""
    context: tuple[str, ...] = ()
    """Static context, one text a source: instruction files, environment. Sent before the first message."""
    sources: tuple[SourceFile, ...] = ()
    """Files the static context was read from."""
    deferred: tuple[ToolSpec, ...] = ()
    """Tools the model can look up and call, but is not told of in full."""


class UserSpoke(Event, frozen=True):
    """The user said something."""

    parts: tuple[AnyPart, ...]
    """What was said: text, images, documents."""
    origin: str = "prompt"
    """`prompt`, `steer`, `queued` or `command`."""


class Reminded(Event, frozen=True):
    """The harness told the model something."""

    kind: str
    """Name in the event catalogue, such as `file_changed`."""
    text: str
    """As sent, marker included."""
    source: str = ""
    """What it was born of."""
    state: str = ""
    """The state it tells, so that the same is not told twice."""


class Asked(Event, frozen=True):
    """A request was made."""

    purpose: str
    """`turn` or `summary`."""
    reach: int
    """Last entry its view reaches."""
    prefix: int
    """Seq of the `PrefixSet` it starts with."""
    births: tuple[Form, ...] = ()
    """Birth forms of results that this request is the first to carry; a result not named here is whole."""
    estimate_tokens: int = 0
    """Estimated input."""
    reserved_usd: float = 0.0
    """Money held back for it."""
    focus: str = ""
    """For a summary: what the user wants kept."""
    first: int = 0
    """For a summary: first entry of the span that it will stand for."""
    last: int = 0
    """For a summary: last entry of that span."""
    reason: str = ""
    """For a summary: `ahead` (prepared beside the work), `watermark`, `request` or `overflow`."""


class Replied(Event, frozen=True):
    """The model answered a request."""

    asked: int
    """Seq of the `Asked`."""
    parts: tuple[AnyPart, ...]
    """Text, thinking and calls in the order of the reply."""
    stop: str
    """`end`, `calls`, `length`, `refusal` or `interrupted`."""
    usage: Usage = Usage()
    """As the provider counted; where `estimated` says so, our own estimate."""
    blocks: tuple[ProviderBlock, ...] = ()
    """Provider blocks of the parts."""
    cost_usd: float = 0.0
    """By the price table at that time."""
    model: str = ""
    """Model that the provider says answered."""
    estimated: tuple[str, ...] = ()
    """`input`, `output`: sides of `usage` that the provider did not count, or not believably."""


class AskFailed(Event, frozen=True):
    """A request got no usable answer."""

    asked: int
    """Seq of the `Asked`."""
    kind: str
    """A `FailureKind` word, see `usage`."""
    message: str = ""
    """One line for the user."""
    status: int = 0
    """HTTP status; 0 when there was none."""
    attempt: int = 1
    """1-based attempt at the same request."""
    retry_after_s: float = -1.0
    """What the provider asked us to wait; negative when it did not say."""
    limit_tokens: int = 0
    """The window as the error's text gives it; 0 when it does not."""
    assumed_usd: float = 0.0
    """Money assumed spent."""
    partial: str = ""
    """Blob of the part of the reply that had arrived."""


# --- permissions and hooks ---------------------------------------------------------------------------------------


class PermissionAsked(Event, frozen=True):
    """A call waits for the user's word."""

    call: str
    """Call id."""
    name: str
    """Tool name."""
    shown: str
    """Exactly the bytes the user is shown."""
    reason: str
    """Why it asks."""
    suggestion: str = ""
    """The rule that "always" would store."""


class PermissionAnswered(Event, frozen=True):
    """The answer to it."""

    call: str
    """Call id."""
    verdict: str
    """`allow` or `deny`."""
    by: str
    """`user`, `headless`, `hook` or `interrupt`."""
    scope: str = "once"
    """`once`, `session` or `always`."""
    rule: str = ""
    """Rule that was stored."""
    message: str = ""
    """What the user said with it; the model is told."""


class HookAnswered(Event, frozen=True):
    """A hook ran."""

    hook: str
    """Command or URL."""
    event: str
    """Hook event, such as `PreToolUse`."""
    decision: str
    """`none`, `allow`, `ask`, `deny` or `block`."""
    call: str = ""
    """Call id for tool events."""
    text: str = ""
    """What it said."""


# --- tools and files ---------------------------------------------------------------------------------------------


class ToolStarted(Event, frozen=True):
    """A call is about to act. On disk before the act."""

    call: str
    """Call id."""
    name: str
    """Tool name."""
    arguments: dict[str, Any] | None = None
    """Arguments after hooks; None when they are those of the call."""


class ToolEnded(Event, frozen=True):
    """What came of a call."""

    call: str
    """Call id."""
    name: str
    """Tool name."""
    status: str
    """`ok`, `failed`, `denied`, `interrupted` or `not_run`."""
    parts: tuple[AnyPart, ...]
    """Content for the model."""
    elapsed_ms: int = 0
    """Time from start to end."""
    raw: str = ""
    """Blob of a command's output byte for byte, where the text in `parts` leaves some of it out: escapes, overwritten
    lines, control characters, line breaks at its end. '' where nothing is left out, or a document in `parts` has it."""


class FileSeen(Event, frozen=True):
    """A file's content was given to the model."""

    path: str
    """Absolute real path."""
    hash: str
    """Hash of the whole file."""
    blob: str = ""
    """Blob of the whole content; empty above 5 MB."""
    whole: bool = True
    """Whether all of it was shown."""
    first: int = 0
    """First line that was shown, from 1; 0 when it was not shown as numbered lines."""
    last: int = 0
    """Last line that was shown."""
    again: str = ""
    """Handle of an earlier reading that still stands in the view: the content was not given once more."""


class FileChanged(Event, frozen=True):
    """A file has new content."""

    path: str
    """Absolute real path."""
    hash: str
    """Hash of the new content; empty when the file is gone."""
    by: str
    """`agent`, `subagent`, `command` or `user`."""
    blob: str = ""
    """Blob of the new content; empty above 5 MB."""
    before: str = ""
    """Hash of the content it replaced; empty for a new file."""
    diff: str = ""
    """Made by somebody else: all that changed, as numbered lines; empty when it was not small text."""
    note: str = ""
    """And in a few words of the harness what is to be said where there is no diff."""
    who: str = ""
    """Which of them, where it is known: a subagent's label, a task's id."""
    over: str = ""
    """Blob of what somebody else had written meanwhile and this write took out of the file; merged or told."""


class TodoSet(Event, frozen=True):
    """The todo list is now this."""

    todos: tuple[Todo, ...]
    """The whole list."""


class ModeSet(Event, frozen=True):
    """The permission mode is now this."""

    mode: str
    """`default`, `acceptEdits`, `plan` or `bypassPermissions`."""


class CwdSet(Event, frozen=True):
    """Commands start here now."""

    cwd: str
    """Absolute folder."""


class PinsSet(Event, frozen=True):
    """The pinned constraints are now these."""

    pins: tuple[str, ...]
    """Verbatim."""


# --- compaction --------------------------------------------------------------------------------------------------


class Cleared(Event, frozen=True):
    """Items are shown in a shorter form from now on. A break."""

    forms: tuple[Form, ...]
    """New forms."""
    reason: str
    """Why now."""
    gain_tokens: int = 0
    """Expected saving in each later request."""


class Summarized(Event, frozen=True):
    """A span of the conversation is shown as a summary from now on. A break."""

    first: int
    """First entry of the span."""
    last: int
    """Last entry of the span."""
    text: str
    """Exactly what the model sees in its place: preamble, ledger, prose, the user's words."""
    reason: str
    """`watermark`, `request`, `overflow`."""
    prose: str = ""
    """What the model wrote; empty for a digest made without a model."""
    ledger: str = ""
    """What code wrote."""
    files: tuple[str, ...] = ()
    """Files whose current content was put back."""
    asks: tuple[int, ...] = ()
    """The `Asked`s it cost."""
    reply: str = ""
    """Text of the fake assistant turn of the `seed` profile; empty otherwise."""
    struck: int = 0
    """Claims of the model's prose that occurred nowhere in the span and were taken out."""


class Restored(Event, frozen=True):
    """A `Cleared` or `Summarized` was undone. A break."""

    undone: int
    """Its seq."""


class Recalled(Event, frozen=True):
    """Bytes were brought back."""

    call: str
    """The `Recall` call; empty when the user asked."""
    handle: str = ""
    """What was asked for."""
    query: str = ""
    """Or searched for."""
    lines: str = ""
    """Range that was given, such as `1-40`."""
    size_bytes: int = 0
    """How much it brought."""
    path: str = ""
    """Absolute path of the file whose past was asked for."""
    when: str = ""
    """Time that was asked for, as it was written."""


# --- tasks, goals, children --------------------------------------------------------------------------------------


class TaskStarted(Event, frozen=True):
    """A process runs in the background, or waits for its turn. Said again with `running` when its turn has come."""

    task: str
    """Task id, such as `b3`; in a subagent `a398.b3`. Never used twice in a tree."""
    command: str
    """What runs."""
    call: str = ""
    """The call that started it."""
    limit_s: float = 0  # an int: only the very object that is the default is left out of JSON
    """Time limit; 0 for none."""
    state: str = "running"
    """`running` or `queued`."""
    policy: str = "keep"
    """What becomes of it when longrein is gone: `keep` (it goes on) or `stop`."""
    cwd: str = ""
    """Absolute folder it runs in."""
    promoted: str = ""
    """Why a foreground command went on in the background: `timeout`, `user`; empty when it was started there."""
    path: str = ""
    """File that its output grows in."""
    memory_bytes: int = 0
    """Memory limit of its tree; 0 for none."""
    cpu_s: float = 0
    """CPU limit of its tree; 0 for none."""


class TaskEnded(Event, frozen=True):
    """A background process is over."""

    task: str
    """Task id."""
    state: str
    """`done`, `failed`, `timed_out`, `killed` or `lost`."""
    code: int | None = None
    """Exit code; None when it is not known."""
    cause: str = ""
    """Signal, limit or who ended it."""
    output: str = ""
    """Blob of the output; empty when there was none."""
    elapsed_ms: int = 0
    """From its start to its end; 0 when it is not known."""
    size_bytes: int = 0
    """What it printed, also what was not kept."""
    elided_bytes: int = 0
    """What of that was not kept: the middle, beyond the quota or the room on the disk."""
    tail: str = ""
    """The end of the output."""


class GoalChanged(Event, frozen=True):
    """A goal is now this."""

    goal: Goal
    """As it is now."""


class ChildStarted(Event, frozen=True):
    """A subagent began, or was asked again. In one transaction with its `Opened`, or its next `UserSpoke`."""

    child: str
    """Its session."""
    kind: str
    """Subagent type."""
    call: str = ""
    """The `Agent` call."""
    grant: Grant | None = None
    """What it may spend."""
    index: int = 0
    """Its place among the subagents of one call, from 0; their reports are told in this order."""
    description: str = ""
    """What it does, in three to five words."""
    task: str = ""
    """What it was told to do."""
    form: str = "empty"
    """`empty` or `fork`."""
    background: bool = False
    """Whether its report comes later, not as the result of the call."""
    model: str = ""
    """`provider/model` it runs on."""
    worktree: str = ""
    """Git worktree it works in; empty for the parent's folders."""
    again: int = 0
    """Seq of its first `ChildStarted` when it is asked again; 0 else."""
    note: str = ""
    """What was granted otherwise than asked for, and why."""


class ChildEnded(Event, frozen=True):
    """A subagent is over. In one transaction with the `ToolEnded` that carries its report, when one does."""

    child: str
    """Its session."""
    status: str
    """`done`, `failed`, `limit` or `interrupted`."""
    report: str = ""
    """What it says; of one that did not finish, what it had."""
    usage: Usage = Usage()
    """What it used for this task, its own subagents included."""
    cost_usd: float = 0.0
    """What that cost."""
    steps: int = 0
    """Requests it made."""
    message: str = ""
    """Why it did not finish; one line."""
    files: tuple[str, ...] = ()
    """Files it changed, absolute."""
    worktree: str = ""
    """Branch or folder that was kept, with what is to be done with it; empty when there is nothing."""
    elapsed_ms: int = 0
    """From its start to its end."""
    spawned: int = 0
    """Subagents that were started below it for this task."""


# --- the walk ----------------------------------------------------------------------------------------------------


class Rewound(Event, frozen=True):
    """The conversation is again as it was. A break."""

    to: int
    """Last entry that still counts for the conversation; the end of a step."""
    files: tuple[FilePut, ...] = ()
    """Files that were put back, or why not."""


class Interrupted(Event, frozen=True):
    """The user stopped what was running."""

    text: str
    """The line that the model is told."""
    running: tuple[str, ...] = ()
    """Calls that were cut."""


class TurnEnded(Event, frozen=True):
    """The agent waits for the user again."""

    reason: str
    """`done`, `interrupted`, `limit`, `budget`, `blocked` or `error`."""
    message: str = ""
    """One line for the user when the reason is not `done`."""


AnyEvent = (
    Opened
    | PrefixSet
    | UserSpoke
    | Reminded
    | Asked
    | Replied
    | AskFailed
    | PermissionAsked
    | PermissionAnswered
    | HookAnswered
    | ToolStarted
    | ToolEnded
    | FileSeen
    | FileChanged
    | TodoSet
    | ModeSet
    | CwdSet
    | PinsSet
    | Cleared
    | Summarized
    | Restored
    | Recalled
    | TaskStarted
    | TaskEnded
    | GoalChanged
    | ChildStarted
    | ChildEnded
    | Rewound
    | Interrupted
    | TurnEnded
)


class Entry(msgspec.Struct, frozen=True):
    """One line of the log."""

    seq: int
    """1, 2, 3 … without a gap inside a session; the only order."""
    at: int
    """UTC in microseconds, for display and cache age, never for order."""
    event: AnyEvent
    """The fact."""
