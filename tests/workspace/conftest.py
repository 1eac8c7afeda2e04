"""A real workspace in a temporary folder, real commands in it, and a look at /proc for what outlives them."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from longrein.workspace import Ended, PlainSpawner, open_workspace
from longrein.workspace.processes import marked, processes, variable

_numbers = count(1)


class Desk:
    """Runs commands in one folder and keeps what they print."""

    def __init__(self, folder: Path, tag: str) -> None:
        self.folder, self.tag = folder, tag
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "LONGREIN_TEST_TAG": tag,
        }
        self.spawner = PlainSpawner(os.environ["PATH"], [str(folder)], grace_s=0.15)
        self.workspace = open_workspace([str(folder)], spawner=self.spawner, environment=self.environment)
        self.printed = bytearray()
        self._news = asyncio.Event()
        self.session = "session-of-" + tag

    def write(self, data: bytes) -> None:
        self.printed += data
        self._news.set()

    async def until(self, wanted: bytes) -> None:
        """Wait until the running commands have printed this."""
        while wanted not in self.printed:
            self._news.clear()
            await self._news.wait()

    async def run(
        self, command: str | Sequence[str], *, timeout_s: float = 5.0, most: int = 1 << 20, cwd: str = ""
    ) -> Ended:
        self.printed.clear()
        return await self.spawner.run(
            command,
            cwd=cwd or str(self.folder),
            env=self.workspace.environment(self.session),
            sink=self,
            timeout_s=timeout_s,
            output_bytes_max=most,
        )

    def survivors(self) -> list[int]:
        """Live processes that carry this test's tag."""
        alive = processes()
        found = marked("LONGREIN_TEST_TAG")
        return [pid for pid, env in found if pid in alive and variable(env, "LONGREIN_TEST_TAG") == self.tag]


@pytest.fixture
def tag() -> Iterator[str]:
    own = f"workspace-{os.getpid()}-{next(_numbers)}"
    yield own
    for pid, env in marked("LONGREIN_TEST_TAG"):
        if variable(env, "LONGREIN_TEST_TAG") == own:
            os.kill(pid, 9)


@pytest.fixture
async def desk(tmp_path: Path, tag: str, anyio_backend: str) -> AsyncIterator[Desk]:
    folder = tmp_path / "repo"
    folder.mkdir()
    one = Desk(folder.resolve(), tag)
    yield one
    await one.spawner.drain()
    assert one.survivors() == []
