"""Costs of a turn, by counts that no other program on the machine changes: so that a feature
cannot make every turn dearer unseen.

A busy machine turns the event loop more often, so calls may be half as many again. A change that
needs more raises a limit and says why.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from longrein.models import Reply
from longrein.testing.scripted_model import ScriptedModel
from longrein.testing.workspace import Ran
from tests.agent.disk_harness import DiskHarness, Script, call, says
from tests.agent.memory_harness import MemoryHarness, one_turn

pytestmark = pytest.mark.anyio

FEW, MANY = 10, 40
"""Turns of two sessions; the difference leaves out what a session costs by itself."""


@contextmanager
def calls_counted() -> Iterator[list[int]]:
    """Count the calls of functions in the event loop's thread."""
    found = [0]

    def hook(_frame: object, kind: str, _argument: object) -> None:
        found[0] += kind in ("call", "c_call")

    sys.setprofile(hook)
    try:
        yield found
    finally:
        sys.setprofile(None)


def shell(n: int) -> Reply:
    return says(call("Bash", command=f"true {n}"))


def read(n: int) -> Reply:
    return says(call("Read", file_path=f"file{n}.txt"))


def edit(n: int) -> Reply:
    return says(call("Write", file_path=f"new{n}.txt", content="one\ntwo\n"))


async def calls_of(folder: Path, act: Callable[[int], Reply], turns: int) -> int:
    folder.mkdir()
    harness = DiskHarness(folder)
    for n in range(MANY):
        lines = (f"value_{n}_{row} = compute_{row % 7}({n})\n" for row in range(50))
        (harness.tree / f"file{n}.txt").write_text("".join(lines))
    with calls_counted() as found:
        await harness.play(Script(*map(act, range(turns)), says("Done.")), "go")
    return found[0]


@pytest.mark.parametrize(("act", "calls"), [(shell, 6_600), (read, 17_300), (edit, 7_800)])
async def test_work_of_a_turn_is_bounded(
    tmp_path: Path, act: Callable[[int], Reply], calls: int
) -> None:
    few = await calls_of(tmp_path / "few", act, FEW)
    many = await calls_of(tmp_path / "many", act, MANY)
    assert (many - few) / (MANY - FEW) <= calls


def test_a_step_with_a_call_is_two_writes_and_one_flush() -> None:
    def writes(turns: int) -> tuple[int, int]:
        harness = MemoryHarness(lambda _: Ran(""))
        one_turn(harness, ScriptedModel(*map(shell, range(turns)), says("Done.")))
        return len(harness.disk.writes), sum(write.flush for write in harness.disk.writes)

    few, many = writes(FEW), writes(MANY)
    steps = MANY - FEW
    assert (many[0] - few[0], many[1] - few[1]) == (2 * steps, steps)
