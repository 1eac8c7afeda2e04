"""All that a session needs from outside, handed in by `app` (or by a test, or by a simulation)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from longrein.agent.locks import PathLocks
from longrein.agent.pace import Pace
from longrein.agent.port import Heard
from longrein.agent.tasks.desk import TaskDesk
from longrein.agent.tasks.options import TaskOptions
from longrein.agent.tasks.pool import TaskPool
from longrein.agent.writers import Writers
from longrein.context import Budget
from longrein.events import Entry, PrefixSet
from longrein.models import Model
from longrein.permissions import Call, Rules
from longrein.tools import Archive, GoalPort, Kind, Tool, ToolOptions
from longrein.workspace import MemoryUse, Workspace


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
    archive: Archive | None = None
    """The session's past, for `Recall`; None where the log is not on disk."""
    kinds: tuple[Kind, ...] = ()
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
    """See `behind.desk_of`; None where commands are run as any tool."""
    company: Callable[..., Any] | None = None
    """See `behind.company_of`; None where there are no subagents."""
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
