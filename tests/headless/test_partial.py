"""Partial messages: the raw events add up to the message that follows."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.agent import ReplyDelta
from longrein.frontends.headless import OutputOptions
from longrein.frontends.headless.partial_messages import Delta, PartialMessages
from longrein.frontends.headless.run_state import RunState
from longrein.models import CallDelta, TextDelta, ThinkingDelta
from longrein.steps import MAIN, RequestStep, StreamStep
from longrein_context.events import (
    Asked,
    AskFailed,
    Entry,
    Replied,
    Text,
    Thinking,
    ToolCall,
    TurnEnded,
)

from .harness import DONE, SESSION, OpenedSession, Step, answered, asked, call, ended, play
from .schema import validate

pytestmark = pytest.mark.anyio
PARTIAL = OutputOptions("stream-json", partial=True)


def put_together(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Content blocks as a client of the Messages API builds them."""
    blocks: dict[int, dict[str, Any]] = {}
    texts: dict[int, str] = {}
    for event in events:
        match event:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert index not in blocks
                blocks[index], texts[index] = dict(block), ""
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                texts[index] += (
                    delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
                )
            case {"type": "content_block_stop", "index": index}:
                block = blocks[index]
                if block["type"] == "tool_use":
                    block["input"] = json.loads(texts[index])
                else:
                    block[block["type"]] = texts[index]
    assert list(blocks) == list(range(len(blocks)))
    return list(blocks.values())


async def test_events_come_in_the_order_of_the_api() -> None:
    turn: list[Step] = [
        asked(),
        ReplyDelta(1, [ThinkingDelta("hm"), ThinkingDelta(", well"), TextDelta("Let me ")]),
        ReplyDelta(1, [TextDelta("look."), CallDelta(0, "Read", ""), CallDelta(0, "", '{"path":')]),
        ReplyDelta(1, [CallDelta(0, "", '"a"}')]),
        answered(1, Thinking("hm, well"), "Let me look.", call(1, 0, "Read", path="a")),
        ended("c1.0", "Read", "1\tx"),
        asked(),
        answered(4, "not streamed"),
        DONE,
    ]
    ran = await play([turn], PARTIAL)
    events = [line["event"] for line in ran.lines if line["type"] == "stream_event"]
    text, call_ = (
        "block_start block_delta block_stop",
        "block_start block_delta block_delta block_stop",
    )
    assert " ".join(event["type"].removeprefix("content_") for event in events) == (
        f"message_start {text} block_start block_delta block_delta block_stop {call_} "
        "message_delta message_stop "
        f"message_start {text} message_delta message_stop"
    )
    first, second = [line["message"] for line in ran.lines if line["type"] == "assistant"]
    assert events[0]["message"]["id"] == first["id"] != second["id"] == events[14]["message"]["id"]
    assert put_together(events[:14]) == first["content"]
    assert events[2]["delta"] == {"type": "thinking_delta", "thinking": "hm, well"}
    assert len({line["uuid"] for line in ran.lines}) == len(ran.lines)


async def test_without_the_flag_nothing_grows() -> None:
    ran = await play([[asked(), ReplyDelta(1, [TextDelta("a")]), answered(1, "a"), DONE]])
    assert ran.kinds == "init assistant result"


async def test_a_summary_and_a_failed_request_are_no_replies() -> None:
    turn: list[Step] = [
        Asked("summary", 0, 1),
        ReplyDelta(1, [TextDelta("summary")], "summary"),
        answered(1, "summary"),
        asked(),
        ReplyDelta(3, [TextDelta("a")]),
        ReplyDelta(3, [TextDelta("b")]),
        AskFailed(3, "truncated", "cut"),
        asked(),
        ReplyDelta(5, [TextDelta("c")]),
        answered(5, "c"),
        TurnEnded("done"),
    ]
    ran = await play([turn], PARTIAL)
    texts = [
        line["event"]["delta"]["text"]
        for line in ran.lines
        if line["type"] == "stream_event" and line["event"]["type"] == "content_block_delta"
    ]
    assert texts == ["a", "b", "c"]


deltas = st.one_of(
    st.builds(TextDelta, st.text(min_size=1, max_size=4)),
    st.builds(ThinkingDelta, st.text(min_size=1, max_size=4)),
    st.integers(0, 2),
)


def _typed(choices: list[Any]) -> list[Delta]:
    """Call numbers become growing arrays of calls, begun by name and spread over their deltas."""
    begun: set[int] = set()
    made: list[Delta] = []
    for choice in choices:
        if isinstance(choice, int):
            made.append(
                CallDelta(
                    choice,
                    "" if choice in begun else "Bash",
                    '{"n":[1' if choice not in begun else ",1",
                )
            )
            begun.add(choice)
        else:
            made.append(choice)
    return made + [CallDelta(index, "", "]}") for index in sorted(begun)]


@given(st.lists(deltas, max_size=12), st.integers(1, 4))
def test_any_batches_of_any_deltas_make_blocks_that_add_up(choices: list[Any], batch: int) -> None:
    stream = _typed(choices)
    tally, partial = RunState(SESSION, OpenedSession.model), PartialMessages()
    tally.step(Entry(1, 1, asked()))
    lines = []
    for at in range(0, len(stream), batch):
        lines += partial.draw(StreamStep(0, 0, MAIN, 1, stream[at : at + batch]), tally)
    reply = Replied(1, (Text("x"),) if not stream else (), "end")
    lines += partial.close(RequestStep(2, 0, MAIN, 1, None, 0, reply), reply, tally)
    for line in lines:
        validate(line)
    blocks = put_together([line["event"] for line in lines])
    said = "".join(b["text"] for b in blocks if b["type"] == "text")
    assert said == ("".join(d.text for d in stream if isinstance(d, TextDelta)) if stream else "x")
    calls = {b["id"]: len(b["input"]["n"]) for b in blocks if b["type"] == "tool_use"}
    assert calls == {
        f"c1.{n}": sum(c == n for c in choices if isinstance(c, int))
        for n in choices
        if isinstance(n, int)
    }


def test_a_call_that_was_not_streamed_is_drawn_as_received() -> None:
    tally, partial = RunState(SESSION, OpenedSession.model), PartialMessages()
    tally.step(Entry(1, 1, asked()))
    reply = Replied(1, (ToolCall("c1.0", "Bash", None, "{oops"),), "calls")
    lines = partial.close(RequestStep(2, 0, MAIN, 1, None, 0, reply), reply, tally)
    assert lines[2]["event"]["delta"] == {"type": "input_json_delta", "partial_json": "{oops"}
