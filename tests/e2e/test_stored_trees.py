"""The work tree of a session in PostgreSQL on two machines: each has a state folder and a work
folder of its own, and a `kill -9` ends the first one.
"""

import os
import random
import signal
from collections.abc import Callable

import pytest

from lab.support.postgresql import Server
from lab.support.tree_operations import NAMES, picture, start_tree
from longrein.app.run_context import use_store_at
from longrein.store import Reader
from longrein_context.events import CheckpointTaken
from tests.e2e.harness import CliHarness, RunResult, Turn, bash, call, calls, says
from tests.timeouts import wait_until

CHANGES = (
    "printf '\\000\\377\\n' > \"$(printf 'odd\\377\\001name')\"",
    "rm a.txt; mkdir -p sub/deep/more/empty new/folder; echo x > new/folder/file",
    "chmod 755 sub/c.txt; chmod 600 b.py; ln -s ../a.txt sub/link; ln -s nowhere 'broken link'",
    "rm -r sub; echo now a file > sub",
    "rm .gitignore",
    "mv b.py moved.py; chmod 444 moved.py",
    "head -c 300000 /dev/urandom > binary",
    "git init -q inner; echo 1 > inner/of-its-own",
)


class Machine:
    """A state folder and an empty work folder, with the store that all share."""

    def __init__(self, cli: CliHarness, name: str, address: str) -> None:
        self.cli = cli
        self.work, self.state = cli.folder / f"work-{name}", cli.folder / f"state-{name}"
        self.work.mkdir()
        self.env = {"LONGREIN_STORE": address, "LONGREIN_STATE_DIR": str(self.state)}

    def run(self, *words: str) -> RunResult:
        allowed = ("--allowed-tools", "Bash", "--permission-mode", "acceptEdits")
        return self.cli.run("-p", *allowed, *words, cwd=self.work, env=self.env)

    def die_in_a_command(self, *words: str) -> None:
        """Run until a command waits, then kill it, and let its lease run out."""
        allowed = ("--allowed-tools", "Bash", "--permission-mode", "acceptEdits")
        running = self.cli.start("-p", *allowed, *words, cwd=self.work, env=self.env)
        wait_until((self.cli.folder / "began").exists)
        running.send(signal.SIGKILL)
        running.end()
        assert self.cli.wait_survivors() == []
        (self.cli.folder / "began").unlink()


@pytest.fixture
def shared(cli: CliHarness, postgresql: Server) -> Callable[[str], Machine]:
    """Makes machines of one store, in which each lease has run out."""
    address = postgresql.new_schema()
    schema = address.rpartition("%3D")[2]
    use_store_at(str(cli.state), address)
    cli.without_sandbox()

    def make(name: str) -> Machine:
        found = postgresql.run("SELECT to_regclass(%s)::text", f"{schema}.roots")
        if found[0][0]:
            postgresql.run(f"UPDATE {schema}.roots SET expires = '-infinity', place = ''")
        return Machine(cli, name, address)

    return make


def waits(cli: CliHarness) -> Turn:
    return calls(bash(f"echo cut > cut; touch {cli.folder}/began; sleep 1000"))


def checkpoints(cli: CliHarness, session: str) -> list[CheckpointTaken]:
    reader = Reader(str(cli.state), session)
    try:
        events = [entry.event for entry in reader.entries()]
    finally:
        reader.close()
    return [event for event in events if isinstance(event, CheckpointTaken)]


def session_of(machine: Machine) -> str:
    [session] = os.listdir(machine.state / "sessions")
    return session


@pytest.mark.parametrize("seed", range(4))
def test_a_session_goes_on_elsewhere_with_exactly_its_files(
    cli: CliHarness, shared: Callable[[str], Machine], seed: int
) -> None:
    rng = random.Random(seed)
    first = shared("a")
    start_tree(first.work, git=seed % 2 == 0)
    steps = [calls(bash(one)) for one in rng.sample(CHANGES, 4)]
    written = first.work / rng.choice(NAMES[4:])
    steps.insert(2, calls(call("Write", file_path=str(written), content="written\n")))
    cli.plays(*steps, says("Half."), waits(cli), says("Done."))
    ran = first.run("change everything")
    assert (ran.code, ran.err) == (0, "")
    expected = picture(first.work)
    for path in ("inner/of-its-own",):
        expected.pop(path, None)
    first.die_in_a_command("--resume", session_of(first), "go on")
    second = shared("b")
    ran = second.run("--resume", session_of(first)[:8])
    assert ran.code == 0, ran.err
    assert ran.text == "Done.\n"
    assert picture(second.work) == expected
    assert cli.results(session_of(first))[-1][0] == "interrupted"
