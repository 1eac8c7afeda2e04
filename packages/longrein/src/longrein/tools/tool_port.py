"""Tool interface: the context a tool receives, the outcome it returns, and the ports to other
packages.

A tool never appends to the log. It returns events in `Outcome.facts`, and the loop appends them.
"""

from collections.abc import Awaitable, Callable, Container, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from longrein.permissions import Hook
from longrein.settings_schema import ToolOptions
from longrein.store import BlobWriter, Goals, HistoryReader
from longrein.workspace import CommandExit, Confinement, ReplayableSink, Workspace
from longrein.workspace.sandbox import SandboxReport
from longrein_context.events import AnyEvent, AnyPart, Text, Todo, ToolSpec, ToolTraits

# --- Subagents: the port that `agent` implements --------------------------------------------------


class SubagentTask(msgspec.Struct, frozen=True):
    """Task of one subagent."""

    description: str
    """Three to five words, for the screen."""
    prompt: str
    """The whole task."""
    kind: str = "general"
    """Subagent type."""
    model: str = ""
    """`provider/model` or an alias, as given in the call; '' for the type's model, else the
    parent's.
    """
    form: str = ""
    """`empty` or `fork`; '' for `empty`."""
    worktree: bool = False
    """True if the subagent works in its own git worktree."""
    again: str = ""
    """`a<seq>` of a finished subagent to continue with its conversation; '' for a new subagent."""


class SubagentReport(msgspec.Struct, frozen=True):
    """Result of one subagent."""

    label: str
    """`a<seq>`: `Recall` with `a<seq>/r<n>` reads its log."""
    job: SubagentTask
    status: str
    """`done`, `failed`, `limit`, `interrupted`; `refused` when it was never started; `running`
    in the background.
    """
    text: str
    """The report, or the last text of a subagent that did not finish."""
    message: str = ""
    """Reason why the subagent did not finish, or the difference between grant and request."""
    steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    elapsed_s: float = 0.0
    files: tuple[str, ...] = ()
    """Absolute paths of the files it changed."""
    worktree: str = ""
    """Branch or folder that was kept of its worktree."""
    handle: str = ""
    """`a<seq>/r<n>` of the reply that holds `text`, for `Recall`; '' when there is none."""


class SubagentType(msgspec.Struct, frozen=True):
    """A subagent type."""

    name: str
    description: str
    """Cases in which to use the subagent, for the model."""
    system: str = ""
    """System text of a user's own type; '' for the text of a built-in type."""
    tools: tuple[str, ...] | None = None
    """Tools it may use; a `*` at the end of a name matches any ending. None for all of the
    parent's tools.
    """
    without: tuple[str, ...] = ()
    """Tools to remove from that set."""
    model: str = ""
    """`provider/model`, an alias such as `haiku`, or '' for the parent's model."""
    mode: str = ""
    """Permission mode; '' for the parent's. It can only be stricter than the parent's."""
    turns_max: int = 0
    """Maximum number of requests; 0 for the default."""
    spawns: tuple[str, ...] = ()
    """Types it may start itself within the granted depth; `*` for any. When empty, it has no
    `Agent` tool.
    """
    background: bool = False
    """True if the subagent always runs in the background."""
    worktree: bool = False
    """True if the subagent always gets a git worktree."""
    location: str = ""
    """Host that runs the subagent, such as `fleet`; '' for the process of its session."""
    skills: tuple[str, ...] = ()
    """Skills whose texts it gets at its start."""
    hooks: tuple[Hook, ...] = ()
    """Hooks that run while it does."""
    source: str = "built in"
    """File that defines the type."""


class SubagentPort(Protocol):
    """Subagents of one session."""

    def kinds(self) -> Sequence[SubagentType]:
        """Return the types that may be started here, in a fixed order."""
        ...

    async def run(
        self, jobs: Sequence[SubagentTask], *, call: str, background: bool, synthesis: str = ""
    ) -> tuple[Sequence[SubagentReport], tuple[AnyEvent, ...]]:
        """Run `jobs` in parallel. Returns their reports in order, and the events to append with the
        result.

        A job that may not be started gives a report with status `refused`. With `background`, jobs
        are started and reported as `running`; their reports arrive later as notices. With
        `synthesis` (the goal), one more subagent of type `synthesis` reads all reports, and its
        report comes last. A second call for the same `call` after a crash continues the subagents
        that were started. Cancellation interrupts them; each keeps its work so far.
        """
        ...


