"""State that the fold derives from the log: the view, and all that reminders, policies and limits
remember.

A rewind restores the conversation part (`ConversationState`). The world part (money, files, model,
permissions) stays as it is. `merge_rewound` joins both.
"""

from collections.abc import Mapping
from copy import copy
from typing import TypeVar

import msgspec

from longrein_context.events import (
    Asked,
    AskFailed,
    FileSeen,
    Grant,
    PermissionAnswered,
    PermissionAsked,
    PrefixSet,
    Replied,
    Schedule,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    Todo,
    ToolCall,
    ToolTraits,
    Usage,
)
from longrein_context.state.ledger import Ledger, UserWords, merge_rewound_ledger
from longrein_context.state.reminder_kinds import LastReminder, Notice
from longrein_context.state.repetition import StepHistory
from longrein_context.state.request_types import Item
from longrein_context.state.token_estimate import TokenGauge
from longrein_context.state.tool_traits import UNSTATED

Held = TypeVar("Held", bound=msgspec.Struct)


class OpenCall(msgspec.Struct):
    """Tool call without a result."""

    call: ToolCall
    slot: int  # Position of the result in the view
    cut: bool = False  # True if the reply was cut inside the call. Such a call must not run.
    started: bool = False  # True if `ToolStarted` was written
    started_at: int = 0  # Time of that entry, microseconds UTC
    asked: PermissionAsked | None = None
    answer: PermissionAnswered | None = None


class KnownFile(msgspec.Struct, frozen=True):
    """File content that the session knows."""

    hash: str
    whole: bool
    blob: str
    changed: bool  # True if this session changed it
    seq: int
    disk: str | None = None
    """Hash of newer content on disk that the model does not know ('' if the file is gone); None
    if it knows it.
    """
    disk_blob: str = ""  # Blob of the newer content
    changes: int = 0  # Changes by others since the model last read or changed it
    told: tuple[str, str] | None = None
    """Hash and blob that the model knew when it wrote the calls of the reply that led here; None
    if it knew this content.
    """
    asks: int = 0  # Number of requests so far; `told` holds only until the next one

    @property
    def on_disk(self) -> str:
        """Hash of the content on disk, as it was found last."""
        return self.hash if self.disk is None else self.disk

    def told_by(self, asks: int) -> tuple[str, str]:
        """Return the hash and blob that the model knew at request number `asks`."""
        return self.told if self.told is not None and self.asks == asks else (self.hash, self.blob)


UNKNOWN_FILE = KnownFile("", False, "", False, 0)  # Entry for a file of which nothing is known


class TaskState(msgspec.Struct, frozen=True):
    """Background task: its start and, if it has ended, its end."""

    seq: int  # Entry of the first `TaskStarted`; a queued task has several
    at: int  # Time of that entry, microseconds UTC
    started: TaskStarted  # The latest `TaskStarted`: `running` or `queued`
    ended: TaskEnded | None = None
    ended_seq: int = (
        0  # Entry of `TaskEnded`, whose handle recalls the output; 0 while the task runs
    )


class SubagentState(msgspec.Struct, frozen=True):
    """Subagent: its start and, if it has ended, its end."""

    seq: int  # Entry of the first `SubagentStarted`; the label is `a<seq>`
    at: int  # Time of the latest `SubagentStarted`, microseconds UTC
    started: SubagentStarted  # The latest `SubagentStarted`
    ended: SubagentEnded | None = None  # None while the subagent works


class UsageBaseline(msgspec.Struct, frozen=True):
    """Usage at the start of a turn or of a subagent's task."""

    usd: float = 0.0
    usage: Usage = Usage()
    asks: int = 0  # Requests
    spawned: int = 0  # Subagents


class Reading(msgspec.Struct, frozen=True):
    """Result of a `Read` that may still be in the view."""

    handle: str
    hash: str
    first: int
    last: int
    told: bool = False
    """True if a later reading was answered with a pointer to this one. The next one is answered
    in full.
    """


