"""A real workspace in a temporary folder, real commands in it, and a look at /proc for what outlives them."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from longrein.workspace import CommandExit, PlainSpawner, SupervisedSpawner, SupervisionOptions, open_workspace
from longrein.workspace.supervisor.process_tree import processes, processes_with, variable
from tests.timeouts import HANG_S

_numbers = count(1)


def supervised(
    session: Path, environment: dict[str, str], roots: Sequence[str] = (), **options: Any
) -> SupervisedSpawner:
    """A spawner whose spool lies in `session`; its grace is short."""
    told = SupervisionOptions(**{"nonce": "0badcafe", "grace_s": 0.15, **options})
    return SupervisedSpawner(
        str(session / "tasks"),
        told,
        wall_us=lambda: time.time_ns() // 1000,
        notice=_no_notice,
        environ=environment,
        roots=roots,
    )


def _no_notice(text: str) -> None:
    raise AssertionError(text)


class Desk:
    """Runs commands in one folder and keeps what they print."""

    def __init__(self, folder: Path, tag: str, kind: str, grace_s: float = 0.15) -> None:
        self.folder, self.tag = folder, tag
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "LONGREIN_TEST_TAG": tag,
        }
        self.spawner: PlainSpawner | SupervisedSpawner = PlainSpawner(
            os.environ["PATH"], [str(folder)], grace_s=grace_s
        )
        if kind == "supervised":
            self.spawner = supervised(folder.parent / "session", self.environment, [str(folder)], grace_s=grace_s)
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
        self, command: str | Sequence[str], *, timeout_s: float = HANG_S, most: int = 1 << 20, cwd: str = ""
    ) -> CommandExit:
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
        """Live processes of this test's commands."""
        return tagged(self.tag, "LONGREIN_SESSION")


def tagged(tag: str, *also: str) -> list[int]:
    """Live processes that carry this tag, and these variables."""
    alive, found = processes(), processes_with("LONGREIN_TEST_TAG")
    own = [(pid, env) for pid, env in found if pid in alive and variable(env, "LONGREIN_TEST_TAG") == tag]
    return [pid for pid, env in own if all(variable(env, name) for name in also)]


@pytest.fixture
def tag() -> Iterator[str]:
    own = f"workspace-{os.getpid()}-{next(_numbers)}"
    yield own
    for pid, env in processes_with("LONGREIN_TEST_TAG"):
        if variable(env, "LONGREIN_TEST_TAG") == own:
            os.kill(pid, 9)


@pytest.fixture
def kind() -> str:
    """Of spawner: `plain` or `supervised`."""
    return "plain"


@pytest.fixture
def grace_s() -> float:
    """Between TERM and KILL."""
    return 0.15


@pytest.fixture
async def desk(kind: str, grace_s: float, tmp_path: Path, tag: str, anyio_backend: str) -> AsyncIterator[Desk]:
    folder = tmp_path / "repo"
    folder.mkdir()
    one = Desk(folder.resolve(), tag, kind, grace_s)
    yield one
    await one.spawner.drain()
    assert tagged(tag) == []
