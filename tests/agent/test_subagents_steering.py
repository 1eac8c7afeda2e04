"""Steering a tree of agents: interrupting all or one, words for one, questions one at a time,
what is forbidden.
"""

import asyncio
from typing import Any

import pytest

from longrein.agent import (
    Answer,
    Limits,
    OpenSession,
    SetMode,
    StopSubagent,
    SubagentView,
    UserMessage,
)
from longrein.agent.messages import FromSubagent
from longrein.models import Reply
from longrein.permissions import Rules
from longrein.testing.harness import results, said, story
from longrein.testing.scripted_model import call, says
from longrein.testing.workspace import Ran
from longrein.tools import SubagentType
from longrein_context import Request
from longrein_context.events import (
    Entry,
    Interrupted,
    ModeSet,
    PermissionAsked,
    SubagentEnded,
    Text,
    ToolEnded,
    TurnEnded,
)
from tests.agent.disk_harness import events_of
from tests.agent.memory_harness import MemoryHarness, agent, tasks
from tests.tables import cases


def test_E17_an_interrupt_ends_the_whole_tree_and_each_keeps_what_it_had() -> None:
    harness = MemoryHarness(
        limits=Limits(agents_max=2),
        main=[says(tasks("ALPHA", "BETA", "GAMMA")), says("I go on")],
        ALPHA=[says("I have begun.", call("Bash", command="sleep 99"))],
        BETA=[],
        GAMMA=[],
    )
    harness.commands["sleep 99"] = Ran("tick", delay_s=99)
    harness.model.latency_s = {"BETA": 50}

    async def go_on(session: OpenSession) -> None:
        assert not session.busy
        await session.tell(UserMessage((Text("go on"),)))
        await session.run(once=True)

    states: list[str] = []
    look = lambda session: states.extend(view.state for view in session.agents())  # noqa: E731
    harness.play(at={5: look, 5.1: lambda session: session.interrupt(), 6: go_on})
    assert states == ["running", "running", "queued"]
    assert [(e.status, e.report.split("\n")[0]) for e in harness.of(SubagentEnded)] == [
        ("interrupted", "I have begun."),
        ("interrupted", ""),
        ("interrupted", ""),
    ]
    assert story(harness.disk.entries()).endswith(
        "ToolStarted SubagentStarted SubagentStarted SubagentStarted SubagentEnded SubagentEnded "
        "SubagentEnded ToolEnded Interrupted TurnEnded UserSpoke Asked Replied TurnEnded"
    )
    for child in harness.disk.children():
        assert story(harness.disk.entries(child)).endswith("Interrupted TurnEnded")
    assert "I have begun." in harness.of(ToolEnded)[0].parts[0].text


def test_after_an_interrupt_of_one_that_waits_for_its_own_the_cap_holds() -> None:
    harness = MemoryHarness(
        limits=Limits(agents_max=1, depth_max=2),
        main=[says(agent("ALPHA")), says(tasks("GAMMA", "DELTA")), says("done")],
        ALPHA=[says(agent("BETA"))],
        BETA=[says(call("Bash", command="sleep 99"))],
        GAMMA=[says("g")],
        DELTA=[says("d")],
    )
    harness.commands["sleep 99"] = Ran("tick", delay_s=99)

    async def go_on(session: OpenSession) -> None:
        harness.model.most = 0
        await session.tell(UserMessage((Text("go on"),)))
        await session.run(once=True)

    harness.play(at={5: lambda session: session.interrupt(), 6: go_on})
    assert len(harness.of(SubagentEnded)) == 3
    assert harness.model.most == 1


def test_one_subagent_is_stopped_and_the_others_go_on() -> None:
    harness = MemoryHarness(
        main=[says(tasks("ALPHA", "BETA")), says("done")],
        ALPHA=[says("half way", call("Bash", command="sleep 99"))],
        BETA=[says("whole")],
    )
    harness.commands["sleep 99"] = Ran("tick", delay_s=99)

    harness.play(at={5: lambda session: session.tell(StopSubagent(session.agents()[0].child))})
    assert [e.status for e in harness.of(SubagentEnded)] == ["interrupted", "done"]
    assert "half way" in harness.result()
    assert "| whole" in harness.result()
    assert [e.reason for e in harness.of(TurnEnded)] == ["done"]


def test_one_call_is_cancelled_and_its_neighbour_goes_on() -> None:
    harness = MemoryHarness(
        main=[says(agent("ALPHA"), agent("BETA")), says("done")], ALPHA=[says("whole")], BETA=[]
    )
    harness.model.latency_s = {"BETA": 99, "ALPHA": 5}
    harness.play(
        at={
            2: lambda session: session.cancel(
                next(c for c in session.state.calls if c.endswith(".1"))
            )
        }
    )
    assert [e.status for e in harness.of(ToolEnded)] == ["interrupted", "ok"]
    assert sorted(e.status for e in harness.of(SubagentEnded)) == ["done", "interrupted"]
    assert "| whole" in " ".join(results(harness.model.by_part["main"][-1]))
    assert harness.of(Interrupted) == []


