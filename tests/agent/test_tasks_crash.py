"""What a kill leaves of background tasks: each end written once and told once, nothing invented,
nothing run twice.
"""

import asyncio
import re
from collections import Counter
from random import Random
from typing import Any

import pytest

from longrein.models import Reply
from longrein.testing.harness import results, said
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein.testing.workspace import Ran
from longrein_context import Request
from longrein_context.events import Reminded, TaskEnded, TaskStarted, ToolEnded, text_of
from tests.agent.disk_harness import turn
from tests.agent.memory_harness import MemoryHarness, background, one_turn, words
from tests.seeds import seeds


def named(text: str) -> list[str]:
    """Task ids that a notice names, ranges written out."""
    found = []
    for line in text.split("\n")[1:]:
        if not line.startswith("* "):
            continue
        if not line.startswith("* and "):
            found.append(line[2:].partition(" ")[0].rstrip(":"))
            continue
        for first, last in re.findall(r"\bb(\d+)(?:-b(\d+))?\b", line.partition("here: ")[2]):
            found += [f"b{n}" for n in range(int(first), int(last or first) + 1)]
    return found


def notified(harness: MemoryHarness) -> Counter[str]:
    """How often the log tells the end of each task: by a notice, or by the result of a call that
    asked.
    """
    told: Counter[str] = Counter()
    for entry in harness.disk.entries():
        if isinstance(entry.event, Reminded) and entry.event.kind in ("bg_done", "bg_lost"):
            told.update(named(entry.event.text))
        if isinstance(entry.event, ToolEnded) and entry.event.name in ("TaskOutput", "TaskStop"):
            text = text_of(entry.event.parts)
            told.update(re.findall(r"^(b\d+) (?:done|failed|killed|lost)", text))
    return told


def test_B8_two_hundred_tasks_are_each_told_once_in_bounded_text() -> None:
    count = 200
    harness = MemoryHarness(
        lambda line: Ran("x\n", code=int(line.split()[1]), delay_s=5), tasks_max=count
    )
    random = Random(8)
    batches = [
        [background(f"run {random.choice([0, 0, 0, 1])} {n}") for n in range(50)]
        for _ in range(count // 50)
    ]
    model = ScriptedModel(
        *(says(*batch) for batch in batches),
        says("waiting"),
        says("all are over"),
        wait=lambda: harness.clock.sleep(60 if not model.steps[1:] else 0),
    )
    one_turn(harness, model)
    assert Counter(end.task for end in harness.of(TaskEnded)) == Counter(
        f"b{n}" for n in range(1, count + 1)
    )
    assert notified(harness) == Counter(f"b{n}" for n in range(1, count + 1))
    (text,) = [
        text for text in said(model.requests[-1]) if text.startswith("[longrein:n0nce bg_done:")
    ]
    assert len(text) < 12_000
    assert not harness.supervision.spool


def _told(task: str, shown: str) -> bool:
    return (
        re.search(
            rf"^(?:\* |Task\w+ ok: ){task} .*(?:done|failed|killed|lost)", shown, re.MULTILINE
        )
        is not None
    )


def queued(harness: MemoryHarness) -> list[str]:
    return [start.task for start in harness.of(TaskStarted) if start.state == "queued"]


class Busy:
    """A model that starts tasks at random, looks at some of them, and ends its turn now and
    then.
    """

    provider, model, wire, name = "test", "busy", "scripted", "test/busy"

    def __init__(self, harness: MemoryHarness, tasks: int, seed: int) -> None:
        self.inner = ScriptedModel()
        self.budget = self.inner.budget
        self.harness, self.left, self.random = harness, tasks, Random(seed)

    def answer(self, request: Request) -> Reply:
        random, calls = self.random, []
        for _ in range(min(self.left, random.randint(0, 12))):
            self.left -= 1
            command = f"run {random.choice([0, 1])} {random.random() * 6:.3f}"
            promoted = random.random() < 0.2
            calls.append(
                call("Bash", command=command, timeout=700) if promoted else background(command)
            )
        shown = "\n".join([*said(request), *results(request)])
        going = [
            task
            for task in re.findall(r"(?:background|Queued) as (b\d+)", shown)
            if not _told(task, shown)
        ]
        if going and random.random() < 0.3:
            calls.append(
                call(random.choice(["TaskOutput", "TaskStop"]), task_id=random.choice(going))
            )
        if self.left and not calls:
            calls.append(call("Bash", command=f"run 0 {random.random() * 2:.3f}"))
        return says("a step", *calls)

    async def stream(self, request: Request) -> Any:
        self.inner.steps.append(self.answer)
        async for batch in self.inner.stream(request):
            await self.harness.clock.sleep(self.random.random() * 0.4)
            yield batch

    async def aclose(self) -> None:
        return


@pytest.mark.parametrize(("seed", "places"), [(seed, (3, 170)[seed % 2]) for seed in seeds(2)])
def test_B8_each_end_is_told_once_through_kills_and_resumes(seed: int, places: int) -> None:
    """Hundreds of tasks; longrein is killed again and again, at any instant."""
    tasks = 170

    def ran(line: str) -> Ran:
        _, code, delay = line.split()
        return Ran("out\n", code=int(code), delay_s=float(delay))

    harness = MemoryHarness(ran, tasks_max=places)
    random = Random(seed)
    harness.disk.delay = lambda: random.random() * 0.3  # so that a kill finds writes on their way
    model = Busy(harness, tasks, seed)

    async def work() -> None:
        while True:
            session = harness.open(model)  # type: ignore[arg-type]
            session.paused = False
            if not session.state.turn_open:
                session.tell(words("go on"))
            walk = asyncio.ensure_future(session.run(once=True))
            nap = asyncio.ensure_future(harness.clock.sleep(random.random() * 4))
            await asyncio.wait((walk, nap), return_when=asyncio.FIRST_COMPLETED)
            if random.random() < 0.3 and not walk.done():
                session.interrupt()
                await asyncio.wait((walk, asyncio.ensure_future(harness.clock.sleep(0.01))))
            if walk.done() and not model.left:
                walk.result()
                break
            await harness.crash(session, walk)
            await harness.clock.sleep(random.random() * 3)
        session.stay("drain", 60)
        await session.run(once=True)
        await turn(session, words("what has ended?"))
        await session.close()

    harness.run(work)
    started = [
        start.task
        for start in harness.of(TaskStarted)
        if start.state == "queued" or start.task not in queued(harness)
    ]
    assert len(started) == len(set(started))
    assert Counter(end.task for end in harness.of(TaskEnded)) == Counter(started), (
        "each end is written once"
    )
    assert {task: n for task, n in notified(harness).items() if n != 1} == {}
    assert set(notified(harness)) == set(started), "and told once"
    assert not harness.supervision.spool, "all are written down, none is unknown"
    lost = [end for end in harness.of(TaskEnded) if end.state == "lost"]
    assert all(end.code is None and end.cause for end in lost)
    assert not {end.task for end in lost} & set(harness.supervision.ever_kept), (
        "only what was killed before it was kept"
    )
