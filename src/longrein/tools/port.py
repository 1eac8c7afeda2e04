"""What a tool gets and what it gives back. A tool never appends to the log: it returns facts, the loop appends them."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from longrein.events import AnyEvent, AnyPart, Entry, Text, Todo, ToolSpec
from longrein.store import BlobWriter, Found
from longrein.tools.agent_port import AgentPort
from longrein.tools.goal_port import GoalPort
from longrein.tools.task_port import TaskPort
from longrein.workspace import Workspace

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


class Past(Protocol):
    """Everything that was ever written down in a session (see `store.Past`). Read only."""

    def tail(self) -> tuple[int, int]: ...
    def entry(self, seq: int, /) -> Entry | None: ...
    def entries(self, after: int = 0, to: int = 0) -> Iterator[Entry]: ...
    def of_kind(self, *kinds: str) -> Iterator[Entry]: ...
    def seq_at(self, at: int, /) -> int: ...
    def seq_ago(self, ago_us: int, now_us: int, /) -> int: ...
    def pieces(self, blob: str, /) -> Iterator[bytes]: ...
    def search(self, query: str, limit: int, before: int = 0) -> Found: ...
    def search_tree(self, query: str, limit: int, before: int = 0) -> Found: ...
    def child(self, session: str, /) -> "Past | None": ...
    def parent(self) -> "Past | None": ...


class Archive(Protocol):
    """Reads the past beside the event loop (see `store.Archive`)."""

    async def reading(self, work: Callable[[Past], T], /) -> T: ...
    def child(self, session: str, /) -> "Archive": ...


class Hands(msgspec.Struct, frozen=True):
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
    archive: Archive | None = None
    """This session's past; None where the log is not on disk, then `entry` and `blobs` have to do."""
    now_us: Callable[[], int] = lambda: 0
    """Microseconds UTC; 0 when it is not known."""
    page_bytes: int = 30_000
    """Text that a result may hold and surely be shown whole in the present window."""
    standing: Callable[[str, str, int, int], str] = lambda *_asked: ""
    """(real path, hash, first line, last line) -> handle of a reading that shows just that in the view, or ''."""
    tasks: TaskPort | None = None
    """Commands and background tasks; None where there is no supervisor: commands then run through the spawner."""
    agents: AgentPort | None = None
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
