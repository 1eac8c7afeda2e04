"""Event types: the closed union of events in a session's log.

Each event is frozen, named in the past tense and complete in itself. A log is a list of entries
`(seq, at, event)`. The conversation, the screen, the token count and the next move are functions of
the log.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from longrein_context.events.content import AnyPart, ProviderBlock, Text

# --- Token usage and failure kinds ----------------------------------------------------------------

COUNT_MAX = 1_000_000_000  # Maximum of a valid token count


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as counted by the provider. The first four kinds do not overlap and have separate
    prices.
    """

    input_tokens: int = 0  # Input neither read from nor written to the cache
    cache_read_tokens: int = 0  # Input read from the prompt cache
    cache_write_tokens: int = 0  # Input written to the prompt cache
    output_tokens: int = 0  # Output, reasoning included
    reasoning_tokens: int = 0  # Reasoning tokens within the output
    web_searches: int = (
        0  # Searches of the web that the provider ran; they have a price of their own
    )
    cache_write_hour_tokens: int = 0  # Part of `cache_write_tokens` that is kept for an hour

    @property
    def context_tokens(self) -> int:
        """All input tokens."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """All input and output tokens."""
        return self.context_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.web_searches + other.web_searches,
            self.cache_write_hour_tokens + other.cache_write_hour_tokens,
        )


def is_count(value: object) -> bool:
    """Return True if `value` is a valid token count: a whole number from 0 to `COUNT_MAX`."""
    return type(value) is int and 0 <= value <= COUNT_MAX


def counts_of(usage: Usage) -> Usage:
    """Return `usage` with 0 for every invalid count, such as -5, NaN or a text."""
    fields = [getattr(usage, name) for name in Usage.__struct_fields__]
    return (
        usage
        if all(map(is_count, fields))
        else Usage(*(value if is_count(value) else 0 for value in fields))
    )


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
"""Kinds after which the same request is retried. `lost` is retried too, without a wait."""


# --- Base types -----------------------------------------------------------------------------------

# Version in `Opened`. Older logs are converted by `codec.UPCASTERS`; newer ones open read-only.
SCHEMA_VERSION = 1


class Visibility(NamedTuple):
    """Places where an event appears. `tests/events/test_visibility.py` compares them with the
    code of each place.
    """

    shown: Literal["both", "terminal", "headless", "no"]
    """Frontends that draw it: `terminal/event_lines.py` or `view_model.py`,
    `headless/stream_json.py`.
    """
    searchable: bool
    """True if a search finds its text; `store/entry_parts.py` says which text, and takes all
    of it by default.
    """
    in_ledger: bool  # Whether `context/state/ledger.py` records it


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag=True):
    """Base of events. The closed union is `AnyEvent`."""

    visibility: ClassVar[Visibility]  # Declared by every event; there is no default

    def __init_subclass__(cls) -> None:
        if "visibility" not in vars(cls):
            raise TypeError(
                f"{cls.__name__}: declare where the event appears, `visibility = Visibility(…)`"
            )


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of values inside events."""


# --- Values inside events -------------------------------------------------------------------------


class Parent(Record, frozen=True):
    """Parent of a subagent, or original of a fork."""

    session: str  # Id of the parent or, for a fork, of the original
    seq: int  # Last entry of the parent that this session shares
    call: str = ""  # The `Agent` call that started it; empty for a fork


class Grant(Record, frozen=True):
    """Spending limits of a session. 0 means no limit, except for `depth`."""

    usd: float = 0.0  # Money
    tokens: int = 0  # Input and output tokens together
    turns: int = 0  # Requests of purpose `turn` in one run
    spawns: int = 0  # Subagents that may be started below it, on all levels together
    depth: int = 0  # Levels of subagents below it; here 0 means none
    seconds: float = 0.0  # Wall time of one task, in seconds


class ToolTraits(Record, frozen=True):
    """Properties of a tool that the engine and the frontends use. No request holds them."""

    kind: str = ""
    """`read`, `search`, `edit`, `write`, `shell`, `agent` or `other`; '' for the kind of tools
    with this name.
    """
    quiet: bool = False
    """True if successful calls are left out of the ledger, because other records hold them or
    none needs them.
    """
    polls: bool = False
    """True if the tool queries a status, so that repeated calls with equal results are no
    repetition.
    """
    key_argument: str = ""
    """Argument that describes a call in one line."""
    task_argument: str = ""
    """Argument that names a background task whose end the result reports, so that no notice has
    to.
    """
    hosted: bool = False
    """True if the provider runs the tool itself, within its reply."""


