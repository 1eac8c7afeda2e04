"""Reports combined by one more subagent, also after a crash."""

import asyncio

from longrein.agent import Continue, OpenSession, UserMessage
from longrein.context import Request
from longrein.events import ChildEnded, ChildStarted, Text, ToolEnded
from longrein.models import Reply
from longrein.testing.clock import run_virtual
from longrein.testing.harness import results, said
from longrein.testing.scripted_model import says
from tests.agent.subagent_harness import SubagentHarness, agent, tasks

GOAL = "which port does the server use?"


def weigh(request: Request) -> Reply:
    """The synthesis sees both reports with their labels."""
    told = " ".join(said(request))
    assert "port 80" in told
    assert "port 8080" in told
    assert GOAL in told
    return says("They contradict: 80 and 8080. It is 8080.")


def split(**more: object) -> SubagentHarness:
    harness = SubagentHarness(
        main=[says(tasks("ALPHA", "BETA", synthesis=GOAL, **more)), says("go on")],
        SYNTH=[weigh],
        ALPHA=[says("port 80")],
        BETA=[says("port 8080")],
    )
    harness.model.names = {"The goal: which port": "SYNTH"}
    return harness


def test_E19_a_synthesis_reads_all_reports_and_the_raw_ones_stay_in_reach() -> None:
    harness = split()
    harness.play()
    told = harness.result()
    assert "| They contradict: 80 and 8080. It is 8080." in told
    for label in harness.labels()[:2]:
        assert f'Recall("{label}/r' in told
    assert [e.kind for e in harness.events(ChildStarted)] == ["general", "general", "synthesis"]
    assert [e.index for e in harness.events(ChildStarted)] == [0, 1, 2]
    synth = harness.model.by_part["SYNTH"][0]
    assert {tool.name for tool in synth.prefix.tools} <= {"Read", "Grep", "Glob", "Recall"}


def test_one_call_is_cancelled_and_its_neighbour_goes_on() -> None:
    harness = SubagentHarness(
        main=[says(agent("ALPHA"), agent("BETA")), says("done")],
        ALPHA=[says("whole")],
        BETA=[],
    )
    harness.model.latency_s = {"BETA": 99, "ALPHA": 5}

    async def cancel(session: OpenSession) -> None:
        await harness.clock.sleep(2)
        session.cancel(next(call for call in session.state.calls if call.endswith(".1")))

    harness.play(meanwhile=cancel)
    assert [e.status for e in harness.events(ToolEnded)] == ["interrupted", "ok"]
    assert sorted(e.status for e in harness.events(ChildEnded)) == ["done", "interrupted"]
    assert "| whole" in " ".join(results(harness.model.by_part["main"][-1]))


def test_E19_killed_while_the_synthesis_works_it_goes_on_and_nobody_works_twice() -> None:
    harness = split()
    harness.model.latency_s = {"The goal": 30}

    async def first() -> None:
        session = harness.open()
        session.tell(UserMessage((Text("go"),)))
        walk = asyncio.ensure_future(session.run(once=True))
        await harness.clock.sleep(3)
        harness.disk.kill()
        walk.cancel()

    async def second() -> None:
        session = harness.open()
        session.tell(Continue())
        await session.run(once=True)
        await session.close()

    run_virtual(first(), clock=harness.clock)
    assert [e.status for e in harness.events(ChildEnded)] == ["done", "done"]
    run_virtual(second(), clock=harness.clock)
    harness.model.check_done()
    assert [e.kind for e in harness.events(ChildStarted)] == ["general", "general", "synthesis"]
    assert [e.status for e in harness.events(ChildEnded)] == ["done"] * 3
    assert "They contradict" in harness.result()
