"""Protocols and values of the workspace: files, commands and background tasks.

Only this package opens the user's files and starts processes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")


class ResolvedPath(msgspec.Struct, frozen=True):
    """A path as written, and where it leads."""

    given: str
    """The path as it was written."""
    path: str
    """Absolute and normalised; symlinks not followed. `surrogateescape` for bytes that are not
    UTF-8.
    """
    real: str
    """Absolute, with every symlink followed as far as the path exists."""
    inside: bool
    """True when `path` and `real` both lie in a root, compared by component."""
    kind: str
    """`file`, `folder`, `other` or `` (does not exist)."""
    size_bytes: int = 0
    """Size of a file, else 0."""
    identity: tuple[int, int] | None = None
    """Device and inode of a file that has further names (hard links); None for others."""
    is_scratch: bool = False
    """True for the commands' own `/tmp` and the caches of tool chains: what changes there is
    nobody's work.
    """

    @property
    def where(self) -> str:
        """Place of a file of the commands' own `/tmp` for the user; '' for any other file."""
        is_private = self.is_scratch and self.path.startswith("/tmp/") and self.path != self.real
        return f" (in the commands' own /tmp: {self.real})" if is_private else ""


class SharedFolders(msgspec.Struct, frozen=True):
    """Folders outside the roots that confined commands and file tools share."""

    tmp: str = ""
    """Folder that stands for `/tmp`; '' where `/tmp` is the machine's own."""
    named: Collection[str] = ()
    """Paths below `/tmp` that are the machine's own for commands, too."""
    cache: str = ""
    """Folder for the caches of tool chains; '' for none."""


class CommandExit(msgspec.Struct, frozen=True):
    """Outcome of a command."""

    code: int | None
    """Exit code; None when a signal ended it."""
    signal: str = ""
    """Name of the signal, such as `SIGKILL`; '' for an exit code."""
    cause: str = "exit"
    """`exit`, `timeout`, `interrupt`, `flood` (over the output limit), `terminal` (a program
    waited for keys), `not_started` or `lost` (the parent process died, the command was ended, and
    the outcome is unknown).
    """
    message: str = ""
    """Reason why the command could not start, or why the outcome is unknown; of `terminal` the
    name of the program.
    """
    elapsed_s: float = 0.0
    """Wall time in seconds."""
    cwd: str = ""
    """Folder of the shell at its end, if the shell reported one."""


class Confinement(msgspec.Struct, frozen=True):
    """Words and file that put a command into the sandbox."""

    words: tuple[str, ...]
    """Words in front of the command's own, the path of the sandbox's program first."""
    filter: str = ""
    """File with the seccomp filter; its descriptor takes the place of the word `FILTER`. '' for
    none.
    """
    env: dict[str, str] = {}
    """Variables that the command gets in addition."""


class Streams(msgspec.Struct, frozen=True):
    """Descriptors that a command gets as its standard streams, -1 for the usual one. The caller
    closes them.
    """

    stdin: int
    stdout: int = -1
    stderr: int = -1

    def given(self) -> dict[str, int]:
        """Return the given descriptors by name."""
        return {name: one for name in self.__struct_fields__ if (one := getattr(self, name)) >= 0}


class CommandSpec(msgspec.Struct, frozen=True):
    """A command to start: a shell line (str) or a program (sequence), its folder and variables.

    A line runs with `bash -c`, or `sh` where there is no bash. The command has its own session and
    no terminal.
    """

    command: str | Sequence[str]
    cwd: str
    env: Mapping[str, str]
    confinement: Confinement | None = None
    """Puts the command into the sandbox."""
    streams: Streams | None = None
    """Descriptors in place of the usual standard streams."""
    traced: bool = False
    """The files that it writes are noted for `Spawner.unwritten`, where it is confined."""
    stdin: bool = False
    """Standard input is a pipe that stays open for `Supervision.give`, else it is /dev/null."""

    @property
    def variables(self) -> dict[str, str]:
        """All variables, those of the confinement too."""
        return {**self.env, **(self.confinement.env if self.confinement is not None else {})}


class FileStamp(msgspec.Struct, frozen=True):
    """Identity of a file at one moment. A missing file has zeros and no hash."""

    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    hash: str
    """SHA-256 of the content; '' when the file is missing or unreadable."""


Merge = Callable[[bytes, bytes, bytes], bytes | None]
"""(base, ours, theirs) -> merged content, or None for a conflict. Pure; may run in another
thread.
"""


class ReplaceResult(msgspec.Struct, frozen=True):
    """Result of `Workspace.replace`."""

    data: bytes | None
    """Content that the write left in the file, perhaps merged. None when another program's
    content stands there: the last of `taken`.
    """
    taken: tuple[bytes, ...] = ()
    """Unexpected contents by other programs, in the order they were found."""


class Sink(Protocol):
    """Receives a command's output: stdout and stderr in the order written."""

    def write(self, data: bytes) -> None: ...


