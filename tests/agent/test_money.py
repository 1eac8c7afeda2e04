"""The bill: what is settled for a request whose usage the provider told wrongly, or not at all."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from longrein.agent import Limits, SetModel, SubagentView, UserMessage, session_usd
from longrein.models import (
    Delta,
    Failure,
    Reply,
    TextDelta,
    UsageDelta,
    cost_usd,
    settled_usage,
)
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import memory_dependencies, open_test_session
from longrein.testing.store import MemoryDisk
from longrein_context import Budget, Price, Request, fold, settled_usd, task_usd
from longrein_context.events import (
    SCHEMA_VERSION,
    Asked,
    AskFailed,
    Entry,
    Grant,
    Opened,
    PrefixSet,
    Replied,
    SubagentStarted,
    Text,
    Thinking,
    TurnEnded,
    Usage,
    UserSpoke,
    usd_of,
)
from tests.agent.disk_harness import UncheckedModel, turn
from tests.context.random_session import RandomSession
from tests.tables import cases
from tests.timeouts import until

pytestmark = pytest.mark.anyio

PRICE = Price(3, 15, 0.3, 3.75)
PRICED = Budget(200_000, 8_000, PRICE)
WORDS = "word " * 4_000
"""About 5,000 tokens of input."""
ANSWER = "word " * 400
"""About 500 tokens of output."""
HUGE = 10**30
DONE = Reply((Text("hi"),), "end", Usage(100, 0, 0, 1))
TRUE = Usage(1_000, 3_000, 1_000, 500)


class StalledModel(UncheckedModel):
    """Counts the tokens that it reads, begins an answer and goes silent."""

    deltas: tuple[Delta, ...] = ()

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        self.requests.append(request)
        yield self.deltas
        await asyncio.Event().wait()


COUNTED = Usage(1_000, 3_900, 100, 1)


@pytest.mark.parametrize(("deltas", "usage", "usd"), [
    ((UsageDelta(COUNTED), TextDelta(ANSWER)), COUNTED, 0.012),
    ((UsageDelta(COUNTED),), COUNTED, 0.006),
    ((TextDelta(ANSWER),), Usage(5_000), 0.03),
])  # fmt: skip
async def test_an_interrupted_request_costs_what_was_counted_and_came(
    deltas: tuple[Delta, ...], usage: Usage, usd: float
) -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    model = StalledModel(DONE, budget=PRICED)
    model.deltas = deltas
    session = open_test_session(
        model, disk=disk, deps=memory_dependencies(model, disk, clock=clock)
    )
    walk = asyncio.ensure_future(turn(session, WORDS))
    await until(lambda: model.requests)
    await asyncio.sleep(0)
    session.interrupt()
    await walk
    await session.close()
    (end,) = [one.event for one in disk.entries() if isinstance(one.event, Replied | AskFailed)]
    assert usd_of(end) < usd * 1.3
    if isinstance(end, Replied):
        assert "output" in end.estimated
        assert end.usage.context_tokens == pytest.approx(usage.context_tokens, rel=0.3)


async def settled(final: Reply | Failure) -> tuple[Any, MemoryDisk]:
    """The event that ends a request which `final` answers, and the log; a failure is followed by
    an answer.
    """
    disk = MemoryDisk()
    clock = getattr(asyncio.get_running_loop(), "clock", None) or VirtualClock()
    model = UncheckedModel(final, *([DONE] if isinstance(final, Failure) else []), budget=PRICED)
    deps = memory_dependencies(model, disk, clock=clock)
    session = open_test_session(model, disk=disk, deps=deps, mode="bypassPermissions")
    try:
        await turn(session, WORDS)
    finally:
        await session.close()
    return next(e.event for e in disk.entries() if isinstance(e.event, Replied | AskFailed)), disk


def told(**counts: Any) -> Usage:
    return msgspec.structs.replace(TRUE, **counts)


@cases(
    "usage estimated",
    (TRUE, ()),
    (Usage(), ("input", "output")),
    (told(output_tokens=0), ("output",)),
    (told(output_tokens=-24_000_000), ("output",)),
    (told(output_tokens=HUGE), ("output",)),
    (told(output_tokens=math.nan), ("output",)),
    (told(output_tokens=math.inf), ("output",)),
    (told(output_tokens="500"), ("output",)),
    (told(output_tokens=True), ("output",)),
    (told(output_tokens=None), ("output",)),
    (told(reasoning_tokens=-1), ("output",)),
    (told(output_tokens=10_000_000), ("output",)),
    (told(input_tokens=-120_000_000), ("input",)),
    (told(cache_read_tokens=-1), ("input",)),
    (told(cache_write_tokens=0.5), ("input",)),
    (Usage(0, 0, 0, 500), ("input",)),
    (Usage(7, 0, 0, 500), ("input",)),
    (Usage(900_000_000, 0, 0, 500), ("input",)),
)
async def test_what_no_count_can_be_is_estimated(usage: Usage, estimated: tuple[str, ...]) -> None:
    replied, disk = await settled(Reply((Text(ANSWER),), "end", usage))
    assert replied.estimated == estimated
    wants = {
        "input": (TRUE.context_tokens, replied.usage.context_tokens),
        "output": (TRUE.output_tokens, replied.usage.output_tokens),
    }
    for side, (true, counted) in wants.items():
        assert counted == true if side not in estimated else true / 2 < counted < true * 2, side
    assert replied.cost_usd == pytest.approx(cost_usd(PRICE, replied.usage))
    assert 0.004 < replied.cost_usd < 0.04
    state = fold(disk.entries())
    assert state.spent_usd == pytest.approx(replied.cost_usd)
    assert state.usage == replied.usage
    assert (state.gauge.counted > 0) == ("input" not in estimated), "an estimate calibrates nothing"


async def test_of_hidden_thinking_that_was_not_counted_all_that_was_held_back_is_spent() -> None:
    replied, _ = await settled(Reply((Thinking(""), Text("yes")), "end", Usage(5_000)))
    assert replied.usage.output_tokens == PRICED.max_output_tokens


def test_an_answer_with_nothing_in_it_is_paid_for_too() -> None:
    for failure, usd in (
        (
            Failure("empty", "nothing", usage=Usage(5_000, 0, 0, 200)),
            cost_usd(PRICE, Usage(5_000, 0, 0, 200)),
        ),
        (Failure("rate", "wait", 429), 0.0),
    ):
        failed, _ = run_virtual(settled(failure), clock=VirtualClock())
        assert failed.assumed_usd == pytest.approx(usd)


async def test_a_money_limit_stops_where_no_price_is_known() -> None:
    """Also after a change of model in mid-session: a price of nothing would never reach the
    limit.
    """
    disk = MemoryDisk()
    free = UncheckedModel(DONE, budget=Budget(200_000, 8_000), name="mine/free")
    priced = UncheckedModel(DONE, budget=PRICED, name="mine/priced")
    deps = memory_dependencies(priced, disk)
    deps.open_model = {"mine/free": free, "mine/priced": priced}.__getitem__
    deps.limits = Limits(usd_max=1.0)
    session = open_test_session(priced, disk=disk, deps=deps, mode="bypassPermissions")
    try:
        for word in (
            UserMessage((Text("one"),)),
            SetModel("mine/free"),
            UserMessage((Text("two"),)),
        ):
            await turn(session, word)
    finally:
        await session.close()
    ends = [entry.event for entry in disk.entries() if isinstance(entry.event, TurnEnded)]
    assert [end.reason for end in ends] == ["done", "budget"]
    assert "no price of mine/free is known" in ends[-1].message
    assert not free.requests


def test_an_old_log_with_a_negative_bill_loads_and_lowers_nothing() -> None:
    log = (
        Opened(1, "s", "n", ("/w",), "/w"),
        PrefixSet("start", "p", "m", "w", "system"),
        Replied(3, (Text("x"),), "end", Usage(10, 0, 0, -24_000_000), cost_usd=-360.0),
    )
    state = fold([Entry(n, n, event) for n, event in enumerate(log, 1)])
    assert (state.spent_usd, state.usage) == (0.0, Usage(10))


def test_each_side_of_a_usage_is_believed_or_estimated_by_itself() -> None:
    guess = Usage(10_000, output_tokens=1_000)
    assert settled_usage(Usage(0, 9_000, 2_000, 900, 100), guess, 200_000, 8_000) == (
        Usage(0, 9_000, 2_000, 900, 100),
        (),
    )
    assert settled_usage(Usage(-1, 9_000, 2_000, 900), guess, 200_000, 8_000) == (
        Usage(10_000, 0, 0, 900),
        ("input",),
    )
    assert settled_usage(Usage(2_000_000, 0, 0, 900), guess, 200_000, 8_000)[1] == (), (
        "documents cost what they cost"
    )
    for wrong in (-5, 10**29, "many", 1.5):
        told = Usage(10_000, 0, 0, 900, 0, wrong, wrong)  # type: ignore[arg-type]
        assert settled_usage(told, guess, 200_000, 8_000) == (Usage(10_000, 0, 0, 900), ())


@pytest.mark.parametrize("seed", range(6))
def test_money_spent_is_the_sum_over_the_log_while_subagents_work(seed: int) -> None:
    """Reserves of requests and grants are no money spent."""
    walk = RandomSession(seed).run(120)
    spent = 0.0
    for n, entry in enumerate(walk.entries):
        spent += usd_of(entry.event)
        if n % 10 == 0:
            assert settled_usd(fold(walk.entries[: n + 1]), {}) == pytest.approx(spent)
    assert any(isinstance(entry.event, SubagentStarted) for entry in walk.entries)


def test_a_subagent_that_works_is_shown_with_what_it_has_spent() -> None:
    """Its request reserves 0.30, its own subagent 0.50, of which 0.04 are spent."""
    asked, began = Asked("turn", 3, 2, reserved_usd=0.3), UserSpoke((Text("look"),))
    opened = Opened(SCHEMA_VERSION, "s", "n0nce", ("/w",), "/w")
    prefix = PrefixSet("start", "mock", "small", "anthropic", "")
    paid = Replied(4, (Text("ok"),), "end", cost_usd=0.01)
    below = SubagentStarted("kid", "explore", grant=Grant(0.5, 1_000))
    events = (opened, prefix, began, asked, paid, below, asked)
    above = fold([Entry(n, n, event) for n, event in enumerate(events, 1)])
    work = msgspec.structs.replace(paid, cost_usd=0.04)
    child = fold([Entry(n, n, e) for n, e in enumerate((opened, prefix, began, asked, work), 1)])
    assert task_usd(above, {}) == pytest.approx(0.01)
    assert task_usd(above, {"kid": child}) == pytest.approx(0.05)
    view = SubagentView("a6", "kid", "explore", "", "running", cost_usd=0.04)
    assert session_usd(above, [view]) == pytest.approx(0.05)