class LoadedSkill(msgspec.Struct, frozen=True):
    """Text of a skill or custom command that was loaded into the conversation."""

    seq: int  # Entry with the text
    text: str
    turn: int  # `began_at` of the turn that loaded it


class CompactionMark(msgspec.Struct, frozen=True):
    """Size of the view right after a compaction."""

    raw: int  # Uncalibrated estimate of the view, tokens
    asks: int  # Number of requests so far


FRAMEWORK_PROFILE = "seed-framework"  # Profile that keeps `ConversationState.said`


class ConversationState(msgspec.Struct):
    """Part of the state that a rewind restores."""

    items: list[Item] = []  # The view
    index: dict[str, int] = {}  # Handle -> position in the view
    calls: dict[str, OpenCall] = {}  # Calls without a result, in call order
    context_items: int = 0  # Number of items of static context at the front
    gauge: TokenGauge = msgspec.field(default_factory=TokenGauge)
    todos: tuple[Todo, ...] = ()
    told: tuple[str, ...] = ()  # Nested instruction files that are in the conversation
    reminded: dict[str, LastReminder] = {}  # Reminder kind -> the last reminder of that kind
    todo_asks: int = 0  # Number of requests when the todo list was last set
    cwd: str = ""
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    """Records of messages, calls and decisions, with their proofs."""
    turn_open: bool = False  # True if a turn is going on, or was cut by a crash
    owes_reply: bool = False  # True if there is something new since the last reply
    interrupted: bool = False  # True if the user stopped this turn
    unanswered: bool = False
    """True if the last turn ended without an answer: stopped, out of a limit, or after failures."""
    steps: int = 0  # Requests of purpose turn since the user's last message
    barren_steps: int = 0  # Consecutive steps without a successful call
    step_history: StepHistory = StepHistory()  # Digests of the last steps, to detect repetition
    continuations: int = 0  # Times the model was told to continue a cut answer in this turn
    stop: str = ""  # Stop reason of the last reply
    call_hint_given: bool = False  # True once told that a text is no call, until the next call
    empty_hint_given: bool = False  # True once told that its answer was empty, until the next reply
    stop_asked: bool = (
        False  # True once the hooks of the turn's end have answered, until the next reply
    )
    stop_blocks: int = 0  # Times in a row that hooks have refused to let this turn end
    batch_asked: bool = True  # False while the hooks of a finished batch of calls have not answered
    hook_stop: str = ""  # Why a hook stopped the turn; '' when none has
    compact_refused_asks: int = -1  # Number of requests when a hook last refused a compaction
    denied_last: bool = False  # True if the last step had a denied call and no later call succeeded
    sent_items: int = 0  # Number of items in the last request
    sent_reach: int = 0  # Last entry that was sent
    seen_reach: int = 0  # Last entry that the model has replied to
    compact_wanted: str | None = None  # Focus of a requested compaction; None if none is requested
    compact_by: str = ""  # Source of the last compaction request
    settled: tuple[CompactionMark, ...] = ()  # View sizes after the last three compactions
    settled_seq: int = 0  # Entry of the last compaction
    summary_attempts: int = 0  # Failed summary requests since the last compaction
    rewritten_seq: int = 0
    """Last entry that replaced a span or undid a replacement. Summaries requested before it are
    stale.
    """
    answers: tuple[tuple[int, str], ...] = ()  # (entry, text) of the last two answers
    wrote: tuple[tuple[int, str], ...] = ()
    """(entry, start of the text) of the last two texts beside calls since the last answer."""
    ledger_text: str = ""  # Text of the ledger in the summary that is in the view
    readings: dict[str, tuple[Reading, ...]] = {}  # Real path -> its readings, newest last
    files_just_seen: tuple[FileSeen, ...] = ()  # Files seen by the call that is about to end
    compactions: tuple[int, ...] = ()  # Entries of the newest compactions that can be undone
    undone: dict[int, int] = {}  # Entry of each undone compaction -> entry that undid it
    skills: dict[
        str, LoadedSkill
    ] = {}  # Loaded skills by name, the newest last; at most `SKILLS_MAX`
    held: frozenset[str] = frozenset()
    """Handles that the user restored. Clearing that only saves money leaves them alone."""
    said: list[
        tuple[str, str]
    ] = []  # Profile `seed-framework` only: the conversation as (role, text)
    recalled: list[tuple[str, int]] = []
    """(handle, number of requests so far) of the newest `RECALLED_MAX` recalls, for the clearing
    policy.
    """
    asked_seqs: list[int] = []  # Entry of each request of purpose turn, for bisection
    worth: object | None = (
        None  # Memory of the clearing policy (`ClearingMemory`); rebuilt from the view if missing
    )

    @property
    def conversation(self) -> list[Item]:
        """The view after its static context."""
        return self.items[self.context_items :]

    @property
    def words(self) -> list[UserWords]:
        """The user's messages that the view stands for."""
        return self.ledger.words


