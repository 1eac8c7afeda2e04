"""Trees deeper than one level: caps, waiting that holds no place, recursion bombs, one budget
for all.
"""

from typing import Any

import msgspec
import pytest

from longrein.agent import Limits
from longrein.models import Failure, Reply
from longrein.testing.harness import results, said
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein_context import Request
from longrein_context.events import SubagentEnded, ToolEnded, TurnEnded, Usage
from tests.agent.memory_harness import MemoryHarness, agent, tasks
from tests.tables import cases


class Bomb(ScriptedModel):
    """Every agent, on every level, hands its whole work to three more."""

    def __init__(self, harness: MemoryHarness) -> None:
        super().__init__()
        self.harness, self.at_once, self.most = harness, 0, 0

    def _next(self, request: Request) -> Reply | Failure:
        if not results(request) and "Agent" in [tool.name for tool in request.prefix.tools]:
            return says(tasks("go deeper", "go deeper", "go deeper"))
        return says("enough")

    async def stream(self, request: Request) -> Any:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await self.harness.clock.sleep(1)
        async for batch in super().stream(request):
            yield batch
        self.at_once -= 1

    def check_done(self) -> None:
        return


@cases("depth spawns most", (1, 200, 20), (3, 200, 20), (3, 10, 20), (2, 200, 1), (4, 30, 2))
def test_R070_a_recursion_bomb_ends_within_depth_and_number(
    depth: int, spawns: int, most: int
) -> None:
    harness = MemoryHarness(limits=Limits(depth_max=depth, spawns_max=spawns, agents_max=most))
    harness.model = bomb = Bomb(harness)  # type: ignore[assignment]
    harness.play("go deeper")
    logs = [harness.disk.entries(child) for child in harness.disk.children()]
    levels = [log[0].event.label.count(".") + 1 for log in logs]  # type: ignore[union-attr]
    assert max(levels) <= depth
    assert len(logs) <= spawns
    assert bomb.most <= most
    assert [e.event.reason for e in harness.disk.entries() if isinstance(e.event, TurnEnded)] == [
        "done"
    ]
    if depth == 3 and spawns == 200:
        assert sorted(levels) == [1] * 3 + [2] * 9 + [3] * 27
    ends = [
        e.event
        for log in [harness.disk.entries(), *logs]
        for e in log
        if isinstance(e.event, SubagentEnded)
    ]
    assert len(ends) == len(logs)
    assert {e.status for e in ends} == {"done"}


def test_R070_what_is_beyond_the_number_is_refused_with_a_reason() -> None:
    harness = MemoryHarness(
        limits=Limits(spawns_max=2),
        main=[says(tasks("ALPHA", "BETA", "GAMMA")), says("done")],
        ALPHA=[says("first")],
        BETA=[says("second")],
        GAMMA=[],
    )
    harness.play()
    assert "NOT STARTED" in harness.result()
    assert "no more subagents may be started in this session" in harness.result()
    assert len(harness.disk.children()) == 2


def test_a_label_below_names_the_whole_way_and_what_it_does_is_heard_at_the_root() -> None:
    harness = MemoryHarness(
        limits=Limits(depth_max=2),
        main=[says(agent("ALPHA")), says("done")],
        ALPHA=[says(agent("OMEGA")), says("above")],
        OMEGA=[says("below")],
    )
    harness.play()
    labels = {one.label for one in harness.heard if type(one).__name__ == "FromSubagent"}
    assert sorted(label.count(".") for label in labels) == [0, 1]
    deep = max(labels, key=len)
    assert deep.startswith(f"{min(labels, key=len)}.a")


def spending(usd: float, n: int) -> Reply:
    """A step that costs so much, by its output at 15 dollars a million tokens; each does
    something else.
    """
    reply = says("I work", call("Bash", command=f"work {n}"))
    return msgspec.structs.replace(reply, usage=Usage(output_tokens=int(usd / 15e-6)))


def test_R071_a_money_limit_is_one_for_the_whole_tree_and_the_parent_still_answers() -> None:
    def endless(request: Request) -> Reply:
        for part in ("ALPHA", "BETA"):
            if not harness.model.parts[part]:
                harness.model.parts[part].append(endless)
        return spending(0.02, len(request.items))

    harness = MemoryHarness(
        limits=Limits(usd_max=0.8),
        main=[says(tasks("ALPHA", "BETA")), says("what there is")],
        ALPHA=[endless],
        BETA=[endless],
    )
    for n in range(40):
        harness.commands[f"work {n}"] = f"did {n}"
    with pytest.raises(AssertionError, match="not played"):
        harness.play()
    ends = harness.of(SubagentEnded)
    assert [e.status for e in ends] == ["limit", "limit"]
    assert all("the money limit stands" in e.message for e in ends)
    spent = sum(e.cost_usd for e in ends)
    assert 0.2 < spent <= 0.8
    assert [e.reason for e in harness.of(TurnEnded)] == ["done"]


def test_a_type_that_always_works_in_the_background_reports_by_a_note() -> None:
    def told(request: Request) -> Reply:
        assert any("found it" in text for text in said(request))
        return says("I heard")

    harness = MemoryHarness(
        main=[says(agent("ALPHA", run_in_background=True)), says("I go on"), told],
        ALPHA=[says("found it")],
    )
    harness.play(stay=True)
    [call_ended] = harness.of(ToolEnded)
    assert "running in the background" in call_ended.parts[0].text
    assert [e.reason for e in harness.of(TurnEnded)] == ["done", "done"]


def test_a_subagent_that_wakes_for_its_own_in_the_background_reports_after_them() -> None:
    harness = MemoryHarness(
        limits=Limits(depth_max=2, agents_max=1),
        main=[says(agent("ALPHA")), says("done")],
        ALPHA=[
            says(agent("OMEGA", run_in_background=True)),
            says("not yet"),
            says("now I know: deep thing"),
        ],
        OMEGA=[says("deep thing")],
    )
    harness.play()
    assert "now I know" in harness.result()
