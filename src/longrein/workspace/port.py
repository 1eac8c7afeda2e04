"""Where files and processes are. Nothing else in longrein opens the user's files or starts processes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")


class ResolvedPath(msgspec.Struct, frozen=True):
    """A path looked up."""

    given: str
    """As it was written."""
    path: str
    """Absolute, normalised, symlinks not followed. `surrogateescape` for bytes that are not UTF-8."""
    real: str
    """Absolute with every symlink followed, as far as it exists."""
    inside: bool
    """Whether `path` and `real` both lie in one of the roots, compared by component."""
    kind: str
    """`file`, `folder`, `other` or `` (does not exist)."""
    size_bytes: int = 0
    """Size of a file."""


class CommandExit(msgspec.Struct, frozen=True):
    """How a command ended."""

    code: int | None
    """Exit code; None when a signal ended it."""
    signal: str = ""
    """Such as `SIGKILL`."""
    cause: str = "exit"
    """`exit`, `timeout`, `interrupt`, `flood` (over the output limit), `not_started` or `lost` (what had started it
    died: it was ended, and nobody knows how it went)."""
    message: str = ""
    """Why it could not start, or why nobody knows how it ended."""
    elapsed_s: float = 0.0
    """Wall time."""
    cwd: str = ""
    """The folder the shell was in when it ended, if it reported one."""


class FileStamp(msgspec.Struct, frozen=True):
    """A file at one moment. A file that does not exist has a stamp too: zeros and no hash."""

    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    hash: str
    """Of its content; '' when there was no file or it could not be read."""


Merge = Callable[[bytes, bytes, bytes], bytes | None]
"""(base, ours, theirs) -> both changes in one content, or None for a conflict. Pure; may run in another thread."""


class ReplaceResult(msgspec.Struct, frozen=True):
    """What became of a write that looks at what it replaces."""

    data: bytes | None
    """What it left in the file, perhaps merged; None when somebody else's content stands there, the last of `taken`."""
    taken: tuple[bytes, ...] = ()
    """What others had written and nobody expected, in the order it was found."""


class Sink(Protocol):
    """Takes a command's output (stdout and stderr in the order written)."""

    def write(self, data: bytes) -> None: ...


class ReplayableSink(Sink, Protocol):
    """A sink that keeps what it takes, so that a command can become a task without anything being kept twice."""

    def pieces(self) -> Iterator[bytes]:
        """All that was written, once more and in order; secrets may have been replaced in it.

        Raises OSError where the rest could not be kept.
        """
        ...


class BackgroundOptions(msgspec.Struct, frozen=True):
    """How a command is kept in the background. The supervisor obeys it, whether longrein lives or not."""

    task: str
    """Id, unique in the spool of the session."""
    command: str
    """As the user knows it, for lists."""
    policy: str = "keep"
    """When longrein is gone: `keep` lets it go on, `stop` ends it."""
    timeout_s: float = 0.0
    """From its start; 0 for none."""
    quota_bytes: int = 64 * 1024 * 1024
    """Output kept on disk: the first half and the newest half; what lies between is counted."""
    memory_bytes: int = 0
    """Resident memory of its tree; 0 for no limit."""
    cpu_s: float = 0.0
    """CPU of its tree; 0 for no limit."""


class SpooledTask(msgspec.Struct, frozen=True):
    """A kept task as the spool tells of it."""

    task: str
    command: str
    cwd: str
    pid: int
    """Of the leader of its session."""
    started_at: int
    """Microseconds UTC."""
    policy: str
    path: str
    """File that its output grows in: the first half of the quota."""
    size_bytes: int = 0
    """Output so far."""
    elided_bytes: int = 0
    """What of it was not kept."""
    lost: str = ""
    """Why some of it was not kept, when it was not the quota: a full disk."""
    state: str = "running"
    """`running`, `done`, `failed`, `timed_out`, `killed` or `lost`."""
    code: int | None = None
    cause: str = ""
    """Signal, limit, or who ended it."""
    elapsed_s: float = 0.0
    written_at: int = 0
    """When it last printed something, microseconds UTC; 0 for never."""
    reads_input: bool = False
    """Whether it waits for its standard input, as far as the system tells."""


class StartedCommand(Protocol):
    """A command that was started. Foreground until it is kept."""

    pid: int

    async def ended(self) -> CommandExit:
        """Wait for its end. Cancelling the wait leaves it running."""
        ...

    def end(self, cause: str) -> None:
        """End its whole tree: TERM, 2 s grace, KILL, which goes on behind. `ended` then says `cause`."""
        ...

    async def keep(self, keeping: BackgroundOptions) -> SpooledTask:
        """From now it is a task: its output, from the first byte on, goes to the spool, its end is written there.

        `ended` then never returns. Raises `OSError` when the supervisor is gone.
        """
        ...


