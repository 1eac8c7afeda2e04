"""A forked subagent: its parent's request byte for byte, and one message at the end; else empty,
with a note why.
"""

from longrein.agent import Limits
from longrein.models import Reply
from longrein.testing.harness import results, said, story
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein_context import Request
from longrein_context.events import SubagentEnded, SubagentStarted, ToolEnded
from tests.agent.memory_harness import MemoryHarness, agent, tasks


def forked(*steps: Reply, kind: str = "general", **more: object) -> MemoryHarness:
    """A root that has read a file and then forks; the fork plays `steps` after that."""
    harness = MemoryHarness(
        main=[
            says("First I read.", call("Read", file_path="/w/a.py")),
            says(
                "Now I fork.",
                agent("FORKED: count the lines", context="fork", subagent_type=kind, **more),
            ),
            *steps,
            says("done"),
        ]
    )
    harness.play("what is in a.py?")
    return harness


def test_E15_a_fork_sends_its_parents_request_byte_for_byte_and_one_message() -> None:
    harness = forked(says("one line"))
    _first, second, fork, last = harness.model.by_part["main"]
    assert fork.prefix == second.prefix
    assert fork.items[: len(second.items)] == second.items
    added = fork.items[len(second.items) :]
    assert [item.kind for item in added] == ["user"]
    told = said(fork)[-1]
    assert "FORKED: count the lines" in told
    assert "subagent of type general" in told
    assert "100 requests" in told
    assert (fork.route, fork.session != second.session) == (second.session, True)
    assert fork.max_output_tokens == second.max_output_tokens
    assert "| one line" in results(last)[-1]
    child = harness.disk.children()[0]
    own = [e for e in harness.disk.entries(child) if e.seq >= harness.disk.shares[child][1] + 1]
    assert story(own) == "Opened UserSpoke Asked Replied TurnEnded"
    assert "Now I fork" not in " ".join(said(fork))


def test_a_fork_may_not_use_what_its_type_may_not_and_is_told_so_by_code() -> None:
    write = says(
        call("Write", file_path="/w/new.txt", content="x"),
        call("Agent", description="d", prompt="deeper"),
    )
    harness = forked(write, says("I could not"), kind="explore")
    assert "/w/new.txt" not in harness.space.files
    child = harness.disk.children()[0]
    ends = [e.event for e in harness.disk.entries(child) if isinstance(e.event, ToolEnded)][-2:]
    assert [e.status for e in ends] == ["failed", "failed"]
    assert "[not-yours] Write is not for a subagent of type explore" in ends[0].parts[0].text  # type: ignore[union-attr]
    assert "[not-yours] Agent is not for" in ends[1].parts[0].text  # type: ignore[union-attr]


def test_two_forks_of_one_call_share_one_beginning_and_are_asked_again_with_what_they_know() -> (
    None
):
    def ask(request: Request) -> Reply:
        return says(agent("and now the words?", resume=harness.labels()[0]))

    harness = MemoryHarness(
        main=[
            says("I split.", tasks("count lines", "count words", context="fork")),
            says("the first"),
            says("the second"),
            ask,
            says("three words"),
            says("done"),
        ]
    )
    harness.model.latency_s = {"count lines": 0.1, "count words": 0.2}
    harness.play()
    starts = harness.of(SubagentStarted)
    assert [e.form for e in starts] == ["fork", "fork", "fork"]
    asked_again = harness.model.by_part["main"][4]
    assert "the first" in said(asked_again)
    assert said(asked_again)[-1] == "and now the words?"
    assert [e.status for e in harness.of(SubagentEnded)] == ["done"] * 3
    assert [e.steps for e in harness.of(SubagentEnded)] == [1, 1, 1]


def test_a_fork_on_another_model_is_an_empty_one_with_a_note() -> None:
    harness = MemoryHarness(
        main=[says(agent("ALPHA", context="fork", model="test/other")), says("done")], ALPHA=[]
    )
    other = ScriptedModel(says("from elsewhere"), name="test/other")
    harness.models = (other,)
    harness.play()
    assert [e.form for e in harness.of(SubagentStarted)] == ["empty"]
    assert (
        "empty instead of fork: test/other is not the model of this conversation"
        in harness.result()
    )
    assert [tool.name for tool in other.requests[0].prefix.tools][-1] != "Agent"


def test_a_fork_survives_a_compaction_and_a_turn_limit_of_its_parent() -> None:
    harness = MemoryHarness(
        limits=Limits(turns_max=3),
        main=[
            says(agent("FORKED", context="fork")),
            says(call("Read", file_path="/w/a.py")),
            says("read"),
            says("ok"),
        ],
    )
    harness.play()
    assert [e.status for e in harness.of(SubagentEnded)] == ["done"]
