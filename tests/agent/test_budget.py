"""The budget tree: what is left, what a spawn costs, who gets how much, and that no cap is ever
passed (law 6, I5).
"""

from typing import Any

import pytest

from longrein.agent.dependencies import Limits, MoveContext, RemainingBudget
from longrein.agent.moves import Record, next_move
from longrein.agent.subagents.budget import (
    Granted,
    RunOption,
    SpawnRequest,
    Spent,
    answer_reserve,
    limits_under,
    limits_within,
    quote,
    remaining_budget,
    share_budget,
    spent_on_task,
    without_reserve,
)
from longrein_context import Budget, Price, State, Summarise, fold
from longrein_context.events import (
    AnyEvent,
    Asked,
    Entry,
    Grant,
    Opened,
    PrefixSet,
    Reminded,
    Replied,
    Summarized,
    Text,
    TurnEnded,
    Usage,
    UserSpoke,
)

near: Any = pytest.approx
PRICE = Price(3, 15, 0.3, 3.75)
BUDGET = Budget(200_000, 8_000, PRICE)
CHEAP = Budget(200_000, 8_000, Price(0.3, 1.5, 0.03, 0.375))
EMPTY = RunOption("empty", BUDGET, 5_000)
FORK = RunOption("fork", BUDGET, 200, 90_000)
SMALL = RunOption("empty", CHEAP, 5_000)


def log(*events: AnyEvent, grant: Grant | None = None, label: str = "") -> State:
    first = Opened(1, "s", "n0nce", ("/w",), "/w", grant=grant, label=label)
    prefix = PrefixSet("start", "test", "big", "scripted", "Be good.")
    return fold([Entry(n, n * 1_000_000, one) for n, one in enumerate((first, prefix, *events), 1)])


def speak(text: str = "do it") -> UserSpoke:
    return UserSpoke((Text(text),))


def cost(usd: float, tokens: int, asked: int) -> list[AnyEvent]:
    """A request and its answer."""
    return [
        Asked("turn", asked - 1, 2, estimate_tokens=tokens, reserved_usd=usd),
        Replied(asked, (Text("ok"),), "end", Usage(tokens), cost_usd=usd),
    ]


# --- what is left ---------------------------------------------------------------------------------


def test_a_subagent_counts_its_task_from_where_that_began() -> None:
    """Asked again, it has a grant of its own, and what it spent before is not counted against
    it.
    """
    grant = Grant(usd=1.0, tokens=5_000, turns=7, spawns=3, depth=1, seconds=9)
    state = log(
        speak(),
        *cost(0.5, 1_000, 4),
        TurnEnded("done"),
        speak("again"),
        *cost(0.25, 100, 8),
        label="a5",
    )
    limits = limits_under(Limits(turns_max=99, usd_max=50), grant, state)
    assert (limits.usd_max, limits.tokens_max, limits.turns_max) == (1.5, 6_000, 7)
    assert (limits.spawns_max, limits.seconds_max, limits.depth_max) == (3, 9, 1)
    assert spent_on_task(state, {}) == Spent(0.25, 100, 0)
    assert remaining_budget(state, limits, 0, {}) == RemainingBudget(0.75, 4_900, 9, 3, 1)


def test_P6_a_summary_is_refused_before_the_act_too_and_the_digest_takes_its_place() -> None:
    state = log(
        speak("word " * 9_000),
        *cost(0.5, 10_000, 4),
        TurnEnded("done"),
        Reminded("compact", "", "user"),
    )
    for usd_max, kind in ((0.0, Summarise), (5.0, Summarise), (0.6, Record)):
        move = next_move(state, {}, MoveContext(BUDGET, Limits(usd_max=usd_max)))
        assert isinstance(move, kind), (usd_max, move)
    assert isinstance(move, Record)
    assert isinstance(move.events[0], Summarized)


# --- what is kept back ----------------------------------------------------------------------------


def test_the_price_of_a_request_that_carries_all_reports_is_kept_back() -> None:
    state = log(speak())
    assert answer_reserve(state, BUDGET) == Spent()
    # a page shows no more
    assert answer_reserve(state, BUDGET, more=32).tokens == state.view_tokens + 12_000 + 2_000
    kept = answer_reserve(state, BUDGET, more=1)
    assert kept.tokens == state.view_tokens + 8_000 + 2_000
    assert kept.usd == near(((state.view_tokens + 8_000) * 3.75 + 2_000 * 15) / 1e6)
    room = without_reserve(
        RemainingBudget(usd=1.0, tokens=20_000, seconds=100, spawns=5, depth=1), kept
    )
    assert room == RemainingBudget(1.0 - kept.usd, 20_000 - kept.tokens, 90, 5, 1)
    narrow = Budget(10_000, 8_000, PRICE)
    assert answer_reserve(state, narrow, more=500).tokens == 12_000, "no more than the window"


def test_a_limit_of_nothing_is_not_no_limit() -> None:
    now = limits_within(Limits(), log(speak()), RemainingBudget(usd=0.0, tokens=0))
    assert 0 < now.usd_max < 1e-6
    assert now.tokens_max == 1


# --- the price of a spawn -------------------------------------------------------------------------


# --- who gets what --------------------------------------------------------------------------------


def check(
    room: RemainingBudget, wishes: list[SpawnRequest], *expected: str, rivals: int = 0
) -> None:
    found = []
    for one in share_budget(room, wishes, rivals=rivals):
        if isinstance(one, str):
            found.append(f"refused: {one}")
        else:
            note = f" ({one.note})" if one.note else ""
            found.append(
                f"{one.offer.form} ${one.grant.usd:.2f} {one.grant.depth} {one.grant.spawns}{note}"
            )
    assert found == list(expected)


JOB = SpawnRequest((EMPTY,))


def test_shares_are_fair_and_one_stays_with_the_parent() -> None:
    room = RemainingBudget(usd=4.0, depth=1)
    check(room, [JOB] * 3, *["empty $1.00 0 0"] * 3)
    check(room, [JOB], "empty $2.00 0 0")
    check(room, [JOB], "empty $1.00 0 0", rivals=2)


def test_R071_what_cannot_be_paid_is_refused_before_the_act() -> None:
    price = quote(EMPTY)
    instead = "do it yourself or with fewer subagents, or answer with what you have"
    dear = (
        f"it is expected to cost about {price.tokens} tokens, and no more than 10000 tokens "
        "can be granted"
    )
    check(RemainingBudget(tokens=10_000, depth=1), [JOB], f"refused: {dear}; {instead}")
    said = share_budget(RemainingBudget(usd=price.usd * 3.5, depth=1), [JOB] * 10)
    assert [isinstance(one, Granted) for one in said] == [True] * 3 + [False] * 7
    late = "refused: no time is left for a subagent; answer with what you have"
    check(RemainingBudget(seconds=0, depth=1), [JOB], late)


def test_it_is_made_cheaper_before_it_is_refused() -> None:
    both, fork, empty = SpawnRequest((FORK, EMPTY)), quote(FORK).usd, quote(EMPTY).usd
    assert empty < fork
    check(RemainingBudget(usd=1.0, depth=1), [both], "fork $0.50 0 0")
    note = f"as asked for it would cost about ${fork:.4f}, ${empty + 0.01:.4f} can be granted"
    check(
        RemainingBudget(usd=empty + 0.01, depth=1),
        [both],
        f"empty ${empty:.2f} 0 0 (empty instead of fork: {note})",
    )


# --- whole trees ----------------------------------------------------------------------------------
