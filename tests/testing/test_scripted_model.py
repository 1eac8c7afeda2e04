"""Contracts of the shipped model doubles."""

import pytest

from longrein.models import CallDelta, Delta, Reply, TextDelta, ThinkingDelta
from longrein.testing.scripted_model import RuleBroken, ScriptedModel, call, check_rules, says
from longrein_context import Budget, Item, Request
from longrein_context.events import AnyPart, PrefixSet, Text, Thinking, ToolCall, ToolResult, Usage

pytestmark = pytest.mark.anyio

PREFIX = PrefixSet("start", "test", "script", "scripted", "Be good.")


def item(seq: int, kind: str, part: AnyPart) -> Item:
    return Item((seq, 0, 0), kind, (seq, seq), f"r{seq}", part)  # type: ignore[arg-type]


def request(*items: Item, marks: tuple[int, ...] = (0,)) -> Request:
    return Request("s", PREFIX, 2, items, marks, 1_000)


USER = item(3, "user", Text("hello"))
SAID = item(5, "text", Text("I look"))
CALL_0 = item(5, "call", ToolCall("c4.0", "Read", {}))
CALL_1 = item(5, "call", ToolCall("c4.1", "Read", {}))
END_0 = item(7, "result", ToolResult("c4.0", "Read", "ok", (Text("a"),)))
END_1 = item(8, "result", ToolResult("c4.1", "Read", "ok", (Text("b"),)))
SLOT_1 = item(0, "result", ToolResult("c4.1", "Read", "not_run", ()))

BROKEN = [
    ((), "the request holds no block"),
    ((SAID, USER), "the first block is the assistant's"),
    ((USER, SAID), "the last block is the assistant's, and this model takes no prefill"),
    ((USER, CALL_0), "calls without a result: ['c4.0']"),
    ((USER, CALL_0, USER, END_0), "block 2: a user stands where the result of c4.0 is due"),
    ((USER, CALL_0, CALL_1, END_1, END_0), "block 3: a result of c4.1 where ['c4.0'] is due"),
    (
        (USER, CALL_0, CALL_1, END_0, USER, END_1),
        "block 4: a user stands where the result of c4.1 is due",
    ),
    ((USER, CALL_0, END_0, END_0), "block 3: a result of c4.0 where none is due"),
    ((USER, CALL_0, END_0, CALL_0, END_0), "block 3: call id 'c4.0' is empty or stands twice"),
    ((USER, CALL_0, CALL_1, END_0, SLOT_1), "block 4: the empty slot of c4.1 was sent"),
    ((USER, item(4, "user", Text(""))), "block 1: an empty user"),
    (
        (USER, item(4, "thinking", Thinking("")), USER),
        "block 1: thinking without text or the provider's bytes",
    ),
]


@pytest.mark.parametrize(("items", "problem"), BROKEN)
def test_a_request_to_be_refused_is_our_own_mistake(items: tuple[Item, ...], problem: str) -> None:
    with pytest.raises(RuleBroken) as raised:
        check_rules(request(*items))
    assert str(raised.value).splitlines()[0] == problem


def test_a_request_that_keeps_the_rules_passes() -> None:
    check_rules(request(USER, SAID, CALL_0, CALL_1, END_0, END_1, USER, marks=(0, 4, 6)))
    check_rules(request(USER, SAID), Budget(1_000, 100, accepts_prefill=True))


@pytest.mark.parametrize("marks", [(0, 0), (1, 0), (0, 1, 2, 3), (0, 9), (-1,)])
def test_marks_rise_and_point_at_blocks(marks: tuple[int, ...]) -> None:
    with pytest.raises(RuleBroken, match="marks"):
        check_rules(request(USER, SAID, USER, marks=marks))


def test_a_request_over_the_window_is_refused() -> None:
    with pytest.raises(RuleBroken, match="tokens do not fit a window of 100"):
        check_rules(request(item(3, "user", Text("word " * 500))), Budget(100, 10))


async def stream(model: ScriptedModel, sent: Request) -> list[Delta]:
    return [delta async for batch in model.stream(sent) for delta in batch]


async def test_a_reply_streams_in_pieces_and_ends_with_itself() -> None:
    model = ScriptedModel(
        says(Thinking("hm"), "a text longer than one piece is", call("Read", file_path="a.py"))
    )
    deltas = await stream(model, request(USER))
    assert deltas[:-1] == [
        ThinkingDelta("hm"),
        TextDelta("a text longer than one p"),
        TextDelta("iece is"),
        CallDelta(0, "Read"),
        CallDelta(0, "", '{"file_path":"a.py"}'),
    ]
    final = deltas[-1]
    assert isinstance(final, Reply)
    assert (final.stop, final.parts[2]) == ("calls", ToolCall("", "Read", {"file_path": "a.py"}))


async def test_a_script_must_be_played_to_its_end_and_not_beyond() -> None:
    model = ScriptedModel(says("only", usage=Usage(1, 0, 0, 1)))
    with pytest.raises(AssertionError, match="1 steps of the script were not used"):
        model.check_done()
    await stream(model, request(USER))
    model.check_done()
    with pytest.raises(AssertionError, match="the script is over after 1 requests"):
        await stream(model, request(USER))