class ToolSpec(Record, frozen=True):
    """Description of a tool for the model."""

    name: str  # Name the model calls
    description: str  # When to use it and how
    schema: dict[str, Any]  # JSON schema of the arguments, keys in a fixed order
    traits: ToolTraits | None = (
        None  # None in logs of versions that did not write them, and for foreign tools
    )

    @property
    def sent(self) -> tuple[str, str, dict[str, Any]]:
        """The part that requests hold."""
        return self.name, self.description, self.schema


class SourceFile(Record, frozen=True):
    """File whose text is in the static context."""

    path: str  # Absolute path
    hash: str  # Hash of the content that was read


class Form(Record, frozen=True):
    """Form in which an item is shown from now on."""

    handle: str  # Handle of the item: `r<seq>` or `r<seq>.<part>`
    # `trimmed`, `placeholder` or `folded`; a folded item is not shown, a line elsewhere represents
    # it
    form: str
    # Exact text that the model sees instead. For a call: its arguments as JSON, with the same keys.
    text: str


class Todo(Record, frozen=True):
    """A line of the todo list."""

    content: str  # What to do
    status: str = "pending"  # `pending`, `in_progress` or `completed`
    active: str = ""  # Present participle of `content`, for the screen


class Goal(Record, frozen=True):
    """Present state of a goal."""

    id: int  # Never reused
    title: str  # Aim, in one line
    status: str = "pending"  # `pending`, `in_progress`, `completed` or `deleted`
    blocked_by: tuple[int, ...] = ()  # Goals that must be completed first
    body: str = ""  # Criteria, notes and results
    owner: str = ""  # Session that works on it, or `a<seq>` of a subagent; empty for none
    lease_until: int = 0  # End of the owner's claim, microseconds UTC
    revision: int = (
        0  # Increases with each change, so that an agent cannot overwrite a change it has not seen
    )


class FilePut(Record, frozen=True):
    """Effect of a rewind on one file."""

    path: str  # Absolute path
    done: bool  # Whether its old content was restored
    why: str = ""  # Reason when it was not restored
    removed: bool = False  # Whether it was removed because it did not exist then


# --- Session and conversation ---------------------------------------------------------------------


class Opened(Event, frozen=True):
    """First entry of every session."""

    visibility = Visibility(shown="no", searchable=False, in_ledger=True)
    version: int  # `SCHEMA_VERSION` of the writer
    session: str  # UUID of the session
    nonce: str  # Random text that longrein's own markers contain
    roots: tuple[
        str, ...
    ]  # Absolute folders the session may work in; the first is where it started
    cwd: str  # Absolute folder where commands start
    profile: str = "default"  # Context policy: `default` or `seed`
    parent: Parent | None = None  # Parent of a subagent or original of a fork
    grant: Grant | None = None  # Spending limits
    pins: tuple[str, ...] = ()  # Constraints inherited from the parent, verbatim
    kind: str = ""  # Type of a subagent; empty for a session of the user
    label: str = ""  # Label of a subagent on the screen and in task ids, such as `a398`
    branch: str = ""  # Git branch at the start; empty for none
    one_shot: bool = False  # True for a run of `longrein -p`, which lists show apart