def test_words_for_a_subagent_reach_it_with_its_next_request() -> None:
    harness = MemoryHarness(
        main=[says(agent("ALPHA")), says("done")],
        ALPHA=[says(call("Read", file_path="/w/a.py")), says("found")],
    )
    harness.model.latency_s = {"ALPHA": 2}

    async def steer(session: OpenSession) -> None:
        child = session.agents()[0].child
        await session.tell(UserMessage((Text("mind the tests"),), to=child))
        assert [(word.text, word.to, word.how) for word in session.pending] == [
            ("mind the tests", child, "steer")
        ]

    harness.play(at={1: steer})
    assert "mind the tests" in said(harness.model.by_part["ALPHA"][1])
    assert "mind the tests" not in " ".join(said(harness.model.by_part["main"][1]))


def test_words_for_one_that_is_over_are_refused_and_said_so() -> None:
    harness = MemoryHarness(
        main=[says(agent("ALPHA")), says(call("Bash", command="wait")), says("done")],
        ALPHA=[says("found")],
    )
    harness.commands["wait"] = Ran("", delay_s=9)

    too_late = (Text("too late"),)
    harness.play(
        at={2: lambda session: session.tell(UserMessage(too_late, to=session.agents()[0].child))}
    )
    assert [one.text for one in harness.heard if type(one).__name__ == "UserNotice"] == [
        "that subagent does not work any more, so that it cannot be told anything"
    ]


def questions(harness: MemoryHarness) -> list[FromSubagent]:
    return [
        one
        for one in harness.heard
        if isinstance(one, FromSubagent)
        and isinstance(one.heard, Entry)
        and isinstance(one.heard.event, PermissionAsked)
    ]


def test_E17_subagents_ask_one_at_a_time_and_each_answer_goes_to_the_one_that_asked() -> None:
    parts: dict[str, Any] = {
        name: [
            says(call("Write", file_path=f"/w/{name}.txt", content="x")),
            says(f"wrote as {name}"),
        ]
        for name in ("ALPHA", "BETA", "GAMMA")
    }
    harness = MemoryHarness(main=[says(tasks("ALPHA", "BETA", "GAMMA")), says("done")], **parts)
    most = 0

    async def answer(session: OpenSession) -> None:
        nonlocal most
        for n in range(3):
            while len(questions(harness)) <= n:  # noqa: ASYNC110 - in virtual time
                await asyncio.sleep(0.01)
            await harness.clock.sleep(5)
            most = max(most, len(questions(harness)) - n)
            asked = questions(harness)[n]
            event = asked.heard.event if isinstance(asked.heard, Entry) else None
            assert isinstance(event, PermissionAsked)
            assert [v.state for v in session.agents() if v.child == asked.child] == ["asking"]
            await session.tell(
                Answer(
                    event.call, "deny" if "BETA" in event.shown else "allow", session=asked.child
                )
            )

    harness.play(mode="default", meanwhile=answer)
    assert most == 1
    written = sorted(path for path in harness.space.files if path.endswith(".txt"))
    assert written == ["/w/ALPHA.txt", "/w/GAMMA.txt"]
    assert len({one.label for one in questions(harness)}) == 3


def test_S084_what_is_denied_to_the_parent_is_denied_at_every_depth() -> None:
    edit = call("Write", file_path="/w/secret/key", content="mine")

    def resumed(request: Request) -> Reply:
        return says(agent("try once more", resume=harness.labels()[0]))

    harness = MemoryHarness(
        limits=Limits(depth_max=2),
        main=[says(agent("ALPHA")), resumed, says("done")],
        ALPHA=[says(agent("OMEGA")), says(edit), says("no way"), says(edit), says("still not")],
        OMEGA=[says(edit), says("not me")],
    )
    harness.rules = Rules(deny=("Write(/secret/**)",), base="/w")
    harness.play()
    assert "/w/secret/key" not in harness.space.files
    for child in harness.disk.children():
        ended = [e for e in events_of(harness.disk.entries(child), ToolEnded) if e.name == "Write"]
        assert {e.status for e in ended} == {"denied"}


def test_S084_a_mode_that_the_user_narrows_holds_below_at_once() -> None:
    harness = MemoryHarness(
        main=[says(agent("ALPHA")), says("done")],
        ALPHA=[
            says(call("Bash", command="wait")),
            says(call("Write", file_path="/w/new.txt", content="x")),
            says("could not"),
        ],
    )
    harness.commands["wait"] = Ran("", delay_s=9)

    harness.play(at={2: lambda session: session.tell(SetMode("plan"))})
    assert "/w/new.txt" not in harness.space.files
    assert "ModeSet" in story(harness.disk.entries(harness.disk.children()[0])[4:])


