"""A sandbox that waits for its command: the command cannot tell, and nothing is less confined."""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from longrein.workspace import CommandExit, CommandSpec
from longrein.workspace.command_output import CollectingSink
from longrein.workspace.supervised_command import SupervisedSpawner
from longrein.workspace.supervisor.process_tree import environment_of, processes
from tests.timeouts import HANG_S, until
from tests.workspace.conftest import connection_of, supervised
from tests.workspace.test_sandbox import Confined, needs_bubblewrap

pytestmark = [pytest.mark.anyio, needs_bubblewrap]


class Warm(Confined):
    """A project whose commands run in a sandbox that waited, and can be told not to."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        (self.root / "sub").mkdir()
        self.env |= {"TOLD": "two\nlines", "EMPTY": "", "PATH": os.environ["PATH"]}
        self.spawner: SupervisedSpawner = supervised(self.session, self.env, [str(self.root)])
        self.hidden: tuple[str, ...] = ()
        self.asked: list[str] = []
        """What the supervisor was asked for."""

    def spec(self, line: str, cwd: Path | None = None) -> CommandSpec:
        root = str(self.root)
        confinement = self.sandbox.confine([root], str(cwd or root), self.hidden)
        return CommandSpec(line, str(cwd or root), self.env, confinement, traced=True)

    async def ready(self, cwd: Path | None = None) -> None:
        """Have a sandbox ready whose process waits."""
        if not self.asked:
            assert await self.spawner.answered()
            connection = connection_of(self.spawner)
            send = connection.send

            def note(*given: Any, **message: Any) -> None:
                if message["do"] in ("prepare", "run", "start"):
                    self.asked.append(message["do"])
                send(*given, **message)

            connection.send = note  # type: ignore[method-assign]
        before = len(self.waiting())
        self.spawner.prepare(self.spec("", cwd))
        await until(lambda: len(self.waiting()) > before)

    def waiting(self) -> list[int]:
        """Return the processes that wait for a command of this spawner."""
        mark = f"{connection_of(self.spawner).owner}.".encode()
        return [
            pid
            for pid in processes()
            if mark in environment_of(pid) and b"bash\0-c\0read -rn1" in command_line(pid)[:40]
        ]

    async def told(self, line: str, cwd: Path | None = None) -> tuple[CommandExit, bytes]:
        sink = CollectingSink()
        given = self.spec(line, cwd)
        ended = await self.spawner.run(given, sink=sink, timeout_s=HANG_S, output_bytes_max=1 << 20)
        return ended, bytes(sink.data)


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
async def warm(tmp_path: Path) -> AsyncIterator[Warm]:
    made = Warm(tmp_path)
    yield made
    await made.spawner.drain()


FDS = "for f in /proc/$$/fd/*; do n=${f##*/}; echo $((n > 2 ? 3 : n)) $(readlink $f); done"
"""The number of the folder report depends on what else the supervisor has open."""


@pytest.mark.parametrize("line", [
    "env",
    "set",
    'echo "$0 $- $SHLVL $# $_ $BASHOPTS"',
    'echo "$BASH_EXECUTION_STRING"',
    FDS,
    f"cd sub && {FDS}",
    "cat; echo $?",
    "cd sub; pwd; declare -p OLDPWD",
    "cd sub && false",
    "trap 'echo bye' EXIT; cd sub",
    "exit 7",
    "kill -9 $$",
    "kill -TERM $$",
    "nope",
    "echo a\nif",
    "\n\necho ${x?unset}",
    "echo 'é\t漢 \\' \"$TOLD\"",
    'ulimit -a; umask; found=$(ps -o comm=); sort -u <<< "$found"',
    "grep -E '^(Sig[BIC]|Cap|NoNew|Seccomp)' /proc/self/status",
    "echo " + "x" * 60_000 + " | wc -c",
    "echo " + "x" * 120_000 + " | wc -c",
    ": " + "x" * 200_000,
])  # fmt: skip
async def test_a_command_cannot_tell_that_its_sandbox_waited(warm: Warm, line: str) -> None:
    cold = await warm.told(line)
    await warm.ready()
    assert warm.asked == ["prepare"]
    other = await warm.told(line)
    assert warm.asked[1] == "run"
    assert seen(*other) == seen(*cold)


def seen(ended: CommandExit, printed: bytes) -> tuple[object, ...]:
    """Return what a command and its caller see, without numbers that differ from run to run."""
    text = re.sub(rb"pipe:\[\d+\]|/proc/\d+|longrein/?\d*|PID=\d+|/\d+\.\d+\.\d+/", b"", printed)
    text = re.sub(rb"(?m)^(BASHPID|PPID|RANDOM|SRANDOM|SECONDS|EPOCH\w+)=.*$", b"", text)
    lines = sorted(text.splitlines())
    return (ended.code, ended.signal, ended.cause, ended.message, ended.cwd, lines)


async def test_what_changed_while_a_sandbox_waited_is_as_confined_as_before(warm: Warm) -> None:
    secret, hooks = warm.root / ".env", warm.root / ".git/hooks"
    secret.write_text("KEY")
    warm.hidden = (str(secret),)

    async def replaced_file() -> None:
        (warm.root / ".new").write_text("NEWKEY")
        (warm.root / ".new").rename(secret)

    async def replaced_twice() -> None:
        for text in ("NEWKEY1", "NEWKEY2"):
            (warm.root / ".new").write_text(text)
            (warm.root / ".new").rename(secret)

    async def removed_and_made() -> None:
        secret.unlink()
        secret.write_text("NEWKEY")

    async def moved_project() -> None:
        warm.root.rename(warm.base / "old")
        shutil.copytree(warm.base / "old", warm.root, symlinks=True)
        shutil.rmtree(warm.base / "old")

    async def replaced_hooks() -> None:
        shutil.rmtree(hooks)
        hooks.mkdir()

    async def made_settings() -> None:
        (warm.root / ".mcp.json").write_text("{}")

    for change in (
        replaced_file,
        replaced_twice,
        removed_and_made,
        moved_project,
        replaced_hooks,
        made_settings,
    ):
        await warm.ready()
        await change()
        asked = len(warm.asked)
        ended, printed = await warm.told(
            "cat .env; echo x > .git/hooks/h; echo {} > .mcp.json; pwd"
        )
        assert warm.asked[asked:][-1] == "start", change.__name__
        assert b"KEY" not in printed, change.__name__
        assert ended.code == 0, change.__name__
        assert not (hooks / "h").exists(), change.__name__
        settings = warm.root / ".mcp.json"
        text = "{}" if change is made_settings else "{}\n"
        assert settings.read_text() == text, change.__name__
        settings.unlink()


async def test_a_folder_that_was_made_anew_is_the_one_that_a_command_works_in(warm: Warm) -> None:
    sub = warm.root / "sub"
    await warm.ready(sub)
    sub.rmdir()
    sub.mkdir()
    ended, printed = await warm.told("touch made; pwd -P", sub)
    assert (ended.code, printed) == (0, f"{sub}\n".encode())
    assert (sub / "made").exists()


async def test_a_sandbox_that_died_while_it_waited_costs_nothing(warm: Warm) -> None:
    await warm.ready()
    for pid in warm.waiting():
        os.kill(pid, signal.SIGKILL)
    await until(lambda: warm.spawner.may_prepare)
    ended, printed = await warm.told("echo done")
    assert (ended.code, printed) == (0, b"done\n")


async def test_a_command_with_other_limits_has_its_own_sandbox(warm: Warm) -> None:
    (warm.root / "secret").write_text("KEY")
    await warm.ready()
    warm.hidden = (str(warm.root / "secret"),)
    _, printed = await warm.told("cat secret")
    assert b"KEY" not in printed
    assert warm.asked == ["prepare", "start"]


async def test_variables_of_bash_itself_reach_the_command_alone(warm: Warm) -> None:
    (warm.root / "begin").write_text("echo begun >> log\n")
    warm.env["BASH_ENV"] = str(warm.root / "begin")
    warm.spawner.prepare(warm.spec(""))
    ended, _ = await warm.told("true")
    assert ended.code == 0
    assert (warm.root / "log").read_text() == "begun\n"


async def test_a_command_in_a_waiting_sandbox_ends_with_all_its_processes(warm: Warm) -> None:
    await warm.ready()
    mark = f"71.{os.getpid()}"
    running = asyncio.ensure_future(
        warm.spawner.run(
            warm.spec(f"export LIMIT={mark}; setsid sleep {mark} & trap '' TERM; sleep {mark}"),
            sink=CollectingSink(),
            timeout_s=0.4,
            output_bytes_max=1 << 20,
        )
    )
    assert (await running).cause == "timeout"
    assert warm.asked[1] == "run"
    assert not [one for one in processes() if mark.encode() in environment_of(one)]


async def test_nothing_waits_after_the_session(warm: Warm) -> None:
    await warm.ready()
    waiting = warm.waiting()
    assert waiting
    await warm.spawner.drain()
    await until(lambda: not any(map(command_line, waiting)))


async def test_no_program_of_the_project_waits_in_place_of_the_shell(warm: Warm) -> None:
    programs = warm.root / "bin"
    programs.mkdir()
    (programs / "bash").write_text("#!/bin/sh\ntouch planted\n")
    (programs / "bash").chmod(0o755)
    warm.env["PATH"] = f"{programs}:{warm.env['PATH']}"
    await warm.ready()
    ended, printed = await warm.told("echo done")
    assert (ended.code, printed, warm.asked) == (0, b"done\n", ["prepare", "run"])
    assert not (warm.root / "planted").exists()


async def test_nothing_is_prepared_for_commands_without_mounts_of_their_own(warm: Warm) -> None:
    assert warm.spawner.may_prepare
    assert await warm.spawner.answered()
    warm.spawner.prepare(CommandSpec("", str(warm.root), warm.env))
    assert not warm.spawner.may_prepare
    warm.spawner.prepare(warm.spec(""))
    assert not warm.spawner.may_prepare
    await warm.told("true")
    assert warm.spawner.may_prepare
