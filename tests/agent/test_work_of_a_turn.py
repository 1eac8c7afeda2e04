"""Costs of a turn, by counts that no other program on the machine changes: so that a feature
cannot make every turn dearer unseen.

Writes, flushes and stamps are what was counted. A busy machine turns the event loop more often, so
calls may be half as many again. A change that needs more raises a limit and says why.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from longrein.models import Reply
from longrein.store.writer import Writer
from longrein.workspace.local_workspace import PlainWorkspace
from tests.agent.disk_harness import DiskHarness, Script, call, says

pytestmark = pytest.mark.anyio

FEW, MANY = 10, 40
"""Turns of two sessions; the difference leaves out what a session costs by itself."""


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count writes to the log, those of them that wait for the disk, stamps of watched files, and
    calls of functions in the event loop's thread.
    """
    found: Counter[str] = Counter()

    def counting(
        what: str, owner: object, name: str, more: Callable[[Any], str] = lambda _: ""
    ) -> None:
        real: Callable[..., object] = getattr(owner, name)

        def count(self: object, first: object, *others: object) -> object:
            found.update(filter(None, (what, more(first))))
            return real(self, first, *others)

        monkeypatch.setattr(owner, name, count)

    def hook(_frame: object, kind: str, _argument: object) -> None:
        found["calls"] += kind in ("call", "c_call")

    with monkeypatch.context() as patched:
        monkeypatch = patched
        counting("writes", Writer, "write", lambda write: "flushes" if write.flush else "")
        counting("stamps", PlainWorkspace, "stamp")
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


async def work_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], Reply], turns: int
) -> Counter[str]:
    folder.mkdir()
    harness = DiskHarness(folder)
    for n in range(MANY):
        lines = (f"value_{n}_{row} = compute_{row % 7}({n})\n" for row in range(50))
        (harness.tree / f"file{n}.txt").write_text("".join(lines))
    with counted(monkeypatch) as found:
        await harness.play(Script(*map(act, range(turns)), says("Done.")), "go")
    return found


@pytest.mark.parametrize(
    ("act", "limits"),
    [
        (shell, {"calls": 6_600, "writes": 2, "flushes": 1, "stamps": 0}),
        (read, {"calls": 17_300, "writes": 2, "flushes": 1, "stamps": 29.5}),
        (edit, {"calls": 7_800, "writes": 2, "flushes": 1, "stamps": 28.1}),
    ],
)
async def test_the_work_of_a_turn_is_bounded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[int], Reply],
    limits: dict[str, float],
) -> None:
    few = await work_of(tmp_path / "few", monkeypatch, act, FEW)
    many = await work_of(tmp_path / "many", monkeypatch, act, MANY)
    each = {what: (many[what] - few[what]) / (MANY - FEW) for what in many}
    assert not {what: n for what, n in each.items() if n > limits[what]}
