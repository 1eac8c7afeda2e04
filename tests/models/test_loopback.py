"""Wires against the loopback provider: conversations, and every fault."""

from typing import Any

import msgspec
import pytest

from longrein.models import Failure, Reply
from longrein.testing.loopback import Call, Fault, LoopbackProvider, Turn, common_blocks
from longrein_context import Item
from longrein_context.events import Image, Text, Thinking, ToolCall
from tests.models.http_server import answer_of, item, open_wire_model, request, result
from tests.timeouts import HANG_S

WIRES = ("anthropic", "openai-chat", "openai-responses", "gemini")
MODELS = {
    "anthropic": "claude-sonnet-5-5",
    "openai-chat": "gpt-5.2",
    "openai-responses": "gpt-6.1-sol",
    "gemini": "gemini-3.8-flash",
}
READ_A = Call("Read", {"path": "a"})


def of_reply(seq: int, reply: Reply) -> list[Item]:
    """Return the items of a reply in the view."""
    blocks = {block.part: block for block in reply.blocks}
    items, calls = [], 0
    for n, part in enumerate(reply.parts):
        if isinstance(part, ToolCall):
            part, calls = msgspec.structs.replace(part, id=f"c{seq}.{calls}"), calls + 1  # noqa: PLW2901
        made = item(seq, part, "text" if isinstance(part, Text) else "", n)
        items.append(msgspec.structs.replace(made, block=blocks.get(n)))
    return items


async def turns(
    model: Any, wire: str, server: LoopbackProvider, *said: list[Item]
) -> list[Reply | Failure]:
    """Send each list in a conversation that grows by the replies and a result for each call."""
    items: list[Item] = []
    ends: list[Reply | Failure] = []
    seq = 1
    for more in said:
        items += [msgspec.structs.replace(one, key=(seq, n, 0)) for n, one in enumerate(more)]
        marks = (0, len(items) - 1) if len(items) > 1 else (0,)
        end = (await answer_of(model, request(*items, marks=marks, wire=wire)))[-1]
        assert isinstance(end, Reply | Failure)
        ends.append(end)
        if isinstance(end, Reply):
            replied = of_reply(seq + 1, end)
            items += replied
            calls = [one.part for one in replied if isinstance(one.part, ToolCall)]
            items += [
                item(seq + 2, result(c.id, Text(f"result {c.id}"), name=c.name), n=n)
                for n, c in enumerate(calls)
            ]
        seq += 3
    assert server.refused == []
    return ends


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_a_conversation_with_everything_in_it(wire: str) -> None:
    script = [
        Turn(thinking="I look first.", text="I look.", calls=(READ_A, Call("Read", {}))),
        Turn(thinking="Once more.", calls=(READ_A,)),
        Turn(calls=(Call("Read", raw='{"path": '),)),
        Turn(text="Done 你好."),
    ]
    async with LoopbackProvider(script) as server:
        model = open_wire_model(wire, server.url, MODELS[wire])
        ends = await turns(
            model,
            wire,
            server,
            [item(1, Text("static"), "context"), item(1, Text("go"), "user")],
            [item(1, Text("steer"), "user")],
            [],
            [],
        )
        replies = [end for end in ends if isinstance(end, Reply)]
        if wire == "gemini":  # this provider reads the calls itself and breaks off when it cannot
            assert isinstance(ends[2], Failure)
            assert ends[2].kind == "server"
        else:
            assert isinstance(ends[2], Reply)
            assert ends[2].parts == (ToolCall("", "Read", None, '{"path": '),)
        found = [reply.stop for reply in replies if reply is not ends[2]]
        assert found == ["calls", "calls", "end"]
        assert replies[0].parts[0] == Thinking("I look first.") or wire == "openai-chat"
        calls = [part for part in replies[0].parts if isinstance(part, ToolCall)]
        found = [(call.name, call.arguments) for call in calls]
        assert found == [("Read", {"path": "a"}), ("Read", {})]
        assert replies[-1].parts == (Text("Done 你好."),)
        assert replies[-1].usage.context_tokens > 0
        assert server.unused() == []
        for before, after in zip(server.requests, server.requests[1:], strict=False):
            assert common_blocks(before, after) == len(before.blocks), (
                "law 2, as the provider sees it"
            )
        await model.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_pictures_are_taken(wire: str) -> None:
    async with LoopbackProvider([Turn(calls=(READ_A,)), Turn(text="I see.")]) as server:
        model = open_wire_model(wire, server.url, MODELS[wire])
        first = (await answer_of(model, request(item(1, Text("go"), "user"), wire=wire)))[-1]
        assert isinstance(first, Reply)
        shown = result("c2.0", Text("here:"), Image("real", "image/png", 70))
        items = [item(1, Text("go"), "user"), *of_reply(2, first), item(3, shown)]
        assert isinstance((await answer_of(model, request(*items, wire=wire)))[-1], Reply)
        await model.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("fault", "kinds"), [
    (Fault(status=429, headers={"retry-after": "2"}), {"rate"}),
    (Fault(status=529), {"overload"}),
    (Fault(status=503), {"overload"}),
    (Fault(status=500), {"server"}),
    (Fault(status=401), {"auth"}),
    (Fault(kind="cut", at=400), {"network", "truncated"}),
    (Fault(kind="cut", at=400, how="close"), {"truncated"}),
    (Fault(kind="cut", at=400, how="end"), {"truncated"}),
    (Fault(kind="no_end"), {"truncated"}),
    (Fault(kind="stall", at=400), {"stalled"}),
    (Fault(kind="garbage", at=2), {"server"}),
    (Fault(kind="error", at=2), {"overload", "server", "rate"}),
    (Fault(kind="empty"), {"empty"}),
    (Fault(kind="overflow"), {"overflow"}),
])  # fmt: skip
async def test_every_fault_is_a_failure_of_its_kind_and_the_next_request_is_answered(
    wire: str, fault: Fault, kinds: set[str]
) -> None:
    async with LoopbackProvider([Turn(text="a long enough answer " * 20, fault=fault)]) as server:
        model = open_wire_model(
            wire, server.url, MODELS[wire], idle_timeout_s=0.05 if fault.kind == "stall" else HANG_S
        )
        asked = request(item(1, Text("go"), "user"), wire=wire)
        failure = (await answer_of(model, asked))[-1]
        if (wire, fault.kind) == ("openai-chat", "no_end"):
            assert isinstance(failure, Reply), "many servers of this wire do without"
        else:
            assert failure.kind in kinds
        if fault.status == 429:
            assert failure.retry_after_s == 2.0
        if fault.kind != "empty":
            assert isinstance((await answer_of(model, asked))[-1], Reply)
        await model.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "fault", [Fault(kind="drip", bytes=7), Fault(kind="duplicate_ids"), Fault(kind="missing_ids")]
)
async def test_R019_faults_that_a_reply_survives(wire: str, fault: Fault) -> None:
    script = [
        Turn(text="I look.", calls=(READ_A, Call("Read", {"path": "b"})), fault=fault),
        Turn(text="ok"),
    ]
    async with LoopbackProvider(script) as server:
        model = open_wire_model(wire, server.url, MODELS[wire])
        first, second = await turns(model, wire, server, [item(1, Text("go"), "user")], [])
        assert isinstance(first, Reply)
        assert isinstance(second, Reply)
        found = [part.arguments for part in first.parts if isinstance(part, ToolCall)]
        assert found == [{"path": "a"}, {"path": "b"}]
        await model.aclose()
