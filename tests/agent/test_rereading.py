"""A4: reading what still stands in the view costs one line; reading what does not stands there
whole.
"""

from pathlib import Path

import pytest

from longrein.agent import Compact
from longrein.models import Reply
from longrein_context import Budget, analyse, analysis_lines
from tests.agent.disk_harness import DiskHarness, Script, call, results, says, turn
from tests.tables import cases

pytestmark = pytest.mark.anyio

FILE = "".join(f"line {n} of the file\n" for n in range(1, 101))


@pytest.fixture
def harness(tmp_path: Path) -> DiskHarness:
    harness = DiskHarness(tmp_path)
    (harness.tree / "a.txt").write_text(FILE)
    return harness


def read(**more: object) -> Reply:
    return says(call("Read", file_path="a.txt", **more))


@cases(
    "steps begins",
    ([read(), read()], "[unchanged since r9: lines 1-100 of "),
    ([read(), read(offset=20, limit=10)], "[unchanged since r9: lines 20-29 of "),
    ([read(offset=20, limit=10), read()], "1\tline 1 of the file"),
    ([read(offset=20, limit=10), read(offset=25, limit=3)], "[unchanged since r9: lines 25-27 of "),
    ([read(offset=20, limit=10), read(offset=25, limit=10)], "25\tline 25 of the file"),
    ([read(), says(call("Bash", command="echo more >> a.txt")), read()], "1\tline 1 of the file"),
    (
        [read(), says(call("Bash", command="touch a.txt")), read()],
        "[unchanged since r9: lines 1-100 of ",
    ),
    ([read(), read(), read()], "1\tline 1 of the file"),
)
async def test_A4_a_reading_is_pointed_at(
    harness: DiskHarness, steps: list[Reply], begins: str
) -> None:
    model = Script(*steps, says("done"))
    await harness.play(model, "look")
    assert results(model.requests[-1])[-1].startswith(f"Read ok: {begins}")


async def test_A4_after_a_compaction_it_is_given_again(harness: DiskHarness) -> None:
    (harness.tree / "a.txt").write_text(FILE * 2)
    edit = says(
        call("Edit", file_path="a.txt", old_string="line 1 of the file\nline 2 ", new_string="x ")
    )
    model = Script(
        read(),
        read(),
        says("seen"),
        says("1. Request and intent\nlook"),
        read(),
        edit,
        says("done"),
    )
    async with harness.session(model) as session:
        await turn(session, "look")
        assert "unchanged since" in results(model.requests[2])[-1]
        await turn(session, Compact(""))
        await turn(session, "again")
    assert results(model.requests[5])[-1].startswith("Read ok: 1\tline 1 of the file")


async def test_a_reading_pointed_at_is_not_superseded(harness: DiskHarness) -> None:
    session = await harness.play(Script(read(), read(), says("seen")), "look")
    told = "\n".join(analysis_lines(analyse(session.state, Budget(50_000, 4_000))))
    assert "other results" in told
    assert "superseded" not in told
