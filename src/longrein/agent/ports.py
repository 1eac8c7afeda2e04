"""All that a session needs from outside, handed in by `app` (or by a test, or by a simulation)."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longrein.agent.messages import AgentView, Heard, OfChild, Pending, Word
from longrein.agent.rate_limit import Pace
from longrein.agent.shared_files import PathLocks, Writers
from longrein.agent.task_pool import TaskPool
from longrein.context import Budget, State
from longrein.events import Entry, PrefixSet, TaskEnded
from longrein.models import Model
from longrein.permissions import Call, Rules
from longrein.tools import GoalPort, HistoryReader, SubagentPort, SubagentType, TaskPort, TaskView, Tool, ToolOptions
from longrein.workspace import MemoryUse, Workspace

# ---------------------------------------------------------------------------------------------------------------------
#
# The commands of a session as the loop knows them; `commands` is what stands behind, imported with the first one.


LEAVING = "longrein on leaving"
"""Who ended the tasks of a session that was left: in the cause of their ends."""


class TaskDesk(Protocol):
    """See `commands.Commands`."""

    async def collect(self) -> bool: ...
    def of(self, call: str) -> TaskPort: ...
    def told_by(self, call: str) -> Sequence[TaskEnded]: ...
    def background(self) -> bool: ...
    def views(self) -> Sequence[TaskView]: ...
    def unfinished(self, after: int = 0) -> bool: ...
    def stop(self, task: str) -> None: ...
    async def leave(self, policy: str) -> Sequence[TaskView]: ...
    async def close(self) -> None: ...


# --- What may be set about background tasks --------------------------------------------------------------------------


class TaskOptions(msgspec.Struct, frozen=True):
    """How tasks are kept and told of."""

    promote: bool = True
    """Whether a command that passes its time goes on in the background; else it is ended."""
    wake: bool = True
    """Whether an end wakes an agent that waits for its user."""
    wake_after_s: float = 0.5
    """How long more ends are waited for before it is woken."""
    stall_s: float = 45.0
    """Silence after which a task that seems to ask for something is told of; 0 for never."""
    timeout_s: float = 0
    """Time of a task that names none; 0 for no limit."""
    memory_bytes: int = 0
    """Resident memory of a task's tree; 0 for no limit."""
    cpu_s: float = 0
    """CPU of a task's tree; 0 for no limit."""
    quota_bytes: int = 64 * 1024 * 1024
    """Output kept of one task: its first and its newest half."""
    tail_bytes: int = 2_000
    """Of its end, told with the notice."""
    leave_s: float = 5.0
    """How long tasks that are ended when longrein leaves are waited for."""


