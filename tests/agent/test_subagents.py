"""Subagents as sessions: started in one transaction, walked by the same loop, ended as facts;
whole trees in memory.
"""

import pytest

from longrein.agent import Limits, OpenSession, Pin
from longrein.models import Failure, Reply
from longrein.testing.harness import said, story
from longrein.testing.scripted_model import call, says
from longrein.testing.workspace import Ran
from longrein_context import Request
from longrein_context.events import (
    Opened,
    PrefixSet,
    Reminded,
    SubagentEnded,
    SubagentStarted,
    ToolEnded,
    UserSpoke,
)
from tests.agent.memory_harness import MemoryHarness, agent, tasks


def test_E15_a_subagent_has_its_own_log_an_empty_conversation_and_no_agents_of_its_own() -> None:
    harness = MemoryHarness(
        main=[says(agent("ALPHA: what is in a.py?")), says("It holds a = 1.")],
        ALPHA=[says("I look.", call("Read", file_path="/w/a.py")), says("a.py holds a = 1")],
    )
    harness.play("what does the file hold?")
    child = harness.disk.children()[0]
    assert story(harness.disk.entries(child)) == (
        "Opened PrefixSet ModeSet UserSpoke Asked Replied ToolStarted FileSeen ToolEnded Asked "
        "Replied TurnEnded"
    )
    assert "SubagentStarted SubagentEnded ToolEnded" in story(harness.disk.entries())
    first = harness.model.by_part["ALPHA"][0]
    assert "what does the file hold?" not in " ".join(said(first))
    assert "Agent" not in [tool.name for tool in first.prefix.tools]
    assert [tool.name for tool in first.prefix.tools] != [
        t.name for t in harness.model.by_part["main"][0].prefix.tools
    ]
    assert "| a.py holds a = 1" in harness.result()
    assert harness.result().count("a = 1") == 1  # one result, the report alone


def test_E15_start_and_opening_are_one_transaction_and_so_are_end_and_result() -> None:
    harness = MemoryHarness(main=[says(agent("ALPHA")), says("done")], ALPHA=[says("found")])
    harness.play()
    child = harness.disk.children()[0]
    born = next(write for write in harness.disk.writes if child in write.below)
    assert [type(e.event) for e in born.entries][-1] is SubagentStarted
    assert [type(e.event) for e in born.below[child]] == [
        Opened,
        PrefixSet,
        type(born.below[child][2].event),
        UserSpoke,
    ]
    over = next(
        write
        for write in harness.disk.writes
        if any(isinstance(e.event, SubagentEnded) for e in write.entries)
    )
    assert any(isinstance(e.event, ToolEnded) for e in over.entries)


def test_each_of_several_tells_its_own_time() -> None:
    harness = MemoryHarness(
        main=[says(tasks("ALPHA", "BETA", "GAMMA")), says("done")],
        ALPHA=[says("first")],
        BETA=[Failure("auth", "the key was refused", 401)],
        GAMMA=[says("third")],
    )
    harness.model.latency_s = {"ALPHA": 90, "BETA": 20, "GAMMA": 30}
    times: list[int] = []
    harness.play(
        at={60: lambda session: times.extend(round(view.elapsed_s) for view in session.agents())}
    )
    assert times == [60, 20, 30]
    assert [round(end.elapsed_ms / 1000) for end in harness.of(SubagentEnded)] == [90, 20, 30]
    titles = [
        line.rpartition(", ")[2] for line in harness.result().splitlines() if line.startswith("[")
    ]
    assert titles == ["90 s", "20 s", "30 s"]


@pytest.mark.parametrize("most", [1, 5])
def test_E17_E18_no_more_than_cap_work_at_once_and_are_told_in_the_order_asked(most: int) -> None:
    names = [f"PART{n:02d}" for n in range(12)]
    harness = MemoryHarness(
        limits=Limits(agents_max=most),
        main=[says(tasks(*names)), says("done")],
        **{name: [says(f"report of {name}")] for name in names},
    )
    harness.model.latency_s = {name: 12 - n for n, name in enumerate(names)}
    harness.play()
    assert harness.model.most == most
    assert [line for line in harness.result().splitlines() if "report of" in line] == [
        f"| report of {n}" for n in names
    ]


def test_E20_R073_one_that_fails_is_a_report_and_the_others_are_delivered() -> None:
    def explode(_request: Request) -> Reply:
        raise RuntimeError("bug in the script")

    harness = MemoryHarness(
        main=[says(tasks("ALPHA", "BETA", "GAMMA", "DELTA")), says("done")],
        ALPHA=[says("fine")],
        BETA=[
            says("so far", call("Read", file_path="/w/a.py")),
            Failure("auth", "the key was refused", 401),
        ],
        GAMMA=[says(call("Read", file_path="/w/a.py")), explode],
        DELTA=[says("fine too")],
    )
    harness.play()
    told = harness.result()
    for words in (
        "| fine",
        "| fine too",
        "the key was refused",
        "so far",
        "RuntimeError: bug in the script",
    ):
        assert words in told, told
    ends = harness.of(SubagentEnded)
    assert [e.status for e in ends] == ["done", "failed", "failed", "done"]


