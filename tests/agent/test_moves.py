"""What happens next: a log, and the move it leads to."""

import pytest

from longrein.agent import Judgement, Limits, MoveContext, next_move
from longrein.agent.moves import Move, Record
from longrein_context import Budget, Price, State, fold
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Asked,
    AskFailed,
    Entry,
    Grant,
    Interrupted,
    Opened,
    PermissionAsked,
    PrefixSet,
    Reminded,
    Replied,
    SubagentEnded,
    SubagentStarted,
    Text,
    ToolCall,
    ToolEnded,
    ToolStarted,
    Usage,
    UserSpoke,
)
from tests.tables import row

START = (
    Opened(SCHEMA_VERSION, "00000000-0000-4000-8000-000000000001", "n0nce", ("/w",), "/w"),
    PrefixSet("start", "mock", "small", "anthropic", "Be good."),
    UserSpoke((Text("hello"),)),
)
ASKED = (*START, Asked("turn", 3, 2, reserved_usd=0.5))
READ, LIST, WRITE = (
    ToolCall(f"c4.{n}", name, {}) for n, name in enumerate(["Read", "Glob", "Write"])
)
REPLIED = (*ASKED, Replied(4, (Text("let me see"), READ, LIST, WRITE), "calls", Usage(10)))
RUN, ASK = (
    Judgement("run"),
    Judgement("ask", "needs a yes", question=PermissionAsked("c4.2", "Write", "Write x", "writes")),
)
TOGETHER = Judgement("run", together=True)


def ended(call: ToolCall, status: str = "ok") -> ToolEnded:
    return ToolEnded(call.id, call.name, status, (Text("done"),))


def state_of(*events: AnyEvent) -> State:
    return fold([Entry(seq, seq, event) for seq, event in enumerate(events, 1)])


def move(
    *events: AnyEvent, judged: tuple[Judgement, ...] = (TOGETHER, TOGETHER, RUN), **context: object
) -> Move:
    state = state_of(*events)
    budget = Budget(100_000, 8_000, Price(3, 15))
    verdicts = {call: judged[int(call[-1])] for call in state.calls}
    return next_move(
        state, verdicts, MoveContext(budget, context.pop("limits", Limits()), **context)
    )  # type: ignore[arg-type]


def check(move: Move, expect: str) -> None:
    shown = repr(move).replace("()", "")
    assert expect in shown, f"{expect!r} is not in {shown}"


SECOND = 1_000_000
ENDED = (
    "longrein was killed, crashed or closed, or the machine went down, after 1970-01-01 00:01:40"
)


@pytest.mark.parametrize(
    ("begun_s", "last_run_s", "now_s", "told"),
    [
        (90, 100, 220, f"{ENDED} UTC, 2 min before the session went on; this began at 00:01:30"),
        (90, 100, 90_100, f"{ENDED} UTC, 25 h before the session went on; this began at 00:01:30"),
        (90, 100, 100, f"{ENDED} UTC; this began at 00:01:30"),
        (90, 100, 50, f"{ENDED} UTC; this began at 00:01:30"),
        (90, 0, 100, ""),
        (150, 100, 200, ""),
    ],
    ids=["minutes", "a day", "at once", "clock set back", "no earlier run", "of this run"],
)
def test_a_crash_tells_when_and_why(begun_s: int, last_run_s: int, now_s: int, told: str) -> None:
    """The request and the call begin at `begun_s`; the last entry before the crash comes later."""
    outlook = {"last_run_us": last_run_s * SECOND, "now_us": now_s * SECOND}
    for events, head in [
        ((*REPLIED, ToolStarted(READ.id, "Read")), "interrupted; it may have run"),
        (ASKED, "longrein ended while it waited"),
    ]:
        state = fold([Entry(n, begun_s * SECOND, event) for n, event in enumerate(events, 1)])
        context = MoveContext(Budget(100_000, 8_000), Limits(), **outlook)
        check(next_move(state, {}, context), repr(head + (f": {told}" if told else "")))


def test_a_crash_leaves_a_request_without_an_answer_and_its_money_counts_as_spent() -> None:
    check(move(*ASKED), "Record(events=(AskFailed(asked=4, kind='lost'")
    check(move(*ASKED), "assumed_usd=0.5")
    lost = (*ASKED, AskFailed(4, "lost", assumed_usd=0.5))
    check(move(*lost, paused=True), "Wait")
    check(move(*lost), "AskModel")


def test_E4_an_interrupt_at_an_approval_denies_that_call_and_those_after_it() -> None:
    asked = (
        *ASKED,
        Replied(4, (READ, LIST), "calls"),
        PermissionAsked("c4.0", "Read", "x", "y"),
        Interrupted("[i]"),
    )
    shown = repr(move(*asked))
    assert shown.count("status='denied'") == 2


def test_D12_a_failed_request_is_made_again_after_a_pause_and_given_up_in_the_end() -> None:
    failed = (*ASKED, AskFailed(4, "server", "no", 500))
    check(move(*failed), "Pause(delay_s=")
    check(move(*failed, paused_failures=1), "AskModel")
    many = [*START]
    for n in range(11):
        many += [Asked("turn", 3, 2), AskFailed(4 + 2 * n, "server", "overloaded for long", 500)]
    check(move(*many), "Stop(reason='error', message='overloaded for long')")


def test_E24_three_overloads_lead_to_the_fallback_model() -> None:
    events = [*START]
    for n in range(3):
        check(move(*events, paused_failures=n, fallback="mock/other"), "AskModel")
        events += [Asked("turn", 3, 2), AskFailed(4 + 2 * n, "overload", "busy", 529)]
    check(move(*events, paused_failures=2, fallback="mock/other"), "Switch(model='mock/other')")
    check(move(*events, paused_failures=2), "Pause")