class State(ConversationState):
    """Fold of a log.

    The fields of this class are the world part, which a rewind leaves as it is. `step` changes the
    object in place; other code only reads it.
    """

    session: str = ""
    nonce: str = ""
    roots: tuple[str, ...] = ()
    profile: str = "default"
    mode: str = "default"
    pins: tuple[str, ...] = ()
    title: str = ""  # Title that the user has given; empty for none
    schedules: tuple[Schedule, ...] = ()  # Prompts that come back at set times
    fired: dict[str, int] = {}  # Schedule -> when it fired last, microseconds UTC
    last_schedule: int = 0  # Number of the newest schedule that ever was
    variables: dict[
        str, tuple[str, str]
    ] = {}  # Variable of commands -> (value, hook that has set it)
    branch: str = ""  # Git branch that the model knows of; empty where the log names none
    prefix: PrefixSet | None = None
    prefix_seq: int = 0
    native_callers: frozenset[str] = frozenset()  # Models that have called tools natively
    traits: dict[str, ToolTraits] = {}  # Traits of every tool that any prefix has stated, by name
    files: dict[str, KnownFile] = {}  # Real path -> known content
    notices: list[
        Notice
    ] = []  # Events that the model may have to be told of, oldest first; the newest `NOTICES_MAX`
    children: dict[
        str, SubagentState
    ] = {}  # Subagents by session id in order of their start, ended ones included
    tasks: dict[
        str, TaskState
    ] = {}  # Background tasks by id in order of their start, ended ones included
    route: str = (
        ""  # Session id for the provider's cache routing; a forked subagent uses its parent's
    )
    kind: str = ""  # Subagent type; empty for a session of the user
    label: str = ""  # Label of a subagent, such as `a398`
    grant: Grant | None = None  # Budget of a subagent
    began_at: int = (
        0  # Start of the present turn (of a subagent: of its present task), microseconds UTC
    )
    began: UsageBaseline = UsageBaseline()  # Usage at that time
    spawned: int = (
        0  # Subagents started on all levels below, and those that running ones may still start
    )
    granted_tokens: int = 0  # Tokens granted to running subagents
    resumed_seq: int = 0  # Entry that reports files changed before the resume
    resumed_gap_s: int = 0  # Seconds without an entry before the resume
    asked: Asked | None = None  # Request without an answer yet
    asked_seq: int = 0
    asked_at: int = 0  # Time of the last request, microseconds UTC
    asked_raw: int = 0  # Uncalibrated estimate of the last request, tokens
    summarising: Asked | None = (
        None  # Summary request without an answer yet. The conversation continues meanwhile.
    )
    summarising_seq: int = 0
    summary: Replied | None = None  # Reply to a summary request, until it is used
    summary_of: Asked | None = None  # The request that `summary` answers
    failure: AskFailed | None = None  # Failure of the last request; None after a reply
    failures: int = 0  # Consecutive failures
    usage: Usage = Usage()  # Total usage
    last_usage: Usage = Usage()  # Usage of the last reply of purpose turn
    spent_usd: float = 0.0  # Total cost; lost requests count as spent
    asks: int = 0  # Number of requests of purpose turn
    breaks: int = 0  # Number of entries that changed what had been sent
    window_learned: int = 0  # Window named by an overflow error, tokens; 0 if none
    input_learned: int = (
        0  # Limit of the input alone, named by an overflow error, tokens; 0 if none
    )
    refused_raw: int = (
        0  # Uncalibrated estimate of the smallest request refused without a named window; 0 if none
    )
    seq: int = 0  # Last folded entry
    at: int = 0  # Time of that entry, microseconds UTC

    def traits_of(self, tool: str) -> ToolTraits:
        """Return the traits of a tool."""
        return self.traits.get(tool) or UNSTATED.get(tool) or ToolTraits()

    def reported_task(self, call: ToolCall) -> str:
        """Return the background task whose end the result of `call` reports; '' for none."""
        name = self.traits_of(call.name).task_argument
        return str((call.arguments or {}).get(name, "")) if name else ""

    @property
    def spent_tokens(self) -> int:
        """Input and output tokens used, and tokens granted to running subagents."""
        return self.usage.total_tokens + self.granted_tokens

    @property
    def asking(self) -> bool:
        """True if a call waits for the user's permission."""
        return any(call.asked is not None and call.answer is None for call in self.calls.values())

    @property
    def view_tokens(self) -> int:
        """Estimated input tokens of the next request."""
        return self.gauge.tokens

    @property
    def fixed_tokens(self) -> int:
        """Tokens of it that never leave: system text, tools and static context."""
        said = sum([item.tokens for item in self.conversation])
        return self.gauge.scale(self.gauge.raw - said)


