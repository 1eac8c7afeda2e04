"""A call that was allowed, or asked about, uses the file that was judged, and no other that the
path leads to since.
"""

import asyncio
from pathlib import Path

import pytest

from longrein.agent import Answer, Continue, approval_digest
from longrein.permissions import Rules
from longrein_context.events import ToolCall
from tests.agent.disk_harness import DiskHarness, Script, call, question, results, says, turn
from tests.tables import cases, record

pytestmark = pytest.mark.anyio

ASKED_AGAIN = "Write denied: Denied: the user denied this call."


@pytest.mark.parametrize("leads_to", ["inside", "outside"])
@pytest.mark.parametrize("swapped", [False, True])
async def test_S033_an_answer_holds_for_the_place_that_was_asked_about(
    harness: DiskHarness, tmp_path: Path, leads_to: str, swapped: bool
) -> None:
    places = record(
        inside=harness.tree / "inside", outside=tmp_path / "outside", other=tmp_path / "other"
    )
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
        if swapped:
            again = await question(session, after=asked)
            assert again.places == (str(places["other"] / "new.txt"),) != asked.places
            session.tell(Answer(asked.call, "deny"))
        await running
        assert session.judged_paths == {}
    assert list(places["other"].iterdir()) == []
    assert (places[leads_to] / "new.txt").exists() is not swapped
    [result] = results(model.requests[-1])
    assert result.startswith(ASKED_AGAIN if swapped else "Write ok: Created ")


@cases(
    "made",
    call("Write", file_path="way/new.txt", content="x"),
    call("Bash", command="touch way/new.txt"),
    call("Bash", command="cp a.txt way/new.txt"),
)
@pytest.mark.parametrize("swapped", [False, True])
async def test_S033_an_answer_after_a_restart_holds_for_the_place_that_was_asked_about(
    harness: DiskHarness, tmp_path: Path, made: ToolCall, swapped: bool
) -> None:
    places = [tmp_path / "shown", tmp_path / "other"]
    for place in places:
        place.mkdir()
    (harness.tree / "a.txt").write_text("x")
    way = harness.tree / "way"
    way.symlink_to(places[0])
    rules = Rules(base=str(harness.tree))
    async with harness.session(Script(says(made)), rules=rules) as session:
        running = asyncio.create_task(turn(session, "write"))
        asked = await question(session)
        running.cancel()
        await asyncio.wait([running])
    if swapped:
        way.unlink()
        way.symlink_to(places[1])
    async with harness.session(Script(says("so")), create=False, rules=rules) as session:
        session.tell(Answer(asked.call, "allow", digest=approval_digest(asked)))
        running = asyncio.create_task(turn(session, Continue()))
        if swapped:
            again = await question(session, after=asked)
            assert (again.places == asked.places, again.shown) == (False, asked.shown)
            session.tell(Answer(asked.call, "deny", digest=approval_digest(again)))
        await running
    assert [(place / "new.txt").exists() for place in places] == [not swapped, False]
