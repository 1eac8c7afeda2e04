"""A desk with real files and real commands: calls a tool as the loop does and folds the facts it gives back."""

import asyncio
import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longrein.events import CwdSet, Entry, FileChanged, FileSeen, TodoSet, ToolEnded, text_of
from longrein.tools import FileVersion, Hands, Outcome, ToolOptions, builtin_tools, fit_arguments
from longrein.workspace import Ended, Place

NONCE = "5e1f0c"  # of every test session


class Shell:
    """Starts real commands; the small part of a spawner that the tools' tests need."""

    async def run(
        self, command: Any, *, cwd: str, env: Any, sink: Any, timeout_s: float, output_bytes_max: int
    ) -> Ended:
        line = f"{command}\ncode=$?; pwd -P >&3; exit $code"
        read, write = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                "bash", "-c", f"exec 3>&{write}\n{line}", cwd=cwd, env=dict(env), pass_fds=(write,),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            os.close(read), os.close(write)
            return Ended(None, cause="not_started", message=str(error))
        os.close(write)
        try:
            cause = await asyncio.wait_for(self._pump(process, sink, output_bytes_max), timeout_s)
        except TimeoutError:
            cause = "timeout"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            while process.stdout and await process.stdout.read(1 << 20):
                pass
        code = await process.wait()
        with open(read, "rb") as pipe:
            folder = pipe.read().decode().rstrip("\n")
        name = signal.Signals(-code).name if code < 0 else ""
        return Ended(None if code < 0 else code, name, cause, elapsed_s=0.0, cwd=folder)

    @staticmethod
    async def _pump(process: asyncio.subprocess.Process, sink: Any, most: int) -> str:
        size = 0
        assert process.stdout is not None
        while data := await process.stdout.read(65536):
            sink.write(data)
            size += len(data)
            if size > most:
                return "flood"
        await process.wait()
        return "exit"


class Folder:
    """A workspace over one real folder."""

    def __init__(self, root: Path) -> None:
        self.roots = (str(root),)
        self.spawner = Shell()

    def look(self, path: str, cwd: str) -> Place:
        if "\0" in path:
            return Place(path, path, path, False, "")
        whole = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
        real = os.path.realpath(whole)
        kind = "file" if os.path.isfile(real) else "folder" if os.path.isdir(real) else "other"
        kind = kind if os.path.lexists(real) else ""
        inside = all((one + "/").startswith(self.roots[0] + "/") for one in (whole, real))
        return Place(path, whole, real, inside, kind, os.path.getsize(real) if kind == "file" else 0)

    def read(self, path: str, limit_bytes: int = 0) -> bytes:
        with open(path, "rb") as file:
            return file.read(limit_bytes or -1)

    def write(self, path: str, data: bytes, *, expect: str | None = None) -> None:
        if expect is not None and self.hash(path) != expect:
            raise FileExistsError(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(data)

    def hash(self, path: str) -> str:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if os.path.exists(path) else ""

    def walk(self, folder: str, visit: Callable[[str, bool], bool], limit_s: float = 10.0) -> bool:
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if visit(path, os.path.isdir(path)):
                self.walk(path, visit, limit_s)
        return True

    def environment(self, session: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LONGREIN_SESSION": session}


class Blob:
    """A growing blob."""

    def __init__(self, blobs: "Blobs", path: Path) -> None:
        self.path, self.size_bytes = str(path), 0
        self._blobs, self._file, self._sum = blobs, path.open("wb"), hashlib.sha256()

    def write(self, data: bytes) -> None:
        if self._blobs.full:
            raise OSError(28, "No space left on device")
        self._file.write(data)
        self._sum.update(data)
        self.size_bytes += len(data)

    def finish(self) -> str:
        self._file.close()
        name = self._sum.hexdigest()
        self._blobs.paths[name] = self.path
        return name

    def discard(self) -> None:
        self._file.close()
        os.unlink(self.path)


class Blobs:
    """Blobs in memory, growing ones in files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kept, self.paths, self.full = folder, {}, {}, False

    def put_blob(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self.kept[name] = data
        return name

    def read_blob(self, blob: str) -> bytes:
        return Path(self.paths[blob]).read_bytes() if blob in self.paths else self.kept[blob]

    def blob_path(self, blob: str) -> str:
        return self.paths.get(blob, "")

    def new_blob(self) -> Blob:
        return Blob(self, self.folder / f"growing-{len(self.paths)}")


class Desk:
    """Calls tools by name with arguments as a model would send them, and remembers what came of it."""

    def __init__(self, root: Path, blobs: Path) -> None:
        self.root = root
        self.workspace = Folder(root)
        self.blobs = Blobs(blobs)
        self.options = ToolOptions()
        self.cwd = str(root)
        self.versions: dict[str, FileVersion] = {}
        self.todos: tuple[Any, ...] = ()
        self.entries: dict[int, Entry] = {}
        self.noted = bytearray()
        self.tools = {tool.spec.name: tool for tool in builtin_tools()}
        self.last: Outcome

    def hands(self) -> Hands:
        return Hands(
            "c1.0", "s", NONCE, self.cwd, self.workspace, self.blobs, self.versions, self.todos, self.options,
            self.entries.get, self.noted.extend,
        )  # fmt: skip

    async def call(self, name: str, **arguments: Any) -> str:
        """The text of the result."""
        tool = self.tools[name]
        fitted, error = fit_arguments(tool, arguments)
        assert error is None, error
        self.last = await tool.run(self.hands(), **fitted)
        for fact in self.last.facts:
            self.fold(fact)
        msgspec.json.encode(self.last)
        self.add(ToolEnded("c1.0", name, self.last.status, self.last.parts))
        return text_of(self.last.parts)

    def fold(self, fact: Any) -> None:
        match fact:
            case FileSeen():
                self.versions[fact.path] = FileVersion(fact.hash, fact.whole, fact.blob)
            case FileChanged():
                self.versions[fact.path] = FileVersion(fact.hash, True, fact.blob)
            case TodoSet():
                self.todos = fact.todos
            case CwdSet():
                self.cwd = fact.cwd

    def add(self, event: Any) -> str:
        """Append an event to the log; gives its handle."""
        seq = len(self.entries) + 1
        self.entries[seq] = Entry(seq, 0, event)
        return f"r{seq}"

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def limit(self, **options: Any) -> None:
        self.options = msgspec.structs.replace(self.options, **options)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    root, blobs = tmp_path.resolve() / "work", tmp_path / "blobs"
    root.mkdir()
    blobs.mkdir()
    return Desk(root, blobs)
