"""Goal tools: results for the model and events for the log, with the real database."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from longrein.store import Goals, owner_of
from longrein.tools import Outcome, Tool, fit_arguments
from longrein.tools.planning import GOAL_ADD, GOAL_LIST, GOAL_UPDATE, goal_tools
from longrein_context.events import GoalChanged, marker, text_of
from tests.tools.conftest import NONCE, ToolHarness

pytestmark = pytest.mark.anyio

ME, OTHER = "6f1c3a52-7d0e-4b7a-9f3e-0123456789ab", "6f9d0000-0000-4000-8000-000000000002"


class Agent:
    """Calls the goal tools in one name."""

    def __init__(self, harness: ToolHarness, goals: Goals | None) -> None:
        self.harness, self.goals = harness, goals
        self.last = Outcome(())

    async def __call__(self, tool: Tool, **arguments: object) -> str:
        self.harness.services["goals"] = self.goals
        fitted, error = fit_arguments(tool, arguments)
        assert error is None, error
        self.last = await tool.run(self.harness.context(), **fitted)
        return text_of(self.last.parts)

    def facts(self) -> list[tuple[int, str]]:
        """Goals and their statuses, as the log gets them."""
        return [
            (fact.goal.id, fact.goal.status)
            for fact in self.last.facts
            if isinstance(fact, GoalChanged)
        ]


@pytest.fixture
def agents(harness: ToolHarness, tmp_path: Path) -> tuple[Agent, Agent]:
    mine = Goals(str(tmp_path), "work-0", ME, lambda: 1_760_000_000_000_000)
    return Agent(harness, mine), Agent(harness, mine.by(owner_of(OTHER, "a9")))


async def check(
    agent: Agent, tool: Tool, arguments: dict[str, object], text: str, facts: Sequence[object] = ()
) -> None:
    assert await agent(tool, **arguments) == text
    assert agent.facts() == list(facts)


async def test_s12_a_graph_of_goals_from_the_first_to_the_last(agents: tuple[Agent, Agent]) -> None:
    me, other = agents
    await check(me, GOAL_LIST, {}, "The project has no open goals.")
    await check(me, GOAL_ADD, {"title": "Design"}, "Added goal 1.", [(1, "pending")])
    await check(me, GOAL_ADD, {"title": "Build", "body": "All green.\nNo warnings.",
        "blocked_by": [1]},
                "Added goal 2, waits for 1.", [(2, "pending")])  # fmt: skip
    await check(
        me,
        GOAL_ADD,
        {"title": "Ship", "blocked_by": [1, 2]},
        "Added goal 3, waits for 1, 2.",
        [(3, "pending")],
    )
    await check(
        me,
        GOAL_UPDATE,
        {"id": 1, "claim": True},
        "Goal 1 is in progress, yours.",
        [(1, "in_progress")],
    )
    everything = (
        "1. Design [in progress, held by 6f1c3a52]\n2. Build [pending, waits for 1]\n   All "
        "green.\n   No warnings.\n3. Ship [pending, waits for 1, 2]"
    )
    await check(
        other, GOAL_LIST, {}, everything, [(1, "in_progress"), (2, "pending"), (3, "pending")]
    )
    await check(other, GOAL_LIST, {}, everything)  # nothing new
    assert await other(GOAL_UPDATE, id=2, claim=True) == (
        "[blocked] Goal 2 waits for 1 (Design). Reach those first, or change its blocked_by. "
        "Nothing was changed."
    )
    assert other.last.status == "failed"
    await check(
        me,
        GOAL_UPDATE,
        {"id": 1, "status": "completed", "body": "in docs/design.md"},
        "Goal 1 is completed. Nothing blocks now: 2 (Build).",
        [(1, "completed"), (2, "pending")],
    )
    await check(
        other,
        GOAL_UPDATE,
        {"id": 2, "claim": True},
        "Goal 2 is in progress, yours.",
        [(2, "in_progress")],
    )
    await check(me, GOAL_LIST, {},
        "2. Build [in progress, held by a9 of 6f9d0000]\n   All green.\n   No warnings.\n"
                "3. Ship [pending, waits for 2]", [(2, "in_progress")])  # fmt: skip
    await check(
        me, GOAL_UPDATE, {"id": 3, "status": "deleted"}, "Goal 3 is deleted.", [(3, "deleted")]
    )
    await check(me, GOAL_LIST, {"all": True}, "1. Design [completed]\n   in docs/design.md\n"
                "2. Build [in progress, held by a9 of 6f9d0000]\n   All green.\n   No warnings.\n"
                "3. Ship [deleted]")  # fmt: skip
    await check(
        other, GOAL_UPDATE, {"id": 2, "claim": False}, "Goal 2 is pending.", [(2, "pending")]
    )
    await check(
        me,
        GOAL_UPDATE,
        {"id": 2},
        "2. Build [pending, ready]\n   All green.\n   No warnings.",
        [(2, "pending")],
    )


async def test_what_cannot_be_is_a_failed_call_that_says_what_to_do(
    agents: tuple[Agent, Agent], harness: ToolHarness
) -> None:
    me, other = agents
    await me(GOAL_ADD, title="One")
    await me(GOAL_ADD, title="Two", blocked_by=[1])
    for agent, tool, arguments, text in [
        (me, GOAL_UPDATE, {"id": 7, "claim": True}, ("[unknown-goal] There is no goal 7; open are "
                                                    "1 (One), 2 (Two).")),
        (me, GOAL_UPDATE, {"id": 1, "blocked_by": [2]},
         ("[cycle] Goal 1 cannot wait for 2: 2 waits for 1. Leave 2 out of blocked_by. "
             "Nothing was changed.")),
        (me, GOAL_UPDATE, {"id": 1, "title": " "},
         "[empty] A goal needs a title: give one. Nothing was changed."),
        (me, GOAL_ADD, {"title": "x", "body": marker(NONCE, "cleared", "r4")},
         ("[marker] The text holds a marker of a cleared or hidden part in place of its content; "
          "write what is meant (Recall brings a cleared part back). Nothing was changed.")),
        (other, GOAL_UPDATE, {"id": 1, "body": "mine"},
         ("[changed] Session 6f1c3a52 has changed goal 1 since you read it. It is now: pending, "
          "One\n\nNothing was changed; list the goals, then send what it should be now.")),
        (Agent(harness, None), GOAL_LIST, {},
         "[no-goals] There is no place here where goals could be kept; use TodoWrite."),
    ]:  # fmt: skip
        assert await agent(tool, **arguments) == text  # type: ignore[arg-type]
        assert agent.last.status == "failed"
        assert agent.facts() == []


async def test_a_long_list_keeps_within_a_page(
    agents: tuple[Agent, Agent], harness: ToolHarness
) -> None:
    me, _ = agents
    for number in range(20):
        await me(
            GOAL_ADD, title=f"Goal {number}", body=f"first line of {number}\n" + "more " * 1000
        )
    text = await me(GOAL_LIST)
    assert len(text) < 10_000 < harness.page_bytes
    assert "\n20. Goal 19 [pending, ready]\n   first line of 19 more more" in text
    assert text.endswith("Long bodies are cut; GoalUpdate with an id alone shows a goal whole.")
    assert len(await me(GOAL_UPDATE, id=20)) > 5000


def test_what_the_model_is_told_of_them_is_short() -> None:
    assert [tool.spec.name for tool in goal_tools()] == ["GoalAdd", "GoalUpdate", "GoalList"]
    assert len(msgspec.json.encode([tool.spec for tool in goal_tools()])) < 1_350
    assert {tool.access for tool in goal_tools()} == {"none"}
