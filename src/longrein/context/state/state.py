"""What folding a log gives: the view, and all that reminders, policies and limits must remember.

Conversation state goes back with a rewind; world state (money, files, model, permissions) does not. `rejoin` is the
one place that knows which is which.
"""

from copy import copy

import msgspec

from longrein.context.state.ledger import Ledger, UserMessage, merge_rewound_ledger
from longrein.context.state.reminder_kinds import LastReminder, Notice
from longrein.context.state.repetition import StepHistory
from longrein.context.state.request import Item
from longrein.context.state.token_estimate import TokenGauge
from longrein.events import (
    Asked,
    AskFailed,
    ChildEnded,
    ChildStarted,
    FileSeen,
    Grant,
    PermissionAnswered,
    PermissionAsked,
    PrefixSet,
    Replied,
    TaskEnded,
    TaskStarted,
    Todo,
    ToolCall,
    Usage,
)


class OpenCall(msgspec.Struct):
    """A call that has no result yet."""

    call: ToolCall
    slot: int
    """Position of its result in the view."""
    cut: bool = False
    """Whether the reply ended inside it: it must not run."""
    started: bool = False
    """Whether `ToolStarted` was written."""
    asked: PermissionAsked | None = None
    answer: PermissionAnswered | None = None


class KnownFile(msgspec.Struct, frozen=True):
    """What the session knows of a file."""

    hash: str
    whole: bool
    blob: str
    changed: bool
    """Whether this session changed it."""
    seq: int
    disk: str | None = None
    """Hash of what was last found on disk when the model does not know it ('' for nothing); None when it does."""
    disk_blob: str = ""
    """Blob of that."""
    changes: int = 0
    """Changes by others since the model last read or changed it."""
    told: tuple[str, str] | None = None
    """Hash and blob that the model had been told of when it wrote the calls of the reply that brought this; None when
    that is this very content."""
    asks: int = 0
    """Requests so far when this was brought: with the next one `told` is over."""

    def told_by(self, asks: int) -> tuple[str, str]:
        """Hash and blob that the model had been told of by request number `asks`."""
        return self.told if self.told is not None and self.asks == asks else (self.hash, self.blob)


UNKNOWN_FILE = KnownFile("", False, "", False, 0)
"""A file of which nothing is known."""


class TaskState(msgspec.Struct, frozen=True):
    """A background task."""

    seq: int
    """Its `TaskStarted`; the first, when it waited in a queue."""
    at: int
    """When that was written, microseconds UTC."""
    started: TaskStarted
    """As it is now: `running` or `queued`."""
    ended: TaskEnded | None = None
    ended_seq: int = 0
    """Its `TaskEnded`, whose handle brings its output; 0 while it is not over."""


class SubagentState(msgspec.Struct, frozen=True):
    """A subagent."""

    seq: int
    """Its first `ChildStarted`: it is called `a<seq>`."""
    at: int
    """When the last one was written, microseconds UTC."""
    started: ChildStarted
    """The last one."""
    ended: ChildEnded | None = None
    """None while it works."""


class UsageBaseline(msgspec.Struct, frozen=True):
    """What had been used when a task began."""

    usd: float = 0.0
    usage: Usage = Usage()
    asks: int = 0
    """Requests."""
    spawned: int = 0
    """Subagents."""


class Reading(msgspec.Struct, frozen=True):
    """A `Read` whose result may still stand in the view."""

    handle: str
    hash: str
    first: int
    last: int
    told: bool = False
    """Whether a later reading was answered by pointing at it; the next one is answered in full."""


class CompactionMark(msgspec.Struct, frozen=True):
    """How a compaction left the view."""

    raw: int
    """Guess for the view."""
    asks: int
    """Requests so far."""


FRAMEWORK_PROFILE = "seed-framework"
"""The profile that keeps `ConversationState.said`."""


