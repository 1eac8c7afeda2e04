"""Where files and processes are. Nothing else in longrein opens the user's files or starts processes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec


class Place(msgspec.Struct, frozen=True):
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


class Ended(msgspec.Struct, frozen=True):
    """How a command ended."""

    code: int | None
    """Exit code; None when a signal ended it."""
    signal: str = ""
    """Such as `SIGKILL`."""
    cause: str = "exit"
    """`exit`, `timeout`, `interrupt`, `flood` (over the output limit) or `not_started`."""
    message: str = ""
    """Why it could not start."""
    elapsed_s: float = 0.0
    """Wall time."""
    cwd: str = ""
    """The folder the shell was in when it ended, if it reported one."""


class Stamp(msgspec.Struct, frozen=True):
    """A file at one moment. A file that does not exist has a stamp too: zeros and no hash."""

    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    hash: str
    """Of its content; '' when there was no file or it could not be read."""


class Sink(Protocol):
    """Takes a command's output (stdout and stderr in the order written)."""

    def write(self, data: bytes) -> None: ...


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
    ) -> Ended:
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

    def look(self, path: str, cwd: str) -> Place:
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

    def remove(self, path: str) -> None:
        """Remove a file (of a link, the link). Raises OSError."""
        ...

    def hash(self, path: str) -> str:
        """SHA-256 (hex) of the content; '' when there is no such file."""
        ...

    def stamp(self, path: str, then: Stamp | None = None) -> Stamp:
        """The file now. The same as `then`, for no more than a look at its numbers, when it was not touched since."""
        ...

    def walk(self, folder: str, visit: Callable[[str, bool], bool], limit_s: float = 10.0) -> bool:
        """Visit entries below `folder` (path, is_folder) in name order, respecting `.gitignore`, never following links.

        `visit` returns whether to go into a folder. False when time ran out (partial).
        """
        ...

    def environment(self, session: str) -> dict[str, str]:
        """Environment of children: the allow-list, LONGREIN_SESSION, AI_AGENT=longrein, pagers off, no git prompts."""
        ...
