"""Traces of confined commands: which files a command has written, as its system calls tell."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from longrein.settings_schema import SandboxOptions
from longrein.workspace import CommandExit, CommandSpec
from longrein.workspace.command_output import CollectingSink
from longrein.workspace.sandbox import SessionSandbox, landlock
from longrein.workspace.sandbox.rung import Rung, find_rung
from tests.tables import split_words
from tests.workspace.conftest import supervised

pytestmark = pytest.mark.anyio


needs_perl = pytest.mark.skipif(not shutil.which("perl"), reason="no perl")
KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
BUBBLEWRAP = find_rung(os.environ, ())
RUNGS = {
    "bubblewrap": BUBBLEWRAP if BUBBLEWRAP.name == "bubblewrap" else None,
    "bubblewrap that waited": BUBBLEWRAP if BUBBLEWRAP.name == "bubblewrap" else None,
    "landlock": None if landlock.available() else Rung("landlock", ""),
}


class Traced:
    """A project of three files, and traced commands in its sandbox."""

    def __init__(self, base: Path, rung: Rung, *, waits: bool = False) -> None:
        """`waits`: sandboxes are made before their commands."""
        self.waits = waits
        self.root = base / "project"
        for folder in (self.root / "sub" / "deep", base / "session", base / "home"):
            folder.mkdir(parents=True)
        for name in ("a", "b", "sub/c", "sub/deep/d"):
            (self.root / name).write_text(f"{name}\n")
        (self.root / "link").symlink_to("b")
        (self.root / "folder_link").symlink_to("sub")
        self.env = {"PATH": os.environ["PATH"], "HOME": str(base / "home")}
        self.spawner = supervised(base / "session", self.env, [str(self.root)])
        self.sandbox = SessionSandbox(
            SandboxOptions(),
            folder=str(base / "session"),
            home=str(base / "home"),
            state_dir=str(base / "state"),
            environ=os.environ,
            roots=[str(self.root)],
        )
        self.sandbox.rung = rung

    def spec(self, line: str) -> CommandSpec:
        cwd = str(self.root)
        confinement = self.sandbox.confine([cwd], cwd, (), ())
        return CommandSpec(line, cwd, self.env, confinement, traced=True)

    async def run(self, line: str) -> CommandExit:
        if self.waits:
            self.spawner.prepare(self.spec(""))
        started = await self.spawner.start(
            self.spec(line), sink=CollectingSink(), output_bytes_max=1 << 20
        )
        assert not isinstance(started, CommandExit), started
        return await started.ended()

    async def written(self, *names: str) -> list[str]:
        """Return those of the files that a command has written."""
        paths = [str(self.root / name) for name in names]
        others, is_complete = await self.spawner.unwritten(paths)
        assert is_complete
        return [name for name in names if str(self.root / name) not in others]


@pytest.fixture(params=RUNGS)
async def traced(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Traced]:
    rung = RUNGS[request.param]
    if rung is None or KERNEL < (5, 19):
        pytest.skip(f"no {request.param} here, or a kernel without traces")
    made = Traced(tmp_path, rung, waits="waited" in request.param)
    yield made
    await made.spawner.drain()


ALL = tuple(split_words("a b sub/c sub/deep/d new sub/new other/c other/deep/d link made/x"))


@pytest.mark.parametrize(("line", "wanted"), [
    ("true", ""),
    ("cat a b sub/c; ls -R; grep -r a . ; true", ""),
    ("echo 1 > a", "a"),
    ("echo 1 >> sub/../a", "a"),
    ("cd sub && echo 1 > deep/d", "sub/deep/d"),
    ("sed -i s/a/b/ a", "a"),
    ("rm b", ""),
    ("mv a new", "a new"),
    ("mv sub other", "sub/c sub/deep/d sub/new other/c other/deep/d"),
    ("cp a sub/new", "sub/new"),
    ("ln a new", "new"),
    ("ln -s a new", "new"),
    ("chmod 600 b", "b"),
    ("echo 1 > link", "b link"),
    ("echo 1 > folder_link/c", "sub/c"),
    ("echo 1 > $PWD/a", "a"),
    ("mkdir made; touch made/x", "made/x"),
    ("truncate -s 0 a", "a"),
    pytest.param("perl -e 'truncate \"link\", 0'", "b link", marks=needs_perl),
    ("mkfifo new", "new"),
    ("(sleep 0.1; echo 1 > a) & wait", "a"),
    ("tar -cf new a", "new"),
    ("tar -cf new sub && rm -r sub && tar -xf new", "new sub/c sub/deep/d"),
    ("git init -q . && git add a && git mv a new", "a new"),
])  # fmt: skip
async def test_the_files_that_a_command_writes(traced: Traced, line: str, wanted: str) -> None:
    ended = await traced.run(line)
    assert ended.code == 0, ended
    assert await traced.written(*ALL) == [name for name in ALL if name in wanted.split()]


async def test_a_command_counts_at_two_questions_and_one_outside_the_sandbox_at_none(
    traced: Traced,
) -> None:
    await traced.run("echo 1 > a")
    assert [await traced.written("a") for _ in range(3)] == [["a"], ["a"], []]
    spec = CommandSpec("echo 1 > a", str(traced.root), traced.env, traced=True)
    started = await traced.spawner.start(spec, sink=CollectingSink(), output_bytes_max=1 << 20)
    assert not isinstance(started, CommandExit), started
    await started.ended()
    assert not (await traced.spawner.unwritten([]))[1]


async def test_threads_signals_and_many_processes_write_as_without_a_trace(traced: Traced) -> None:
    (traced.root / "busy.py").write_text(BUSY)
    assert (await traced.run("python3 busy.py")).code == 0
    found = sorted(path.name for path in (traced.root / "out").iterdir())
    assert found == sorted(map(str, range(400)))
    assert await traced.written("out/0", "out/399", "a") == ["out/0", "out/399"]


BUSY = """
import os, signal, threading
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)  # as programs do whose calls may not fail with EINTR
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
os.mkdir("out")
def write(first):
    for n in range(first, first + 50):
        with open(f"out/{n}.new", "w") as file:
            file.write(str(n))
        os.rename(f"out/{n}.new", f"out/{n}")
if not os.fork():
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    for first in range(200, 400, 50):
        write(first)
    os._exit(0)
threads = [threading.Thread(target=write, args=(first,)) for first in range(0, 200, 50)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
signal.setitimer(signal.ITIMER_REAL, 0)
os.wait()
"""
