"""What a tool gets and what it gives back. A tool never appends to the log: it returns facts, the loop appends them."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from longrein.events import AnyEvent, AnyPart, Entry, Goal, Text, Todo, ToolSpec
from longrein.store import BlobWriter, Found
from longrein.workspace import Ended, Printout, Workspace

# --- Subagents, as the tool `Agent` sees them; `agent` implements it -------------------------------------------------


class SubagentTask(msgspec.Struct, frozen=True):
    """What one subagent is to do."""

    description: str
    """Three to five words, for the screen."""
    prompt: str
    """The whole task."""
    kind: str = "general"
    """Subagent type."""
    model: str = ""
    """As the call has it, `provider/model` or an alias; '' as the type says, else the parent's."""
    form: str = ""
    """`empty` or `fork`; '' for `empty`."""
    worktree: bool = False
    """Whether it works in a git worktree of its own."""
    again: str = ""
    """`a<seq>` of a finished subagent that is asked again, in the conversation it has; '' for a new one."""


class SubagentReport(msgspec.Struct, frozen=True):
    """What came of one subagent."""

    label: str
    """`a<seq>`: `Recall` with `a<seq>/r<n>` reads its log."""
    job: SubagentTask
    status: str
    """`done`, `failed`, `limit`, `interrupted`; `refused` when it was never started; `running` in the background."""
    text: str
    """The report; of one that did not finish, what it had."""
    message: str = ""
    """Why it did not finish, or what was granted otherwise than asked for."""
    steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    elapsed_s: float = 0.0
    files: tuple[str, ...] = ()
    """Files it changed, absolute."""
    worktree: str = ""
    """What was kept of its worktree."""
    handle: str = ""
    """`a<seq>/r<n>` of the reply that `text` is, where there is one: what brings all of it back."""


class SubagentType(msgspec.Struct, frozen=True):
    """One subagent type."""

    name: str
    description: str
    """When to use it, as the model is told."""
    system: str = ""
    """System text as it was written; '' for one that stands in the package (see `agent.child_system`)."""
    tools: tuple[str, ...] | None = None
    """Names of the tools it may use, `*` at the end of a name for any; None for all of the parent's."""
    without: tuple[str, ...] = ()
    """Names that are taken off after that."""
    model: str = ""
    """As it was written: `provider/model`, an alias such as `haiku`, or '' for the parent's."""
    mode: str = ""
    """Permission mode; '' for the parent's. It can only narrow what the parent may."""
    turns_max: int = 0
    """Requests; 0 for the default."""
    spawns: tuple[str, ...] = ()
    """Types it may start itself, within the depth that is granted; `*` for any. Without one it has no `Agent`."""
    background: bool = False
    """Whether it always runs in the background."""
    worktree: bool = False
    """Whether it always gets a git worktree."""
    source: str = "built in"
    """File it came from."""


class SubagentPort(Protocol):
    """Subagents of one session."""

    def kinds(self) -> Sequence[SubagentType]:
        """Types that may be started here, in a fixed order."""
        ...

    async def run(
        self, jobs: Sequence[SubagentTask], *, call: str, background: bool, synthesis: str = ""
    ) -> tuple[Sequence[SubagentReport], tuple[AnyEvent, ...]]:
        """Run `jobs` side by side; gives reports in the order of `jobs` and the facts that belong with the result.

        A job that may not be started is a report with status `refused`. With `background` they are started and
        reported `running`; the reports come later as notices. With `synthesis` (the goal) one more subagent of type
        `synthesis` reads all reports, and its report is the last. Called again for the same `call` after a crash it
        goes on with the subagents that were started. Cancellation interrupts them; each keeps what it had.
        """
        ...


# --- Commands and background tasks, as tools see them; `agent` implements it -----------------------------------------


class TaskView(msgspec.Struct, frozen=True):
    """One background task, now."""

    id: str
    """Such as `b3`; a subagent's `a398.b3`."""
    state: str
    """`queued`, `running`, `done`, `failed`, `timed_out`, `killed` or `lost`."""
    command: str
    elapsed_s: float = 0.0
    """Since it started; of one that is over, how long it took."""
    size_bytes: int = 0
    """Output so far, also what is not kept."""
    elided_bytes: int = 0
    """Output that is not kept: its middle."""
    silent_s: float = 0.0
    """Since it last printed something; 0 when it is not known."""
    code: int | None = None
    cause: str = ""
    """Why it ended so, or why it waits."""
    path: str = ""
    """File of the running task's output; '' once it lies behind `handle`."""
    handle: str = ""
    """`r<seq>` of its `TaskEnded`; '' while it runs."""
    policy: str = "keep"
    """`keep` or `stop`: what becomes of it when longrein is gone."""
    waits_for_input: str = ""
    """The line that looks like a question, when it prints nothing any more."""


