"""`MemoryWorkspace` and `MemorySpawner`: files in a dict, commands from a table, time from the
test's clock.

The tools `Grep` and `Glob` search real trees, so they find nothing here; all others work.
"""

import asyncio
import errno
import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TypeVar

import msgspec

from longrein.agent import Clock
from longrein.workspace import (
    CommandExit,
    CommandSpec,
    FileStamp,
    Merge,
    ReplaceResult,
    ResolvedPath,
    Sink,
    Spawner,
)

T = TypeVar("T")
LINKS_MAX = 40
"""Most links followed in one path, as in Linux."""
FLOOD_PIECE = b"y\n" * 32_768
"""Output that a flooding command repeats."""


class Ran(msgspec.Struct, frozen=True):
    """Behaviour of a scripted command."""

    output: str | bytes = b""
    """Output, stdout and stderr together."""
    code: int = 0
    """Exit code."""
    delay_s: float = 0.0
    """Run time in seconds."""
    hang: bool = False
    """Print the output and never end."""
    asks: bool = False
    """Wait for standard input after the output, then end."""
    flood: bool = False
    """Print without end."""
    signal: str = ""
    """Signal that ends it; '' for an exit."""
    cwd: str = ""
    """Folder of the shell at its end; '' for where it began."""


Commands = Mapping[str, Ran | str] | Callable[[str], Ran | str]
"""Command line -> behaviour; a str is its output. A line that a mapping lacks is not found
(127).
"""


def find_command(commands: Commands, line: str) -> Ran:
    """Return the behaviour of the command `line`."""
    if callable(commands):
        ran = commands(line)
    else:
        ran = commands.get(line, Ran(f"bash: {line.split(' ', 1)[0]}: command not found\n", 127))
    return Ran(ran) if isinstance(ran, str) else ran


class MemorySpawner:
    """A `workspace.Spawner` that plays scripted commands. Cancelled ones end at once."""

    def __init__(self, commands: Commands | None = None, clock: Clock | None = None) -> None:
        self.started: list[str] = []
        """Every command line that was run, in order."""
        self.running: list[str] = []
        """Command lines that have not ended."""
        self._commands: Commands = {} if commands is None else commands
        self._clock = clock

    async def run(
        self, spec: CommandSpec, *, sink: Sink, timeout_s: float, output_bytes_max: int
    ) -> CommandExit:
        line = spec.command if isinstance(spec.command, str) else shlex.join(spec.command)
        self.started.append(line)
        self.running.append(line)
        try:
            return await self._play(
                find_command(self._commands, line), spec.cwd, sink, timeout_s, output_bytes_max
            )
        finally:
            self.running.remove(line)

    async def _play(
        self, ran: Ran, cwd: str, sink: Sink, timeout_s: float, output_bytes_max: int
    ) -> CommandExit:
        output = ran.output.encode() if isinstance(ran.output, str) else ran.output
        if output[:output_bytes_max]:
            sink.write(output[:output_bytes_max])
        if ran.flood or len(output) > output_bytes_max:
            return await self._flood(len(output), sink, output_bytes_max)
        takes_s = timeout_s if ran.hang else min(ran.delay_s, timeout_s)
        await self._pass(takes_s)
        if ran.hang or ran.delay_s > timeout_s:
            return CommandExit(None, "SIGTERM", "timeout", elapsed_s=timeout_s)
        return CommandExit(
            None if ran.signal else ran.code, ran.signal, elapsed_s=takes_s, cwd=ran.cwd or cwd
        )

    async def _flood(self, printed: int, sink: Sink, output_bytes_max: int) -> CommandExit:
        while printed < output_bytes_max:
            piece = FLOOD_PIECE[: output_bytes_max - printed]
            sink.write(piece)
            printed += len(piece)
            await asyncio.sleep(0)
        return CommandExit(None, "SIGTERM", "flood")

    async def _pass(self, seconds: float) -> None:
        if seconds <= 0 or self._clock is None:
            await asyncio.sleep(0)
        else:
            await self._clock.sleep(seconds)

    def warm(self) -> None:
        """See `workspace.Spawner.warm`: there is nothing to start."""

    async def unwritten(self, paths: Sequence[str]) -> tuple[Sequence[str], bool]:
        """See `workspace.Spawner.unwritten`: nothing is known."""
        return paths, False

    async def drain(self) -> None:
        """See `workspace.Spawner.drain`: nothing is left to end."""