# --- Skills: the port that `agent` implements -----------------------------------------------------


class LoadedText(msgspec.Struct, frozen=True):
    """Text of a skill with its arguments, and who follows it."""

    name: str
    text: str
    fork: bool = False
    """True if a subagent does what the text says."""
    agent: str = ""
    """Type of that subagent, as written; '' for none."""


class SkillPort(Protocol):
    """Skills of one session."""

    async def load(self, name: str, arguments: str, *, call: str) -> LoadedText:
        """Return the text of a skill, with its commands run. Raises `ToolError` where it cannot
        be loaded.
        """
        ...


# --- Commands and background tasks: the port that `agent` implements ------------------------------


class TaskView(msgspec.Struct, frozen=True):
    """Present state of one background task."""

    id: str
    """Such as `b3`; a subagent's `a398.b3`."""
    state: str
    """`queued`, `running`, `done`, `failed`, `timed_out`, `killed` or `lost`."""
    command: str
    elapsed_s: float = 0.0
    """Seconds since it started; the total duration once it has ended."""
    size_bytes: int = 0
    """Output so far, including output that is not kept."""
    elided_bytes: int = 0
    """Output that is not kept: the middle part."""
    silent_s: float = 0.0
    """Seconds since its last output; 0 when unknown."""
    code: int | None = None
    """Exit code; None while it runs and when unknown."""
    cause: str = ""
    """Reason why the task ended, or why it is queued."""
    path: str = ""
    """File with the output of a running task; '' once `handle` is set."""
    handle: str = ""
    """`r<seq>` of its `TaskEnded`; '' while it runs."""
    policy: str = "keep"
    """`keep` or `stop`: whether it continues when longrein exits."""
    waits_for_input: str = ""
    """Last line when the task is silent and that line looks like a question."""


class ShellCommand(msgspec.Struct, frozen=True):
    """A command that a call runs."""

    command: str
    call: str
    sink: ReplayableSink
    """Takes the output of a command in the foreground."""
    timeout_s: float
    """Limit of the foreground, or of a command that begins in the background; 0 for no limit
    there.
    """
    background: bool = False
    """True if the command is a background task from the start."""
    outside_sandbox: bool = False


class BackgroundedCommand(msgspec.Struct, frozen=True):
    """Command that runs, or is queued, in the background."""

    task: TaskView
    why: str
    """`asked` (run_in_background), `timeout` or `user` (Ctrl-B)."""
    tail: str = ""
    """End of its output so far."""


class OutputSlice(msgspec.Struct, frozen=True):
    """Part of a task's output."""

    task: TaskView
    text: str
    first_byte: int = 0
    """Offset of the slice in the whole output."""
    next_byte: int = 0
    """Value of `since` for the next slice."""
    note: str = ""
    """Missing part of the output, and the reason."""


class TaskPort(Protocol):
    """Commands of one session. Methods raise `ToolError` for an unknown id and name the known
    ones.
    """

    async def run(self, command: ShellCommand) -> CommandExit | BackgroundedCommand:
        """Run a command until it exits, in the sandbox where there is one.

        A foreground command becomes a background task after `timeout_s` (if the options allow, else
        it is ended) or when the user asks. Cancellation ends it.
        """
        ...

    async def carry(
        self, name: str, work: "Coroutine[Any, Any, Outcome]", *, after_s: float
    ) -> "Outcome | BackgroundedCommand":
        """Do work that is no command; after `after_s`, or when the user asks, it goes on as a
        background task.

        Its text is then the task's output. Only in the main conversation. Cancellation ends the
        work.
        """
        ...

    def tasks(self) -> Sequence[TaskView]:
        """Return the session's tasks: running and queued ones, then ended ones, newest first."""
        ...

    async def output(
        self, task: str, *, tail: int = 0, since: int = -1, grep: str = ""
    ) -> OutputSlice:
        """Return the last `tail` lines, the output from byte `since` on, or the numbered lines
        that match `grep`, a regular expression.
        """
        ...

    async def wait(self, task: str, timeout_s: float) -> TaskView:
        """Wait until the task has ended, at most `timeout_s`."""
        ...

    async def stop(self, task: str) -> TaskView:
        """End the task and its process tree: TERM, a grace period, KILL. No effect on an ended
        task.
        """
        ...

    async def give(self, task: str, text: str, *, eof: bool = False) -> TaskView:
        """Write `text` to the task's standard input; with `eof` close it."""
        ...