class PrefixSet(Event, frozen=True):
    """Prefix of each request from now on: system text, tools, static context. A break."""

    visibility = Visibility(shown="terminal", searchable=True, in_ledger=False)
    reason: str  # `start`, `model`, `tools`, `upgrade` or `compaction`
    provider: str  # Provider as named in the settings
    model: str  # Model id as the provider knows it
    wire: str  # `anthropic`, `openai-chat`, `openai-responses`, `gemini` or `scripted`
    system: str  # System text
    tools: tuple[ToolSpec, ...] = ()  # Tools in their fixed order
    context: tuple[str, ...] = ()
    """Static context, one text per source: instruction files, environment. Sent before the first
    message.
    """
    sources: tuple[SourceFile, ...] = ()  # Files that the static context was read from
    deferred: tuple[ToolSpec, ...] = ()
    """Tools that the model can find with `ToolSearch`; their schemas are not in the prefix."""

    @property
    def context_paths(self) -> tuple[str, ...]:
        """The file of each text of `context`; '' for the environment and the list of skills.

        Texts stand between marks that name their kind; in logs of the first versions without marks
        the environment comes first.
        """
        kinds = [text.partition("\n")[0].rpartition(" ")[2] for text in self.context]
        marked = [
            kind == "instructions]" if text.startswith("[longrein:") else n > 0
            for n, (kind, text) in enumerate(zip(kinds, self.context, strict=True))
        ]
        paths = iter(source.path for source in self.sources)
        return tuple(next(paths, "") if is_file else "" for is_file in marked)

    @property
    def callable_tools(self) -> tuple[ToolSpec, ...]:
        """Every tool that the model was told of."""
        return (*self.tools, *self.deferred)


class UserSpoke(Event, frozen=True):
    """Message of the user."""

    visibility = Visibility(shown="terminal", searchable=True, in_ledger=True)
    parts: tuple[AnyPart, ...]  # Text, images and documents of the message
    origin: str = "prompt"  # `prompt`, `steer`, `queued` or `command`
    skill: str = ""  # Skill or custom command that the user named; its text is the second part
    verbatim: bool = False  # True if nothing that the text names is loaded

    @property
    def typed(self) -> tuple[AnyPart, ...]:
        """The parts without the text of a skill: what the user wrote."""
        return (self.parts[0], *self.parts[2:]) if self.skill else self.parts


class Reminded(Event, frozen=True):
    """Reminder from longrein to the model."""

    visibility = Visibility(shown="both", searchable=True, in_ledger=True)
    kind: str  # Name in the catalogue of reminders, such as `file_changed`
    text: str  # Text as sent, including the marker
    source: str = ""  # Cause of the reminder
    state: str = ""  # State that the text reports, so that the same state is not reported twice


class Asked(Event, frozen=True):
    """Request to the model."""

    visibility = Visibility(shown="both", searchable=False, in_ledger=False)
    purpose: str  # `turn` or `summary`
    reach: int  # Last entry in its view
    prefix: int  # Seq of the `PrefixSet` that it begins with
    births: tuple[Form, ...] = ()
    """Forms of results that are sent for the first time; results not named here are sent in
    full.
    """
    estimate_tokens: int = 0  # Estimated input
    reserved_usd: float = 0.0  # Money reserved for it
    focus: str = ""  # For a summary: what to keep in detail, in the user's words
    first: int = 0  # For a summary: first entry of the span
    last: int = 0  # For a summary: last entry of the span
    # For a summary: `ahead` (prepared in the background), `watermark`, `request` or `overflow`
    reason: str = ""


class Replied(Event, frozen=True):
    """Reply of the model."""

    visibility = Visibility(shown="both", searchable=True, in_ledger=False)
    asked: int  # Seq of the `Asked`
    parts: tuple[AnyPart, ...]  # Text, thinking and calls in the order of the reply
    stop: str
    """`end`, `calls`, `length`, `refusal`, `interrupted`, or `calls_in_text`: the text ends with a
    call, and was read as one if `parts` has calls.
    """
    usage: Usage = (
        Usage()
    )  # Usage as counted by the provider, or estimated where `estimated` says so
    blocks: tuple[ProviderBlock, ...] = ()  # Provider blocks of the parts
    cost_usd: float = 0.0  # Cost by the price table at that time
    model: str = ""  # Model named in the provider's reply
    estimated: tuple[
        str, ...
    ] = ()  # `input`, `output`: sides of `usage` without a credible count from the provider


