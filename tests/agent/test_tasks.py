"""Background tasks in virtual time: what is written down, when the model is told, and what a
crash leaves of it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lab.support.supervision import MemoryProcess, MemorySupervision
from longrein.agent import OpenSession, StopTask, TaskOptions
from longrein.agent.background.task_control import BackgroundControl
from longrein.agent.model_request import MEANWHILE_S
from longrein.permissions import Rules
from longrein.testing.harness import open_test_session, results, said, story
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein.testing.workspace import Ran
from longrein.workspace import CommandExit
from longrein_context.events import TaskEnded, TaskStarted
from tests.agent.disk_harness import turn
from tests.agent.memory_harness import MemoryHarness, background, one_turn, take_steps, talk, words
from tests.tables import cases, row


def test_a_task_runs_while_the_turn_ends_and_its_end_wakes_the_agent() -> None:
    harness = MemoryHarness({"make": Ran("built\n", delay_s=40)})
    model = ScriptedModel(says(background("make")), says("it builds"), says("it is built"))
    seen: list[Any] = []
    look = lambda session: seen.append((harness.clock.elapsed_s < 1, session.tasks()[0].state))  # noqa: E731
    take_steps(harness, model, "build", look, 60, "", look)
    model.check_done()
    assert seen == [(True, "running"), (False, "done")]
    assert "Started in the background as b1." in results(model.requests[1])[0]
    assert story(harness.disk.entries()).endswith(
        "TurnEnded TaskEnded Reminded Reminded Asked Replied TurnEnded"
    )
    notice = said(model.requests[2])[-1]
    assert notice.startswith(
        "[longrein:n0nce bg_done: background tasks have ended]\n* b1 (make): done, exit code 0"
    )
    assert notice.endswith("\n| built\n[longrein:n0nce end]")
    ended = harness.of(TaskEnded)[0]
    assert (ended.task, ended.state, ended.code, ended.elapsed_ms, ended.tail) == row(
        "b1", "done", 0, 40_000, "built"
    )
    assert harness.disk.blobs()[ended.output] == b"built\n"
    assert not harness.supervision.spool, "settled"


# --- from the foreground to the background --------------------------------------------------------


def test_B1_a_command_that_passes_its_time_goes_on_in_the_background() -> None:
    harness = MemoryHarness({"npm i": Ran("1\n2\n3\n4\n", delay_s=400)})
    model = ScriptedModel(says(call("Bash", command="npm i", timeout=110_000)), says("it goes on"))
    one_turn(harness, model)
    assert results(model.requests[1])[0] == (
        "Bash ok: 1\n2\n[not over after 110 s: it goes on in the background as b1. A note tells "
        "its end; until then TaskOutput shows what it prints and TaskStop(b1) ends it.]"
    )
    started = harness.of(TaskStarted)[0]
    assert (started.promoted, started.policy, started.call) == ("timeout", "stop", "c5.0")
    assert story(harness.disk.entries()).count("ToolStarted TaskStarted ToolEnded") == 1
    assert len(harness.supervision.started) == 1, "one and the same process"


@pytest.mark.parametrize(("profile", "promote"), [("seed", True), ("default", False)])
def test_B3_without_promotion_it_is_ended_and_model_is_told_so(profile: str, promote: bool) -> None:
    harness = MemoryHarness(
        {"npm i": Ran("1\n", delay_s=400)}, options=TaskOptions(promote=promote)
    )
    harness.profile = profile
    model = ScriptedModel(says(call("Bash", command="npm i", timeout=110_000)), says("it goes on"))
    one_turn(harness, model)
    (told,) = results(model.requests[1])
    assert told.partition(" ")[2] == (
        "failed: 1\n[timed out after 110 s and was ended; timeout may be up to 600000 ms]"
    )
    assert not harness.of(TaskStarted)


def test_the_user_sends_a_command_to_the_background() -> None:
    harness = MemoryHarness(
        {"npm i": Ran("", delay_s=100), "ls": Ran("a")}, options=TaskOptions(promote=False)
    )
    model = ScriptedModel(says(call("Bash", command="npm i")), says("fine"))
    pressed: list[bool] = []
    press = lambda session: pressed.append(session.background())  # noqa: E731
    talk(harness, model, 20, {0: press, 3: press, 3.01: press})
    assert pressed == [False, True, False], "once is enough"
    assert results(model.requests[1])[0].startswith(
        "Bash ok: [the user sent it to the background: it goes on as b1."
    )
    assert harness.of(TaskStarted)[0].promoted == "user"


def test_an_interrupt_ends_a_foreground_command_and_leaves_a_task_alone() -> None:
    harness = MemoryHarness({"sleep": Ran("", hang=True), "server": Ran("", hang=True)})
    model = ScriptedModel(
        says(background("server")), says(call("Bash", command="sleep")), says("never asked")
    )
    seen: list[Any] = []

    def look(session: OpenSession) -> None:
        seen.extend(
            [[process.line for process in harness.supervision.running], session.tasks()[0].state]
        )

    talk(harness, model, 3, {1: lambda session: session.interrupt(), 2: look})
    assert seen == [["server"], "running"]


# --- places ---------------------------------------------------------------------------------------


def test_B2_more_tasks_than_places_wait_in_order_and_none_is_lost() -> None:
    harness = MemoryHarness(lambda line: Ran("", delay_s=float(line.split()[1])), tasks_max=2)
    model = ScriptedModel(
        says(*(background(f"sleep {n}") for n in (6, 4, 2, 1))), says("all started"), says("ended")
    )
    model.steps += [says("ended")] * 3
    seen: list[list[str]] = []
    take_steps(
        harness,
        model,
        "go",
        lambda session: seen.append([view.state for view in session.tasks()]),
        10,
        "",
    )
    assert seen == [["queued", "queued", "running", "running"]]
    assert [(e.task, e.state) for e in harness.of(TaskEnded)] == [
        (f"b{n}", "done") for n in (2, 1, 3, 4)
    ]
    shown = results(model.requests[1])
    assert shown[2].startswith("Bash ok: Queued as b3: as many tasks as may run at once do.")
    assert [(s.task, s.state) for s in harness.of(TaskStarted)] == [
        ("b1", "running"), ("b2", "running"), ("b3", "queued"), ("b4", "queued"), ("b3", "running"),
        ("b4", "running"),
    ]  # fmt: skip


class SlowStart(MemorySupervision):
    """Each command needs a second to begin."""

    async def start(self, command: str | Sequence[str], **more: Any) -> MemoryProcess | CommandExit:
        await self.clock.sleep(1)
        return await super().start(command, **more)


@cases(
    "at_s lines",
    (4.5, ["b1 queued", "b2 running", "b2 done", "b1 killed"]),
    (7, ["b1 queued", "b2 running", "b2 done", "b1 running", "b1 killed"]),
)
def test_a_queued_task_stopped_at_its_start_does_not_go_on(at_s: float, lines: list[str]) -> None:
    """b2 begins after 1 s, works 3 s, then b2 has its place and begins a second later."""
    harness = MemoryHarness({}, tasks_max=1)
    harness.supervision = SlowStart(
        lambda line: Ran("", delay_s=float(line.split()[1])), harness.clock
    )
    harness.disk.spool = harness.supervision.files
    model = ScriptedModel(says(background("sleep 3"), background("sleep 99")), *[says("fine")] * 4)

    async def stopping(session: OpenSession) -> None:
        walk = asyncio.ensure_future(session.run(once=False))
        await harness.clock.sleep(at_s - harness.clock.elapsed_s)
        session.tell(StopTask("b1"))
        await harness.clock.sleep(20)
        assert [(view.id, view.state) for view in session.tasks()] == [
            ("b2", "done"),
            ("b1", "killed"),
        ]
        pool = session.part(BackgroundControl).pool
        assert (pool.slots.inside, list(harness.supervision.running)) == (0, [])
        await session.close()
        await walk

    take_steps(harness, model, "go", stopping)
    told = [e.event for e in harness.disk.entries() if isinstance(e.event, TaskStarted | TaskEnded)]
    assert [f"{one.task} {one.state}" for one in told] == lines
    assert [e.task for e in harness.of(TaskEnded)] == ["b2", "b1"]


@cases(
    "mode allow near",
    ("bypassPermissions", (), True),
    ("default", ("Bash(make *)",), True),
    ("default", ("Read", "Write"), False),  # somebody is asked first: there is time enough then
    ("plan", ("Bash",), False),
)
def test_what_starts_commands_is_started_beside_a_request_where_one_may_run_unasked(
    mode: str, allow: tuple[str, ...], near: bool
) -> None:
    harness = MemoryHarness({})
    harness.supervision.alive = False
    model = ScriptedModel(says("nothing to do"), wait=lambda: asyncio.sleep(2 * MEANWHILE_S))

    async def work() -> None:
        deps = harness.deps(model)
        deps.rules = Rules(allow)
        session = open_test_session(model, disk=harness.disk, deps=deps, mode=mode)
        await turn(session, words("go"))
        await session.close()

    harness.run(work)
    assert harness.supervision.alive is near
