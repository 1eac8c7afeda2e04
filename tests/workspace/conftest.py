"""Fixtures: a real workspace in a temporary folder, real commands in it, and the processes that
outlive them.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from longrein.workspace import (
    CommandExit,
    CommandSpec,
    StartedCommand,
    SupervisedSpawner,
    SupervisionOptions,
    open_workspace,
)
from longrein.workspace.supervisor.process_tree import processes, processes_with, variable
from longrein.workspace.supervisor_client import SupervisorConnection
from tests.timeouts import HANG_S

_numbers = count(1)


def supervised(
    session: Path, environment: dict[str, str], roots: Sequence[str] = (), **options: Any
) -> SupervisedSpawner:
    """Spawner with its spool in `session` and a short grace period."""
    told = SupervisionOptions(**{"nonce": "0badcafe", "grace_s": 0.15, **options})
    return SupervisedSpawner(
        str(session / "tasks"),
        told,
        wall_us=lambda: time.time_ns() // 1000,
        notice=_no_notice,
        environ=environment,
        roots=roots,
    )


def connection_of(spawner: SupervisedSpawner) -> SupervisorConnection:
    """Connection of a spawner with its supervisor: to close it as a death does, for one."""
    assert spawner._connection is not None
    return spawner._connection


def _no_notice(text: str) -> None:
    raise AssertionError(text)


class CommandHarness:
    """Runs commands in one folder and collects their output."""

    def __init__(self, folder: Path, tag: str, grace_s: float = 0.15) -> None:
        self.folder, self.tag = folder, tag
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "LONGREIN_TEST_TAG": tag,
        }
        self.spawner = supervised(
            folder.parent / "session", self.environment, [str(folder)], grace_s=grace_s
        )
        self.workspace = open_workspace(
            [str(folder)], spawner=self.spawner, environment=self.environment
        )
        self.printed = bytearray()
        self._news = asyncio.Event()
        self.session = "session-of-" + tag

    def write(self, data: bytes) -> None:
        self.printed += data
        self._news.set()

    async def until(self, wanted: bytes) -> None:
        """Wait until the running commands have printed `wanted`."""
        async with asyncio.timeout(HANG_S):
            while wanted not in self.printed:
                self._news.clear()
                await self._news.wait()

    def reopen(self, **environment: str) -> None:
        """Open the same workspace from an environment with other variables."""
        self.workspace = open_workspace(
            [str(self.folder)],
            spawner=self.spawner,
            environment={**self.environment, **environment},
        )

    async def run(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float = HANG_S,
        most: int = 1 << 20,
        cwd: str = "",
    ) -> CommandExit:
        self.printed.clear()
        return await self.spawner.run(
            CommandSpec(command, cwd or str(self.folder), self.workspace.environment(self.session)),
            sink=self,
            timeout_s=timeout_s,
            output_bytes_max=most,
        )

    async def start(self, command: str) -> StartedCommand:
        """Start a command; its output is in `printed`."""
        self.printed.clear()
        found = await self.spawner.start(
            CommandSpec(command, str(self.folder), self.workspace.environment(self.session)),
            sink=self,
            output_bytes_max=1 << 20,
        )
        assert not isinstance(found, CommandExit), found
        return found

    async def time_out_when_ready(self, command: str) -> CommandExit:
        """Run a command whose time limit is reached once it has printed `ready`.

        A limit in seconds can be reached before the shell has read its first word.
        """
        started = await self.start(command)
        await self.until(b"ready\n")
        started.end("timeout")
        return await started.ended()

    def survivors(self) -> list[int]:
        """Live processes of this test's commands."""
        return tagged(self.tag, "LONGREIN_SESSION")


def tagged(tag: str, *also: str) -> list[int]:
    """Pids of live processes that carry this tag and these variables."""
    alive, found = processes(), processes_with("LONGREIN_TEST_TAG")
    own = [
        (pid, env)
        for pid, env in found
        if pid in alive and variable(env, "LONGREIN_TEST_TAG") == tag
    ]
    return [pid for pid, env in own if all(variable(env, name) for name in also)]


@pytest.fixture
def tag() -> Iterator[str]:
    own = f"workspace-{os.getpid()}-{next(_numbers)}"
    yield own
    for pid, env in processes_with("LONGREIN_TEST_TAG"):
        if variable(env, "LONGREIN_TEST_TAG") == own:
            with suppress(ProcessLookupError):  # it ended after the look at the process table
                os.kill(pid, 9)


@pytest.fixture
def grace_s() -> float:
    """Seconds between TERM and KILL."""
    return 0.15


@pytest.fixture
async def harness(
    grace_s: float, tmp_path: Path, tag: str, anyio_backend: str
) -> AsyncIterator[CommandHarness]:
    folder = tmp_path / "repo"
    folder.mkdir()
    one = CommandHarness(folder.resolve(), tag, grace_s)
    yield one
    await one.spawner.drain()
    assert tagged(tag) == []
