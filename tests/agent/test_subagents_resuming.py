"""A session with subagents is killed after each transaction and goes on: nothing runs twice,
each end is told once.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from longrein.agent import Continue, UserMessage
from longrein.agent.session_part import Subagents
from longrein.models import Reply
from longrein.testing.clock import run_virtual
from longrein.testing.harness import results, said, story
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein.testing.store import MemoryDisk
from longrein_context import Request
from longrein_context.events import (
    Entry,
    Reminded,
    SubagentEnded,
    SubagentStarted,
    Text,
    ToolEnded,
    ToolStarted,
    UserSpoke,
)
from tests.agent.disk_harness import turn
from tests.agent.memory_harness import MemoryHarness, tasks


class Actors(ScriptedModel):
    """Each conversation goes on from what it holds, so that it does not matter when it was cut."""

    def __init__(self, harness: MemoryHarness, *, background: bool = False) -> None:
        super().__init__()
        self.harness, self.background = harness, background

    def _next(self, request: Request) -> Reply:
        first = next(
            (text for text in said(request) if not text.startswith(("# ", "[longrein:"))), ""
        )
        done = results(request)
        if "PART" not in first:
            return self._root(done, said(request))
        if not done:
            return says("I begin.", call("Bash", command=f"run {first}"))
        return says(f"report of {first}")

    def _root(self, done: Sequence[str], texts: Sequence[str]) -> Reply:
        if not done:
            return says(tasks("PART-1", "PART-2", "PART-3", run_in_background=self.background))
        return says("all is told")

    async def stream(self, request: Request) -> Any:
        await self.harness.clock.sleep(0.5)
        async for batch in super().stream(request):
            yield batch


def staged(*, background: bool = False) -> MemoryHarness:
    harness = MemoryHarness()
    for n in (1, 2, 3):
        harness.commands[f"run PART-{n}"] = f"ran {n}"
    harness.model = Actors(harness, background=background)  # type: ignore[assignment]
    return harness


async def finish(harness: MemoryHarness, words: str = "") -> None:
    """One life, to its end."""
    session = harness.open(mode="bypassPermissions")
    session.deps.clock = harness.clock
    if words:
        session.tell(UserMessage((Text(words),)))
    elif session.state.turn_open:
        session.tell(Continue())
    await session.run(once=True)
    while (now := session.find(Subagents)) is not None and now.running:
        await now.settled()
        await session.run(once=True)
    # what was written down before the cut wakes nobody: it is told with the user's next words
    if not words:
        await turn(session, "and?")
    await session.close()


def whole(*, background: bool = False) -> MemoryDisk:
    harness = staged(background=background)
    run_virtual(finish(harness, "go"), clock=harness.clock)
    return harness.disk


def cut_after(disk: MemoryDisk, writes: int) -> MemoryHarness:
    """A harness on the disk as it was after so many transactions."""
    harness = staged()
    harness.disk.writes = [*disk.writes]
    harness.disk.reopen(writes=writes)
    harness.disk.kill()
    return harness


def check(harness: MemoryHarness) -> None:
    """Everything is there once."""
    entries = harness.disk.entries()
    starts = [e.event for e in entries if isinstance(e.event, SubagentStarted)]
    ends = [e.event for e in entries if isinstance(e.event, SubagentEnded)]
    assert [e.child for e in starts] == harness.disk.children()
    assert sorted(e.child for e in ends) == sorted(e.child for e in starts)
    assert len(starts) in (0, 3)
    for child in harness.disk.children():
        log = harness.disk.entries(child)
        assert [e.seq for e in log] == list(range(1, len(log) + 1))
        started = [e.event.call for e in log if isinstance(e.event, ToolStarted)]
        assert len(started) == len(set(started)) <= 1
    if starts:
        told = " ".join(
            text for e in entries if isinstance(e.event, ToolEnded | Reminded) for text in texts(e)
        )
        for n in (1, 2, 3):
            assert told.count(f"report of PART-{n}") == 1, told


def texts(entry: Entry) -> list[str]:
    event = entry.event
    return [event.text] if isinstance(event, Reminded) else [part.text for part in event.parts]  # type: ignore[union-attr]


@pytest.mark.parametrize("background", [False, True], ids=["awaited", "background"])
def test_R073_killed_after_each_transaction_the_tree_goes_on(background: bool) -> None:
    disk = whole(background=background)
    assert len(disk.writes) > 15
    for writes in range(2, len(disk.writes)):
        harness = cut_after(disk, writes)
        harness.model.background = background  # type: ignore[attr-defined]
        if not any(isinstance(e.event, UserSpoke) for e in harness.disk.entries()):
            continue
        run_virtual(finish(harness), clock=harness.clock)
        try:
            check(harness)
        except AssertionError as error:
            raise AssertionError(
                f"cut after {writes}: {story(cut_after(disk, writes).disk.entries())}"
            ) from error


def test_a_session_that_is_left_in_the_middle_goes_on_with_its_subagents() -> None:
    harness = staged()

    async def leave() -> None:
        session = harness.open()
        walk = asyncio.ensure_future(turn(session, "go"))
        await harness.clock.sleep(1.2)
        assert [view.state for view in session.agents()] == ["running"] * 3
        await session.close()
        await walk

    run_virtual(leave(), clock=harness.clock)
    assert harness.of(SubagentEnded) == []
    run_virtual(finish(harness), clock=harness.clock)
    check(harness)
    assert [e.status for e in harness.of(SubagentEnded)] == ["done"] * 3


def test_where_the_tool_is_gone_after_a_crash_its_call_is_closed_and_its_subagents_end() -> None:
    disk = whole()
    began = next(
        n
        for n in range(len(disk.writes))
        if "SubagentStarted" in story(cut_after(disk, n).disk.entries())
    )
    harness = cut_after(disk, began)

    async def without() -> None:
        session = harness.open()
        session.deps.tools = {
            name: tool for name, tool in session.deps.tools.items() if name != "Agent"
        }
        await turn(session, Continue())
        while (now := session.find(Subagents)) is not None and now.running:
            await now.settled()
            await session.run(once=True)
        await session.close()

    run_virtual(without(), clock=harness.clock)
    assert [e.status for e in harness.of(ToolEnded)] == ["failed"]
    assert [e.status for e in harness.of(SubagentEnded)] == ["interrupted"] * 3
