"""Tasks of subagents: ids that say whose they are, places that the whole tree shares, nothing
left behind.
"""

import re

from longrein.agent import OpenSession, StopTask
from longrein.testing.harness import results, said
from longrein.testing.scripted_model import call, says
from longrein.testing.workspace import Ran
from longrein_context.events import TaskEnded, TaskStarted
from tests.agent.memory_harness import MemoryHarness, agent, background


def test_a_subagents_task_bears_its_label_and_is_told_to_it_alone() -> None:
    shop = MemoryHarness(
        {"make": Ran("built\n", delay_s=2), "touch x": Ran("", delay_s=5)},
        main=[says(agent("ALPHA: build it")), says("done")],
        ALPHA=[
            says(background("make")),
            says(call("Bash", command="touch x")),
            says("it is built"),
        ],
    )
    shop.play()
    (started,) = shop.below(TaskStarted)
    assert started.task == f"{shop.labels()[0]}.b1"
    assert [end.state for end in shop.below(TaskEnded)] == ["done"]
    assert not shop.of(TaskStarted)
    told = [text for text in said(shop.model.by_part["ALPHA"][-1]) if "bg_done" in text]
    assert len(told) == 1
    assert not [text for text in said(shop.model.by_part["main"][-1]) if "bg_done" in text]


def test_what_a_subagent_leaves_running_is_ended_with_it() -> None:
    shop = MemoryHarness(
        {"server": Ran("up\n", hang=True)},
        main=[says(agent("ALPHA: serve")), says("done")],
        ALPHA=[says(background("server")), says("it runs")],
    )
    shop.play()
    assert [(end.state, end.cause) for end in shop.below(TaskEnded)] == [
        ("killed", "stopped by longrein on leaving")
    ]
    assert not shop.supervision.running
    assert not shop.supervision.spool
    (result,) = results(shop.model.by_part["main"][-1])
    left = re.search(
        r"note: what it left running in the background was ended with it: a\d+\.b1 \(`server`\)\n",
        result,
    )
    assert left is not None, result


def test_the_user_sees_and_stops_tasks_of_subagents() -> None:
    seen: list[str] = []
    shop = MemoryHarness(
        {"server": Ran("up\n", hang=True), "touch x": Ran("", delay_s=9)},
        main=[says(agent("ALPHA: serve")), says("done")],
        ALPHA=[
            says(background("server")),
            says(call("Bash", command="touch x")),
            says("it was stopped"),
        ],
    )

    async def meanwhile(session: OpenSession) -> None:
        await shop.clock.sleep(3)
        seen.extend(view.id for view in session.tasks())
        await session.tell(StopTask(seen[0]))

    shop.play(meanwhile=meanwhile)
    assert seen == [f"{shop.labels()[0]}.b1"]
    assert [(end.state, end.cause) for end in shop.below(TaskEnded)] == [
        ("killed", "stopped by the user")
    ]


def test_places_are_those_of_the_whole_tree() -> None:
    shop = MemoryHarness(
        {"one": Ran("", delay_s=4), "two": Ran("", delay_s=1), "touch x": Ran("", delay_s=9)},
        tasks_max=1,
        main=[says(background("one")), says(agent("ALPHA: two")), says("done")],
        ALPHA=[says(background("two")), says(call("Bash", command="touch x")), says("over")],
    )
    shop.play()
    assert [start.state for start in shop.below(TaskStarted)] == ["queued", "running"]
    assert [end.state for end in (*shop.of(TaskEnded), *shop.below(TaskEnded))] == ["done", "done"]
