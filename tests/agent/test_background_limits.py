"""Limits, moves and view of a session with background tasks and subagents, as pure functions of the log."""

import msgspec

from longrein.agent import Judgement, Limits, MoveContext, next_move
from longrein.context import Budget, Price, State, fold, render
from longrein.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Asked,
    ChildEnded,
    ChildStarted,
    Entry,
    Grant,
    Opened,
    Parent,
    PrefixSet,
    Reminded,
    Replied,
    TaskEnded,
    TaskStarted,
    Text,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSpoke,
)

ROOT = "00000000-0000-4000-8000-000000000001"
KID = "00000000-0000-4000-8000-000000000002"
BUDGET = Budget(100_000, 8_000, Price(3, 15, 0.3))
START = (
    Opened(SCHEMA_VERSION, ROOT, "n0nce", ("/w",), "/w"),
    PrefixSet("start", "mock", "small", "anthropic", "Be good."),
    UserSpoke((Text("hello"),)),
)
AGENT, BASH = ToolCall("c4.0", "Agent", {"prompt": "look"}), ToolCall("c4.1", "Bash", {"command": "ls"})
CALLED = (*START, Asked("turn", 3, 2), Replied(4, (AGENT, BASH), "calls", Usage(1_000, output_tokens=50), (), 0.01))
DONE = (*START, Asked("turn", 3, 2), Replied(4, (Text("done"),), "end", Usage(1_000)), TurnEnded("done"))
SECOND = 1_000_000


def state_of(*events: AnyEvent) -> State:
    return fold([Entry(seq, seq * SECOND, event) for seq, event in enumerate(events, 1)])


def check(events: tuple[AnyEvent, ...], expect: str, limits: Limits | None = None, task_s: float = 0) -> None:
    """The next move after `events`, shown, holds `expect`."""
    state = state_of(*events)
    judged = dict.fromkeys(state.calls, Judgement("run", together=True))
    shown = repr(next_move(state, judged, MoveContext(BUDGET, limits or Limits(), task_s=task_s)))
    assert expect in shown, f"{expect!r} is not in {shown}"


def test_after_a_crash_an_agent_call_goes_on_and_a_command_does_not() -> None:
    cut = (*CALLED, ToolStarted("c4.0", "Agent"), ToolStarted("c4.1", "Bash"))
    check((*cut, ChildStarted(KID, "explore", "c4.0")), "Record(events=(ToolEnded(call='c4.1'")
    closed = (*cut, ChildStarted(KID, "explore", "c4.0"), ToolEnded("c4.1", "Bash", "interrupted", ()))
    check(closed, "RunTools(calls=(ToolCall(id='c4.0', name='Agent'")
    check(cut, "Record(events=(ToolEnded(call='c4.0', name='Agent', status='interrupted'")  # nobody was started


def test_B10_a_wake_opens_a_turn_that_tells_what_happened_and_user_input_counts_anew() -> None:
    task = (TaskStarted("b1", "make"), TaskEnded("b1", "failed", 2, elapsed_ms=1_500))
    check((*DONE, *task), "Wait()")
    check((*DONE, *task, Reminded("wake", "", "b1")), "kind='bg_done'")
    told = (*DONE, *task, Reminded("wake", "", "b1"), Reminded("bg_done", "[bg_done] b1", state="8"))
    check(told, "AskModel(")
    check((*DONE, Reminded("wake", "", "b1")), "Stop(reason='done'")  # nothing to tell: no request for nothing


def test_R071_a_token_limit_refuses_before_the_request_and_counts_what_subagents_may_use() -> None:
    ended = (*CALLED, ToolEnded("c4.0", "Agent", "ok", ()), ToolEnded("c4.1", "Bash", "ok", ()))
    check(ended, "AskModel(usd_left=None, tokens_left=8950)", Limits(tokens_max=10_000))
    check(ended, "Stop(reason='budget', message='the token limit stands: 1050 of 1500", Limits(tokens_max=1_500))
    granted = (*CALLED, ChildStarted(KID, "explore", "c4.0", Grant(0, 8_000), background=True), *ended[5:])
    check(granted, "the token limit stands: 9050 of 10000 tokens", Limits(tokens_max=10_000))
    back = ChildEnded(KID, "done", usage=Usage(2_000, output_tokens=100))
    check((*granted, back, Reminded("subagent_done", "x", state="9")), "tokens_left=6850", Limits(tokens_max=10_000))


def test_a_time_limit_counts_from_the_start_of_the_turn() -> None:
    check(START, "AskModel", Limits(seconds_max=60), task_s=59)
    check(START, "Stop(reason='limit', message='the time limit of 60 s", Limits(seconds_max=60), task_s=61)


def test_a_grant_is_held_back_until_the_subagent_ends() -> None:
    started = state_of(*CALLED, ChildStarted(KID, "explore", "c4.0", Grant(0.5)))
    assert started.spent_usd == 0.51
    ended = state_of(*CALLED, ChildStarted(KID, "explore", "c4.0", Grant(0.5)), ChildEnded(KID, "done", cost_usd=0.1))
    assert round(ended.spent_usd, 6) == 0.11
    again = ChildStarted(KID, "explore", "c4.0", Grant(0.2), again=6)
    asked_again = state_of(*CALLED, ChildStarted(KID, "explore", "c4.0"), ChildEnded(KID, "done"), again)
    assert (asked_again.children[KID].seq, asked_again.children[KID].ended, asked_again.spawned) == (6, None, 1)


def test_E15_a_forked_subagent_sends_its_parents_request_and_one_message() -> None:
    """The fork point is the `Asked` before the reply that holds the call; spend, tasks and calls are the parent's."""
    parent = (*START, TaskStarted("b1", "serve"), Asked("turn", 4, 2, reserved_usd=0.3))
    asked = render(state_of(*parent[:-1]), BUDGET)
    kid = Opened(
        SCHEMA_VERSION, KID, "n0nce", ("/w",), "/w", parent=Parent(ROOT, 5, "c5.0"), kind="explore", label="a8"
    )
    forked = state_of(*parent, kid, UserSpoke((Text("You are now explore: look."),)))
    request = render(forked, BUDGET)
    assert request.prefix == asked.prefix
    assert request.items[: len(asked.items)] == asked.items
    assert [item.part for item in request.items[len(asked.items) :]] == [Text("You are now explore: look.")]
    assert (request.session, request.route) == (KID, ROOT)
    assert (forked.spent_usd, forked.usage, forked.tasks, forked.calls) == (0.0, Usage(), {}, {})
    assert (forked.kind, forked.label, forked.asked) == ("explore", "a8", None)
    check((*parent, kid, UserSpoke((Text("look"),))), "AskModel")


def test_a_task_waits_runs_and_ends_once() -> None:
    waiting = TaskStarted("b1", "make", state="queued")
    ended = TaskEnded("b1", "done", 0)
    state = state_of(*DONE, waiting, msgspec.structs.replace(waiting, state="running"), ended, TaskEnded("b1", "lost"))
    task = state.tasks["b1"]
    assert (task.seq, task.started.state, task.ended, task.ended_seq) == (7, "running", ended, 9)
    assert [(one.kind, one.key) for one in state.notices] == [("bg_done", "b1")]