class BackgroundedCommand(msgspec.Struct, frozen=True):
    """A command goes on, or waits for its turn, in the background."""

    task: TaskView
    why: str
    """`asked` (run_in_background), `timeout` or `user` (Ctrl-B)."""
    tail: str = ""
    """The end of what it has printed so far."""


class OutputSlice(msgspec.Struct, frozen=True):
    """Some of a task's output."""

    task: TaskView
    text: str
    first_byte: int = 0
    """Offset of the slice in all that was printed."""
    next_byte: int = 0
    """Where the next `since` goes on."""
    note: str = ""
    """What is not in it and why."""


class TaskPort(Protocol):
    """Commands of one session. Raises `ToolError` for an unknown id, naming those there are."""

    async def run(
        self, command: str, *, call: str, sink: Printout, timeout_s: float, background: bool, promote: bool
    ) -> Ended | BackgroundedCommand:
        """Run a command to its end. With `background` it is a task from the start; with `promote` it becomes one
        when `timeout_s` passes or the user says so (else it is ended then). Cancellation ends a foreground command.
        """
        ...

    def tasks(self) -> Sequence[TaskView]:
        """Those of this session: running and queued ones, then those that are over, newest first."""
        ...

    async def output(self, task: str, *, tail: int = 0, since: int = -1, grep: str = "") -> OutputSlice:
        """The last `tail` lines, or what came from byte `since` on, or the lines that match `grep` (a regular
        expression), with their numbers."""
        ...

    async def wait(self, task: str, timeout_s: float) -> TaskView:
        """Until it is over, or `timeout_s` has passed."""
        ...

    async def stop(self, task: str) -> TaskView:
        """End it and its whole tree: TERM, grace, KILL. One that is over stays as it is."""
        ...

    async def give(self, task: str, text: str, *, eof: bool = False) -> TaskView:
        """Write `text` to its standard input; with `eof` close it."""
        ...


# --- The project's graph of goals, as tools see it; `store` implements it, `app` hands it in -------------------------


class GoalPort(Protocol):
    """Goals of one project, shared by every session in it. Short transactions; raises `ToolError` with what to do."""

    @property
    def owner(self) -> str:
        """In whose name claims are made: a session, `session/a398` for a subagent, `user`."""
        ...

    def by(self, owner: str) -> "GoalPort":
        """The same goals as another agent sees and changes them."""
        ...

    def unseen(self, goals: Sequence[Goal]) -> Sequence[Goal]:
        """Those of `goals` that this agent did not know as they are; it does now."""
        ...

    def beat(self) -> None:
        """A sign of life: this agent's claims hold on. To be called at each step; never waits."""
        ...

    async def leave(self) -> None:
        """This agent is closed: its claims end, so that others may go on. Never fails."""
        ...

    async def goals(self, *, every: bool = False) -> Sequence[Goal]:
        """Open goals in the order of their ids; with `every` also completed and deleted ones."""
        ...

    async def add(self, title: str, body: str, blocked_by: Sequence[int]) -> Goal:
        """A new goal. Ids rise and are never used twice."""
        ...

    async def update(
        self,
        goal: int,
        *,
        status: str = "",
        title: str = "",
        body: str | None = None,
        blocked_by: Sequence[int] | None = None,
        claim: bool | None = None,
    ) -> tuple[Goal, Sequence[Goal]]:
        """The goal as it is now, and goals that this has unblocked. `claim` takes it for this agent, or lets go.

        Refused: a claim of what is blocked or held by another; a cycle; words over words that were not seen.
        """
        ...


# --- port ------------------------------------------------------------------------------------------------------------


Access = Literal["none", "read", "write", "command"]
T = TypeVar("T")


class Outcome(msgspec.Struct, frozen=True):
    """What came of a call."""

    parts: tuple[AnyPart, ...]
    """Content for the model."""
    facts: tuple[AnyEvent, ...] = ()
    """Events to append in one transaction with `ToolEnded`, before it."""
    status: Literal["ok", "failed", "interrupted"] = "ok"
    raw: bytes = b""
    """A command's output byte for byte, where the text in `parts` leaves some of it out."""

    @staticmethod
    def of(text: str, *facts: AnyEvent) -> "Outcome":
        """A plain text result."""
        return Outcome((Text(text),), facts)

    @staticmethod
    def fail(text: str, *facts: AnyEvent) -> "Outcome":
        """A result the model must read as a failure."""
        return Outcome((Text(text),), facts, "failed")


class FileVersion(msgspec.Struct, frozen=True):
    """What the model knows of a file."""

    hash: str
    """Hash of the whole file when last seen or written."""
    whole: bool
    """Whether the model saw all of it."""
    blob: str = ""
    """Its content."""
    told: tuple[str, str] | None = None
    """Hash and blob that the model had been told of when it wrote the call; None when it is this content."""