def settled_usd(state: State, tree: Mapping[str, "State"]) -> float:
    """Return the US dollars that a session and its subagents have spent, without reserves.

    `tree`: states of subagents that work, by session; those that are not in it count with 0.
    """
    usd = state.spent_usd
    for request in (state.asked, state.summarising):
        if request is not None:
            usd -= request.reserved_usd
    for session, child in state.children.items():
        if child.ended is not None:
            continue
        if child.started.grant is not None:
            usd -= child.started.grant.usd
        if session in tree:
            usd += task_usd(tree[session], tree)
    return max(0.0, usd)


def task_usd(state: State, tree: Mapping[str, "State"]) -> float:
    """Return the US dollars that a subagent has spent on its present task, without reserves."""
    return max(0.0, settled_usd(state, tree) - state.began.usd)


def copy_state(state: State) -> State:
    """Return a copy that shares nothing which the fold changes in place.

    The memory of the clearing policy stays behind; the policy rebuilds it from the view.
    """
    twin = _copy_containers(state)
    twin.gauge = copy(state.gauge)
    twin.ledger = _copy_containers(state.ledger)
    twin.calls = {call: copy(open_call) for call, open_call in state.calls.items()}
    twin.worth = None
    return twin


def _copy_containers(held: Held) -> Held:
    twin = copy(held)
    for name in held.__struct_fields__:
        value = getattr(held, name)
        if isinstance(value, list | dict):
            setattr(twin, name, copy(value))
    return twin


def merge_rewound(then: State, now: State) -> State:
    """Join the conversation of `then` with the world of `now`; both arguments are consumed.

    The static context is that of `now`. No call of `then` is open, because a rewind goes to the end
    of a step.
    """
    joined = copy(then)
    for name in State.__struct_fields__[len(ConversationState.__struct_fields__) :]:
        setattr(joined, name, getattr(now, name))
    joined.items[: joined.context_items] = now.items[: now.context_items]
    joined.context_items = now.context_items
    joined.index = {item.handle: at for at, item in enumerate(joined.items) if item.handle}
    joined.gauge.ratio, joined.gauge.learned = now.gauge.ratio, now.gauge.learned
    joined.gauge.ceiling, joined.gauge.flat = now.gauge.ceiling, (0, 0, 0)
    joined.ledger = merge_rewound_ledger(then.ledger, now.ledger)
    joined.turn_open = joined.owes_reply = joined.interrupted = joined.unanswered = False
    joined.compact_wanted = None
    return joined