# --- ports -----------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Time. A virtual one makes the whole agent run thousands of times faster."""

    def wall_us(self) -> int:
        """Microseconds UTC."""
        ...

    def mono_s(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Limits(msgspec.Struct, frozen=True):
    """What a session may use. 0 means no limit."""

    turns_max: int = 0
    """Requests of purpose turn for one prompt."""
    usd_max: float = 0.0
    """Money for the session."""
    parallel_max: int = 32
    """Calls that run at once."""
    continuations_max: int = 3
    """Times the model is told to go on after its answer was cut by the output limit."""
    barren_steps_max: int = 20
    """Steps in a row without one successful call."""
    empty_max: int = 2
    """Empty answers in a row that are asked again."""
    tokens_max: int = 0
    """Input and output tokens of the session, its subagents' included."""
    seconds_max: float = 0.0
    """Wall time of one turn; of a subagent, of its task."""
    agents_max: int = 20
    """Subagents of the whole tree that work at once; more wait."""
    depth_max: int = 1
    """Levels of subagents below a session of the user."""
    spawns_max: int = 200
    """Subagents that the whole tree may start."""
    tasks_max: int = 32
    """Background tasks that run at once; more wait."""


class Room(msgspec.Struct, frozen=True):
    """What is left to a session and all below it; infinite where there is no limit."""

    usd: float = float("inf")
    tokens: float = float("inf")
    seconds: float = float("inf")
    spawns: float = float("inf")
    """Subagents."""
    depth: int = 0
    """Levels of subagents below it."""


UNBOUND = Room()
"""No limit of any kind."""


class Above(Protocol):
    """What stands above a subagent's session."""

    @property
    def rules(self) -> Rules:
        """Rules that hold for the session above, now."""
        ...

    @property
    def mode(self) -> str:
        """The widest permission mode that may hold here, now."""
        ...

    def elsewhere(self, call: Call, cwd: str) -> Iterator[tuple[Call, Rules, str]]:
        """(call, rules, present folder) as they would be in places that this one stands for; what is denied there is
        denied here too."""
        ...

    @property
    def process_session(self) -> str:
        """Session that processes belong to: the root of the tree."""
        ...

    @property
    def streaming(self) -> bool:
        """Whether anybody up there wants to hear things while they grow."""
        ...

    def hear(self, heard: Heard) -> None:
        """Something was heard here: an entry that is committed, or news between them."""
        ...


class Crew(msgspec.Struct):
    """The parts a session works with."""

    clock: Clock
    jitter: Callable[[], float]
    """A random number from 0 to 1 at each call."""
    workspace: Workspace
    tools: Mapping[str, Tool]
    """By name, in their fixed order."""
    model: Model
    open_model: Callable[[str], Model]
    """`provider/model` -> model. Raises `ModelUnknown`."""
    prefix: Callable[[Model, str], PrefixSet]
    """(model, reason) -> what stands before the conversation."""
    history: Callable[[int, int], Iterable[Entry]]
    """Entries from seq a to seq b of this session, read from disk."""
    rules: Rules = Rules()
    limits: Limits = Limits()
    options: ToolOptions = ToolOptions()
    redact: Callable[[str], str] = lambda text: text
    """Replaces secrets by markers."""
    secrets: tuple[str, ...] = ()
    """Known secrets, for content too large to be scanned."""
    remember_rule: Callable[[str], None] = lambda _rule: None
    """Stores a rule in the user's settings."""
    nested: Callable[[str, Collection[str]], Iterable[tuple[str, str]]] = lambda _folder, _told: ()
    """(folder, paths told already) -> (path, text) of further instruction files that govern it."""
    fallback: str = ""
    """Model to change to after three overloads in a row."""
    memory: Callable[[], MemoryUse | None] = lambda: None
    """Memory of the process against its nearest limit; None when nobody looks."""
    ease: Callable[[], None] = lambda: None
    """Drops what can be made again and gives memory back."""
    compact_model: str = ""
    """Model that writes summaries; '' for the session's own, which reads the conversation from the cache."""
    archive: HistoryReader | None = None
    """The session's past, for `Recall`; None where the log is not on disk."""
    kinds: tuple[SubagentType, ...] = ()
    """Types of subagents that may be started, in the order in which the model is told of them."""
    child_model: Callable[[str], tuple[str, str]] = lambda asked: (asked, "")
    """Model that a call or a type asks for (a name, an alias, '') -> (`provider/model`, '' for the parent's; what is
    to be said when it is another than was asked for, else '')."""
    pace: Pace = msgspec.field(default_factory=Pace)
    """When providers may be asked, for all agents of a tree."""
    locks: PathLocks = msgspec.field(default_factory=PathLocks)
    """Who may touch which file now; shared by all agents of a tree."""
    writers: Writers = msgspec.field(default_factory=Writers)
    """Who of a tree wrote what; shared by all its agents."""
    above: Above | None = None
    """What stands above a subagent; None for a session of the user."""
    pool: TaskPool | None = None
    """Places and news of background tasks, shared by all agents of a tree; None where there is no supervisor."""
    task_options: TaskOptions = TaskOptions()
    desk: Callable[..., TaskDesk] | None = None
    """The background tasks of a session; None where commands are run as any tool."""
    company: Callable[..., Any] | None = None
    """The subagents of a session; None where there are no subagents."""
    goals: GoalPort | None = None
    """The project's goals, shared by all agents of a tree; None where they cannot be kept."""
    workspace_in: Callable[[tuple[str, ...]], Workspace] | None = None
    """The same workspace with other roots; None where there is only one."""
    worktrees: str = ""
    """Folder for git worktrees of subagents, outside every root; '' where none can be made."""


class Outlook(msgspec.Struct, frozen=True):
    """What `next_move` may know beside the log."""

    budget: Budget
    """Of the session's model, without what the log has taught of its window."""
    limits: Limits
    jitter: float = 0.5
    paused: bool = False
    """A session that was resumed in the middle of a turn and was not told to go on."""
    fallback: str = ""
    """Model to change to after overloads; empty when there is none or it is the present one."""
    rested: int = 0
    """Failures in a row after which a pause was already made."""
    now_us: int = 0
    """The time, microseconds UTC, for the age of the provider's cache; 0 when it is not known."""
    task_s: float = 0.0
    """Seconds since the present task began."""
    summarising: bool = False
    """Whether a summary is being written beside the work."""
    pressed: bool = False
    """Whether the process is short of memory."""
    seed: bool = False
    """Whether the founding documents' policy decides."""


# ---------------------------------------------------------------------------------------------------------------------
#
# The subagents of a session, as the loop knows of them; `children` stands behind, imported when it is needed.


WIDTH = {"plan": 0, "default": 1, "acceptEdits": 2, "bypassPermissions": 3}
"""How much a permission mode lets happen unasked."""


def narrower(mode: str, other: str) -> str:
    """The one of two modes that lets less happen. What is unknown counts as `default`."""
    return other if WIDTH.get(other, 1) < WIDTH.get(mode, 1) else mode


def below(label: str, name: str) -> str:
    """How `name` of the agent `label` ('' for the session of the user) is called in the whole tree: `a398.b3`."""
    return f"{label}.{name}" if label else name


class Company(SubagentPort, Protocol):
    """The subagents of one session."""

    @property
    def running(self) -> bool:
        """Whether one works in the background."""
        ...

    @property
    def pending(self) -> Sequence[Pending]:
        """Words that wait in the inbox of a subagent somewhere below."""
        ...

    @property
    def questions(self) -> Sequence[OfChild]:
        """The approval that a subagent somewhere below waits for, for those who begin to listen now."""
        ...

    def within(self, limits: Limits) -> Limits:
        """What the next request may use of `limits`, with what is left to the whole tree."""
        ...

    def collect(self) -> None:
        """Append what has become of those in the background."""
        ...

    async def settled(self) -> None:
        """Until one of those in the background is over; at once when there is none."""
        ...

    def stop(self) -> None:
        """Let all end now, with what they have."""
        ...

    def resume(self) -> None:
        """Let go on what worked when the session was left and whose call does not wait for it."""
        ...

    def tell(self, word: Word, child: str) -> Awaitable[None] | None:
        """Put a word into the inbox of `child`, somewhere below; None when it does not work."""
        ...

    def unqueue(self, number: int) -> str:
        """Take a message that waits somewhere below (the newest when 0) back; '' when it is not there."""
        ...

    def views(self) -> Sequence[AgentView]:
        """All below, each followed by its own."""
        ...

    async def close(self) -> None:
        """End them; they go on when the session is opened again."""
        ...


# --- How long things last in an open session, by the clock that nobody sets ------------------------------------------
#
# The time of an entry is wall time: it is for display, and jumps by hours when somebody sets the clock or a laptop
# wakes up. No limit may be reached by that, and no agent be taken for hung.


class Lasting:
    """Belongs to one session, and hears of each entry as it is appended."""

    def __init__(self, mono_s: Callable[[], float], state: State) -> None:
        """What an earlier longrein worked on the present task is taken from the log; the time in between is none."""
        self._mono_s = mono_s
        self._entry_s = mono_s()
        self._began_at = state.began_at
        self._over_s: float | None = None
        self._began_s = self._entry_s - (max(0, state.at - state.began_at) / 1e6 if state.began_at else 0.0)

    def note(self, state: State) -> None:
        """An entry was appended, which may begin a task."""
        self._entry_s = self._mono_s()
        if state.began_at != self._began_at:
            self._began_at, self._began_s, self._over_s = state.began_at, self._entry_s, None

    @property
    def quiet_s(self) -> float:
        """Seconds since the last entry."""
        return self._mono_s() - self._entry_s

    @property
    def task_s(self) -> float:
        """Seconds from the beginning of the present task until now, or until it was over."""
        return (self._mono_s() if self._over_s is None else self._over_s) - self._began_s

    def stop(self) -> None:
        """The task is over, though its end is told later."""
        self._over_s = self._mono_s()
