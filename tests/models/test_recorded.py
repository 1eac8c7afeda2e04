"""Regressions found in streams of real providers, rewritten; `lab/recorded.py` replays
the originals.
"""

import json
from typing import Any

import pytest

from longrein.models import Reply, TextDelta
from longrein.models.http_model import read_body
from longrein_context.events import AnyPart, Text, Thinking, ToolCall, Usage
from tests.models.http_server import Answer, answer_of, open_wire_model, serve_answers, sse
from tests.models.test_replies import ASKED, read, reading

LOOK = ToolCall("", "Read", {"path": "a"})


# --- the provider's own doings are not the model's answer -----------------------------------------


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """One block of a message as it is streamed."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def message(*blocks: list[dict[str, Any]], stop: str = "end_turn") -> bytes:
    """A streamed message of these blocks."""
    start = {
        "type": "message_start",
        "message": {"id": "m1", "model": "claude-x-1", "usage": {"input_tokens": 10}},
    }
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 20}}
    return sse(
        start,
        *(event for events in blocks for event in events),
        end,
        {"type": "message_stop"},
        named=True,
    )


def arguments(*pieces: str) -> list[dict[str, Any]]:
    return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


SAID = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "I look."})
FOREIGN_BLOCKS = [
    block(
        1,
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
        *arguments('{"q":', '"x"}'),
    ),
    block(
        1,
        {"type": "mcp_tool_use", "id": "mcp_1", "name": "echo", "server_name": "e", "input": {}},
        *arguments("{}"),
    ),
    block(
        1,
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srv_1",
            "content": [{"type": "web_search_result"}],
        },
    ),
    block(
        1,
        {"type": "compaction", "content": None},
        {"type": "compaction_delta", "content": "what was said so far"},
    ),
    block(
        1,
        {"type": "of_a_later_year", "id": 7, "text": {"a": 1}, "input": "x"},
        {"type": "later", "text": ["x"]},
    ),
]


@pytest.mark.parametrize(
    "foreign", FOREIGN_BLOCKS, ids=lambda events: events[0]["content_block"]["type"]
)
def test_blocks_of_messages_that_are_no_answer_of_the_model_are_passed_over(
    foreign: list[dict[str, Any]],
) -> None:
    call = block(
        2,
        {"type": "tool_use", "id": "t", "name": "Read", "input": {}},
        *arguments('{"path":', '"a"}'),
    )
    deltas, reply = read("anthropic", message(SAID, foreign, call, stop="tool_use"))
    assert isinstance(reply, Reply), reply
    assert (reply.parts, reply.stop) == ((Text("I look."), LOOK), "calls")
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["I look."]


@pytest.mark.parametrize("start", [None, {}, {"text": ""}])
def test_a_block_that_does_not_say_what_it_is_is_text(start: Any) -> None:
    reply = read("anthropic", message(block(0, start, {"type": "text_delta", "text": "so"})))[1]
    assert reply.parts == (Text("so"),)


def item(index: int, fields: dict[str, Any], *deltas: tuple[str, str]) -> list[dict[str, Any]]:
    """One output item of a response as it is streamed."""
    where = {"output_index": index}
    return [
        {"type": "response.output_item.added", "item": fields, **where},
        *({"type": f"response.{kind}.delta", "delta": text, **where} for kind, text in deltas),
        {"type": "response.output_item.done", "item": fields, **where},
    ]


def response(*items: list[dict[str, Any]], **end: Any) -> bytes:
    """A streamed response of these items."""
    events = [event for events in items for event in events]
    fields = {
        "model": "gpt-x-1",
        "status": "completed",
        "usage": {"input_tokens": 10, "output_tokens": 20},
        **end,
    }
    return sse(*events, {"type": "response.completed", "response": fields}, named=True)


CALL_ITEM = {"type": "function_call", "call_id": "c", "name": "Read", "arguments": '{"path":"a"}'}
FOREIGN_ITEMS = [
    {
        "type": "tool_search_call",
        "id": "t",
        "call_id": None,
        "arguments": {"query": "x"},
        "status": "completed",
    },
    {"type": "tool_search_output", "id": "t", "tools": [{"name": "Read"}]},
    {"type": "custom_tool_call", "name": "patch", "input": "*** Begin", "content": "x"},
    {"type": "web_search_call", "id": "w"},
    {"type": "of_a_later_year", "name": 3, "content": {"a": 1}, "summary": "x", "arguments": [1]},
]


@pytest.mark.parametrize("foreign", FOREIGN_ITEMS, ids=lambda fields: fields["type"])
def test_items_of_responses_that_are_no_answer_of_the_model_are_passed_over(
    foreign: dict[str, Any],
) -> None:
    deltas = (
        [("function_call_arguments", '{"query"')] if foreign["type"] == "tool_search_call" else []
    )
    reply = read("openai-responses", response(item(0, foreign, *deltas), item(1, CALL_ITEM)))[1]
    assert isinstance(reply, Reply), reply
    assert (reply.parts, reply.stop) == ((LOOK,), "calls")


def test_arguments_that_come_as_an_object_are_arguments() -> None:
    reply = read("openai-responses", response(item(0, {**CALL_ITEM, "arguments": {"path": "a"}})))[
        1
    ]
    assert isinstance(reply, Reply), reply
    assert reply.parts == (LOOK,)


# --- how a reply ends -----------------------------------------------------------------------------


TEXT_ITEM = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "so far"}]}


ERROR = {"code": "rate_limit_exceeded", "message": "slow"}


def cut_for(reason: str) -> dict[str, Any]:
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


@pytest.mark.parametrize(("end", "expected"), [
    ({}, "end"),
    (cut_for("max_output_tokens"), "length"),
    (cut_for("content_filter"), "refusal"),
    ({"status": "incomplete", "incomplete_details": None}, "length"),
    ({"status": "failed", "error": {"code": "server_error", "message": "oops"}}, "server: oops"),
    ({"status": "failed", "error": ERROR}, "rate: slow"),
    ({"status": "failed", "error": None}, "server: failed"),
    ({"status": "cancelled"}, "server: cancelled"),
])  # fmt: skip
def test_the_status_of_a_completed_response_counts(end: dict[str, Any], expected: str) -> None:
    found = read("openai-responses", response(item(0, TEXT_ITEM), **end))[1]
    told = found.stop if isinstance(found, Reply) else f"{found.kind}: {found.message}"
    assert told == expected
    assert (found.parts if isinstance(found, Reply) else found.partial) == (Text("so far"),)


def test_a_paused_turn_is_not_the_end() -> None:
    reply = read("anthropic", message(SAID, stop="pause_turn"))[1]
    assert reply.stop == "length", "it is asked to go on"


def test_what_the_end_of_an_item_holds_beyond_its_deltas_is_not_lost() -> None:
    deltas, reply = read("openai-responses", response(item(0, TEXT_ITEM, ("output_text", "so"))))
    assert reply.parts == (Text("so far"),)
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["so", " far"]


def test_a_second_message_in_the_middle_of_the_first_is_no_reply() -> None:
    start, *rest = message(SAID).split(b"\n\n")
    again = b"\n\n".join((start, *rest[:2], start.replace(b'"m1"', b'"m2"'), *rest))
    failed = read("anthropic", again)[1]
    assert failed.kind == "truncated"
    assert failed.message == "the provider began a second answer in the middle of the first"
    twice = b"\n\n".join((start, start, *rest))
    assert read("anthropic", twice)[1] == read("anthropic", message(SAID))[1], (
        "its head said twice is the same message"
    )


def test_a_call_of_a_tool_that_gemini_does_not_know_is_a_call() -> None:
    parts = [{"functionCall": {"name": "Gone", "args": {}}}]
    candidate = {"content": {"parts": parts}, "finishReason": "UNEXPECTED_TOOL_CALL"}
    reply = read("gemini", sse({"candidates": [candidate]}))[1]
    assert (reply.parts, reply.stop) == ((ToolCall("", "Gone", {}),), "calls")


# --- servers that do not stream -------------------------------------------------------------------

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "S1"}
REASONED = {
    "type": "reasoning",
    "id": "r",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "E",
}
PARTS: tuple[AnyPart, ...] = (Thinking("hm"), Text("so far"), LOOK)
SEARCHED = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}}
READING = {"name": "Read", "arguments": '{"path":"a"}'}
CHAT_MESSAGE = {
    "role": "assistant",
    "reasoning_content": "hm",
    "content": "so far",
    "tool_calls": [{"id": "c", "function": READING}],
}
FIRST_PARTS = [{"text": "hm", "thought": True}, {"text": "so far"}]
LAST_PARTS = [{"functionCall": {"name": "Read", "args": {"path": "a"}}}]
WHOLE: dict[str, Any] = {
    "anthropic": {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "model": "x-1",
        "content": [
            THOUGHT,
            {"type": "text", "text": "so far"},
            SEARCHED,
            {"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "a"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 10, "output_tokens": 20},
    },
    "openai-chat": {
        "object": "chat.completion",
        "model": "x-1",
        "choices": [{"message": CHAT_MESSAGE, "finish_reason": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 20},
    },
    "openai-responses": {
        "object": "response",
        "id": "r1",
        "status": "completed",
        "model": "x-1",
        "output": [REASONED, {"type": "web_search_call", "id": "w"}, TEXT_ITEM, CALL_ITEM],
        "usage": {"input_tokens": 10, "output_tokens": 20},
    },
    "gemini": [
        {"candidates": [{"content": {"parts": FIRST_PARTS}}]},
        {
            "candidates": [{"content": {"parts": LAST_PARTS}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 20},
            "modelVersion": "x-1",
        },
    ],
}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "text/plain", ""]
)
@pytest.mark.parametrize("wire", WHOLE)
async def test_an_answer_that_is_one_piece_of_json_is_the_same_reply(wire: str, kind: str) -> None:
    body = json.dumps(WHOLE[wire], indent=1).encode()
    pieces = [body[:10], body[10:]]
    async with serve_answers(Answer(headers={"content-type": kind}, chunks=pieces)) as server:
        model = open_wire_model(wire, server.url)
        reply = (await answer_of(model, ASKED))[-1]
        await model.aclose()
    assert isinstance(reply, Reply), reply
    found = (reply.parts, reply.stop, reply.usage, reply.model)
    assert found == (PARTS, "calls", Usage(10, 0, 0, 20), "x-1")
    raw = {
        "anthropic": json.dumps(THOUGHT, separators=(",", ":")),
        "openai-responses": json.dumps(REASONED),
    }
    if wire in raw:
        assert json.loads(reply.blocks[0].raw) == json.loads(raw[wire]), "it can go back"


@pytest.mark.parametrize("wire", WHOLE)
def test_half_of_a_json_answer_is_no_reply(wire: str) -> None:
    body = json.dumps(WHOLE[wire]).encode()
    for at in range(0, len(body), 13):
        assert not isinstance(read_body(reading(wire), body[:at])[1], Reply), at