class SandboxPort(Protocol):
    """The sandbox around the commands of one session."""

    @property
    def network(self) -> str:
        """Network of confined commands: `all`, `none`, or hosts that are allowed by the `proxy`."""
        ...

    @property
    def refused_hosts(self) -> Sequence[str]:
        """Reasons for refusing hosts since `begin`, also to commands that run beside this one."""
        ...

    def confine(self, cwd: str) -> Confinement | None:
        """Return how to confine a command in `cwd`. Raises OSError where it cannot be set up."""
        ...

    def begin(self) -> None:
        """Note the start of a confined command."""
        ...

    def end(self) -> None:
        """Note its end, or that it goes on in the background; look for files that it made."""
        ...

    def take_report(self) -> SandboxReport:
        """Return once what `end` has found. It belongs into the result of the call."""
        ...


# --- Tools: context, outcome, options -------------------------------------------------------------


Access = Literal["none", "read", "write", "command"]
Listing = Literal["listed", "unlisted", "deferred", "always"]
RuleName = Literal["", "Read", "Edit"]
ToolKind = Literal["", "read", "search", "edit", "write", "shell", "agent", "other"]
T = TypeVar("T")


class Outcome(msgspec.Struct, frozen=True):
    """Result of a call."""

    parts: tuple[AnyPart, ...]
    """Content for the model."""
    facts: tuple[AnyEvent, ...] = ()
    """Events to append in one transaction with `ToolEnded`, before it."""
    status: Literal["ok", "failed", "interrupted"] = "ok"
    raw: bytes = b""
    """A command's exact output, when the text in `parts` omits some of it."""

    @staticmethod
    def of(text: str, *facts: AnyEvent) -> "Outcome":
        """Return a plain text result."""
        return Outcome((Text(text),), facts)

    @staticmethod
    def fail(text: str, *facts: AnyEvent) -> "Outcome":
        """Return a text result with status `failed`."""
        return Outcome((Text(text),), facts, "failed")


class FileVersion(msgspec.Struct, frozen=True):
    """Version of a file that the model knows."""

    hash: str
    """Hash of the whole file when last seen or written."""
    whole: bool
    """True if the model saw the whole file."""
    blob: str = ""
    """Blob of the content; '' when not kept."""
    told: tuple[str, str] | None = None
    """Hash and blob of the content that the model knew when it wrote the call; None for this
    content.
    """


class Blobs(Protocol):
    """The session's blobs (see `store.Log`)."""

    def put_blob(self, data: bytes) -> str: ...
    def read_blob(self, blob: str) -> bytes: ...
    def blob_path(self, blob: str) -> str: ...
    def new_blob(self) -> BlobWriter: ...


class SessionFiles(msgspec.Struct, frozen=True):
    """Knowledge of a session about files, and the limits of a call to them."""

    versions: Mapping[str, FileVersion] = {}
    """Files that the model knows, by real path."""
    standing: Callable[[str, str, int, int], str] = lambda *_asked: ""
    """(real path, hash, first line, last line) -> handle of a reading in the view that shows
    these lines, or ''.
    """
    wrote: Callable[[str, str], str] = lambda *_asked: ""
    """(real path, hash) -> agent or command of this tree that wrote that content; '' for any
    other writer.
    """
    hidden: Callable[[str, str], bool] | None = None
    """(path, real path) -> whether a rule forbids reading the file, so that searches omit it.
    None without rules.
    """
    may_read: Callable[[str], bool] = lambda _path: True
    """path -> whether the model may read it without a question, so that a refusal may show what is
    there.
    """
    judged: Mapping[str, str] = {}
    """Path as given -> real path for which the call was allowed. Another one now is refused."""