def test_R012_an_empty_answer_is_asked_again_once_then_told_then_ends_the_turn() -> None:
    events = [*START, Asked("turn", 3, 2), AskFailed(4, "empty", "")]
    check(move(*events, paused_failures=1), "AskModel")
    events += [Asked("turn", 3, 2), AskFailed(6, "empty", "")]
    told = move(*events, paused_failures=2)
    check(told, "Record(events=(Reminded(kind='empty_answer'")
    check(told, "your answer was empty")
    check(told, 'What you were asked: "hello"')
    assert isinstance(told, Record)
    events += [*told.events]
    check(move(*events), "AskModel")
    answered = (*events, Asked("turn", 3, 2), Replied(9, (READ,), "calls"), ended(READ))
    again = (*answered, Asked("turn", 3, 2), AskFailed(12, "empty", ""))
    check(move(*again), "Pause")
    events += [Asked("turn", 3, 2), AskFailed(9, "empty", "")]
    check(move(*events), "Stop(reason='error', message='the model gave empty answers")


def test_a_cut_answer_goes_on_at_most_three_times() -> None:
    events = [*ASKED, Replied(4, (Text("once upon"),), "length")]
    for n in range(3):
        check(move(*events), "Record(events=(Reminded(kind='continue'")
        events += [
            Reminded("continue", "go on"),
            Asked("turn", 6, 2),
            Replied(7 + 3 * n, (Text("a"),), "length"),
        ]
    check(move(*events), "Stop(reason='done'")


def test_max_turns_refuses_before_the_request() -> None:
    check(move(*START, limits=Limits(turns_max=1)), "AskModel")
    again = (*REPLIED, ended(READ), ended(LIST), ended(WRITE))
    check(
        move(*again, limits=Limits(turns_max=1)),
        "Stop(reason='limit', message='the limit of 1 turns is reached",
    )


def test_a_money_limit_refuses_before_the_request_and_lowers_its_output() -> None:
    check(move(*START, limits=Limits(usd_max=1.0)), "AskModel(usd_left=1.0")
    check(
        move(*START, limits=Limits(usd_max=0.0149)),
        "Stop(reason='budget', message='the money limit stands",
    )
    check(move(*START, limits=Limits(usd_max=0.0149)), "the rest for an answer of 1,000 tokens")
    check(move(*START, limits=Limits(usd_max=0.0160)), "AskModel(usd_left=0.016")


def test_s03_a_turn_that_ends_on_a_denial_is_blocked() -> None:
    denied = (*ASKED, Replied(4, (WRITE,), "calls"), ended(WRITE, "denied"))
    final = (Asked("turn", 6, 2), Replied(7, (Text("I may not"),), "end"))
    check(move(*denied, *final), "Stop(reason='blocked'")
    ok = (
        Asked("turn", 6, 2),
        Replied(7, (ToolCall("c7.0", "Read", {}),), "calls"),
        ToolEnded("c7.0", "Read", "ok", ()),
    )
    check(
        move(*denied, *ok, Asked("turn", 9, 2), Replied(10, (Text("done"),), "end")),
        "Stop(reason='done'",
    )


def test_R017_a_model_that_never_gets_a_call_right_is_stopped() -> None:
    events = [*START]
    for n in range(20):
        call = ToolCall(f"c{4 + 3 * n}.0", "Nope", {})
        events += [Asked("turn", 3, 2), Replied(4 + 3 * n, (call,), "calls"), ended(call, "failed")]
    check(
        move(*events), "Stop(reason='error', message='20 steps in a row without one successful call"
    )


def test_E8_compact_on_an_empty_session_is_refused_kindly() -> None:
    check(move(*START[:2], Reminded("compact", "", "user")), "Reminded(kind='compact_refused'")
    check(
        move(*START[:2], Reminded("compact", "", "user")),
        "there is nothing yet that could be compacted",
    )


# --- subagents and background tasks ---------------------------------------------------------------

KID = "00000000-0000-4000-8000-000000000002"
AGENT, BASH = (
    ToolCall("c4.0", "Agent", {"prompt": "look"}),
    ToolCall("c4.1", "Bash", {"command": "ls"}),
)
CALLED = (
    *START,
    Asked("turn", 3, 2),
    Replied(4, (AGENT, BASH), "calls", Usage(1_000, output_tokens=50), (), 0.01),
)


def test_R071_a_token_limit_refuses_before_the_request_and_counts_what_subagents_may_use() -> None:
    ten, ends = Limits(tokens_max=10_000), (ended(AGENT), ended(BASH))
    check(move(*CALLED, *ends, limits=ten), "AskModel(usd_left=None, tokens_left=8950)")
    few = move(*CALLED, *ends, limits=Limits(tokens_max=1_500))
    check(few, "Stop(reason='budget', message='the token limit stands: 1050 of 1500")
    granted = row(
        *CALLED, SubagentStarted(KID, "explore", "c4.0", Grant(0, 8_000), background=True), *ends
    )
    check(move(*granted, limits=ten), "the token limit stands: 9050 of 10000 tokens")
    back = (
        SubagentEnded(KID, "done", usage=Usage(2_000, output_tokens=100)),
        Reminded("subagent_done", "x", state="9"),
    )
    check(move(*granted, *back, limits=ten), "tokens_left=6850")


def test_a_time_limit_counts_from_the_start_of_the_turn() -> None:
    check(move(*START, limits=Limits(seconds_max=60), task_s=59), "AskModel")
    check(
        move(*START, limits=Limits(seconds_max=60), task_s=61),
        "Stop(reason='limit', message='the time limit of 60",
    )