class Blobs(Protocol):
    """The session's blobs (see `store.Log`)."""

    def put_blob(self, data: bytes) -> str: ...
    def read_blob(self, blob: str) -> bytes: ...
    def blob_path(self, blob: str) -> str: ...
    def new_blob(self) -> BlobWriter: ...


class SessionHistory(Protocol):
    """Everything that was ever written down in a session (see `store.SessionHistory`). Read only."""

    def tail(self) -> tuple[int, int]: ...
    def entry(self, seq: int, /) -> Entry | None: ...
    def entries(self, after: int = 0, to: int = 0) -> Iterator[Entry]: ...
    def of_kind(self, *kinds: str) -> Iterator[Entry]: ...
    def seq_at(self, at: int, /) -> int: ...
    def seq_ago(self, ago_us: int, now_us: int, /) -> int: ...
    def pieces(self, blob: str, /) -> Iterator[bytes]: ...
    def search(self, query: str, limit: int, before: int = 0) -> Found: ...
    def search_tree(self, query: str, limit: int, before: int = 0) -> Found: ...
    def child(self, session: str, /) -> "SessionHistory | None": ...
    def parent(self) -> "SessionHistory | None": ...


class HistoryReader(Protocol):
    """Reads the past beside the event loop (see `store.HistoryReader`)."""

    async def reading(self, work: Callable[[SessionHistory], T], /) -> T: ...
    def child(self, session: str, /) -> "HistoryReader": ...


class ToolContext(msgspec.Struct, frozen=True):
    """Everything a tool may use. A new one for each call."""

    call: str
    """Call id."""
    session: str
    """Session id."""
    nonce: str
    """Session's nonce: text holding `events.marker_sign(nonce)` must not be written anywhere (law 4)."""
    cwd: str
    """Present folder."""
    workspace: Workspace
    blobs: Blobs
    versions: Mapping[str, FileVersion]
    """Known files by real path."""
    todos: tuple[Todo, ...]
    """Present todo list."""
    options: "ToolOptions"
    entry: Callable[[int], Entry | None]
    """An entry of this session by seq, from the log."""
    note: Callable[[bytes], None]
    """Shows output of a running tool as provisional (never stored)."""
    archive: HistoryReader | None = None
    """This session's past; None where the log is not on disk, then `entry` and `blobs` have to do."""
    now_us: Callable[[], int] = lambda: 0
    """Microseconds UTC; 0 when it is not known."""
    page_bytes: int = 30_000
    """Text that a result may hold and surely be shown whole in the present window."""
    standing: Callable[[str, str, int, int], str] = lambda *_asked: ""
    """(real path, hash, first line, last line) -> handle of a reading that shows just that in the view, or ''."""
    tasks: TaskPort | None = None
    """Commands and background tasks; None where there is no supervisor: commands then run through the spawner."""
    agents: SubagentPort | None = None
    """Subagents; None where none may be started."""
    goals: GoalPort | None = None
    """The project's goals; None where there is no state folder."""
    wrote: Callable[[str, str], str] = lambda *_asked: ""
    """(real path, hash) -> who wrote that content, where it was an agent of this tree or a command of one; else ''."""
    hidden: Callable[[str, str], bool] | None = None
    """(path, real path) of a file -> whether the rules forbid to read it: searches leave it out. None: no rule does."""


class ToolOptions(msgspec.Struct, frozen=True):
    """Limits. All are ceilings the model cannot raise."""

    bash_timeout_s: float = 120.0
    """Default of `Bash`; `timeout` may raise it."""
    bash_timeout_max_s: float = 600.0
    """Ceiling of `timeout`."""
    output_inline_bytes: int = 30_000
    """Command output up to this size is given as text, more becomes a document with head and tail."""
    output_bytes_max: int = 256 * 1024 * 1024
    """A command that prints more is ended."""
    head_bytes: int = 4_000
    """Of a document."""
    tail_bytes: int = 6_000
    """Of a document."""
    read_lines_max: int = 2_000
    """Lines of one `Read` without a limit."""
    read_bytes_max: int = 256 * 1024
    """Bytes of one `Read`."""
    line_chars_max: int = 2_000
    """A longer line is cut, with a note."""
    keep_bytes_max: int = 5 * 1024 * 1024
    """Files up to this size are kept as blobs when seen or changed."""


class Tool(msgspec.Struct, frozen=True):
    """One tool: what the model is told of it and what runs."""

    spec: ToolSpec
    access: Access
    run: Callable[..., Awaitable[Outcome]]
    """`run(hands, **arguments)`; the arguments have been checked against the schema."""
    together: Callable[[Mapping[str, Any]], bool]
    """Whether this call may run beside other such calls."""
    paths: Callable[[Mapping[str, Any]], tuple[tuple[str, bool], ...]]
    """(path, writes) pairs a call touches, for permission."""
    deferred: bool = False
    """Whether the model may have to look it up (see `tools.deferred`); so may all whose name begins with `mcp__`."""
