"""Going back with the files, again and again: what a rewind put there is ours, what anybody else
wrote there is not.
"""

import re
import stat
from pathlib import Path
from typing import Any

import pytest

from longrein.agent import Rewind
from longrein_context.events import Rewound, TurnEnded
from tests.agent.disk_harness import DiskHarness, Script, call, events_of, says, turn

pytestmark = pytest.mark.anyio


def change(step: str) -> Any:
    """The call for `a=1` (write), `a=` (delete) or `a>b` (move)."""
    name, sign, text = re.split("([=>])", step)
    if sign == "=" and text:
        return call("Write", file_path=name, content=text)
    lines = f"Update File: {name}\n*** Move to: {text}" if text else f"Delete File: {name}"
    return call("apply_patch", input=f"*** Begin Patch\n*** {lines}\n*** End Patch")


async def files_after(folder: Path, steps: str) -> str:
    """The files and what each rewind did, after `steps`:

    `a=1 b=2` a turn that writes these, `a=` that deletes it, `a>b` that moves it; `back 2` go back
    with files to the end of turn 2 (0: before all of them), `talk 2` without files; `user a=9`
    somebody else writes it; `gone a` somebody removes it.
    """
    harness = DiskHarness(folder)
    (harness.tree / "old").write_text("0")
    turns = [
        step
        for step in steps.split("; ")
        if step.split()[0] not in ("back", "talk", "user", "gone")
    ]
    script = [says(call("Read", file_path="old")), says("read")]
    for writes in turns:
        script += [says(*map(change, writes.split())), says("written")]
    told = []
    async with harness.session(Script(*script)) as session:

        def ends() -> list[int]:
            return [entry.seq for entry in harness.entries() if isinstance(entry.event, TurnEnded)]

        await turn(session, "go on")
        for step in steps.split("; "):
            match step.split():
                case ["back" | "talk" as how, number]:
                    await turn(session, Rewind(ends()[int(number)], files=how == "back"))
                    rewound = next(e for e in events_of(reversed(harness.entries()), Rewound))
                    told.append(
                        " ".join(f"{Path(p.path).name}:{p.why or 'back'}" for p in rewound.files)
                    )
                case ["user", pair]:
                    (harness.tree / pair.split("=")[0]).write_text(pair.split("=")[1])
                case ["gone", name]:
                    (harness.tree / name).unlink()
                case _:
                    await turn(session, "go on")
    files = " ".join(f"{path.name}={path.read_text()}" for path in sorted(harness.tree.iterdir()))
    return " | ".join([files, *told])


FOREIGN = "a:it was changed since by somebody else"
STORIES = {
    "a=1; a=2; a=3; back 2; back 1; back 0": "old=0 | a:back | a:back | a:back",
    "a=1; a=2; back 1; a=3; back 0": "old=0 | a:back | a:back",
    "old=1; old=2; back 1; back 0": "old=0 | old:back | old:back",
    "a=1 b=1; b=2; back 1; back 0": "old=0 | b:back | a:back b:back",
    # forward again, to entries that were taken back
    "a=1; a=2; back 1; back 2": "a=2 old=0 | a:back | a:back",
    "a=1; back 0; back 1": "a=1 old=0 | a:back | a:back",
    # one without files in between
    "a=1; a=2; a=3; talk 2; back 1; back 0": "old=0 |  | a:back | a:back",
    "a=1; a=2; back 1; talk 0; a=3; back 2": "a=2 old=0 | a:back |  | a:back",
    # removed and moved files
    "old=; back 0": "old=0 | old:back",
    "old>new; back 0": "old=0 | new:back old:back",
    "old>new; new=2; back 1; back 0": "old=0 | new:back | new:back old:back",
    "a=1; a=; a=3; back 2; back 1": "a=1 old=0 | a:back | a:back",
    "old=; user old=9; back 0": "old=9 | old:it was changed since by somebody else",
    # nothing to do, or done already
    "a=1; a=2; back 1; back 1": "a=1 old=0 | a:back | ",
    "a=1; a=2; user a=1; back 1; back 0": "old=0 | a:back | a:back",
    "a=1; gone a; back 0": "old=0 | a:back",
    # somebody else's stays, however often one goes back
    "a=1; a=2; a=3; back 2; user a=9; back 1; back 0": f"a=9 old=0 | a:back | {FOREIGN} | "
    f"{FOREIGN}",
    "a=1; back 0; user a=9; back 1": f"a=9 old=0 | a:back | {FOREIGN}",
    "a=1; a=2; back 1; gone a; back 2": f"old=0 | a:back | {FOREIGN}",
}


@pytest.mark.parametrize("steps", STORIES)
async def test_files_go_back_often_and_only_where_they_are_ours(tmp_path: Path, steps: str) -> None:
    assert await files_after(tmp_path, steps) == STORIES[steps]


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
@pytest.mark.parametrize("steps", ["old=", "old>new", "old=; old=1; old=", "old=; $ touch x"])
async def test_a_removed_file_keeps_its_permissions(
    tmp_path: Path, steps: str, mode: int, checkpoints: bool
) -> None:
    """`$` runs a command, before which a checkpoint is taken."""
    harness = DiskHarness(tmp_path, checkpoints=checkpoints)
    old = harness.tree / "old"
    old.write_text("0")
    old.chmod(mode)
    script = [says(call("Read", file_path="old")), says("read")]
    for step in steps.split("; "):
        command = step.removeprefix("$ ")
        made = change(step) if command == step else call("Bash", command=command)
        script.append(says(made))
    async with harness.session(Script(*script, says("done"))) as session:
        await turn(session, "go on")
        before = harness.entries()[-1].seq
        await turn(session, "go on")
        assert not old.exists()
        await turn(session, Rewind(before, files=True))
    assert (old.read_text(), stat.S_IMODE(old.stat().st_mode)) == ("0", mode)


async def test_a_session_without_checkpoints_shows_what_goes_back(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path)
    script = [says("begun"), says(change("a=1")), says("written")]
    async with harness.session(Script(*script)) as session:
        await turn(session, "begin")
        to = harness.entries()[-1].seq
        await turn(session, "go on")
        preview = await session.preview_rewind(to)
        assert [Path(path).name for path in preview.removed] == ["a"]
        assert (preview.restored, preview.kept, preview.missing) == ((), (), ())


async def test_a_rewind_goes_back_to_the_end_of_a_step(tmp_path: Path) -> None:
    """From anywhere in a turn that is the end of the turn before."""
    harness = DiskHarness(tmp_path)
    both = [call("Write", file_path=name, content="1") for name in "ab"]
    script = [says("begun"), says(*both), says(change("a=2")), says("done")]
    async with harness.session(Script(*script)) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        entries = harness.entries()
        first, last = [e.seq for e in entries if isinstance(e.event, TurnEnded)]
        for entry in entries[first:last]:
            await turn(session, Rewind(entry.seq))
        rewound = [e.to for e in harness.of(Rewound)]
    assert rewound == [first] * (last - first - 1) + [last]