class AskFailed(Event, frozen=True):
    """Request that got no usable answer."""

    visibility = Visibility(shown="both", searchable=True, in_ledger=False)
    asked: int  # Seq of the `Asked`
    kind: str  # A `FailureKind`
    message: str = ""  # One line for the user
    status: int = 0  # HTTP status; 0 when there was none
    attempt: int = 1  # 1-based attempt at the same request
    retry_after_s: float = (
        -1.0
    )  # Wait that the provider asked for, in seconds; negative when it did not
    limit_tokens: int = 0  # Window size from the error's text; 0 when it has none
    assumed_usd: float = 0.0  # Money that was probably spent
    partial: str = ""  # Blob of the partial reply
    attempts_max: int = 0  # Attempts that are worth while after this failure; 0: the usual number


# --- Permissions and hooks ------------------------------------------------------------------------


class PermissionAsked(Event, frozen=True):
    """Call that waits for the user's permission."""

    visibility = Visibility(shown="terminal", searchable=False, in_ledger=True)
    call: str  # Call id
    name: str  # Tool name
    shown: str  # Exact text shown to the user
    reason: str  # Why permission is needed
    suggestion: str = ""  # Rules that "always" would store, one per line
    places: tuple[
        str, ...
    ] = ()  # Real paths that were judged; of a command the current folder and links
    exact: str = ""  # Rule that covers this command alone
    edits: bool = False  # True if `acceptEdits` would allow it, as every edit of the session


class PermissionAnswered(Event, frozen=True):
    """Answer to a `PermissionAsked`."""

    visibility = Visibility(shown="terminal", searchable=True, in_ledger=True)
    call: str  # Call id
    verdict: str  # `allow` or `deny`
    by: str  # `user`, `headless`, `hook` or `interrupt`
    scope: str = "once"  # `once`, `session` or `always`
    rule: str = ""  # Rules that were granted, one per line
    message: str = ""  # User's message to the model
    arguments: dict[str, Any] | None = None  # Arguments it runs with, where the answer changed them


class HookAnswered(Event, frozen=True):
    """Run of a hook."""

    visibility = Visibility(shown="no", searchable=True, in_ledger=False)
    hook: str  # Command or URL
    event: str  # Hook event, such as `PreToolUse`
    decision: str  # `none`, `allow`, `ask`, `deny`, `block` or `stop`
    call: str = ""  # Call id for tool events
    text: str = ""  # Reason of its decision; told to the model unless the result of a call has it
    context: str = ""  # Text for the model, told before the next request
    message: str = ""  # Line for the user: a warning, or what is wrong with the hook
    arguments: dict[str, Any] | None = None  # Input that it put in place of the call's
    source: str = ""  # File that configures it
    elapsed_ms: int = 0  # Time it took
    failed: bool = False  # Whether it could not be run or its answer could not be read
    usage: Usage = Usage()  # Tokens of a model that it asked
    cost_usd: float = 0.0  # What that cost
    variables: dict[str, str] = {}  # Variables that it sets for later commands


# --- Tools and files ------------------------------------------------------------------------------


class ToolStarted(Event, frozen=True):
    """Start of a call. Flushed to disk before the tool acts."""

    visibility = Visibility(shown="terminal", searchable=True, in_ledger=True)
    call: str  # Call id
    name: str  # Tool name
    arguments: dict[str, Any] | None = (
        None  # Arguments after hooks; None when they are those of the call
    )


class ToolEnded(Event, frozen=True):
    """End of a call, with its result."""

    visibility = Visibility(shown="both", searchable=True, in_ledger=True)
    call: str  # Call id
    name: str  # Tool name
    status: str  # `ok`, `failed`, `denied`, `interrupted` or `not_run`
    parts: tuple[AnyPart, ...]  # Content for the model
    elapsed_ms: int = 0  # Time from start to end
    raw: str = ""
    """Blob of a command's exact output, when the text in `parts` omits escapes, overwritten
    lines, control characters or line breaks at the end. '' when nothing is omitted, or when a
    document in `parts` has the exact output.
    """


class FileSeen(Event, frozen=True):
    """File content that was shown to the model."""

    visibility = Visibility(shown="no", searchable=False, in_ledger=True)
    path: str  # Absolute real path
    hash: str  # Hash of the whole file
    blob: str = ""  # Blob of the whole content; empty above 5 MB
    whole: bool = True  # Whether the whole file was shown
    first: int = 0  # First line shown, from 1; 0 when the file was not shown as numbered lines
    last: int = 0  # Last line shown
    # Handle of an earlier reading in the view that has this content, which was therefore not
    # repeated
    again: str = ""