class ReplayableSink(Sink, Protocol):
    """A sink that can give its content once more.

    A command can so become a background task without keeping its output twice.
    """

    def pieces(self) -> Iterator[bytes]:
        """Yield all output once more, in order; secrets may have been replaced.

        Raises OSError where the rest could not be kept.
        """
        ...


class BackgroundOptions(msgspec.Struct, frozen=True):
    """Limits of a background task. The supervisor enforces them, also without longrein."""

    task: str
    """Id, unique in the session's spool."""
    command: str
    """The command as the user knows it, for lists."""
    policy: str = "keep"
    """Fate of the task once longrein is gone: `keep` lets it run on, `stop` ends it."""
    timeout_s: float = 0.0
    """Seconds from the command's start; 0 for no limit."""
    quota_bytes: int = 64 * 1024 * 1024
    """Output kept on disk: the first half and the newest half. Bytes between them are only
    counted.
    """
    memory_bytes: int = 0
    """Resident memory of the process tree; 0 for no limit."""
    cpu_s: float = 0.0
    """CPU seconds of the process tree; 0 for no limit."""


class SpooledTask(msgspec.Struct, frozen=True):
    """A background task as read from the spool."""

    task: str
    command: str
    cwd: str
    pid: int
    """Pid of the leader of the task's process session."""
    started_at: int
    """Microseconds UTC."""
    policy: str
    path: str
    """File of the output's first half of the quota."""
    size_bytes: int = 0
    """Output so far."""
    elided_bytes: int = 0
    """Output that was not kept."""
    lost: str = ""
    """Reason why output is missing, other than the quota, such as a full disk."""
    state: str = "running"
    """`running`, `done`, `failed`, `timed_out`, `killed` or `lost`."""
    code: int | None = None
    cause: str = ""
    """The signal, the limit, or who ended the task."""
    elapsed_s: float = 0.0
    written_at: int = 0
    """Time of the last output, microseconds UTC; 0 for none."""
    reads_input: bool = False
    """True while the task waits for standard input, as far as the system tells."""


class StartedCommand(Protocol):
    """A started command. In the foreground until `keep` is called."""

    pid: int

    def waits_for_keys(self) -> tuple[str, bytes]:
        """Return the program of the command that waits for keys of a terminal, and how often
        the command's processes have run, which is the same again while none runs; ("", b"") for
        none. There is no terminal, so it waits for ever.
        """
        ...

    async def ended(self) -> CommandExit:
        """Wait for the end. Cancelling the wait leaves the command running."""
        ...

    def end(self, cause: str) -> None:
        """End the process tree: TERM, 2 s grace, KILL. Returns at once; `ended` then reports
        `cause`.
        """
        ...

    async def keep(self, keeping: BackgroundOptions) -> SpooledTask:
        """Make the command a background task.

        All output from the first byte on goes to the spool, and so does the end. `ended` then never
        returns. Raises `OSError` when the supervisor is gone.
        """
        ...


class Supervision(Protocol):
    """Background tasks of a session and its subagents. Belongs to one event loop."""

    @property
    def may_prepare(self) -> bool:
        """True if `prepare` would make a sandbox: none is ready or about to be, and the last
        command could have had one.
        """
        ...

    def prepare(self, like: CommandSpec) -> None:
        """Have a sandbox ready for a command line like this one: what it runs and its variables
        come with `start`. Returns at once; where no sandbox can be had, nothing happens.
        """
        ...

    async def start(
        self, spec: CommandSpec, *, sink: ReplayableSink | None, output_bytes_max: int
    ) -> "StartedCommand | CommandExit":
        """Start a command as `Spawner.run` does.

        Without a sink the caller must keep the command at once; until then its output waits in the
        pipe. Returns a `CommandExit` with cause `not_started` when the command cannot start.
        """
        ...

    async def adopt(self) -> Sequence[SpooledTask]:
        """Return all tasks in the spool: running ones, and ends that were not settled.

        A task with neither an end nor a live supervisor is ended by its mark and reported as
        `lost`.
        """
        ...

    def spooled(self, task: str) -> SpooledTask | None:
        """Return a task as it is now; None for an unknown one. Reads files and asks no process."""
        ...

    def read(self, task: str, start: int, size_bytes: int) -> tuple[int, bytes]:
        """Read output from byte `start` on: (offset of the first byte returned, bytes).

        Output that was not kept is skipped, so the offset may be larger than `start`. b"" at the
        end.
        """
        ...

    def on_news(self, call: Callable[[str], None]) -> None:
        """Call `call(task)` in the loop's thread when a task ends, `call("")` when the
        supervisor is gone.
        """
        ...

    async def stop(self, task: str, cause: str) -> None:
        """End a task; its state becomes `killed` with `cause`. Does nothing for a task that is
        over.
        """
        ...

    async def give(self, task: str, data: bytes, *, eof: bool) -> None:
        """Write to a task's standard input.

        Raises `OSError`: `BrokenPipeError` when no process reads it or it was closed.
        """
        ...

    def whole(self, task: str) -> str:
        """Return the path of a finished task's kept output, as one file; '' when there was none.

        The file becomes a blob (`Log.adopt`, which leaves it there) before the end is in the log.
        After a crash the same call gives the same file.
        """
        ...

    def settle(self, task: str) -> None:
        """Remove a task's files, once its end and its output are in the log."""
        ...


