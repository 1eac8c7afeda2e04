"""Everything a session needs from outside: interfaces, limits and `Dependencies`.

`composition` hands them in, or a test, or a simulation.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longrein.agent.messages import FromSubagent, InboxMessage, PendingMessage, SessionUpdate, SubagentView
from longrein.agent.rate_limit import RateLimit
from longrein.agent.shared_files import FileWriters, PathLocks
from longrein.agent.task_pool import TaskPool
from longrein.context import Budget, State
from longrein.events import Entry, PrefixSet, TaskEnded
from longrein.models import Model
from longrein.permissions import Call, Rules
from longrein.settings_schema import Limits, TaskOptions, ToolOptions
from longrein.tools import GoalPort, HistoryReader, SubagentPort, SubagentType, TaskPort, TaskView, Tool
from longrein.workspace import MemoryUse, Workspace

# --- Background tasks ------------------------------------------------------------------------------------------------
#
# The implementation, `background.control`, is imported with the first command.


LEAVING = "longrein on leaving"
"""The `by` in the cause of tasks that were ended because the session was left."""


class BackgroundTasks(Protocol):
    """Background tasks of one session; see `background.control.BackgroundControl`."""

    async def collect(self) -> bool: ...
    def of(self, call: str) -> TaskPort: ...
    def told_by(self, call: str) -> Sequence[TaskEnded]: ...
    def background(self) -> bool: ...
    def views(self) -> Sequence[TaskView]: ...
    def unfinished(self, after: int = 0) -> bool: ...
    def stop(self, task: str) -> None: ...
    async def leave(self, policy: str) -> Sequence[TaskView]: ...
    async def close(self) -> None: ...


# --- Interfaces, limits and dependencies -----------------------------------------------------------------------------


class Clock(Protocol):
    """Source of time. A virtual clock lets a whole session run thousands of times faster."""

    def wall_us(self) -> int:
        """Microseconds UTC."""
        ...

    def mono_s(self) -> float:
        """Seconds on the monotonic clock."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        ...


class RemainingBudget(msgspec.Struct, frozen=True):
    """Budget left to a session and its subagents; infinite where there is no limit."""

    usd: float = float("inf")
    tokens: float = float("inf")
    seconds: float = float("inf")
    spawns: float = float("inf")
    """Subagents that may still be started."""
    depth: int = 0
    """Levels of subagents below the session."""


UNBOUND = RemainingBudget()
"""A budget without limits."""


class ParentPolicy(Protocol):
    """Live policy of a subagent's parent, and the channel for the subagent's updates."""

    @property
    def rules(self) -> Rules:
        """The parent's permission rules now."""
        ...

    @property
    def mode(self) -> str:
        """The widest permission mode the subagent may have now."""
        ...

    def elsewhere(self, call: Call, cwd: str) -> Iterator[tuple[Call, Rules, str]]:
        """Yield the call as it would be in the folders that a worktree stands for.

        Yields (call, rules, current folder); a call denied there is denied here too.
        """
        ...

    @property
    def process_session(self) -> str:
        """Session that owns the processes: the root of the tree."""
        ...

    @property
    def streaming(self) -> bool:
        """True when a subscriber of the root wants provisional updates."""
        ...

    def hear(self, heard: SessionUpdate) -> None:
        """Pass on a committed entry or a provisional update of the subagent."""
        ...


class Dependencies(msgspec.Struct):
    """The parts a session works with."""

    clock: Clock
    jitter: Callable[[], float]
    """Returns a random number from 0 to 1."""
    workspace: Workspace
    tools: Mapping[str, Tool]
    """Tools by name, in their fixed order."""
    model: Model
    open_model: Callable[[str], Model]
    """Opens the model `provider/model`. Raises `ModelUnknown`."""
    prefix: Callable[[Model, str], PrefixSet]
    """(model, reason) -> the prefix of the conversation."""
    history: Callable[[int, int], Iterable[Entry]]
    """Reads entries from seq a to seq b of this session from disk."""
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
    """(folder, paths told already) -> (path, text) of further instruction files for that folder."""
    fallback: str = ""
    """Model to switch to after three overloads in a row."""
    memory: Callable[[], MemoryUse | None] = lambda: None
    """Memory use of the process against its nearest limit; None when it is not measured."""
    ease: Callable[[], None] = lambda: None
    """Drops caches and returns memory to the system."""
    compact_model: str = ""
    """Model that writes summaries; '' for the session's own, which reads the conversation from the cache."""
    archive: HistoryReader | None = None
    """The session's past, for `Recall`; None where the log is not on disk."""
    kinds: tuple[SubagentType, ...] = ()
    """Subagent types that may be started, in the order in which the model sees them."""
    child_model: Callable[[str], tuple[str, str]] = lambda asked: (asked, "")
    """Resolves a requested model (name, alias or '').

    Returns (`provider/model`, '' for the parent's; a note when it differs from the request, else '').
    """
    rate_limit: RateLimit = msgspec.field(default_factory=RateLimit)
    """Waits that providers ask for; shared by all agents of a tree."""
    locks: PathLocks = msgspec.field(default_factory=PathLocks)
    """Locks of files in use; shared by all agents of a tree."""
    writers: FileWriters = msgspec.field(default_factory=FileWriters)
    """Authors of file contents; shared by all agents of a tree."""
    parent_policy: ParentPolicy | None = None
    """Policy of the parent of a subagent; None for a session of the user."""
    pool: TaskPool | None = None
    """Slots and news of background tasks, shared by a tree; None without a supervisor."""
    task_options: TaskOptions = TaskOptions()
    background_tasks: Callable[..., BackgroundTasks] | None = None
    """Opens the background tasks of a session; None when commands run like any tool."""
    subagents: Callable[..., Any] | None = None
    """Opens the subagents of a session; None when there are none."""
    goals: GoalPort | None = None
    """The project's goals, shared by all agents of a tree; None when they cannot be stored."""
    workspace_in: Callable[[tuple[str, ...]], Workspace] | None = None
    """Opens the workspace with other roots; None when there is only one."""
    worktrees: str = ""
    """Folder for git worktrees of subagents, outside every root; '' when none can be made."""