class FileChanged(Event, frozen=True):
    """New content of a file."""

    visibility = Visibility(shown="no", searchable=True, in_ledger=True)
    path: str  # Absolute real path
    hash: str  # Hash of the new content; empty when the file is gone
    by: str  # `agent`, `subagent`, `command` or `user`
    blob: str = ""  # Blob of the new content; empty above 5 MB
    before: str = ""  # Hash of the content it replaced; empty for a new file
    # For a change by others: the whole change as numbered lines; empty when it is not a small text
    diff: str = ""
    note: str = ""  # Description of the change when there is no diff
    who: str = ""  # Label of the subagent or id of the task that made the change, if known
    # Blob of a concurrent change by others that this write replaced, after a merge or a report of
    # it
    over: str = ""
    mode: int | None = None  # Permissions that the file had, where the agent removed it


class TodoSet(Event, frozen=True):
    """New todo list."""

    visibility = Visibility(shown="terminal", searchable=True, in_ledger=True)
    todos: tuple[Todo, ...]  # The whole list


class ModeSet(Event, frozen=True):
    """New permission mode."""

    visibility = Visibility(shown="both", searchable=True, in_ledger=True)
    mode: str  # One of `choices.MODES`


class CwdSet(Event, frozen=True):
    """New current folder of commands."""

    visibility = Visibility(shown="no", searchable=True, in_ledger=True)
    cwd: str  # Absolute folder


class TitleSet(Event, frozen=True):
    """New title of the session, given by the user."""

    visibility = Visibility(shown="terminal", searchable=True, in_ledger=False)
    title: str  # One line


class PinsSet(Event, frozen=True):
    """New list of pinned constraints."""

    visibility = Visibility(shown="no", searchable=True, in_ledger=True)
    pins: tuple[str, ...]  # Constraints, verbatim


class Schedule(Record, frozen=True):
    """Prompt that comes back at set times."""

    id: str  # Name, such as `s1`; never reused in a session
    # Interval such as `5m`, `in 5m` or `at 9:30` for once, or a cron line of five fields; in local
    # time
    when: str
    prompt: str  # The user's words
    created_at: int = 0  # Microseconds UTC
    by_model: bool = False  # True if `prompt` is the model's, who scheduled it with a tool


class SchedulesSet(Event, frozen=True):
    """New list of schedules."""

    visibility = Visibility(shown="terminal", searchable=True, in_ledger=False)
    schedules: tuple[Schedule, ...]


# --- Compaction -----------------------------------------------------------------------------------


class Cleared(Event, frozen=True):
    """Clearing: items are shown in a shorter form from now on. A break."""

    visibility = Visibility(shown="both", searchable=False, in_ledger=False)
    forms: tuple[Form, ...]  # New forms
    reason: str  # Reason for clearing now
    gain_tokens: int = 0  # Expected saving in each later request


class Summarized(Event, frozen=True):
    """Summary: a span of the conversation is shown as this text from now on. A break."""

    visibility = Visibility(shown="both", searchable=True, in_ledger=True)
    first: int  # First entry of the span
    last: int  # Last entry of the span
    text: str  # Exact text that the model sees instead: preamble, ledger, prose, the user's words
    reason: str  # `watermark`, `request`, `overflow`
    prose: str = ""  # Prose by the model; empty for a digest
    ledger: str = ""  # Records by code
    files: tuple[str, ...] = ()  # Files whose current content was added
    asks: tuple[int, ...] = ()  # Seqs of the `Asked` for it
    reply: str = ""  # Text of the fake assistant turn of the `seed` profile; empty otherwise
    struck: int = (
        0  # Number of claims removed from the prose because the span does not contain them
    )


class Restored(Event, frozen=True):
    """Undo of a `Cleared` or `Summarized`. A break."""

    visibility = Visibility(shown="terminal", searchable=False, in_ledger=False)
    undone: int  # Seq of the undone entry


class Recalled(Event, frozen=True):
    """Recall of earlier content."""

    visibility = Visibility(shown="no", searchable=False, in_ledger=False)
    call: str  # Id of the `Recall` call; empty for a request of the user
    handle: str = ""  # Handle of the content
    query: str = ""  # Words that were searched
    lines: str = ""  # Range that was returned, such as `1-40`
    size_bytes: int = 0  # Size of the returned content
    path: str = ""  # Absolute path of the requested file
    when: str = ""  # Requested time, as written


