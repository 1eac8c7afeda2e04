"""A call that was allowed, or asked about, uses the file that was judged, and no other that the path leads to since."""

import asyncio
from pathlib import Path

import pytest

from longrein.agent import Answer
from longrein.permissions import Rules
from tests.agent.disk_harness import DiskHarness, Script, call, question, results, says, turn

pytestmark = pytest.mark.anyio

MOVED = "Write failed: [moved] way/new.txt has changed between the check and the use: it leads to another place now."


@pytest.mark.parametrize("leads_to", ["inside", "outside"])
@pytest.mark.parametrize("swapped", [False, True])
async def test_S033_an_answer_holds_for_the_place_that_was_asked_about(
    harness: DiskHarness, tmp_path: Path, leads_to: str, swapped: bool
) -> None:
    places = {"inside": harness.tree / "inside", "outside": tmp_path / "outside", "other": tmp_path / "other"}
    for place in places.values():
        place.mkdir()
    way = harness.tree / "way"
    way.symlink_to(places[leads_to])
    model = Script(says(call("Write", file_path="way/new.txt", content="x")), says("so"))
    async with harness.session(model, rules=Rules(base=str(harness.tree))) as session:
        running = asyncio.create_task(turn(session, "write"))
        asked = await question(session)
        if swapped:
            way.unlink()
            way.symlink_to(places["other"])
        session.tell(Answer(asked.call, "allow"))
        await running
        assert session.judged_paths == {}
    assert list(places["other"].iterdir()) == []
    assert (places[leads_to] / "new.txt").exists() is not swapped
    [result] = results(model.requests[-1])
    assert result.startswith(MOVED if swapped else "Write ok: Created ")