class MoveContext(msgspec.Struct, frozen=True):
    """Facts for `next_move` that are not in the log."""

    budget: Budget
    """Budget of the session's model, without corrections that the log has learned."""
    limits: Limits
    jitter: float = 0.5
    paused: bool = False
    """True for a session that was resumed in an open turn and not told to continue."""
    fallback: str = ""
    """Model to switch to after overloads; '' when there is none or it is the present one."""
    paused_failures: int = 0
    """Failures in a row for which a pause was already made."""
    now_us: int = 0
    """Time in microseconds UTC, for the age of the provider's cache; 0 when not known."""
    task_s: float = 0.0
    """Seconds since the present task began."""
    summarising: bool = False
    """True while a summary is written in the background."""
    pressed: bool = False
    """True while the process is short of memory."""
    seed: bool = False
    """True for the `seed` profiles."""


# --- Subagents -------------------------------------------------------------------------------------------------------
#
# The implementation, `subagents.runner`, is imported when it is needed.


WIDTH = {"plan": 0, "default": 1, "acceptEdits": 2, "bypassPermissions": 3}
"""Permission modes by how much they allow without asking."""


def narrower(mode: str, other: str) -> str:
    """Return the narrower of two permission modes. An unknown mode counts as `default`."""
    return other if WIDTH.get(other, 1) < WIDTH.get(mode, 1) else mode


def below(label: str, name: str) -> str:
    """Return the label of `name` in the whole tree: `a398.b3`; `label` is '' for the session of the user."""
    return f"{label}.{name}" if label else name


class Subagents(SubagentPort, Protocol):
    """The subagents of one session."""

    @property
    def running(self) -> bool:
        """True while a subagent works in the background."""
        ...

    @property
    def pending(self) -> Sequence[PendingMessage]:
        """Messages that wait in the inboxes of subagents."""
        ...

    @property
    def questions(self) -> Sequence[FromSubagent]:
        """The permission question of a subagent that waits for the user, for new subscribers."""
        ...

    def within(self, limits: Limits) -> Limits:
        """Return `limits` for the next request, reduced to the budget left to the whole tree."""
        ...

    def collect(self) -> None:
        """Append the ends of subagents in the background."""
        ...

    async def settled(self) -> None:
        """Wait for the end of one background subagent; return at once when there is none."""
        ...

    def stop(self) -> None:
        """Stop all of them; each reports what it has."""
        ...

    def resume(self) -> None:
        """Continue the subagents that worked when the session was left and whose call does not wait for them."""
        ...

    def tell(self, word: InboxMessage, child: str) -> Awaitable[None] | None:
        """Put a message into the inbox of `child`; None when that subagent does not work."""
        ...

    def unqueue(self, number: int) -> str:
        """Take back a waiting message of a subagent (the newest for 0); '' when there is none."""
        ...

    def views(self) -> Sequence[SubagentView]:
        """Return all subagents, each followed by its own."""
        ...

    async def close(self) -> None:
        """Close them; they continue when the session is opened again."""
        ...


# --- Elapsed times ---------------------------------------------------------------------------------------------------
#
# Measured on the monotonic clock, so that setting the wall clock or waking a laptop cannot trigger a limit or make an
# agent look hung. The time of an entry is wall time and only for display.


class ElapsedTimes:
    """Elapsed times of one session; notified of each appended entry."""

    def __init__(self, mono_s: Callable[[], float], state: State) -> None:
        """Count the time an earlier run spent on the present task, but not the time in between."""
        self._mono_s = mono_s
        self._entry_s = mono_s()
        self._began_at = state.began_at
        self._over_s: float | None = None
        self._began_s = self._entry_s - (max(0, state.at - state.began_at) / 1e6 if state.began_at else 0.0)

    def note(self, state: State) -> None:
        """Register an appended entry, which may start a new task."""
        self._entry_s = self._mono_s()
        if state.began_at != self._began_at:
            self._began_at, self._began_s, self._over_s = state.began_at, self._entry_s, None

    @property
    def quiet_s(self) -> float:
        """Seconds since the last entry."""
        return self._mono_s() - self._entry_s

    @property
    def task_s(self) -> float:
        """Seconds from the start of the present task until now, or until its end."""
        return (self._mono_s() if self._over_s is None else self._over_s) - self._began_s

    def stop(self) -> None:
        """Stop the clock of the task; its end is recorded later."""
        self._over_s = self._mono_s()