# --- Background tasks, goals, subagents -----------------------------------------------------------


class TaskStarted(Event, frozen=True):
    """Background task that runs or is queued. A queued task gets a second event with `running`
    when it starts.
    """

    visibility = Visibility(shown="both", searchable=True, in_ledger=True)
    task: str  # Task id, such as `b3`; in a subagent `a398.b3`. Never reused in a tree.
    command: str  # Shell command
    call: str = ""  # Call that started it
    limit_s: float = 0  # an int: only the very object that is the default is left out of JSON
    """Time limit in seconds; 0 for none."""
    state: str = "running"  # `running` or `queued`
    policy: str = "keep"  # `keep` or `stop`: whether it continues when longrein exits
    cwd: str = ""  # Absolute folder it runs in
    promoted: str = ""
    """Reason why a foreground command continued in the background: `timeout`, `user`; '' if it
    started there.
    """
    path: str = ""  # File of its output
    memory_bytes: int = 0  # Memory limit of its process tree; 0 for none
    cpu_s: float = 0  # CPU limit of its process tree in seconds; 0 for none
    outside_sandbox: bool = False  # Whether the user allowed it to run outside the sandbox


class TaskEnded(Event, frozen=True):
    """End of a background task."""

    visibility = Visibility(shown="both", searchable=True, in_ledger=True)
    task: str  # Task id
    state: str  # `done`, `failed`, `timed_out`, `killed` or `lost`
    code: int | None = None  # Exit code; None when unknown
    cause: str = ""  # Signal, limit or person that ended it
    output: str = ""  # Blob of the output; empty when there was none
    elapsed_ms: int = 0  # Duration; 0 when unknown
    size_bytes: int = 0  # Size of its whole output
    elided_bytes: int = (
        0  # Output that was not kept: the middle, beyond the quota or the free space on disk
    )
    tail: str = ""  # End of the output


class GoalChanged(Event, frozen=True):
    """New state of a goal, by a change or first seen."""

    visibility = Visibility(shown="terminal", searchable=True, in_ledger=False)
    goal: Goal  # Present state


class SubagentStarted(Event, frozen=True, tag="ChildStarted"):
    """Start or continuation of a subagent. In one transaction with its `Opened`, or its next
    `UserSpoke`.
    """

    visibility = Visibility(shown="both", searchable=True, in_ledger=True)
    child: str  # Session id of the subagent
    kind: str  # Subagent type
    call: str = ""  # Id of the `Agent` call
    grant: Grant | None = None  # Spending limits
    index: int = 0  # Index among the subagents of one call, from 0; reports are shown in this order
    description: str = ""  # Task in three to five words
    task: str = ""  # Task as given to the subagent
    form: str = "empty"  # `empty` or `fork`
    background: bool = False  # Whether its report comes later and not as the result of the call
    model: str = ""  # `provider/model` of the subagent
    worktree: str = ""  # Git worktree it works in; empty for the parent's folders
    again: int = 0  # Seq of its first `SubagentStarted` when it continues; 0 for a new subagent
    note: str = ""  # How the grant differs from the request, and why
    location: str = ""  # Host that runs it; empty for its session's process


class SubagentEnded(Event, frozen=True, tag="ChildEnded"):
    """End of a subagent. In one transaction with the `ToolEnded` that has its report, if there
    is one.
    """

    visibility = Visibility(shown="both", searchable=True, in_ledger=True)
    child: str  # Session id of the subagent
    status: str  # `done`, `failed`, `limit` or `interrupted`
    report: str = ""  # Report, or the last text of a subagent that did not finish
    usage: Usage = Usage()  # Usage for this task, including its own subagents
    cost_usd: float = 0.0  # Cost of that usage
    steps: int = 0  # Number of requests
    message: str = ""  # Why it did not finish; one line
    files: tuple[str, ...] = ()  # Absolute paths of the files it changed
    worktree: str = ""  # Branch or folder that was kept, with what to do with it; empty for none
    elapsed_ms: int = 0  # Duration
    spawned: int = 0  # Number of subagents started below it for this task