class Spawner(Protocol):
    """Starts commands, perhaps as children of another process."""

    def warm(self) -> None:
        """Start that process ahead of the first command. Cheap when one runs."""
        ...

    async def run(
        self, spec: CommandSpec, *, sink: Sink, timeout_s: float, output_bytes_max: int
    ) -> CommandExit:
        """Run a command to its end.

        The call returns when the process itself has exited, even if a grandchild still holds the
        pipe; output that arrives within 0.1 s after the exit is kept.

        Timeout, flood and cancellation end the process tree: TERM, 2 s grace, KILL. Cancellation
        re-raises `CancelledError` after TERM; KILL follows in the background. Never raises for what
        the command does.
        """
        ...

    async def unwritten(self, paths: Sequence[str]) -> tuple[Sequence[str], bool]:
        """Return which of these real paths no traced command has written, and whether that is
        known: not of commands outside the sandbox, or on a kernel that cannot trace them.

        Counted are the commands that ran in the foreground at the last question or since.
        """
        ...

    async def drain(self) -> None:
        """Wait for pending kills and end processes that commands left running. Called once, at
        shutdown.
        """
        ...


class Workspace(Protocol):
    """The files and commands of one session.

    Methods that open files take real paths, as `resolve` gives them, and follow no link that is
    found there since: they raise OSError (`ELOOP`).
    """

    roots: tuple[str, ...]
    """Absolute real folders."""
    spawner: Spawner

    def resolve(self, path: str, cwd: str) -> ResolvedPath:
        """Look a path up: `~` expanded, relative to `cwd`.

        Never raises; NUL or an impossible path gives `kind=''`.
        """
        ...

    def find_program(self, name: str) -> str:
        """Return the path of the program that a command would start by this name; '' for none."""
        ...

    def read(self, path: str, limit_bytes: int = 0) -> bytes:
        """Read a regular file, or its first `limit_bytes` (0: no limit but 1 GiB). Raises
        OSError.
        """
        ...

    def replace(
        self,
        path: str,
        data: bytes,
        *,
        expect: str,
        base: bytes | None = None,
        merge: Merge | None = None,
        like: str = "",
        mode: int | None = None,
    ) -> ReplaceResult:
        """Replace content `expect` (its hash, '' for "must not exist") by `data` although other
        programs may write the same file.

        The content goes to a temporary file beside the target, is flushed and takes its place in
        one step, with its mode, owner and extended attributes. Parent folders are made.

        Content that is found there instead, before or at the moment of the exchange, is merged with
        `data` (`base` is the common ancestor) and the result is written. On a conflict, or without
        `merge`, the other content stays. Waits a moment for a program that has the file open for
        writing. Raises OSError (`FileNotFoundError` when the file is gone); the file is then as
        others left it. A new file gets owner and mode of the file `like`, or the permissions
        `mode`.
        """
        ...

    async def run_in_thread(self, work: Callable[[], T], /) -> T:
        """Run slow `work()` in a thread of its own, so that the event loop goes on.

        A cancelled call still waits for the end and returns the result, so that a changed file is
        never unreported; the task's `cancelling()` tells that it was to stop.
        """
        ...

    def remove(self, path: str) -> int | None:
        """Remove a file; of a symlink, the link itself. Return the permissions that it had, None
        where files have none. Raises OSError.
        """
        ...

    def hash(self, path: str) -> str:
        """Return the SHA-256 (hex) of the content; '' when there is no such file."""
        ...

    def stamp(self, path: str, then: FileStamp | None = None) -> FileStamp:
        """Return the file's stamp; `then` itself, after one `stat`, when the file was not
        touched since.
        """
        ...

    def walk(
        self,
        folder: str,
        visit: Callable[[str, bool], bool],
        limit_s: float = 10.0,
        *,
        ignored: bool = False,
    ) -> bool:
        """Visit the entries below `folder` as (path, is_folder), in name order. Never follows
        links.

        Entries that `.gitignore` excludes are visited only with `ignored`. `visit` returns whether
        to enter a folder. Returns False when `limit_s` ran out before the end.
        """
        ...

    def environment(self, session: str, call_id: str = "") -> dict[str, str]:
        """Environment of commands: the allow-list, LONGREIN_SESSION, LONGREIN_CALL_ID for a call of
        the model, AI_AGENT, no pagers, no git prompts.
        """
        ...
