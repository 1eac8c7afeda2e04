"""Kill longrein inside commands, rewinds, checkpoints, forks, prunes, deletes and imports: `make
kill`.

    python -m lab.campaigns.kill_operations --seeds 200 --seed 0 --seconds 900

The operation of a seed is its number modulo their number. SIGKILL falls at a random instant of the
operation; for commands see `lab.campaigns.kills`. Afterwards nothing that counts may be lost, what
the operation makes is whole or not there, and the same operation succeeds when it is done again.
"""

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from lab.campaigns import kills
from lab.campaigns.campaign import arguments, run_campaign
from lab.support.rewind_story import RewindStory
from lab.support.tree_operations import operations, picture, start_tree
from longrein_context.events import CheckpointTaken
from tests.agent.disk_harness import DiskHarness, Script, turn
from tests.agent.test_rewind_commands import back, turns
from tests.e2e.harness import CliHarness, bash, calls, says
from tests.store.fixtures import run_in_process, wait_status

TURN_S = 0.6
"""A kill in a turn with checkpoints falls within this time."""
LONG = "head -c 200000 /dev/urandom | base64"
"""A command whose output is a file beside the database."""


def kill_in_commands(folder: Path, seed: int) -> None:
    """Kill longrein, its supervisor or both while commands and background tasks run."""
    rng = random.Random(seed)
    victim, kind = rng.choice(kills.VICTIMS), rng.choice(list(kills.KINDS))
    at_s = rng.choice([0.05, 0.2, 0.6, 2]) * rng.random()
    scenario = kills.run_scenario(kills.Scenario(seed, victim, kind, at_s))
    assert not scenario.faults, scenario.faults
    assert folder.exists()


def kill_in_rewind(folder: Path, seed: int) -> None:
    """Kill longrein while it restores a work tree; the next start carries on."""
    story = RewindStory(folder, seed, 2)
    story.is_killed_in_rewind = True
    wrong = story.play()
    assert not wrong, wrong


def kill_in_checkpoint(folder: Path, seed: int) -> None:
    """Kill longrein in a turn whose commands have checkpoints; the next turn has them too."""
    rng, harness = random.Random(seed), DiskHarness(folder, checkpoints=True)
    start_tree(harness.tree, git=seed % 2 == 0)
    commands = list(operations(rng, 5, git=False))

    async def begin() -> None:
        await harness.play(Script(*turns([[], ["echo 1 > first"]])), "begin", "go on")

    async def be_killed() -> None:
        async with harness.session(Script(*turns([commands])), create=False) as session:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.001 + TURN_S * rng.random())
            await turn(session, "go on")
            signal.setitimer(signal.ITIMER_REAL, 0)

    async def go_back() -> None:
        script = Script(*turns([[], ["echo 2 > second"], []]))
        async with harness.session(script, create=False) as session:
            await session.run(once=True)
            after = len(harness.entries())
            await turn(session, "go on")
            new = [e.event for e in harness.entries()[after:]]
            taken = [event for event in new if isinstance(event, CheckpointTaken)]
            assert not [event.problem for event in taken if event.problem], taken
            kept = await back(session, first)
            named = {line.split(" it ")[0] for line in kept}
            different = {
                path
                for path in before.keys() | picture(harness.tree).keys()
                if before.get(path) != picture(harness.tree).get(path)
            }
            lost = {path for path in different if Path(path).name not in named}
            related = {path for path in lost if before.get(path, ("folder",))[0] != "folder"}
            assert not related, (related, kept)

    assert wait_status(run_in_process(begin)) == 0
    first, before = harness.ends()[-1], picture(harness.tree)
    known = harness.entries()
    status = wait_status(run_in_process(be_killed))
    assert status in (0, signal.SIGALRM), status
    assert harness.entries()[: len(known)] == known
    assert wait_status(run_in_process(go_back)) == 0


class Operation:
    """Sessions of a `longrein` command, and an operation on them that is killed."""

    def __init__(self, folder: Path) -> None:
        self.cli = CliHarness(folder)
        self.cli.without_sandbox()
        for number in range(2):
            self.cli.plays(calls(bash(LONG)), says(f"done {number}"))
            ran = self.cli.run("-p", f"prompt {number}", "--permission-mode", "bypassPermissions")
            assert ran.code == 0, ran.err
        self.first, self.second = sorted(self.cli.sessions)
        self.before = {one: self.cli.entries(one) for one in self.cli.sessions}
        self.cli.plays(*[says("of the fork")] * 9)

    def killed(self, words: Sequence[str], at_s: float) -> None:
        """Start the operation and kill it after `at_s` seconds."""
        running = self.cli.start(*words)
        time.sleep(at_s)
        running.send(signal.SIGKILL)
        running.end()

    def unchanged(self, *sessions: str) -> None:
        """Check that sessions hold what they held, blobs too."""
        for session in sessions:
            assert self.cli.entries(session) == self.before[session], session
            assert self.cli.run("export", session).code == 0

    def listed(self) -> str:
        """Return the list of sessions, which must not stumble."""
        shown = self.cli.run("sessions", "--json")
        assert (shown.code, shown.err) == (0, ""), shown.told()
        return shown.text