@pytest.mark.parametrize("hours", [5, -5])
def test_a_clock_that_is_set_ends_no_subagent_and_makes_nothing_longer(hours: int) -> None:
    """Two hours are the limit of a task, an hour that of a quiet call."""
    make = call("Bash", command="make", timeout=600_000)
    harness = MemoryHarness(
        main=[says(agent("ALPHA")), says("done")], ALPHA=[says(make), says("made")]
    )
    harness.commands["make"] = Ran("ok", delay_s=300)

    def jump(_session: OpenSession) -> None:
        harness.clock.start_us += hours * 3_600_000_000

    times: list[float] = []
    harness.play(at={100: jump, 200: lambda session: times.append(session.agents()[0].elapsed_s)})
    assert 195 < times[0] < 205
    (end,) = harness.of(SubagentEnded)
    assert (end.status, end.message) == ("done", "")
    assert 300_000 <= end.elapsed_ms < 310_000
    assert not [told for told in harness.of(Reminded) if told.kind == "stuck"]


def test_what_subagents_do_is_heard_by_who_follows_the_root() -> None:
    harness = MemoryHarness(main=[says(agent("ALPHA")), says("done")], ALPHA=[says("found")])
    harness.play()
    heard = [one for one in harness.heard if type(one).__name__ == "FromSubagent"]
    kinds = [type(getattr(one.heard, "event", one.heard)).__name__ for one in heard]
    assert kinds[:3] == ["Opened", "PrefixSet", "ModeSet"]
    assert "ReplyDelta" in kinds
    assert kinds[-1] == "TurnEnded"
    started = next(e for e in harness.disk.entries() if isinstance(e.event, SubagentStarted))
    assert {(one.label, one.kind) for one in heard} == {(f"a{started.seq}", "general")}


def test_E16_a_second_subagent_does_not_know_the_first_and_one_that_is_asked_again_does() -> None:
    def again(request: Request) -> Reply:
        label = next(e for e in harness.disk.entries() if isinstance(e.event, SubagentStarted)).seq
        return says(agent("and BETA?", resume=f"a{label}"))

    harness = MemoryHarness(
        limits=Limits(spawns_max=2),
        main=[says(agent("ALPHA is 1")), says(agent("BETA is 2")), again, says("done")],
        ALPHA=[says("noted alpha"), says("still know alpha")],
        BETA=[says("noted beta")],
    )
    harness.play()
    assert "ALPHA" not in " ".join(said(harness.model.by_part["BETA"][0]))
    assert [t for t in said(harness.model.by_part["ALPHA"][1]) if "BETA" in t or "noted" in t] == [
        "noted alpha",
        "and BETA?",
    ]
    starts = harness.of(SubagentStarted)
    assert (starts[2].child, starts[2].again > 0) == (starts[0].child, True)
    assert len(harness.disk.children()) == 2
    assert [e.steps for e in harness.of(SubagentEnded)] == [1, 1, 1]


def test_one_that_is_asked_again_has_left_its_log_before(monkeypatch: pytest.MonkeyPatch) -> None:
    left = []
    close = OpenSession.close

    async def slowly(session: OpenSession) -> None:
        await harness.clock.sleep(10)
        await close(session)
        left.append(session.state.label)

    def again(_request: Request) -> Reply:
        return says(agent("and BETA?", resume=harness.labels()[0]))

    def twice(_request: Request) -> Reply:
        return says(" ".join(["left by", *left]))

    harness = MemoryHarness(
        main=[says(agent("ALPHA is 1")), again, says("done")], ALPHA=[says("noted alpha"), twice]
    )
    monkeypatch.setattr(OpenSession, "close", slowly)
    harness.play()
    assert f"left by {harness.labels()[0]}" in harness.result()


def test_E15_a_subagent_inherits_pins_and_static_context() -> None:
    harness = MemoryHarness(main=[says(agent("ALPHA")), says("done")], ALPHA=[says("found")])
    harness.first = (Pin("never push to main"),)
    harness.play()
    [request] = harness.model.by_part["ALPHA"]
    assert said(request)[0] == "# /w"
    assert any("never push to main" in text for text in said(request))
    opened = harness.disk.entries(harness.disk.children()[0])[0].event
    assert isinstance(opened, Opened)
    assert opened.pins == ("never push to main",)
