"""A rewind restores what commands and edits changed, byte for byte, from checkpoints of the work
tree.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.support.tree_operations import git_state, operations, picture, start_tree, user_git
from longrein.agent import OpenSession, Rewind
from longrein_context.events import Rewound
from tests.agent.disk_harness import DiskHarness, Script, call, says, turn

pytestmark = pytest.mark.anyio
MIB = 1 << 20


def turns(groups: Sequence[Sequence[str]]) -> list[object]:
    """Script a turn for each group; each command is a step of its own."""
    script = []
    for group in groups:
        script += [says(_call(command)) for command in group]
        script.append(says("done"))
    return script


def _call(command: str) -> object:
    name, _, text = command.partition("=")
    if command.startswith("write "):
        return call("Write", file_path=name.removeprefix("write "), content=text)
    return call("Bash", command=command)


async def back(session: OpenSession, to: int, **more: bool) -> list[str]:
    """Go back with the files; return `path why` of those that stayed."""
    await turn(session, Rewind(to, files=True, **more))
    events = [entry.event for entry in session.entries_from(1)]  # type: ignore[attr-defined]
    rewound = next(event for event in reversed(events) if isinstance(event, Rewound))
    return [f"{Path(put.path).name} {put.why}" for put in rewound.files if not put.done]


async def run_random_commands(folder: Path, seed: int, count: int, *, git: bool) -> None:
    """Run random commands in turns of five; go back to random ends, and forward again."""
    rng, harness = random.Random(seed), DiskHarness(folder, checkpoints=True)
    start_tree(harness.tree, git=git)
    commands = list(operations(rng, count, git=git))
    for n in range(3, count, 7):
        commands[n] = f"write sub/edited{n % 2}.txt={n} by the agent"
    groups = [commands[n : n + 5] for n in range(0, count, 5)]
    async with harness.session(Script(*turns([[], *groups]))) as session:
        await turn(session, "begin")
        pictures = {harness.ends()[-1]: picture(harness.tree)}
        for _ in groups:
            await turn(session, "go on")
            pictures[harness.ends()[-1]] = picture(harness.tree)
            if git:
                user_git(
                    harness.tree,
                    *rng.choice([["add", "-A"], ["commit", "-qm", "user"], ["tag", "-f", "t"]]),
                )
        for to in [next(iter(pictures)), *rng.choices(list(pictures), k=3)]:
            before = git_state(harness.tree) if git else []
            kept = await back(session, to)
            assert not kept, (seed, to, kept)
            assert picture(harness.tree) == pictures[to], (seed, to)
            assert (git_state(harness.tree) if git else []) == before, seed


@pytest.mark.parametrize(("seed", "git"), [(1, True), (2, False)])
async def test_a_rewind_of_random_commands_is_byte_identical(
    tmp_path: Path, seed: int, git: bool
) -> None:
    await run_random_commands(tmp_path, seed, 15, git=git)
