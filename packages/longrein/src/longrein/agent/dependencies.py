"""Everything a session needs from outside: limits, options and `Dependencies`.

`app` hands them in, or a test, or a simulation.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from longrein.agent.concurrency_limits import RateLimit
from longrein.agent.extension_part import ExtensionPart
from longrein.agent.session_part import ParentPolicy, PartFactory, SessionPart
from longrein.agent.shared_files import FileWriters, PathLocks
from longrein.choices import MODES
from longrein.models import Clock, Model
from longrein.permissions import Rules
from longrein.settings_schema import Limits, TaskOptions, ToolOptions
from longrein.store import Goals, HistoryReader, HookFiles
from longrein.tools import SubagentType, Tool
from longrein.workspace import MemoryUse, Workspace
from longrein.workspace.sandbox import SessionSandbox
from longrein_context import Budget, Decision, decide
from longrein_context.events import PrefixSet

LEAVING = "longrein on leaving"
"""The `by` in the cause of tasks that were ended because the session was left."""


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
    archive: HistoryReader
    """The session's past, for `Recall`."""
    rules: Rules = Rules()
    limits: Limits = Limits()
    options: ToolOptions = ToolOptions()
    redact: Callable[[str], str] = lambda text: text
    """Replaces secrets by markers."""
    secrets: tuple[str, ...] = ()
    """Known secrets, for content too large to be scanned."""
    own_patterns: bool = False
    """True if `redact` also replaces matches of the user's own patterns."""
    remember_rule: Callable[[str], None] = lambda _rule: None
    """Stores rules, one per line, in the user's settings: all or none. Raises `LongreinError`."""
    nested: Callable[[str, Collection[str]], Iterable[tuple[str, str]]] = lambda _folder, _told: ()
    """(folder, paths told already) -> (path, text) of further instruction files for that folder."""
    fallback: str = ""
    """Model to switch to after three overloads in a row."""
    memory: Callable[[], MemoryUse | None] = lambda: None
    """Memory use of the process against its nearest limit; None when it is not measured."""
    ease: Callable[[], None] = lambda: None
    """Drops caches and returns memory to the system."""
    compact_model: str = ""
    """Model that writes summaries; '' for the session's own, which reads the conversation from
    the cache.
    """
    kinds: tuple[SubagentType, ...] = ()
    """Subagent types that may be started, in the order in which the model sees them."""
    subagent_model: Callable[[str], tuple[str, str]] = lambda asked: (asked, "")
    """Resolves a requested model (name, alias or '').

    Returns (`provider/model`, '' for the parent's; a note when it differs from the request, else
    '').
    """
    rate_limit: RateLimit = msgspec.field(default_factory=RateLimit)
    """Waits that providers ask for; shared by all agents of a tree."""
    locks: PathLocks = msgspec.field(default_factory=PathLocks)
    """Locks of files in use; shared by all agents of a tree."""
    writers: FileWriters = msgspec.field(default_factory=FileWriters)
    """Authors of file contents; shared by all agents of a tree."""
    parts: dict[type[SessionPart], PartFactory] = {}
    """Opens the parts of a session; a part without an entry does not exist."""
    parent_policy: ParentPolicy | None = None
    """Policy of the parent of a subagent; None for a session of the user."""
    sandbox: SessionSandbox | None = None
    """The sandbox of commands, shared by a tree; None where commands run as the user."""
    gated: bool = False
    """True if a program or editor wants to be asked also about what the sandbox confines."""
    task_options: TaskOptions = TaskOptions()
    hook_files: HookFiles | None = None
    """Files for hooks beside the log; None when there are none."""
    extension_parts: tuple[ExtensionPart, ...] = ()
    """Parts of extensions in the session of the user, shared by all agents of its tree."""
    tells_project: bool = False
    """True if a new session tells the model the git status and the tracked files."""
    policy: Callable[..., Decision] = decide
    """Context policy: decides before each request what to shorten."""
    goals: Goals | None = None
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
    last_run_us: int = 0
    """Time of the last entry of the run before this one, microseconds UTC; 0 when there was none.
    """
    task_s: float = 0.0
    """Seconds since the present task began."""
    summarising: bool = False
    """True while a summary is written in the background."""
    pressed: bool = False
    """True while the process is short of memory."""
    seed: bool = False
    """True for the `seed` profiles."""
    stop_hooks: bool = False
    """True if hooks are asked before a turn ends."""
    batch_hooks: bool = False
    """True if hooks are asked after each batch of calls."""
    digest_hooks: bool = False
    """True if hooks are told of compactions."""
    policy: Callable[..., Decision] = decide
    """Context policy of other profiles."""


WIDTH = {mode: width for width, mode in enumerate(MODES)}
"""Permission modes by how much they allow without asking."""


def narrower(mode: str, other: str) -> str:
    """Return the narrower of two permission modes. An unknown mode counts as `default`."""
    usual = WIDTH["default"]
    return other if WIDTH.get(other, usual) < WIDTH.get(mode, usual) else mode


def below(label: str, name: str) -> str:
    """Return the label of `name` in the whole tree: `a398.b3`; `label` is '' for the session of
    the user.
    """
    return f"{label}.{name}" if label else name