class CheckpointTaken(Event, frozen=True):
    """Checkpoint: a copy of the work tree, kept so that a rewind can restore what commands
    changed.
    """

    visibility = Visibility(shown="no", searchable=False, in_ledger=False)
    when: str  # `before` or `after` the calls, `opened` (after a kill cut them), `rewind` (before
    # one) or `rewound` (after it)
    checkpoint: str = (
        ""  # Name of the copy in the session's folder; empty when it could not be kept
    )
    calls: tuple[str, ...] = ()  # Ids of the calls that start next, or have ended
    problem: str = ""  # Why it could not be kept
    # Files that changed while calls ran, and that none of the calls has written, as far as their
    # system calls tell; a path that ends with / stands for all below
    unclaimed: tuple[str, ...] = ()
    traced: bool = False  # True if `unclaimed` is known; not of tools that run elsewhere
    # Of a session in a shared store, from which another machine takes the work tree:
    place: str = ""  # Id of the folder of checkpoints that has it
    records: str = ""  # Blob with the records of this checkpoint and of those not stored before
    pack: str = ""  # Blob with their new contents, a git pack; empty for none


# --- Turns and rewinds ----------------------------------------------------------------------------


class Rewound(Event, frozen=True):
    """Rewind of the conversation to an earlier entry. A break."""

    visibility = Visibility(shown="terminal", searchable=True, in_ledger=False)
    to: int  # Last entry that remains in the conversation; the end of a step
    files: tuple[FilePut, ...] = ()  # Files that were restored, or why not


class Interrupted(Event, frozen=True):
    """Interrupt by the user."""

    visibility = Visibility(shown="headless", searchable=False, in_ledger=False)
    text: str  # Line for the model
    running: tuple[str, ...] = ()  # Ids of the calls that were interrupted


class TurnEnded(Event, frozen=True):
    """End of a turn; the agent waits for the user."""

    visibility = Visibility(shown="both", searchable=True, in_ledger=False)
    reason: str  # `done`, `interrupted`, `limit`, `budget`, `blocked` or `error`
    message: str = ""  # One line for the user when the reason is not `done`


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
    | TitleSet
    | PinsSet
    | SchedulesSet
    | Cleared
    | Summarized
    | Restored
    | Recalled
    | TaskStarted
    | TaskEnded
    | GoalChanged
    | SubagentStarted
    | SubagentEnded
    | CheckpointTaken
    | Rewound
    | Interrupted
    | TurnEnded
)


def kind_of(event: AnyEvent) -> str:
    """Return the type of an event as stored: the value of `type` in its JSON form."""
    return str(type(event).__struct_config__.tag)


def parts_for_model(event: AnyEvent) -> tuple[AnyPart, ...]:
    """Return the parts that an event gives to the model; () for an event of which it sees none."""
    match event:
        case UserSpoke(parts=parts) | Replied(parts=parts) | ToolEnded(parts=parts):
            return parts
        case Reminded(text=text) | Summarized(text=text) if text:
            return (Text(text),)
        case _:
            return ()


def usd_of(event: AnyEvent) -> float:
    """Return the US dollars that an entry of a session's log says were spent.

    The sum over a log includes the subagents that have ended. A request without an answer counts
    with the money it has probably cost.
    """
    match event:
        case Replied(cost_usd=usd) | SubagentEnded(cost_usd=usd) | HookAnswered(cost_usd=usd):
            return max(0.0, usd)
        case AskFailed(assumed_usd=usd):
            return max(0.0, usd)
        case _:
            return 0.0


PAID_EVENTS = ("Replied", "AskFailed", "ChildEnded", "HookAnswered")
"""Kinds of events for which `usd_of` is not always 0."""


AT_MAX = 221_845_392_000_000_000
"""Latest time of an entry: the year 9000, microseconds UTC, which every clock can show."""


class Entry(msgspec.Struct, frozen=True):
    """Entry of the log."""

    seq: int  # Position in the session: 1, 2, 3 … without a gap. Defines the order.
    at: int  # Time in microseconds UTC, for display and cache age, never for order
    event: AnyEvent  # The event