def test_the_tree_shows_who_works_at_what_and_what_each_did_last() -> None:
    harness = MemoryHarness(
        limits=Limits(depth_max=2, agents_max=2),
        main=[says(tasks("ALPHA", "BETA")), says("done")],
        ALPHA=[says(agent("OMEGA", description="go deep")), says("above")],
        OMEGA=[says(call("Bash", command="sleep 9")), says("below")],
        BETA=[says("quick")],
    )
    harness.commands["sleep 9"] = Ran("", delay_s=9)
    views: list[SubagentView] = []
    harness.play(at={5: lambda session: views.extend(session.agents())})
    assert all(view.steps == 1 and view.tokens > 100 and view.cost_usd > 0 for view in views)
    assert [(view.depth, view.description, view.state, view.last) for view in views] == [
        (1, "part 1", "running", "Agent go deep"),
        (2, "go deep", "running", "Bash sleep 9"),
        (1, "part 2", "done", "quick"),
    ]


def test_one_that_was_answered_is_seen_at_what_it_does_not_at_what_it_asked() -> None:
    harness = MemoryHarness(
        main=[says(agent("ALPHA")), says("done")],
        ALPHA=[says(call("Bash", command="make it")), says("slept")],
    )
    harness.commands["make it"] = Ran("", delay_s=9)
    shown: list[tuple[str, str]] = []

    async def look(session: OpenSession) -> None:
        while not questions(harness):  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.01)
        shown.extend((view.state, view.last) for view in session.agents())
        event = questions(harness)[0].heard.event  # type: ignore[union-attr]
        await session.tell(Answer(event.call, "allow", session=questions(harness)[0].child))
        await harness.clock.sleep(5)
        shown.extend((view.state, view.last) for view in session.agents())

    harness.play(mode="default", meanwhile=look)
    assert shown == [("asking", "asks for Bash"), ("running", "Bash make it")]


def kind(name: str, **more: Any) -> SubagentType:
    return SubagentType(name, "for a test", **more)


@cases(
    "parent wanted holds",
    ("default", "bypassPermissions", "default"),
    ("acceptEdits", "", "acceptEdits"),
    ("bypassPermissions", "plan", "plan"),
    ("plan", "acceptEdits", "plan"),
)
def test_a_type_narrows_the_mode_and_never_widens_it(parent: str, wanted: str, holds: str) -> None:
    harness = MemoryHarness(
        main=[says(agent("ALPHA", subagent_type="odd")), says("done")], ALPHA=[says("found")]
    )
    harness.kinds = (kind("odd", mode=wanted),)
    harness.play(mode=parent)
    [child] = harness.disk.children()
    modes = [e.event.mode for e in harness.disk.entries(child) if isinstance(e.event, ModeSet)]
    assert (modes or ["default"])[-1] == holds


@cases("parent wanted", ("plan", ""), ("default", "plan"), ("bypassPermissions", "plan"))
def test_only_the_agent_that_the_user_speaks_with_ends_plan_mode(parent: str, wanted: str) -> None:
    harness = MemoryHarness(
        main=[says(agent("ALPHA", subagent_type="odd")), says("done")],
        ALPHA=[
            says(
                call("ExitPlanMode", plan="1. Write x"),
                call("Write", file_path="/w/new.txt", content="x"),
            ),
            says("found"),
        ],
    )
    harness.kinds = (kind("odd", mode=wanted),)
    harness.play(mode=parent)
    [child] = harness.disk.children()
    events = [entry.event for entry in harness.disk.entries(child)]
    ended = [event.status for event in events if isinstance(event, ToolEnded)]
    assert ended == ["failed", "denied"]
    assert [event.mode for event in events if isinstance(event, ModeSet)][-1] == "plan"
    assert not [
        event
        for event in (*events, *harness.of(PermissionAsked))
        if isinstance(event, PermissionAsked)
    ]
    assert [event.mode for event in harness.of(ModeSet)][-1:] in ([parent], [])


def test_a_type_with_a_limit_of_requests_and_tools_of_its_own() -> None:
    harness = MemoryHarness(
        main=[says(agent("ALPHA", subagent_type="odd")), says("done")],
        ALPHA=[says("one", call("Bash", command="w 1")), says("two", call("Bash", command="w 2"))],
    )
    harness.commands |= {"w 1": "", "w 2": ""}
    harness.kinds = (kind("odd", turns_max=2, tools=("Ba*", "Read", "Agent"), without=("Read",)),)
    harness.play()
    [ended] = harness.of(SubagentEnded)
    assert (ended.status, ended.steps) == ("limit", 2)
    assert ended.report == "two\n\n(it had made 2 calls, the last ones Bash, Bash)"
    assert [tool.name for tool in harness.model.by_part["ALPHA"][0].prefix.tools] == ["Bash"]


def test_a_task_is_over_after_two_hours() -> None:
    long = [says(call("Bash", command=f"long {n}")) for n in range(90)]
    harness = MemoryHarness(main=[says(agent("ALPHA")), says("done")], ALPHA=long)
    harness.commands |= {f"long {n}": Ran(f"{n}", delay_s=100) for n in range(90)}
    with pytest.raises(AssertionError, match="not played"):
        harness.play()
    [ended] = harness.of(SubagentEnded)
    assert (ended.status, ended.message) == ("limit", "the time limit of 7200 s has passed")
    assert 7200 <= ended.elapsed_ms / 1000 <= 7400