class ConversationState(msgspec.Struct):
    """The conversation: goes back with a rewind."""

    items: list[Item] = []
    """The view."""
    index: dict[str, int] = {}
    """Handle -> position in the view."""
    calls: dict[str, OpenCall] = {}
    """Calls without a result, in call order."""
    context_items: int = 0
    """How many items at the front are static context."""
    gauge: TokenGauge = msgspec.field(default_factory=TokenGauge)
    todos: tuple[Todo, ...] = ()
    told: tuple[str, ...] = ()
    """Nested instruction files that stand in the conversation."""
    reminded: dict[str, LastReminder] = {}
    """Kind of the event catalogue -> what the model was last told of it."""
    todo_asks: int = 0
    """Requests so far when the todo list was last set."""
    cwd: str = ""
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    """What was said, done and decided, with its proofs."""
    turn_open: bool = False
    """Whether a turn is going on (or was cut by a crash)."""
    owes_reply: bool = False
    """Whether something was said or done since the last reply."""
    interrupted: bool = False
    """Whether the user stopped this turn."""
    unanswered: bool = False
    """Whether the last turn ended while the model still owed a reply: stopped, out of a limit, or after failures."""
    steps: int = 0
    """Requests of purpose turn since the user last spoke."""
    barren_steps: int = 0
    """Steps in a row without one successful call."""
    step_history: StepHistory = StepHistory()
    """What the last steps did, to see when they go round in a circle."""
    continuations: int = 0
    """Times the model was told to go on after a cut answer, in this turn."""
    stop: str = ""
    """Stop reason of the last reply."""
    denied_last: bool = False
    """Whether the last step held a denial and no later call succeeded."""
    sent_items: int = 0
    """Items that the last request carried."""
    sent_reach: int = 0
    """Last entry that some request carried."""
    seen_reach: int = 0
    """Last entry that the model has answered to."""
    compact_wanted: str | None = None
    """Focus of a compaction that was asked for; None when none was."""
    compact_by: str = ""
    """Who asked for the last one: the source of its `Reminded`."""
    settled: tuple[CompactionMark, ...] = ()
    """The last three compactions."""
    settled_seq: int = 0
    """Entry of the last one."""
    summary_attempts: int = 0
    """Tries to summarise that failed since the last compaction."""
    rewritten_seq: int = 0
    """Last entry that replaced a span or undid one: a summary that was asked for before it is of no use any more."""
    ledger_text: str = ""
    """What code wrote of the summary that stands in the view."""
    readings: dict[str, tuple[Reading, ...]] = {}
    """By real path: what `Read` showed of it, newest last."""
    files_just_seen: tuple[FileSeen, ...] = ()
    """Files seen by the call that is about to end."""
    compactions: tuple[int, ...] = ()
    """Seqs of the newest clearings and summaries that can be undone."""
    held: frozenset[str] = frozenset()
    """Handles that the user brought back into the view: what merely pays off leaves them alone."""
    said: list[tuple[str, str]] = []
    """In the profile `seed-framework`: the conversation as its text records it: (role, words)."""
    recalled: list[tuple[str, int]] = []
    """(handle, requests so far) of each recall, for the policy: regret. The newest `RECALLED_MAX`."""
    asked_seqs: list[int] = []
    """Seq of each request of purpose turn: the request that an entry first stood in is found by bisection."""
    worth: object | None = None
    """What the clearing policy remembers of the items; made anew from the view where it is missing."""

    @property
    def words(self) -> list[UserMessage]:
        """Everything the user said that the view stands for."""
        return self.ledger.words


class State(ConversationState):
    """The fold of a log. `step` owns it and may change it in place; everybody else reads.

    Its own fields are the world: what happened once and for all, which a rewind leaves as it is.
    """

    session: str = ""
    nonce: str = ""
    roots: tuple[str, ...] = ()
    profile: str = "default"
    mode: str = "default"
    pins: tuple[str, ...] = ()
    prefix: PrefixSet | None = None
    prefix_seq: int = 0
    files: dict[str, KnownFile] = {}
    """Known files by real path."""
    notices: list[Notice] = []
    """What happened that the model may have to be told of, oldest first; the newest `NOTICES_MAX`."""
    children: dict[str, SubagentState] = {}
    """Subagents by their session, in the order in which they were started; also those that are over."""
    tasks: dict[str, TaskState] = {}
    """Background tasks by id, in the order in which they were started; also those that are over."""
    route: str = ""
    """Session that providers know the prefix by: of a forked subagent its parent's, whose cache it reads."""
    kind: str = ""
    """Type of a subagent; empty for a session of the user."""
    label: str = ""
    """How a subagent is called, such as `a398`."""
    grant: Grant | None = None
    """What it may spend."""
    began_at: int = 0
    """When the present turn began, microseconds UTC; of a subagent its present task."""
    began: UsageBaseline = UsageBaseline()
    """What had been used then."""
    spawned: int = 0
    """Subagents started so far on all levels below, and those that running ones may still start."""
    granted_tokens: int = 0
    """Tokens that running subagents may use."""
    resumed_seq: int = 0
    """Entry that says that the session was resumed with files changed meanwhile."""
    resumed_gap_s: int = 0
    """How long nothing was written before it."""
    rules: tuple[str, ...] = ()
    """Rules the user allowed for this session."""
    asked: Asked | None = None
    """The request that waits for its answer."""
    asked_seq: int = 0
    asked_at: int = 0
    """When the last request was made, microseconds UTC."""
    asked_raw: int = 0
    """Guess for it."""
    summarising: Asked | None = None
    """The summary request that waits for its answer; the conversation goes on beside it."""
    summarising_seq: int = 0
    summary: Replied | None = None
    """Answer to a summary request, until it is used."""
    summary_of: Asked | None = None
    """The request it answers."""
    failure: AskFailed | None = None
    """Why the last request failed; None after an answer."""
    failures: int = 0
    """Failures in a row."""
    usage: Usage = Usage()
    """All that was used."""
    last_usage: Usage = Usage()
    """Of the last reply of purpose turn."""
    spent_usd: float = 0.0
    """All that was spent; lost requests counted as spent."""
    asks: int = 0
    """Requests of purpose turn."""
    breaks: int = 0
    """Entries that changed what had been sent."""
    window_learned: int = 0
    """The window as an overflow error named it; 0 when none did."""
    refused_raw: int = 0
    """Guess for the smallest request that did not fit where the error named no window: an upper bound of it; 0 for
    none."""
    seq: int = 0
    """Last entry folded."""
    at: int = 0
    """When it was written, microseconds UTC."""

    @property
    def spent_tokens(self) -> int:
        """Tokens used, in and out, and what running subagents may use."""
        used = self.usage
        return used.context_tokens + used.output_tokens + self.granted_tokens

    @property
    def asking(self) -> bool:
        """Whether a call waits for the user's word."""
        return any(call.asked is not None and call.answer is None for call in self.calls.values())

    @property
    def view_tokens(self) -> int:
        """Tokens of the next request's input."""
        return self.gauge.tokens


def merge_rewound(then: State, now: State) -> State:
    """The conversation of `then` in the world of `now`. Both are used up.

    Static context stands as `now` sees it; no call of `then` is open, because a rewind goes to the end of a step.
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
