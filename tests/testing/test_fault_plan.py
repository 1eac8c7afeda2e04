"""Conversations over sockets end the same with random faults as without."""

import asyncio

import pytest

from longrein.context import Item
from longrein.events import RETRYABLE, Text, ToolCall
from longrein.models import Model, Reply
from longrein.testing.chaos import FAULT_MAKERS, RECOVERABLE_KINDS, FaultPlan
from longrein.testing.loopback import Call, LoopbackProvider, Turn
from tests.models.http_server import answer_of, item, open_wire_model, request, result
from tests.models.test_loopback import MODELS, of_reply

TRIES_MAX = 6
"""More than any turn of a plan suffers."""
SCRIPT = (
    Turn(
        thinking="I look first.",
        text="I look at both.",
        calls=(Call("Read", {"path": "a"}), Call("Read", {"path": "b"})),
    ),
    Turn(match="result c2.1", text="Once more, 你好. " * 20, calls=(Call("Read", {"path": "c"}),)),
    Turn(match="result c4.0", text="Done."),
)


async def reply_of(model: Model, items: list[Item], wire: str) -> Reply:
    """Retry until there is a reply, as the loop does but without pauses."""
    for _ in range(TRIES_MAX):
        end = (await answer_of(model, request(*items, wire=wire)))[-1]
        if isinstance(end, Reply):
            return end
        assert end.kind in RETRYABLE, end  # type: ignore[union-attr]
    raise AssertionError(f"no answer after {TRIES_MAX} tries")


async def talk(wire: str, turns: list[Turn]) -> list[str]:
    """Return the replies of the model, one line per step."""
    items = [item(1, Text("go"), "user")]
    said = []
    async with LoopbackProvider(turns) as server:
        model = open_wire_model(wire, server.url, MODELS[wire], idle_timeout_s=0.05)
        for seq in (2, 4, 6):
            reply = await reply_of(model, items, wire)
            mine = of_reply(seq, reply)
            calls = [one.part for one in mine if isinstance(one.part, ToolCall)]
            said.append(" ".join(str(p.arguments if isinstance(p, ToolCall) else p) for p in reply.parts))
            items += mine + [item(seq + 1, result(c.id, Text(f"result {c.id}")), n=n) for n, c in enumerate(calls)]
        assert (server.unused(), server.refused) == ([], []), str(server.unused() + server.refused)
        await model.aclose()
    return said


@pytest.mark.anyio
@pytest.mark.parametrize("wire", MODELS)
async def test_faults_change_nothing_in_what_is_said_in_the_end(wire: str) -> None:
    plain = await talk(wire, list(SCRIPT))
    assert len(plain) == 3
    plans = [FaultPlan(seed, kinds=RECOVERABLE_KINDS, rate=0.7) for seed in range(5)]
    for plan, said in zip(plans, await asyncio.gather(*(talk(wire, p.over(SCRIPT)) for p in plans)), strict=True):
        assert said == plain, f"seed {plan.seed}: {plan.drawn}"


def test_a_seed_is_a_plan() -> None:
    assert FaultPlan(7).over(SCRIPT) == FaultPlan(7).over(SCRIPT)
    plans = [FaultPlan(seed) for seed in range(60)]
    assert len({plan.enabled for plan in plans}) > 30, "each seed has its own kinds"
    drawn = [plan.draw() for plan in plans for _ in range(20)]
    assert {fault.kind for fault in drawn if fault} == set(FAULT_MAKERS)
    assert all(fault.kind in plan.enabled for plan in plans for fault in plan.drawn)
    assert 400 < drawn.count(None) < 800


def test_a_turn_keeps_its_own_fault() -> None:
    own = FaultPlan(1, rate=1).over(SCRIPT)[0]
    assert FaultPlan(2, rate=1).over([own]) == [own]