class Supervision(Protocol):
    """Kept tasks of one session's tree. Belongs to one event loop."""

    def warm(self) -> None:
        """A command may soon be wanted: start what is slow to start, beside whatever goes on. Cheap when it runs."""
        ...

    async def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        sink: ReplayableSink | None,
        output_bytes_max: int,
        stdin: bool = False,
    ) -> "StartedCommand | CommandExit":
        """Start a command as `Spawner.run` does.

        Without a sink the caller must keep the command at once; until then its output waits in the pipe. With `stdin`
        standard input is a pipe that stays open for `give`, else /dev/null. Returns a `CommandExit` with cause
        `not_started` when the command cannot start.
        """
        ...

    async def adopt(self) -> Sequence[SpooledTask]:
        """All that the spool holds, from an earlier longrein too: running tasks and ends that were not settled.

        What has neither an end nor a live supervisor is ended by its mark and told as `lost`.
        """
        ...

    def spooled(self, task: str) -> SpooledTask | None:
        """A task now; None for one that the spool does not know. One look at its files, no process is asked."""
        ...

    def read(self, task: str, start: int, size_bytes: int) -> tuple[int, bytes]:
        """Output from byte `start` of all that was printed: (offset where it begins, bytes). What was not kept is
        skipped, so the offset may be larger than `start`. b"" at the end."""
        ...

    def on_news(self, call: Callable[[str], None]) -> None:
        """`call(task)` in the loop's thread whenever a kept task has ended, or the supervisor is gone (`""`)."""
        ...

    async def stop(self, task: str, cause: str) -> None:
        """End a kept task; its end is told as `killed` by `cause`. Nothing for one that is over."""
        ...

    async def give(self, task: str, data: bytes, *, eof: bool) -> None:
        """Write to its standard input. Raises `OSError` (`BrokenPipeError` when nobody reads, or it was closed)."""
        ...

    def whole(self, task: str) -> str:
        """Path of all that was kept of an ended task's output, as one file; '' when it printed nothing. It is made a
        blob (`Log.adopt`, which leaves it there) before the end is in the log; asked again after a crash it says so
        again."""
        ...

    def settle(self, task: str) -> None:
        """Its end and its output are in the log: forget it and remove what is left of its files."""
        ...


class Spawner(Protocol):
    """Starts commands. Its parent may be another process, so nothing above it holds a `Popen`."""

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        sink: Sink,
        timeout_s: float,
        output_bytes_max: int,
    ) -> CommandExit:
        """Run to its end: a shell line (str, through `bash -c`, `sh` where there is no bash) or a program (sequence).

        Own session, stdin from /dev/null, no terminal. Returns when the process itself has exited, even if a
        grandchild still holds the pipe (what arrived within 0.1 s after it is kept). On timeout, flood and on
        cancellation the whole tree is ended: TERM, 2 s grace, KILL. Cancellation re-raises `CancelledError` after
        TERM was sent; the KILL goes on behind it. Never raises for what the command does.
        """
        ...

    async def drain(self) -> None:
        """Wait for kills that are under way and end what commands left running. Called once, at the end."""
        ...


class Workspace(Protocol):
    """The files and commands of one session."""

    roots: tuple[str, ...]
    """Absolute real folders."""
    spawner: Spawner

    def resolve(self, path: str, cwd: str) -> ResolvedPath:
        """Look a path up (`~` expanded, relative to `cwd`). Never raises; NUL or an impossible path is `kind=''`."""
        ...

    def read(self, path: str, limit_bytes: int = 0) -> bytes:
        """Content of a regular file, or its first `limit_bytes` (0: no limit but 1 GiB). Raises OSError."""
        ...

    def write(self, path: str, data: bytes, *, expect: str | None = None) -> None:
        """Replace a file atomically (temp beside it, flush, rename), keeping mode, owner and what a symlink points at.

        Parent folders are made. With `expect` (a content hash, '' for "must not exist") the present content is
        compared right before the rename and `FileExistsError` raised when it differs. Raises OSError.
        """
        ...

    def replace(
        self, path: str, data: bytes, *, expect: str, base: bytes | None = None, merge: Merge | None = None
    ) -> ReplaceResult:
        """`write` under other writers: put `data` in the place of content `expect` and look at what came out.

        Whatever else is found there, before or in the very moment of the exchange, is merged with `data` (`base` is
        what both began with) and the result put in place; on a conflict, or without `merge`, theirs stands. Waits a
        moment for a program that has the file open for writing. Raises OSError (`FileNotFoundError` when it is gone);
        the file is then as others left it.
        """
        ...

    async def run_in_thread(self, work: Callable[[], T], /) -> T:
        """`work()`, which may take long, so that nothing else waits for it: beside the loop where it is a real one.

        Cancelled, it goes on to its end all the same and gives what came of it, so that what was done to a file can
        be told; the task's `cancelling()` says that it was to stop.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file (of a link, the link). Raises OSError."""
        ...

    def hash(self, path: str) -> str:
        """SHA-256 (hex) of the content; '' when there is no such file."""
        ...

    def stamp(self, path: str, then: FileStamp | None = None) -> FileStamp:
        """The file now. The same as `then`, for no more than a look at its numbers, when it was not touched since."""
        ...

    def walk(
        self, folder: str, visit: Callable[[str, bool], bool], limit_s: float = 10.0, *, ignored: bool = False
    ) -> bool:
        """Visit entries below `folder` (path, is_folder) in name order, respecting `.gitignore`, never following links.

        With `ignored` also what `.gitignore` excludes. `visit` returns whether to go into a folder. False when time
        ran out (partial).
        """
        ...

    def environment(self, session: str) -> dict[str, str]:
        """Environment of children: the allow-list, LONGREIN_SESSION, AI_AGENT=longrein, pagers off, no git prompts."""
        ...