class MemoryWorkspace:
    """A `workspace.Workspace` whose files are in `files`, by absolute path. Files imply their
    folders.

    `links` are symbolic links, path -> target. A path in `locked` refuses to be read or changed.
    """

    def __init__(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        roots: Sequence[str] = ("/w",),
        spawner: Spawner | None = None,
        links: Mapping[str, str] | None = None,
        home: str = "/home/user",
    ) -> None:
        self.files = {
            path: data.encode() if isinstance(data, str) else data
            for path, data in (files or {}).items()
        }
        self.links = dict(links or {})
        self.folders = dict.fromkeys(roots)
        """Folders that exist without a file in them (a dict for its order)."""
        self.locked: dict[str, None] = {}
        self.spawner: Spawner = MemorySpawner() if spawner is None else spawner
        self._home = home
        self.roots = tuple(dict.fromkeys(self._real(root) for root in roots))
        self._spellings = tuple(dict.fromkeys((*roots, *self.roots)))

    # --- Paths ------------------------------------------------------------------------------------

    def find_program(self, name: str) -> str:
        """See `workspace.Workspace.find_program`: every program is one of the system."""
        return name if "/" in name else f"/usr/bin/{name}"

    def resolve(self, path: str, cwd: str) -> ResolvedPath:
        if not path or "\0" in path:
            return ResolvedPath(path, "", "", inside=False, kind="")
        home = path == "~" or path.startswith("~/")
        joined = posixpath.join(cwd, self._home + path[1:] if home else path)
        written, real = _tidy(joined), self._real(joined)
        inside = self._inside(written) and self._inside(real)
        kind = self._kind(real)
        return ResolvedPath(
            path, written, real, inside, kind, len(self.files[real]) if kind == "file" else 0
        )

    def _inside(self, path: str) -> bool:
        return any(
            path == root or path.startswith(root.rstrip("/") + "/") for root in self._spellings
        )

    def _real(self, path: str) -> str:
        """Follow every link."""
        rest = [name for name in path.split("/") if name not in ("", ".")][::-1]
        real, followed = "", 0
        while rest:
            name = rest.pop()
            if name == "..":
                real = real.rpartition("/")[0]
                continue
            target = self.links.get(f"{real}/{name}")
            if target is None:
                real = f"{real}/{name}"
                continue
            followed += 1
            if (
                followed > LINKS_MAX
            ):  # a loop leads nowhere: the path stands as it is written, and nothing is there
                return "/".join([real, name, *rest[::-1]])
            real = "" if target.startswith("/") else real
            rest += [part for part in target.split("/") if part not in ("", ".")][::-1]
        return real or "/"

    def _kind(self, real: str) -> str:
        if real in self.files:
            return "file"
        below = real.rstrip("/") + "/"
        known = real == "/" or real in self.folders
        return (
            "folder"
            if known or any(path.startswith(below) for path in (*self.files, *self.folders))
            else ""
        )

    # --- Files ------------------------------------------------------------------------------------

    def read(self, path: str, limit_bytes: int = 0) -> bytes:
        data = self.files[self._existing(path)]
        return data[:limit_bytes] if limit_bytes else data

    def write(self, path: str, data: bytes) -> None:
        """Put a file, whatever stands there. Raises OSError."""
        real = self._real(path)
        self._refuse(real, path)
        if self._kind(real) == "folder":
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        if any(above in self.files for above in _above(real)):
            raise NotADirectoryError(errno.ENOTDIR, "a part of the path is a file", path)
        self.files[real] = data

    def replace(
        self,
        path: str,
        data: bytes,
        *,
        expect: str,
        base: bytes | None = None,
        merge: Merge | None = None,
        like: str = "",  # noqa: ARG002 - its files have no modes
        mode: int | None = None,  # noqa: ARG002
    ) -> ReplaceResult:
        """See `workspace.Workspace.replace`. There are no other writers."""
        found = self.files.get(self._real(path))
        if found is None and expect:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
        if found is None or sha256(found).hexdigest() == expect:
            self.write(path, data)
            return ReplaceResult(data)
        merged = (
            merge(base, data, found) if merge is not None and base is not None and expect else None
        )
        if merged is not None:
            self.write(path, merged)
        return ReplaceResult(merged, (found,))

    async def run_in_thread(self, work: Callable[[], T], /) -> T:
        """See `workspace.Workspace.run_in_thread`. Runs in the loop."""
        return work()

    def remove(self, path: str) -> None:
        tidy = _tidy(path)
        if self.links.pop(tidy, None) is None:
            real = self._existing(path)
            self.folders.update(dict.fromkeys(_above(real)))
            del self.files[real]

    def hash(self, path: str) -> str:
        data = self.files.get(self._real(path))
        return "" if data is None else sha256(data).hexdigest()

    def stamp(self, path: str, then: FileStamp | None = None) -> FileStamp:
        """See `workspace.Workspace.stamp`. Always reads the content."""
        real = self._real(path)
        if real not in self.files:
            return FileStamp(0, 0, 0, 0, "")
        now = FileStamp(
            1, len(self.files[real]), 0, 0, "" if real in self.locked else self.hash(real)
        )
        return then if now == then else now

    def _existing(self, path: str) -> str:
        real = self._real(path)
        self._refuse(real, path)
        match self._kind(real):
            case "file":
                return real
            case "folder":
                raise IsADirectoryError(errno.EISDIR, "is a folder", path)
            case _:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)

    def _refuse(self, real: str, path: str) -> None:
        if real in self.locked:
            raise PermissionError(errno.EACCES, "permission denied", path)

    def walk(
        self,
        folder: str,
        visit: Callable[[str, bool], bool],
        limit_s: float = 10.0,  # noqa: ARG002 - the port's signature
        *,
        ignored: bool = False,
    ) -> bool:
        """See `workspace.Workspace.walk`. Never runs out of time."""
        self._walk(_tidy(folder), visit, None if ignored else [])
        return True

    def _walk(
        self,
        folder: str,
        visit: Callable[[str, bool], bool],
        outer: list[Callable[[str], bool]] | None,
    ) -> None:
        prefix = folder.rstrip("/") + "/"
        ignores = None if outer is None else [*outer, *self._ignores(prefix)]
        for name in sorted(dict.fromkeys(self._names(prefix))):
            path = prefix + name
            is_folder = path not in self.links and self._kind(path) == "folder"
            if any(ignored(path + "/" * is_folder) for ignored in ignores or ()):
                continue
            if visit(path, is_folder) and is_folder:
                self._walk(path, visit, ignores)

    def _names(self, prefix: str) -> Iterator[str]:
        for path in (*self.files, *self.folders, *self.links):
            if path.startswith(prefix) and path != prefix:
                yield path[len(prefix) :].split("/", 1)[0]

    def _ignores(self, prefix: str) -> list[Callable[[str], bool]]:
        data = self.files.get(prefix + ".gitignore")
        if data is None:
            return []
        from pathspec import GitIgnoreSpec

        spec = GitIgnoreSpec.from_lines(data.decode("utf-8", "replace").splitlines())
        return [lambda path: spec.match_file(path[len(prefix) :])]

    def environment(self, session: str, call_id: str = "") -> dict[str, str]:
        own = {"HOME": self._home, "PATH": "", "AI_AGENT": "longrein", "LONGREIN_SESSION": session}
        return own | ({"LONGREIN_CALL_ID": call_id} if call_id else {})


def _tidy(path: str) -> str:
    tidy = posixpath.normpath(path)
    return tidy[1:] if tidy.startswith("//") else tidy


def _above(path: str) -> list[str]:
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]
