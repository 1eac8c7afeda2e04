"""Replies of each wire: whole, in pieces, cut and damaged streams."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.models import (
    CallDelta,
    Delta,
    Failure,
    Reply,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from longrein.models.catalog import make_wire
from longrein.models.http_model import read_body, read_events, read_rest
from longrein.models.transport import EventSplitter
from longrein.models.wire_base import StreamReader, WireTarget
from longrein.models.wire_content import read_arguments
from longrein_context.events import ProviderBlock, Text, Thinking, ToolCall, Usage
from tests.models.http_server import (
    Answer,
    answer_of,
    item,
    open_wire_model,
    request,
    serve_answers,
    sse,
)
from tests.models.provider_streams import STREAMS, WIRES
from tests.timeouts import HANG_S

ASKED = request(item(1, Text("q"), "user"))


def reading(wire: str) -> StreamReader:
    return make_wire(WireTarget(wire, "test-model", lambda blob: b"")).reader()


def read(wire: str, *chunks: bytes) -> tuple[list[Delta], Reply | Failure]:
    """Read `chunks` without a socket."""
    reader, splitter = reading(wire), EventSplitter()
    deltas: list[Delta] = []
    for payloads in map(splitter.feed, chunks):
        batch, final = read_events(reader, payloads)
        deltas += batch
        if final is not None:
            return deltas, final
    batch, final = read_rest(reader, splitter.flush())
    return deltas + batch, final or reader.builder.failure("truncated", "")


REPLIES: dict[str, tuple[Any, ...]] = {
    "text": ((Text("Hello 你好"),), "end", Usage(10, 0, 0, 20)),
    "thinking, then text": ((Thinking("hm"), Text("so")), "end", Usage(10, 0, 0, 20)),
    "text and parallel calls, one without arguments": (
        (Text("I look."), ToolCall("", "Read", {"path": "a"}), ToolCall("", "List", {})),
        "calls",
        Usage(10, 0, 0, 20),
    ),
    "usage with cache": ((Text("ok"),), "end", Usage(3, 90, 7, 20, 5)),
    "refusal": ((Text("I can't"),), "refusal", Usage(10, 0, 0, 20)),
    "length inside a call": (
        (ToolCall("", "Write", None, '{"path": "a", "con'),),
        "length",
        Usage(10, 0, 0, 20),
    ),
}
CASES = [(case, wire) for case in REPLIES for wire in STREAMS[case]]


@pytest.mark.parametrize(("case", "wire"), CASES)
def test_a_whole_reply(case: str, wire: str) -> None:
    parts, stop, usage = REPLIES[case]
    deltas, reply = read(wire, STREAMS[case][wire])
    assert isinstance(reply, Reply)
    if wire == "anthropic" and case.startswith("thinking"):
        parts = (Thinking("hm"), Thinking(""), Text("so"))  # redacted thinking is kept too
    if case == "usage with cache" and wire in ("anthropic", "gemini"):
        usage = {  # what each one tells
            "anthropic": Usage(3, 90, 7, 20, cache_write_hour_tokens=2),
            "gemini": Usage(10, 90, 0, 20, 5),
        }[wire]
    assert (reply.parts, reply.stop, reply.usage) == (parts, stop, usage)
    assert reply.model in ("claude-x-1", "gpt-x-1", "gemini-x-1")
    found = "".join(d.text for d in deltas if isinstance(d, TextDelta))
    assert found == "".join(p.text for p in parts if isinstance(p, Text))
    found = "".join(d.text for d in deltas if isinstance(d, ThinkingDelta))
    assert found == "".join(p.text for p in parts if isinstance(p, Thinking))
    found = [d.name for d in deltas if isinstance(d, CallDelta) and d.name]
    assert found == [p.name for p in parts if isinstance(p, ToolCall)]


SIGNED = '{"type":"thinking","thinking":"hm","signature":"S1"}'
REASONED = (
    '{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], '
    '"encrypted_content": "E1"}'
)


@pytest.mark.parametrize(("wire", "raws"), [
    ("anthropic", [SIGNED, '{"type":"redacted_thinking","data":"R1"}']),
    ("openai-chat", ['{"reasoning_content":"hm"}']),
    ("openai-responses", [REASONED, '{"phase":"final_answer"}']),
    ("gemini", ['{"thoughtSignature":"G1"}']),
])  # fmt: skip
def test_R027_what_must_go_back_is_kept_as_it_was_received(wire: str, raws: list[str]) -> None:
    _, reply = read(wire, STREAMS["thinking, then text"][wire])
    assert [block.raw for block in reply.blocks] == raws
    assert {(block.wire, block.model) for block in reply.blocks} == {(wire, "test-model")}


def test_R019_the_providers_own_ids_are_kept_for_audit_even_if_two_calls_share_one() -> None:
    _, reply = read(
        "openai-chat", STREAMS["text and parallel calls, one without arguments"]["openai-chat"]
    )
    assert reply.blocks == (
        ProviderBlock(1, "openai-chat", "test-model", '{"id":"call_1"}'),
        ProviderBlock(2, "openai-chat", "test-model", '{"id":"call_1"}'),
    )


@pytest.mark.parametrize(
    "case", ["nothing", "thinking and nothing else", "a call announced and not made"]
)
def test_R012_an_answer_with_neither_text_nor_call_is_empty(case: str) -> None:
    for wire, stream in STREAMS[case].items():
        _, failure = read(wire, stream)
        assert isinstance(failure, Failure), wire
        assert failure.kind == "empty"
        assert failure.usage.output_tokens == 20, "it was paid for all the same"


# --- wherever the network cuts --------------------------------------------------------------------


@pytest.mark.parametrize(("case", "wire"), CASES)
def test_a_stream_in_two_pieces_at_any_byte_is_the_same_reply(case: str, wire: str) -> None:
    stream = STREAMS[case][wire]
    whole = read(wire, stream)[1]
    for at in range(0, len(stream), 1 if len(stream) < 600 else 7):
        assert read(wire, stream[:at], stream[at:])[1] == whole, at


@given(st.data())
def test_many_pieces_and_any_line_end_are_the_same_reply(data: st.DataObject) -> None:
    case, wire = data.draw(st.sampled_from(CASES))
    stream = STREAMS[case][wire].replace(b"\n", data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"])))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(wire, *pieces)[1] == read(wire, STREAMS[case][wire])[1]


@pytest.mark.parametrize("wire", WIRES)
def test_R009_a_stream_cut_at_any_byte_is_a_reply_only_when_it_has_said_that_it_ends(
    wire: str,
) -> None:
    stream = STREAMS["text and parallel calls, one without arguments"][wire]
    terminal = {
        "anthropic": b'{"type": "message_stop"}',
        "openai-chat": b"finish_reason",
        "openai-responses": b"response.completed",
        "gemini": b"finishReason",
    }
    begins = stream.rindex(terminal[wire])
    whole = read(wire, stream)[1]
    for at in range(len(stream)):
        _, final = read(wire, stream[:at])
        if isinstance(final, Reply):
            assert at > begins
            assert (final.parts, final.stop) == (whole.parts, whole.stop)
        else:
            assert final.kind == "truncated"


def test_comments_retries_ids_and_empty_events_are_no_events() -> None:
    stream = b": ping\n\nretry: 10\nid: 7\n\n\n\n" + STREAMS["text"]["openai-chat"].replace(
        b"data: ", b"data:"
    )
    assert read("openai-chat", stream)[1] == read("openai-chat", STREAMS["text"]["openai-chat"])[1]


def test_data_of_several_lines_is_one_event_even_if_a_line_end_is_cut_in_two() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\r") == []
    assert splitter.feed(b"\ndata: b\r\n\r\ndata: c\n\n") == [b"a\nb", b"c"]


def test_usage_that_is_told_in_parts_is_put_together() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 7}}}
    block = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": "x"},
    }
    late = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"cache_read_input_tokens": 9},
    }
    _, reply = read("anthropic", sse(start, block, late, {"type": "message_stop"}))
    assert reply.usage == Usage(3, 9, 0, 7)


# --- servers that imitate -------------------------------------------------------------------------


def chat(*deltas: dict[str, Any], stop: str = "tool_calls") -> Reply | Failure:
    chunks = [{"choices": [{"delta": delta}]} for delta in deltas]
    return read(
        "openai-chat", sse(*chunks, {"choices": [{"delta": {}, "finish_reason": stop}]}, done=True)
    )[1]


def calls(*pieces: dict[str, Any]) -> list[tuple[str, Any]]:
    reply = chat(*({"tool_calls": [piece]} for piece in pieces))
    assert isinstance(reply, Reply)
    return [(part.name, part.arguments) for part in reply.parts if isinstance(part, ToolCall)]


def f(name: str = "", arguments: Any = None, **more: Any) -> dict[str, Any]:
    """A piece of a call, with its index and id in `more`."""
    return {**more, "function": {"name": name or None, "arguments": arguments}}


READ_TWICE = [("Read", {"n": 1}), ("Read", {"n": 2})]
ONE_CALL = [("A", {"x": 1})]
NOTHING = ("A", {})
WHOLE = f("A", '{"x":1}', index=0, id="a")


@pytest.mark.parametrize(("pieces", "expected"), [
    # no index, whole calls, with ids and without
    ([f("Read", '{"n":1}', id="a"), f("Read", '{"n":2}', id="b")], READ_TWICE),
    ([f("Read", '{"n":1}'), f("Read", '{"n":2}')], READ_TWICE),
    # neither, and the arguments in pieces
    ([f("Read", ""), f("", '{"n"'), f("", ":1}"), f("Read", ""), f("", '{"n":2}')], READ_TWICE),
    # a call without arguments, and another tool after it
    ([f("List", ""), f("Read", '{"n":1}')], [("List", {}), ("Read", {"n": 1})]),
    # every call numbered 0
    ([f("A", "{}", index=0, id="a"), f("B", "{}", index=0, id="b")], [("A", {}), ("B", {})]),
    ([f("A", "", index=0, id="a"), f("B", '{"n":2}', index=0, id="b")], [NOTHING, ("B", {"n": 2})]),
    # the name and the id repeated in each piece
    ([f("A", '{"x"', index=0, id="a"), f("A", ":1}", index=0, id="a")], ONE_CALL),
    # the whole call again, and another call of the same id without an index
    ([WHOLE] * 2, ONE_CALL),
    ([f("A", "", index=0, id="a"), f("", '{"x":1}', index=0), WHOLE], ONE_CALL),
    ([f("A", '{"x":1}', id="a")] * 2, ONE_CALL),
    ([f("A", '{"x":1}', id="a"), f("A", '{"x":2}', id="a")], [*ONE_CALL, ("A", {"x": 2})]),
    # arguments as an object, as null, wrapped in quotes once more
    ([f("A", {"x": 1}, index=0)], ONE_CALL),
    ([f("A", index=0)], [("A", {})]),
    ([f("A", '"{\\"x\\":1}"', index=0)], ONE_CALL),
    # no object at all (R014)
    ([f("A", "[1]", index=0)], [("A", None)]),
    ([f("A", '{"x": NaN}', index=0)], [("A", None)]),
])  # fmt: skip
def test_calls_as_servers_really_write_them(
    pieces: list[dict[str, Any]], expected: list[tuple[str, Any]]
) -> None:
    assert calls(*pieces) == expected


def test_reasoning_blocks_in_pieces_are_put_together_and_go_back_whole() -> None:
    reply = chat(
        {
            "reasoning": "h",
            "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "h", "signature": None}
            ],
        },
        {
            "reasoning": "m",
            "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "m", "signature": "S"}
            ],
        },
        {"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "E"}]},
        {"content": "so"},
        stop="stop",
    )
    assert reply.blocks[0].raw == (
        '{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"hm","signature":"S"},'
        '{"type":"reasoning.encrypted","index":1,"data":"E"}]}'
    )


def test_content_as_a_list_of_chunks() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reply = chat(
        {"content": [thinking]},
        {"content": [{"type": "text", "text": "so"}]},
        {"content": "!"},
        stop="stop",
    )
    assert reply.parts == (Thinking("hm"), Text("so!"))


COUNTED = {"prompt_tokens": 10, "completion_tokens": 5}
REASONING = {"completion_tokens_details": {"reasoning_tokens": 7}}


@pytest.mark.parametrize(("usage", "expected"), [
    ({**COUNTED, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2}, Usage(2, 8, 0, 5)),
    ({**COUNTED, "cached_tokens": 4}, Usage(6, 4, 0, 5)),
    ({**COUNTED, "total_tokens": 22, **REASONING}, Usage(10, 0, 0, 12, 7)),
    ({**COUNTED, "completion_tokens": None, "prompt_tokens_details": None}, Usage(10)),
])  # fmt: skip
def test_usage_in_each_servers_words(usage: dict[str, Any], expected: Usage) -> None:
    stream = sse(
        {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
        done=True,
    )
    reply = read("openai-chat", stream)[1]
    assert reply.usage == expected


def test_usage_of_groq_stands_in_a_field_of_its_own() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    stream = sse(
        {
            "choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}],
            "x_groq": {"id": "r", "usage": usage},
        },
        done=True,
    )
    assert read("openai-chat", stream)[1].usage == Usage(10, 0, 0, 5)


def test_half_a_surrogate_pair_and_bytes_that_are_no_utf_8_cost_a_character_and_no_more() -> None:
    stream = (
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\ndata: '
        b'{"choices":[{"delta":{"content":"b\xff"}}]}\n\n'
    )
    stream += b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    reply = read("openai-chat", stream)[1]
    assert reply.parts == (Text("a�b�"),)


def test_garbage_in_place_of_an_event_is_a_failure_that_says_so() -> None:
    _, failure = read("anthropic", b"data: <html>sorry</html>\n\n")
    found = Failure("server", "the provider sent what is not its protocol: <html>sorry</html>")
    assert failure == found


# --- reasoning between tags in the text ----------------------------------------------------------


def parts_of(*pieces: str) -> tuple[Any, ...]:
    end = chat(*({"content": piece} for piece in pieces), stop="stop")
    return end.parts if isinstance(end, Reply) else end.partial


LONE = "I think.\n```\nx\n```\nYes.\n</think>\n\nSo."
FENCED = "It ends so:\n```\n</think>\n```\nDone."


@pytest.mark.parametrize(("content", "parts"), [
    ("<think>\nhm</think>\n\nso", (Thinking("hm"), Text("so"))),
    (" \n<think>a < b </thin</think>so", (Thinking("a < b </thin"), Text("so"))),
    ("<think>\n\n</think>\n\nso", (Text("so"),)),
    ("<think>a <think> b</think>so </think>", (Thinking("a <think> b"), Text("so </think>"))),
    ("<think>no answer", (Thinking("no answer"),)),
    # an answer about the tag
    ("The tag <think>x</think> is old.", (Text("The tag <think>x</think> is old."),)),
    ("`<think>x</think>` is old.", (Text("`<think>x</think>` is old."),)),
    ("<thinking>x</thinking> so", (Text("<thinking>x</thinking> so"),)),
    ("<thin", (Text("<thin"),)),
    (" <", (Text(" <"),)),
    (" " * 70 + "<think>x</think>", (Text(" " * 70 + "<think>x</think>"),)),
    # the template holds the first tag
    (LONE, (Thinking("I think.\n```\nx\n```\nYes."), Text("So."))),
    ("</think>\n\nSo.", (Text("So."),)),
    ("I think.</think>So.", (Thinking("I think."), Text("So."))),
    ("I think.</think>\nSo.", (Thinking("I think."), Text("So."))),
    ("I think.\n</think>So.", (Thinking("I think."), Text("So."))),
    ("I think.</think>\nIt is `</think>`.", (Thinking("I think."), Text("It is `</think>`."))),
    ("The tag `</think>` ends it.", (Text("The tag `</think>` ends it."),)),
    ('Write "</think>" then.', (Text('Write "</think>" then.'),)),
    ("</think> is a tag.", (Text("</think> is a tag."),)),
    ("It ends with </think>.\nSo.", (Text("It ends with </think>.\nSo."),)),
    ("With </think>:\n</think>\nSo.", (Text("With </think>:\n</think>\nSo."),)),
    ("From <think> to\n</think>\nSo.", (Text("From <think> to\n</think>\nSo."),)),
    (FENCED, (Text(FENCED),)),
    ("The end is\n</think>", (Text("The end is\n</think>"),)),
])  # fmt: skip
def test_reasoning_in_tags_before_the_answer_is_thinking(
    content: str, parts: tuple[Any, ...]
) -> None:
    assert parts_of(content) == parts
    assert parts_of(*content) == parts


WORDS = ["<think>", "</think>", "\n", " ", "\n</think>\n", "hm", "<", "</th", "```\n"]


@given(st.lists(st.sampled_from(WORDS), max_size=12).map("".join), st.data())
def test_reasoning_in_tags_is_the_same_wherever_the_text_is_cut(
    content: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    assert parts_of(*pieces) == parts_of(content)


def test_reasoning_in_tags_streams_as_thinking() -> None:
    chunks = [{"choices": [{"delta": {"content": one}}]} for one in "<think>\nhm</think>\n\nso"]
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    deltas, reply = read("openai-chat", sse(*chunks, end, done=True))
    assert deltas == [*map(ThinkingDelta, "hm"), *map(TextDelta, "so")]
    assert [block.raw for block in reply.blocks] == ['{"content":"<think>\\nhm\\n</think>"}']


NO_ARGUMENTS = {"tool_calls": [f("A", "{}", index=0)]}


@pytest.mark.parametrize(("deltas", "parts"), [
    # reasoning with calls
    (({"content": "<think>hm</think>"}, NO_ARGUMENTS), (Thinking("hm"), ToolCall("", "A", {}))),
    (({"content": "So.\n</think>\n\n"}, NO_ARGUMENTS), (Thinking("So."), ToolCall("", "A", {}))),
    # a server that sends reasoning in a field leaves no tags in the text
    (({"reasoning_content": "m"}, {"content": "<think>a"}), (Thinking("m"), Text("<think>a"))),
    (({"reasoning": "m"}, {"content": "a\n</think>\nb"}), (Thinking("m"), Text("a\n</think>\nb"))),
])  # fmt: skip
def test_reasoning_in_tags_beside_calls_and_fields(
    deltas: tuple[dict[str, Any], ...], parts: tuple[Any, ...]
) -> None:
    end = chat(*deltas, stop="stop")
    assert end.parts == parts


# --- errors in mid-stream -------------------------------------------------------------------------


def error(**fields: Any) -> dict[str, Any]:
    return {"error": fields}


def anthropic_error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", **error(type=kind, message=message)}


def response_failed(code: str, message: str) -> dict[str, Any]:
    return {"type": "response.failed", "response": error(code=code, message=message)}


TOO_LONG = "prompt is too long: 9 tokens > 8 maximum"


@pytest.mark.parametrize(("wire", "event", "kind"), [
    ("anthropic", anthropic_error("overloaded_error", "Overloaded"), "overload"),
    ("anthropic", anthropic_error("rate_limit_error", "slow"), "rate"),
    ("anthropic", anthropic_error("api_error", "oops"), "server"),
    ("anthropic", anthropic_error("invalid_request_error", TOO_LONG), "overflow"),
    ("openai-chat", error(code=502, message="upstream died"), "server"),
    ("openai-chat", {**error(code="rate_limit_exceeded", message="slow"), "choices": []}, "rate"),
    ("openai-chat", {"error": "Overloaded"}, "overload"),
    ("openai-chat", error(type="insufficient_quota", message="pay"), "billing"),
    ("openai-responses", {"type": "error", "code": "server_error", "message": "oops"}, "server"),
    ("openai-responses", response_failed("context_length_exceeded", "too long"), "overflow"),
    ("openai-responses", response_failed("rate_limit_exceeded", "slow"), "rate"),
    ("gemini", error(code=503, status="UNAVAILABLE", message="model is overloaded"), "overload"),
    ("gemini", error(code=429, status="RESOURCE_EXHAUSTED", message="slow"), "rate"),
    ("gemini", {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}, "server"),
])  # fmt: skip
def test_an_error_event_ends_the_answer_and_keeps_what_had_come(
    wire: str, event: dict[str, Any], kind: str
) -> None:
    _, failure = read(wire, begun_reply(wire) + sse(event))
    assert failure.kind == kind
    assert failure.partial == (Text("Hello 你好"),)
    assert failure.message


def begun_reply(wire: str) -> bytes:
    """First events of a stream, up to its text."""
    events = STREAMS["text"][wire].split(b"\n\n")
    last = next(n for n, event in enumerate(events) if "你好".encode() in event)
    return b"\n\n".join(events[: last + 1]) + b"\n\n"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("event", "kind", "message"), [
    # frameworks for servers and gateways, whatever wire is behind them
    (sse({"detail": "Overloaded"}), "overload", "Overloaded"),
    (sse({"detail": [{"loc": ["body"], "msg": "Overloaded"}]}), "overload", "Overloaded"),
    (sse({"error": "Overloaded"}), "overload", "Overloaded"),
    (sse({"error": {"code": "rate_limit_exceeded", "message": "slow"}}), "rate", "slow"),
    (sse({"error": {"code": 429, "message": "slow"}}), "rate", "slow"),
    (sse({"type": "error", "message": "Overloaded"}), "overload", "Overloaded"),
    (b"error: Overloaded\n\n", "overload", "Overloaded"),
    (b'error: {"message": "slow", "code": 429}\n\n', "rate", "slow"),
    (b"error: no\nerror: capacity\n\n", "server", "no capacity"),
    (b"event: error\ndata: Overloaded\n\n", "overload", "Overloaded"),
    (b"event:error\ndata:Overloaded\n\n", "overload", "Overloaded"),
    (b"event: error\ndata: no\ndata: capacity\n\n", "server", "no capacity"),
    (b'event: error\ndata: {"message": "slow", "code": 429}\n\n', "rate", "slow"),
    (b'event: error\ndata: {"detail": "Overloaded"}\n\n', "overload", "Overloaded"),
    (b"event: error\ndata: \n\n", "server", "the provider broke off"),
    (b"event: error\ndata: \xff 429\n\n", "server", "\ufffd 429"),
])  # fmt: skip
def test_an_error_of_any_server_is_a_failure_with_its_text_on_every_wire(
    event: bytes, kind: str, message: str, wire: str
) -> None:
    for begun, partial in ((b"", ()), (begun_reply(wire), (Text("Hello 你好"),))):
        for pieces in ([begun + event], [bytes([byte]) for byte in begun + event]):
            _, failure = read(wire, *pieces)
            assert (failure.kind, failure.message, failure.partial) == (kind, message, partial)


@pytest.mark.parametrize("wire", WIRES)
def test_an_error_as_a_json_body_is_a_failure_on_every_wire(wire: str) -> None:
    for body in (b'{"detail": "Overloaded"}', b'{"error": "Overloaded"}'):
        assert read_body(reading(wire), body)[1] == Failure("overload", "Overloaded")


@pytest.mark.parametrize("wire", WIRES)
def test_text_that_names_errors_is_no_error(wire: str) -> None:
    said = json.dumps('{"type": "error", "detail": "x"} error: y')[1:-1].encode()
    stream = STREAMS["text"][wire].replace("你好".encode(), said)
    _, reply = read(wire, b'event: note\ndata: {"type": "note", "text": "error"}\n\n', stream)
    assert reply.parts == (Text('Hello {"type": "error", "detail": "x"} error: y'),)


def test_a_blocked_prompt_is_a_refusal() -> None:
    _, reply = read("gemini", sse({"promptFeedback": {"blockReason": "SAFETY"}}))
    assert (reply.parts, reply.stop) == ((), "refusal")


# --- over a real socket ---------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_two_requests_share_one_connection_and_the_key_goes_where_the_provider_wants_it(
    wire: str,
) -> None:
    async with serve_answers(Answer(STREAMS["text"][wire])) as server:
        model = open_wire_model(wire, server.url)
        for _ in range(2):
            assert isinstance((await answer_of(model, ASKED))[-1], Reply)
        assert server.connections == 1
        assert "k-123" in server.heads[0]
        assert (
            server.heads[0].splitlines()[0]
            == {
                "anthropic": "POST /v1/messages HTTP/1.1",
                "openai-chat": "POST /v1/chat/completions HTTP/1.1",
                "openai-responses": "POST /v1/responses HTTP/1.1",
                "gemini": "POST /v1beta/models/test-model:streamGenerateContent?alt=sse HTTP/1.1",
            }[wire]
        )
        assert "accept-encoding: identity" in server.heads[0].lower()
        await model.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_one_list_of_deltas_for_each_read(wire: str) -> None:
    events = [event + b"\n\n" for event in STREAMS["text"][wire].split(b"\n\n") if event]
    async with serve_answers(Answer(chunks=events)) as server:
        model = open_wire_model(wire, server.url)
        batches = [batch async for batch in model.stream(ASKED)]
        assert all(batches)
        deltas = [d for batch in batches for d in batch if not isinstance(d, UsageDelta)]
        assert list(map(type, deltas)) == [TextDelta, TextDelta, Reply]
        await model.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_a_whole_answer_leaves_no_generator_for_the_event_loop_to_end(wire: str) -> None:
    before, left = sys.get_asyncgen_hooks(), list[object]()
    async with serve_answers(Answer(STREAMS["text"][wire])) as server:
        model = open_wire_model(wire, server.url)
        sys.set_asyncgen_hooks(finalizer=left.append)
        try:
            await answer_of(model, ASKED)
        finally:
            sys.set_asyncgen_hooks(*before)
        await model.aclose()
    assert not left  # each would cost a task and a round of the loop


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("end", "kinds"), [
    ("reset", {"network"}),
    ("close", {"truncated"}),
    ("clean", {"truncated"}),
    ("silent", {"stalled"}),
])  # fmt: skip
async def test_R005_R007_R009_a_stream_that_breaks_off(
    wire: str, end: str, kinds: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longrein.models.http_model.FIRST_BYTE_FACTOR", 10_000.0)
    begun = STREAMS["text"][wire]
    begun = begun[: begun.index("你好".encode())]
    begun = begun[: begun.rindex(b"\n\n") + 2]
    async with serve_answers(Answer(begun, end=end)) as server:
        limit_s = 0.05 if end == "silent" else HANG_S
        model = open_wire_model(wire, server.url, idle_timeout_s=limit_s)
        *deltas, failure = await answer_of(model, ASKED)
        assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["Hel"]
        assert failure.kind in kinds
        assert failure.partial == (Text("Hel"),)
        await model.aclose()


@pytest.mark.anyio
async def test_R007_after_the_first_byte_a_silence_is_cut_by_the_shorter_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longrein.models.http_model.FIRST_BYTE_FACTOR", 10_000.0)
    begun = STREAMS["text"]["anthropic"][:400]
    async with serve_answers(Answer(begun, end="silent")) as server:
        model = open_wire_model("anthropic", server.url, idle_timeout_s=0.1)
        *_, failure = await answer_of(model, ASKED)
        assert failure.kind == "stalled"
        await model.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["clean", "close", "reset", "silent"])
async def test_a_stream_that_ends_after_its_stop_reason_is_complete_without_done(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longrein.models.http_model.TRAILING_WAIT_S", 0.1)
    whole = STREAMS["text"]["openai-chat"]
    without = whole.removesuffix(b"data: [DONE]\n\n")
    assert without != whole
    async with serve_answers(Answer(without, end=end)) as server:
        model = open_wire_model("openai-chat", server.url)
        assert (await answer_of(model, ASKED))[-1] == read("openai-chat", whole)[1]
        await model.aclose()
    assert len(server.bodies) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {
                "choices": [
                    {"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
                ]
            },
            Reply((Text("hi"),), "end", Usage(), (), "test-model"),
        ),
        ({"error": {"message": "Overloaded"}}, Failure("overload", "Overloaded")),
    ],
)
async def test_an_answer_that_does_not_stream(
    body: dict[str, Any], expected: Reply | Failure
) -> None:
    async with serve_answers(
        Answer(json.dumps(body).encode(), headers={"content-type": "application/json"})
    ) as server:
        model = open_wire_model("openai-chat", server.url)
        assert (await answer_of(model, ASKED))[-1] == expected
        await model.aclose()


@pytest.mark.anyio
async def test_no_answer_and_a_key_with_a_line_break() -> None:
    async with serve_answers(Answer(head=False, end="silent")) as server:
        silent = (
            await answer_of(open_wire_model("anthropic", server.url, idle_timeout_s=0.01), ASKED)
        )[-1]
        key = (
            await answer_of(open_wire_model("anthropic", server.url, api_key="sk-secret\n"), ASKED)
        )[-1]
    assert (silent.kind, "did not begin to answer in time" in silent.message) == ("timeout", True)
    assert (key.kind, "sk-secret" in key.message) == ("auth", False)


@pytest.mark.anyio
async def test_closing_the_iterator_early_closes_the_connection() -> None:
    stream = STREAMS["text"]["anthropic"]
    async with serve_answers(Answer(chunks=[stream[:400], stream[400:]], end="silent")) as server:
        model = open_wire_model("anthropic", server.url)
        batches = model.stream(ASKED)
        async for _ in batches:
            break
        await batches.aclose()  # type: ignore[attr-defined]
        assert isinstance((await answer_of(model, ASKED))[-1], Reply)
        assert server.connections == 2
        await model.aclose()


@pytest.mark.parametrize("received", ["", " ", "null", " null\n", '"null"', "{}", '"{}"'])
def test_a_call_without_arguments_has_none(received: str) -> None:
    assert read_arguments(received) == {}


@pytest.mark.parametrize("received", ["[]", "0", "nul", "{", '"x"', "true"])
def test_arguments_that_are_no_object_are_malformed(received: str) -> None:
    assert read_arguments(received) is None