def fork(operation: Operation) -> list[str]:
    return ["-p", "go on", "-r", operation.first, "--fork-session"]


def prune(operation: Operation) -> list[str]:
    for one in operation.cli.sessions:
        (operation.cli.session_folder(one) / "log.sqlite.damaged-1").write_bytes(bytes(900_000))
    return ["sessions", "prune", "--keep-mb", "2", "--yes"]


def delete(operation: Operation) -> list[str]:
    return ["sessions", "delete", operation.first]


def bring(operation: Operation) -> list[str]:
    file = str(operation.cli.folder / "s.zip")
    if not os.path.exists(file):
        moved = operation.cli.run("export", operation.first, "--whole", "-o", file)
        assert moved.code == 0, moved.err
        assert operation.cli.run("sessions", "delete", operation.first).code == 0
    return ["import", file]


@cache
def duration_s(words_of: Callable[[Operation], list[str]]) -> float:
    """Return how long the operation takes when nobody kills it."""
    with tempfile.TemporaryDirectory(prefix="longrein-kill-") as folder:
        operation = Operation(Path(folder))
        words = words_of(operation)
        return operation.cli.run(*words).seconds


def kill_in(words_of: Callable[[Operation], list[str]], folder: Path, seed: int) -> None:
    """Kill a command of the command line, check the sessions, and do it again."""
    limit_s = duration_s(words_of)
    operation = Operation(folder)
    words = words_of(operation)
    operation.killed(words, limit_s * random.Random(seed).uniform(0.1, 1.1))
    try:
        check(words_of, operation, words)
    finally:
        operation.cli.clean_up()


def check(
    words_of: Callable[[Operation], list[str]], operation: Operation, words: list[str]
) -> None:
    """Check what a killed operation has left."""
    cli, first, second = operation.cli, operation.first, operation.second
    listed = operation.listed()
    if words_of is fork:
        operation.unchanged(first, second)
        for one in cli.sessions:
            if one in listed:  # a fork: whole, or not listed
                assert "prompt" in cli.run("export", one).text, one
        again = cli.run(*words)
        assert (again.code, again.text) == (0, "of the fork\n"), again.told()
        operation.unchanged(first, second)
        return
    kept = [one for one in (first, second) if one in listed]
    operation.unchanged(*(one for one in kept if words_of is not bring or one == second))
    if words_of is prune:
        assert kept, "all sessions are gone"
        again = cli.run(*words)
        assert again.code == 0, again.told()
        assert sum(one in operation.listed() for one in (first, second)) == 1
    elif words_of is delete:
        assert second in kept
        again = cli.run(*words)
        assert again.code == (0 if first in kept else again.code), again.told()
        assert first not in operation.listed()
    else:
        assert second in kept
        again = cli.run(*words)
        there = f"there is already a session {first}" in again.err
        assert again.code == 0 or there, again.told()
        moved = cli.entries(first)
        assert moved[1 : len(operation.before[first])] == operation.before[first][1:]


OPERATIONS: dict[str, Callable[[Path, int], None]] = {
    "command": kill_in_commands,
    "rewind": kill_in_rewind,
    "checkpoint": kill_in_checkpoint,
    "fork": lambda folder, seed: kill_in(fork, folder, seed),
    "prune": lambda folder, seed: kill_in(prune, folder, seed),
    "delete": lambda folder, seed: kill_in(delete, folder, seed),
    "import": lambda folder, seed: kill_in(bring, folder, seed),
}


def play(seed: int) -> Counter[str]:
    """Kill the operation of a seed."""
    name = list(OPERATIONS)[seed % len(OPERATIONS)]
    with tempfile.TemporaryDirectory(prefix="longrein-kill-", ignore_cleanup_errors=True) as folder:
        try:
            OPERATIONS[name](Path(folder), seed)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    return Counter({f"{name}s": 1})


def main(words: Sequence[str]) -> int:
    """Run the campaign; return 1 when a kill lost something."""
    about = "Kill longrein inside its operations and check what is left."
    return run_campaign("kill", play, arguments(about, 200, 900).parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
