"""The budget and the fold over random fleets, which an executor without processes runs."""

import asyncio
import random
from collections.abc import AsyncGenerator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from longrein_fleet.budget import FleetBudget
from longrein_fleet.executor import Attempt
from longrein_fleet.fleet_log import open_fleet_log
from longrein_fleet.fleet_state import (
    AnyEvent,
    AttemptEnded,
    Cause,
    FleetOpened,
    FleetResumed,
    TaskStarted,
    decode_events,
    encode_event,
    state_of,
)
from longrein_fleet.fleet_tasks import Task, TaskLimits
from longrein_fleet.runner import Fleet

CAUSES: tuple[Cause, ...] = (
    *("done", "done", "check failed", "setup failed", "agent failed", "limit", "outage", "quota"),
)


class ChanceExecutor:
    """A stand-in for `Executor` without processes: attempts end by chance, in any order."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.submitted: list[Attempt] = []
        self.costs: dict[str, float] = {}
        self._running: list[Attempt] = []

    def submit(self, attempt: Attempt) -> None:
        self.submitted.append(attempt)
        self._running.append(attempt)

    def cancel(self, task: str) -> None:
        self._running = [one for one in self._running if one.task.id != task]

    async def events(self) -> AsyncGenerator[AttemptEnded, None]:
        while True:
            attempt = self._running.pop(self.chance.randrange(len(self._running)))
            before, limit = self.costs.get(attempt.session, 0.0), attempt.task.limits.usd or 0.0
            cost = self.chance.uniform(before, limit)
            self.costs[attempt.session] = cost
            cause = self.chance.choice(CAUSES)
            yield AttemptEnded(attempt.task.id, cause, "why", attempt.session, cost)

    async def close(self) -> None:
        self._running.clear()


def task(number: int, usd: float) -> Task:
    return Task(f"t{number}", "go", "/tmp", limits=TaskLimits(usd=usd))


async def play(folder: Path, seed: int) -> list[AnyEvent]:
    """Run a fleet of chance to its end, resumed whenever it pauses; return its log."""
    chance = random.Random(seed)
    tasks = tuple(task(n, chance.uniform(0.1, 2.0)) for n in range(chance.randrange(1, 12)))
    cap = chance.uniform(0.5, 8.0)
    log = await open_fleet_log(str(folder), f"f{seed}", lambda: 1)
    opened = FleetOpened("f", 1, tasks, chance.randrange(1, 4), chance.randrange(1, 3), cap)
    log.append(opened)
    executor = ChanceExecutor(chance)
    while True:
        async for _ in Fleet(log, executor).run():
            pass
        if not log.state.paused:
            break
        log.append(FleetResumed())
    assert all(one.status == "ended" for one in log.state.tasks.values())
    assert log.state.budget.spent_usd <= cap + 1e-6
    assert abs(log.state.budget.spent_usd - sum(executor.costs.values())) < 1e-6
    log.close()
    data = (folder / "fleets" / f"f{seed}" / "events.jsonl").read_bytes()
    return decode_events(data)[0]


@given(seed=st.integers(0, 10**9))
def test_any_prefix_of_the_events_is_a_valid_state_that_keeps_the_cap(
    tmp_path_factory: object, seed: int
) -> None:
    folder: Path = tmp_path_factory.mktemp("fleet")  # type: ignore[attr-defined]
    events = asyncio.run(play(folder, seed))
    for count in range(1, len(events) + 1):
        state = state_of(events[:count])
        assert state.budget.cap_usd is not None
        assert state.budget.spent_usd + state.budget.reserved_usd <= state.budget.cap_usd + 1e-6
        running = {one.task.id for one in state.running}
        assert set(state.budget.reserved) == running
        assert len(running) <= state.opened.concurrency
    ends = [event.id for event in events if isinstance(event, AttemptEnded)]
    starts = [event.id for event in events if isinstance(event, TaskStarted)]
    assert set(starts) <= set(ends)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1))), st.floats(0, 30))
def test_spent_and_reserved_never_pass_the_cap(
    asked: list[tuple[float, float]], cap: float
) -> None:
    budget = FleetBudget(cap)
    for number, (usd, share) in enumerate(asked):
        answer = budget.ask(usd)
        if answer == "fits":
            budget.reserve(f"t{number}", usd)
        elif answer == "wait" and budget.reserved:
            name, reserved = next(iter(budget.reserved.items()))
            budget.settle(name, reserved * share)
        assert budget.spent_usd + budget.reserved_usd <= cap + 1e-6
        assert answer != "wait" or budget.spent_usd > 0 or usd <= cap + 1e-6


def test_a_log_that_was_cut_anywhere_is_read_without_its_torn_line() -> None:
    events: list[AnyEvent] = [FleetOpened("f", 1, (task(1, 1.0),)), TaskStarted("t1", 1, "s", 1.0)]
    data = b"".join(map(encode_event, events))
    first = len(encode_event(events[0]))
    for size in range(len(data) + 1):
        whole = (size >= first) + (size == len(data))
        assert decode_events(data[:size]) == (events[:whole], (0, first, len(data))[whole])
