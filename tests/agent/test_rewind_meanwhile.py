"""Whose change it was while a command ran: what the command wrote is undone, what the user wrote
meanwhile is kept and named.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from longrein.agent.checkpoints import SessionCheckpoints
from longrein.workspace.sandbox.rung import find_rung
from longrein_context.events import Rewound
from tests.agent.disk_harness import DiskHarness, Script, turn
from tests.agent.test_rewind_checkpoints import BrokenStore
from tests.agent.test_rewind_commands import back, turns
from tests.seeds import seeds
from tests.tables import cases
from tests.timeouts import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not find_rung(os.environ, ()).confines, reason="no sandbox here"),
]
WHY = "it changed while a command was running, perhaps by you"


def held(*commands: str) -> str:
    """Run `commands`, one each time the test says so."""
    step = (
        'touch "begun{0}"; while [ ! -e "go{0}" ]; do sleep 0.01; done; rm "go{0}" "begun{0}"; {1}'
    )
    return "; ".join(step.format(n, command) for n, command in enumerate(commands))


@cases(
    "command user kept left",
    ("echo 1 > mine", "notes", ["notes"], {"mine": "0", "notes": "of the user"}),
    ("echo 1 > mine", "new", ["new"], {"mine": "0", "new": "of the user"}),
    ("rm mine", "notes", ["notes"], {"mine": "0", "notes": "of the user"}),
    ("mkdir -p d; mv mine d/x", "d2", ["d2"], {"mine": "0", "d2": "of the user"}),
    ("mv folder moved", "notes", ["notes"], {"folder/a": "0", "notes": "of the user"}),
    ("sed -i s/0/1/ mine notes", "mine2", ["mine2"], {"mine": "0", "notes": "0"}),
    ("true", "mine", ["mine"], {"mine": "of the user"}),
    ("rm mine; mkdir mine", "notes", ["notes"], {"mine": "0", "notes": "of the user"}),
    ("rm mine; mkdir mine; echo 1 > mine/x", "notes", ["notes"], {"mine": "0"}),
    ("cp -r folder new; rm -r folder; ln -s new folder", "d2", ["d2"], {"folder/a": "0"}),
)
async def test_only_what_the_command_wrote_is_undone(
    tmp_path: Path, command: str, user: str, kept: list[str], left: dict[str, str]
) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True, confined=True)
    (harness.tree / "folder").mkdir()
    for name in ("mine", "notes", "folder/a"):
        (harness.tree / name).write_text("0")
    async with harness.session(Script(*turns([[], [held(command)]]))) as session:
        await turn(session, "begin")
        running = asyncio.create_task(turn(session, "go on"))
        await until((harness.tree / "begun0").exists)
        (harness.tree / user).write_text("of the user")
        (harness.tree / "link").symlink_to("nowhere")
        (harness.tree / "go0").touch()
        await running
        kept = sorted(["link", *kept])
        assert await back(session, harness.ends()[0]) == [f"{name} {WHY}" for name in kept]
        found = {name: (harness.tree / name).read_text() for name in left}
        assert found == left
        assert not (harness.tree / "moved").exists()
        await back(session, harness.ends()[0], overwrite=True)
        assert not (harness.tree / "new").exists()
    await harness.spawner.drain()


@pytest.mark.parametrize("failing", ["before", "after", "before after"])
async def test_the_trace_tells_whose_change_it_was(tmp_path: Path, failing: str) -> None:
    harness, broken = DiskHarness(tmp_path, checkpoints=True, confined=True), tmp_path / "broken"
    store = BrokenStore(harness.state / "kept", broken)
    harness.opener = lambda: SessionCheckpoints(store, 64 << 20)  # type: ignore[method-assign]
    for name in ("mine", "notes"):
        (harness.tree / name).write_text("0")
    script = Script(*turns([[], ["echo 1 > a"], [held("echo 1 > mine")], ["echo 1 > b"]]))
    async with harness.session(script) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        if "before" in failing:
            broken.touch()
        running = asyncio.create_task(turn(session, "go on"))
        await until((harness.tree / "begun0").exists)
        broken.unlink(missing_ok=True)
        if "after" in failing:
            broken.touch()
        (harness.tree / "notes").write_text("of the user")
        (harness.tree / "go0").touch()
        await running
        broken.unlink(missing_ok=True)
        await turn(session, "go on")
        assert await back(session, harness.ends()[0]) == [f"notes {WHY}"]
        assert (harness.tree / "mine").read_text() == "0"
        assert (harness.tree / "notes").read_text() == "of the user"
    await harness.spawner.drain()


# --- A user who edits at any moment ---------------------------------------------------------------

NAMES = ("a", "b", "c", "sub/d", "sub/e", "other/f")


def agents_change(rng: random.Random) -> str:
    """Return a command that changes the tree in some way, or fails at it."""
    one, other = rng.sample(NAMES, 2)
    return rng.choice(
        [
            f"echo {rng.random()} > {one}",
            f"echo {rng.random()} >> {one}",
            f"rm -f {one}",
            f"mv {one} {other}",
            f"cp {one} {other}",
            f"chmod {rng.choice(['600', '755', '644'])} {one}",
            f"sed -i s/1/2/ {one}",
            f"mv sub sub2; mv sub2 {rng.choice(['sub', 'sub3'])}",
            f"ln -f {one} {other}; rm -f {one}",
            "true",
        ]
    )


def users_change(rng: random.Random, tree: Path) -> str:
    """Change a file as a user would; return its name."""
    name = rng.choice([*NAMES, "new", "sub/new"])
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    if rng.random() < 0.2 and path.exists():
        path.unlink()
    else:
        path.write_text(f"of the user {rng.random()}")
    return name


def picture_of(tree: Path) -> dict[str, tuple[str, int]]:
    """Return name -> (content, mode) of the files."""
    return {
        str(path.relative_to(tree)): (path.read_text(), path.stat().st_mode)
        for path in tree.rglob("*")
        if path.is_file() and not path.name.startswith((".", "go", "begun"))
    }


async def run_beside_a_user(folder: Path, seed: int, turns_max: int = 4) -> None:
    """Play turns in which a user edits before, between, during and after commands; rewind; then
    nothing of the user's may have changed unnamed, and all else is as it was.
    """
    rng, harness = random.Random(seed), DiskHarness(folder, checkpoints=True, confined=True)
    for name in NAMES:
        (harness.tree / name).parent.mkdir(exist_ok=True)
        (harness.tree / name).write_text(f"{name} 1\n")
    users: set[str] = set()
    groups = [
        [held(*(agents_change(rng) for _ in range(2))) for _ in range(rng.randint(1, 2))]
        for _ in range(rng.randint(1, turns_max))
    ]

    def user_may_edit(chance: float) -> None:
        if rng.random() < chance:
            users.add(users_change(rng, harness.tree))

    async with harness.session(Script(*turns([[], *groups]))) as session:
        await turn(session, "begin")
        start = picture_of(harness.tree)
        for group in groups:
            user_may_edit(0.3)
            running = asyncio.create_task(turn(session, "go on"))
            for n in [0, 1] * len(group):
                await until((harness.tree / f"begun{n}").exists)
                user_may_edit(0.4)
                (harness.tree / f"go{n}").touch()
            await running
        user_may_edit(0.3)
        before = picture_of(harness.tree)
        await back(session, harness.ends()[0])
        after = picture_of(harness.tree)
        [rewound] = harness.of(Rewound)
    await harness.spawner.drain()
    named = {os.path.relpath(put.path, harness.tree): put for put in rewound.files}
    kept = {name for name, put in named.items() if not put.done}
    assert kept <= users, (seed, kept)
    for name in {*start, *before, *after}:
        if name not in users:
            assert after.get(name) == start.get(name), (seed, name)
        elif before.get(name) != after.get(name):
            assert name in named, (seed, name)


@pytest.mark.parametrize("seed", seeds(6))
async def test_nothing_of_a_user_who_edits_is_changed_unnamed(tmp_path: Path, seed: int) -> None:
    await run_beside_a_user(tmp_path, seed)
