"""Harness for tool tests with real files and commands: calls tools like the loop and folds their
events.
"""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.support.spawner import spawner_in
from longrein.testing.store import MemoryArchive
from longrein.tools import (
    CommandSurroundings,
    FileVersion,
    Outcome,
    SessionFiles,
    SessionServices,
    ToolContext,
    ToolOptions,
    builtin_tools,
    fit_arguments,
)
from longrein.workspace import open_workspace
from longrein_context.events import (
    CwdSet,
    Entry,
    FileChanged,
    FileSeen,
    TodoSet,
    ToolEnded,
    text_of,
)

NONCE = "5e1f0c"  # of every test session


class Blob:
    """Blob writer to a file."""

    def __init__(self, blobs: "Blobs", path: Path) -> None:
        self.path, self.size_bytes = str(path), 0
        self._blobs, self._file, self._sum = blobs, path.open("wb"), hashlib.sha256()

    def write(self, data: bytes) -> None:
        if self._blobs.full:
            raise OSError(28, "No space left on device")
        self._file.write(data)
        self._sum.update(data)
        self.size_bytes += len(data)

    def pieces(self) -> Iterator[bytes]:
        self._file.flush()
        yield Path(self.path).read_bytes()

    def finish(self) -> str:
        self._file.close()
        name = self._sum.hexdigest()
        self._blobs.paths[name] = self.path
        return name

    def discard(self) -> None:
        self._file.close()
        os.unlink(self.path)


class Blobs:
    """Blobs in memory; blobs from a writer in files."""

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


class ToolHarness:
    """Calls tools by name with a model's arguments, and keeps the log, files and state of a
    session.
    """

    def __init__(self, root: Path, blobs: Path) -> None:
        self.root = root
        self.workspace: Any = open_workspace(
            [str(root)], spawner=spawner_in(blobs / "spool"), environment=os.environ
        )
        self.blobs = Blobs(blobs)
        self.options = ToolOptions()
        self.cwd = str(root)
        self.versions: dict[str, FileVersion] = {}
        self.todos: tuple[Any, ...] = ()
        self.entries: dict[int, Entry] = {}
        self.wrote: dict[tuple[str, str], str] = {}
        self.call_id = "c1.0"
        self.archive: Any = MemoryArchive(
            lambda _subagent: [*self.entries.values()], self.blobs.read_blob
        )
        self.services: dict[str, Any] = {}
        self.judged: dict[str, str] = {}
        self.now_us = 0
        self.page_bytes = 30_000
        self.noted = bytearray()
        self.printed = asyncio.Event()
        self.tools = {tool.spec.name: tool for tool in builtin_tools()}
        self.last: Outcome

    def context(self) -> ToolContext:
        return ToolContext(
            self.call_id, NONCE, self.cwd, self.workspace, self.blobs, self.todos, self.options,
            self.note,
            SessionFiles(
                self.versions,
                wrote=lambda path, digest: self.wrote.get((path, digest), ""),
                judged=self.judged,
            ),
            CommandSurroundings("s"),
            SessionServices(self.archive, lambda: self.now_us, **self.services),
            page_bytes=self.page_bytes,
        )  # fmt: skip

    async def call(self, name: str, **arguments: Any) -> str:
        """Call a tool and return the text of its result."""
        tool = self.tools[name]
        fitted, error = fit_arguments(tool, arguments)
        assert error is None, error
        self.last = await tool.run(self.context(), **fitted)
        for fact in self.last.facts:
            self.fold(fact)
        msgspec.json.encode(self.last)
        raw = self.blobs.put_blob(self.last.raw) if self.last.raw else ""
        self.add(ToolEnded("c1.0", name, self.last.status, self.last.parts, raw=raw))
        return text_of(self.last.parts)

    def note(self, data: bytes) -> None:
        self.noted += data
        self.printed.set()

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
        """Append an event to the log and return its handle."""
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
def harness(tmp_path: Path) -> ToolHarness:
    root, blobs = tmp_path.resolve() / "work", tmp_path / "blobs"
    root.mkdir()
    blobs.mkdir()
    return ToolHarness(root, blobs)
