"""A provider that refuses: what it tells one agent holds for all, nobody gives up early, and the
parent is answered.
"""

import asyncio
from typing import Any

from longrein.models import Failure, Reply
from longrein.testing.scripted_model import call, says
from longrein.tools import tool
from longrein_context import Request
from longrein_context.events import Asked, SubagentEnded
from tests.agent.memory_harness import MemoryHarness, tasks

NAMES = [f"PART{n}" for n in range(8)]


def test_R073_a_wait_that_one_agent_is_told_holds_for_all() -> None:
    harness = MemoryHarness(
        main=[says(tasks("ALPHA", "BETA")), says("done")],
        ALPHA=[Failure("rate", "slow down", 429, 20.0), says("first")],
        BETA=[says(call("Read", file_path="/w/a.py")), says("second")],
    )
    harness.model.latency_s = {"ALPHA": 0.1, "BETA": 1.0}
    harness.play()
    assert [e.status for e in harness.of(SubagentEnded)] == ["done", "done"]
    beta = harness.disk.entries(harness.disk.children()[1])
    times = [(e.at - harness.clock.start_us) / 1e6 for e in beta if isinstance(e.event, Asked)]
    assert times[0] < 1
    assert times[1] > 20


def test_R073_a_storm_of_refusals_is_over_without_a_lost_agent_and_without_a_rush() -> None:
    """The provider takes one request a second and refuses all others, as a busy one does."""
    taken: list[float] = []
    refused = 0

    def busy(request: Request) -> Reply | Failure:
        nonlocal refused
        now = harness.clock.elapsed_s
        if taken and now - taken[-1] < 1:
            refused += 1
            harness.model.parts[part_of(request)].insert(0, busy)
            return Failure("rate", "slow down", 429, 1.0)
        taken.append(now)
        return says(f"report of {part_of(request)}")

    def part_of(request: Request) -> str:
        return next(
            name for name, heard in harness.model.by_part.items() if heard and heard[-1] is request
        )

    parts: dict[str, Any] = {name: [busy] for name in NAMES}
    harness = MemoryHarness(main=[says(tasks(*NAMES)), says("done")], **parts)
    harness.play()
    assert [e.status for e in harness.of(SubagentEnded)] == ["done"] * 8
    assert refused < 30, "nobody hammers"
    assert harness.clock.elapsed_s < 60


def test_R070_a_subagent_that_hangs_is_ended_and_the_parent_answers() -> None:
    @tool(access="none")
    async def Hang() -> str:
        """Never comes back."""
        await asyncio.Event().wait()
        return ""

    harness = MemoryHarness(
        main=[says(tasks("ALPHA", "BETA")), says("done")],
        ALPHA=[says("I begin", call("Hang"))],
        BETA=[says("fine")],
    )
    harness.more = (Hang,)
    harness.play()
    ends = harness.of(SubagentEnded)
    assert [(e.status, e.message) for e in ends] == [
        ("limit", "no progress: nothing has happened for 10 minutes"),
        ("done", ""),
    ]
    assert "I begin" in harness.result()
    assert harness.clock.elapsed_s < 2 * 3600