class CommandSurroundings(msgspec.Struct, frozen=True):
    """Surroundings of the commands of one call."""

    session: str
    """Session id."""
    call_id: str = ""
    """Session and call."""
    variables: Mapping[str, str] = {}
    """Variables of commands that hooks have set; not for commands that leave the sandbox."""
    sandbox: SandboxPort | None = None
    """The sandbox of commands; None where they run as the user."""
    tasks: TaskPort | None = None
    """Commands and background tasks; None without a supervisor: commands then run through the
    spawner.
    """
    run: Callable[[ShellCommand], Awaitable[CommandExit | BackgroundedCommand]] | None = None
    """Runs a command in place of `tasks.run`; None for `tasks.run`."""
    stop_reason: Callable[[], str] = lambda: "interrupted by the user"
    """Says why a command was interrupted."""

    def environment(self, workspace: Workspace, *, outside: bool) -> dict[str, str]:
        """Return the variables of a command, in the sandbox or `outside`."""
        own = {} if outside and self.sandbox is not None else self.variables
        return {**workspace.environment(self.session, self.call_id), **own}


class SessionServices(msgspec.Struct, frozen=True):
    """Further services of a session for its tools."""

    archive: HistoryReader
    """Reader of this session's history."""
    now_us: Callable[[], int] = lambda: 0
    """Present time in microseconds UTC; 0 when unknown."""
    agents: SubagentPort | None = None
    """Subagents; None when none may be started."""
    goals: Goals | None = None
    """Goals of the project; None without a state folder."""
    skills: SkillPort | None = None
    """Skills that can be loaded; None when there are none."""


class ToolContext(msgspec.Struct, frozen=True):
    """Context of one call: everything a tool may use."""

    call: str
    """Call id."""
    nonce: str
    """Session's nonce: text that contains `events.marker_sign(nonce)` must not be written
    anywhere.
    """
    cwd: str
    """Current folder."""
    workspace: Workspace
    blobs: Blobs
    todos: tuple[Todo, ...]
    """Present todo list."""
    options: ToolOptions
    note: Callable[[bytes], None]
    """Shows output of a running tool on the screen; it is not stored."""
    files: SessionFiles
    commands: CommandSurroundings
    services: SessionServices
    page_bytes: int = 30_000
    """Size of text that the present window certainly shows whole."""
    offered: Container[str] | None = None
    """Names of the tools that the model may call; None where they are not known."""


class UserAnswer(msgspec.Struct, frozen=True):
    """The user's part in a tool."""

    reason: str
    """Reason why the user is asked."""
    arguments: tuple[str, ...] = ()
    """Parameters that only the answer gives. The model does not see them."""


class Tool(msgspec.Struct, frozen=True):
    """A tool: its spec for the model and the function that runs."""

    spec: ToolSpec
    access: Access
    run: Callable[..., Awaitable[Outcome]]
    """`run(context, **arguments)`; the arguments have been checked against the schema."""
    together: Callable[[Mapping[str, Any]], bool]
    """True if a call with these arguments may run in parallel with other such calls."""
    paths: Callable[[Mapping[str, Any]], tuple[tuple[str, bool], ...]]
    """(path, writes) pairs that a call touches, for permission."""
    listing: Listing = "listed"
    """`listed`: in the prefix. `unlisted`: a tool of longrein that requests only name, whose schema
    `ToolSearch` shows. `deferred`: `ToolSearch` may list it instead of the prefix, which is so of
    every tool whose name begins with `mcp__`, but for one that is `always` in the prefix.
    """
    rule_name: RuleName = ""
    """Permission rules of this name cover the paths of the tool too."""
    aliases: tuple[str, ...] = ()
    """Names of such a tool in other agents, in lower case; permission rules and files of subagents
    may use them.
    """
    traced: bool = False
    """True if `Spawner.unwritten` knows what a call has written."""
    withdrawn: bool = False
    """True if a rule forbids every call of the tool: no model is told of it."""
    check: Callable[..., Awaitable[None]] | None = None
    """`check(context, **arguments)` raises `ToolError` for a call that cannot succeed. It is
    awaited before the user is asked, so it changes nothing, and tells nothing of files that the
    model does not know.
    """
    user: UserAnswer | None = None
    """For tools whose every call the user answers, whatever the mode and the rules allow."""

    @property
    def traits(self) -> ToolTraits:
        """Traits in the spec."""
        return self.spec.traits or ToolTraits()
