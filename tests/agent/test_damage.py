"""Law 8 on damaged files: what a session did before its log was damaged is not done again
unasked.
"""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from longrein.agent import Continue
from longrein_context.events import Entry, Reminded, ToolEnded, ToolStarted, text_of
from tests.agent.disk_harness import SESSION, DiskHarness, Script, call, says, turn

pytestmark = pytest.mark.anyio

ACTS = 6
_numbers = itertools.count(1)


async def killed_in_the_middle(folder: Path) -> Path:
    """The state folder of a session that was killed after its acts, its log still in the
    write-ahead log.
    """
    harness = DiskHarness(folder)
    acts = [call("Bash", command=f"echo {n} >> acts") for n in range(ACTS)]
    steps = [says("a step", *acts[n : n + 2]) for n in range(0, ACTS, 2)]
    copy = folder / "killed"

    def die(_: object) -> None:
        shutil.copytree(harness.state, copy)

    await harness.play(Script(*steps, lambda request: die(request) or says("done")), "do it")
    return copy


def stored_entries(folder: Path, killed: Path) -> list[Entry]:
    """Return the entries of a copy of `killed`."""
    harness = DiskHarness(folder)
    harness.state = folder / "whole"
    shutil.copytree(killed, harness.state)
    return harness.entries()


async def go_on(
    folder: Path, killed: Path, damage: Callable[[Path], object]
) -> tuple[DiskHarness, list[str]]:
    """Damage a copy of `killed`, open it and go on with a model that calls nothing; its notes."""
    harness = DiskHarness(folder)
    harness.state = folder / f"state{next(_numbers)}"
    shutil.copytree(killed, harness.state)
    damage(harness.state / "sessions" / SESSION)
    # the copy is made beside a running writer, so the session may have a notice to answer
    async with harness.session(Script(says("done"), says("noted")), create=False) as session:
        notes = list(session.log.notes)
        await turn(
            session, Continue() if session.state.turn_open or session.state.calls else "go on"
        )
    return harness, notes


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


async def test_after_a_damaged_write_ahead_log_no_act_runs_again(tmp_path: Path) -> None:
    killed = await killed_in_the_middle(tmp_path)
    whole = stored_entries(tmp_path, killed)
    flushed = max(entry.seq for entry in whole if isinstance(entry.event, ToolStarted))
    size = (killed / "sessions" / SESSION / "log.sqlite-wal").stat().st_size
    places = range(40, size, size // 6)
    for at in places:
        for name, damage in (
            ("bit", lambda folder, at=at: flip(folder / "log.sqlite-wal", at)),
            ("cut", lambda folder, at=at: cut(folder / "log.sqlite-wal", at)),
        ):
            harness, notes = await go_on(tmp_path, killed, damage)
            acts = (harness.tree / "acts").read_text().split()
            assert acts == [str(n) for n in range(ACTS)], (
                f"{name} at {at}: an act ran a second time"
            )
            # later entries may be lost without a word
            kept = harness.entries()[:flushed] == whole[:flushed]
            assert notes or kept, f"{name} at {at}: nothing was said"


async def test_the_model_is_told_of_lost_entries_and_calls(tmp_path: Path) -> None:
    killed = await killed_in_the_middle(tmp_path)
    told: dict[str, int] = {}
    size = (killed / "sessions" / SESSION / "log.sqlite-wal").stat().st_size
    for at in range(size - 8 * 4120, size, 4120):
        harness, _ = await go_on(
            tmp_path, killed, lambda folder, at=at: cut(folder / "log.sqlite-wal", at)
        )
        events = [entry.event for entry in harness.entries()]
        if any(isinstance(event, Reminded) and event.kind == "lost_entries" for event in events):
            told["lost"] = told.get("lost", 0) + 1
        for event in events:
            if isinstance(event, ToolEnded) and event.status == "interrupted":
                text = text_of(event.parts).partition(": ")[0]
                told[text] = told.get(text, 0) + 1
    assert set(told) == {
        "lost",
        "the record of this call was lost; it may have run",
        "interrupted; it may have run",
    }


async def test_a_second_start_after_the_damage_says_nothing_more(tmp_path: Path) -> None:
    killed = await killed_in_the_middle(tmp_path)
    harness, notes = await go_on(
        tmp_path, killed, lambda folder: (folder / "log.sqlite-wal").unlink()
    )
    assert len(notes) == 1
    async with harness.session(Script(says("done")), create=False) as session:
        assert (list(session.log.notes), session.log.was_cut) == ([], False)
