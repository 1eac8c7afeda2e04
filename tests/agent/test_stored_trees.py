"""A session in PostgreSQL moves between two machines: each checks out the tree that the other one
has left, and can go back to every earlier one.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.support.postgresql import Server
from lab.support.tree_operations import operations, picture, start_tree, user_git
from longrein.agent import OpenSession
from longrein.agent.checkpoints import SessionCheckpoints
from longrein.app.run_context import use_store_at
from longrein.workspace.root_copies import CheckpointStore
from longrein_context.events import CheckpointTaken, CwdSet
from tests.agent.disk_harness import DiskHarness, Script, turn
from tests.agent.test_rewind_commands import MIB, back, turns

pytestmark = pytest.mark.anyio
Make = Callable[..., "Machine"]


class Machine(DiskHarness):
    """A machine with a work folder and a state folder of its own."""

    def opener(self) -> SessionCheckpoints:
        folder = self.state / "kept"
        store = CheckpointStore(str(folder), dict(os.environ))
        return SessionCheckpoints(store, 64 * MIB, place=str(folder))

    def checkpoints(self) -> list[CheckpointTaken]:
        events = [entry.event for entry in self.entries()]
        return [event for event in events if isinstance(event, CheckpointTaken)]

    def pushes(self) -> list[tuple[str, bool]]:
        """When something was stored, and whether it had new contents."""
        return [(one.when, bool(one.pack)) for one in self.checkpoints() if one.records]


@pytest.fixture
def machine(tmp_path: Path, postgresql: Server) -> Make:
    """Makes machines that share a store."""
    address = postgresql.new_schema()

    def make(name: str) -> Machine:
        (tmp_path / name).mkdir()
        found = Machine(tmp_path / name, checkpoints=True)
        use_store_at(str(found.state), address)
        return found

    return make


def notices(session: OpenSession) -> list[str]:
    """Collect the notices of a session."""
    found: list[str] = []
    session.notice = found.append  # type: ignore[method-assign, assignment]
    return found


@pytest.mark.parametrize(("seed", "git"), [(1, True), (2, False), (3, True), (4, False)])
async def test_random_trees_are_rewound_elsewhere(machine: Make, seed: int, git: bool) -> None:
    rng, here, there = random.Random(seed), machine("a"), machine("b")
    start_tree(here.tree, git=git)
    commands = list(operations(rng, 24, git=False))
    for n in range(3, len(commands), 7):
        commands[n] = f"write sub/edited{n % 2}.txt={n} by the agent"
    groups = [commands[n : n + 4] for n in range(0, len(commands), 4)]
    script = Script(*turns([["echo 1 > first"], *groups]))
    pictures: dict[int, object] = {}
    async with here.session(script) as session:
        await turn(session, "begin")
        pictures[here.ends()[-1]] = picture(here.tree)
    for _ in groups:
        here, there = there, here
        async with here.session(script, create=False) as session:
            told = notices(session)
            session.append(CwdSet(str(here.tree)))
            await turn(session, "go on")
            assert told == []
            pictures[here.ends()[-1]] = picture(here.tree)
    for to in [next(iter(pictures)), *rng.choices(list(pictures), k=3)]:
        here, there = there, here
        async with here.session(script, create=False) as session:
            kept = await back(session, to)
            assert not kept, (seed, to, kept)
            assert picture(here.tree) == pictures[to], (seed, to)


async def test_a_step_that_changes_nothing_stores_nothing(machine: Make) -> None:
    here = machine("a")
    script = Script(*turns([["true >&2; : none", "echo 1 > a", "date > /dev/null", "write b=2"]]))
    async with here.session(script) as session:
        await turn(session, "go on")
    assert here.pushes() == [("after", True), ("after", True)]


@pytest.mark.parametrize("is_ignored", [True, False])
async def test_files_of_the_user_stay_and_are_told(machine: Make, is_ignored: bool) -> None:
    here, there = machine("a"), machine("b")
    script = Script(*turns([["echo 1 > a"], ["echo 2 > b"], []]))
    async with here.session(script) as session:
        await turn(session, "begin")
    left = picture(here.tree)
    if is_ignored:
        user_git(there.tree, "init", "-q")
        (there.tree / ".git/info/exclude").write_text("a\n")
    (there.tree / "a").write_text("by the user")
    async with there.session(script, create=False) as session:
        told = notices(session)
        session.append(CwdSet(str(there.tree)))
        await turn(session, "go on")
    assert len(told) == 1
    assert "has files that are none of the session (a); resume it in an empty folder" in told[0]
    assert (there.tree / "a").read_text() == "by the user"
    assert (there.tree / "b").read_text() == "2\n"
    async with here.session(script, create=False) as session:
        told = notices(session)
        session.append(CwdSet(str(here.tree)))
        await turn(session, "go on")
    assert (told, picture(here.tree)) == ([], left)
