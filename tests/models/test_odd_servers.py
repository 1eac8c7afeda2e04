"""Unusual streams of OpenAI-compatible servers and gateways."""

import asyncio
import json
import re
from typing import Any

import pytest

from longrein.models import Failure, Reply
from longrein.models.failures import error_text
from longrein_context.events import Text, ToolCall, Usage
from tests.models.http_server import Answer, answer_of, open_wire_model, serve_answers, sse
from tests.models.provider_streams import STREAMS, WIRES
from tests.models.test_replies import ASKED, chat, read
from tests.timeouts import HANG_S

JSON = {"content-type": "application/json"}
PAGE = Answer(
    b"<!doctype html><h1>It works!</h1>", headers={"content-type": "text/html; charset=utf-8"}
)


async def told(
    wire: str, *answers: Answer, times: int = 1, path: str = ""
) -> list[Reply | Failure]:
    """Return the last delta of each of `times` requests."""
    async with serve_answers(*answers) as server:
        silent = any(answer.end == "silent" for answer in answers)
        limit_s = 0.05 if silent else HANG_S
        model = open_wire_model(wire, server.url + path, idle_timeout_s=limit_s)
        ends = [(await answer_of(model, ASKED))[-1] for _ in range(times)]
        await model.aclose()
    assert all(isinstance(end, Reply | Failure) for end in ends)
    return ends  # type: ignore[return-value]


def text_of(end: Reply | Failure) -> str:
    return (
        "".join(part.text for part in end.parts if isinstance(part, Text))
        if isinstance(end, Reply)
        else str(end)
    )


@pytest.mark.parametrize("wire", WIRES)
def test_a_mark_of_the_byte_order_before_the_first_event_costs_nothing(wire: str) -> None:
    assert read(wire, b"\xef\xbb\xbf" + STREAMS["text"][wire]) == read(wire, STREAMS["text"][wire])


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_events_of_a_later_year_are_passed_over_whatever_they_hold(wire: str) -> None:
    later = sse(
        {
            "type": "zebra",
            "delta": {"a": 1},
            "index": "x",
            "item": 3,
            "output_index": None,
            "message": [1],
        }
    )
    known = STREAMS["text and parallel calls, one without arguments"][wire]
    assert read(wire, later + known.replace(b"\n\n", b"\n\n" + later)) == read(wire, known)


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_an_event_that_is_read_must_be_readable(wire: str) -> None:
    kind = "content_block_delta" if wire == "anthropic" else "response.output_text.delta"
    end = read(wire, sse({"type": kind, "delta": [1]}) + STREAMS["text"][wire])[1]
    assert "what is not its protocol" in end.message


def test_counts_with_a_point_are_counts() -> None:
    usage = {"prompt_tokens": 10.0, "completion_tokens": 5.0}
    said = sse(
        {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage},
        done=True,
    )
    reply = read("openai-chat", said)[1]
    assert isinstance(reply, Reply)
    assert reply.usage == Usage(10, 0, 0, 5)


@pytest.mark.parametrize(
    "count", ['"12"', "NaN", "1e999", "-1e999", "12.5", "true", "[]", '{"of": "x"}', "9" * 40]
)
@pytest.mark.parametrize("wire", WIRES)
def test_what_is_no_count_in_a_usage_costs_no_answer(wire: str, count: str) -> None:
    spelled = re.sub(
        rb'(?i)("[a-z_]*(?:tokens|tokencount)": ?)\d+',
        rb"\g<1>" + count.encode(),
        STREAMS["text"][wire],
    )
    assert spelled != STREAMS["text"][wire]
    end, whole = read(wire, spelled)[1], read(wire, STREAMS["text"][wire])[1]
    assert isinstance(end, Reply)
    assert (end.parts, end.stop) == (whole.parts, whole.stop)


def test_items_that_are_not_numbered_and_begin_with_their_end_are_all_there() -> None:
    def call(n: int) -> dict[str, Any]:
        item = {
            "type": "function_call",
            "call_id": f"x{n}",
            "name": "Read",
            "arguments": f'{{"n":{n}}}',
        }
        return {"type": "response.output_item.done", "item": item}

    message = {"type": "message", "content": []}
    events: list[Any] = [
        {"type": "response.output_item.added", "item": message},
        {"type": "response.output_text.delta", "delta": "I look."},
        *(call(1), call(2)),
        {"type": "response.completed", "response": {}},
    ]
    reply = read("openai-responses", sse(*events))[1]
    assert reply.parts == (
        Text("I look."),
        ToolCall("", "Read", {"n": 1}),
        ToolCall("", "Read", {"n": 2}),
    )


def pieces(*given: tuple[str, str], known: str = "x") -> list[dict[str, Any]]:
    """(name, text) of each piece of a call; all have one id and no index."""
    return [
        {"id": known, "function": {"name": name or None, "arguments": text}} for name, text in given
    ]


A = pieces(("A", ""))


@pytest.mark.parametrize("given", [
    pieces(("A", '{"x"'), ("", ":1}"), ("A", '{"x"'), ("", ":2}")),
    pieces(("A", ""), ("", '{"x"'), ("", ":1}"), ("A", ""), ("", '{"x":2}')),
    pieces(*(("A", text) for text in ("", '{"x"', ":1}", "", '{"x":', "2}", ""))),
    [*A, *pieces(("", '{"x":1}'), known=""), *A, *pieces(("", '{"x":2}'), known="")],
])  # fmt: skip
def test_calls_that_share_an_id_and_have_no_index_are_as_many_as_they_are(
    given: list[dict[str, Any]],
) -> None:
    for deltas in ([{"tool_calls": given}], [{"tool_calls": [piece]} for piece in given]):
        reply = chat(*deltas)
        assert reply.parts == (ToolCall("", "A", {"x": 1}), ToolCall("", "A", {"x": 2}))


def sent_calls(wire: str, *sent: tuple[int, str, str, str]) -> list[tuple[str, Any]]:
    """Calls of a reply in which each step of `sent` came: index, id, arguments and steps.

    The steps are letters: `b` the beginning, `p` the arguments in pieces, `e` the end.
    """
    encode = {
        "anthropic": anthropic_steps,
        "openai-responses": responses_steps,
        "gemini": gemini_steps,
    }[wire]
    events = [event for one in sent for event in encode(*one)]
    last = {
        "anthropic": [
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            {"type": "message_stop"},
        ],
        "openai-responses": [{"type": "response.completed", "response": {}}],
        "gemini": [{"candidates": [{"finishReason": "STOP"}]}],
    }[wire]
    reply = read(wire, sse(*events, *last))[1]
    assert isinstance(reply, Reply)
    return [(part.name, part.arguments) for part in reply.parts if isinstance(part, ToolCall)]


def anthropic_steps(index: int, id_: str, given: str, steps: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": id_ or None, "name": "A", "input": {}}
    events: dict[str, list[dict[str, Any]]] = {
        "b": [{"type": "content_block_start", "content_block": block}],
        "p": [
            {"type": "content_block_delta", "delta": {"partial_json": piece}}
            for piece in (given[:3], given[3:])
        ],
        "e": [{"type": "content_block_stop"}],
    }
    return [event | {"index": index} for step in steps for event in events[step]]


def responses_steps(index: int, id_: str, given: str, steps: str) -> list[dict[str, Any]]:
    item = {"type": "function_call", "call_id": id_ or None, "name": "A", "arguments": ""}
    events: dict[str, list[dict[str, Any]]] = {
        "b": [{"type": "response.output_item.added", "item": item}],
        "p": [
            {"type": "response.function_call_arguments.delta", "delta": piece}
            for piece in (given[:3], given[3:])
        ],
        "e": [{"type": "response.output_item.done", "item": item | {"arguments": given}}],
    }
    return [event | {"output_index": index} for step in steps for event in events[step]]


def gemini_steps(index: int, id_: str, given: str, steps: str) -> list[dict[str, Any]]:
    del index, steps
    call = {"name": "A", "args": json.loads(given)} | ({"id": id_} if id_ else {})
    return [{"candidates": [{"content": {"parts": [{"functionCall": call}]}}]}]


X1, X2 = '{"x":1}', '{"x":2}'
STREAMED = ("anthropic", "openai-responses")


@pytest.mark.parametrize(("wires", "sent", "found"), [
    # the whole call again, its end again, its beginning twice, before and after its end
    ((*STREAMED, "gemini"), [(1, "a", X1, "bpe")] * 2, [{"x": 1}]),
    (STREAMED, [(1, "a", X1, "bpee")], [{"x": 1}]),
    (STREAMED, [(1, "a", X1, "bbpe")], [{"x": 1}]),
    (STREAMED, [(1, "a", X1, "bpeb")], [{"x": 1}]),
    (("openai-responses",), [(1, "a", X1, "ee")], [{"x": 1}]),
    ((*STREAMED, "gemini"), [(1, "a", "{}", "be")] * 2, [{}]),
    # other calls: other arguments, another index, no id
    ((*STREAMED, "gemini"), [(1, "a", X1, "bpe"), (1, "a", X2, "bpe")], [{"x": 1}, {"x": 2}]),
    (STREAMED, [(1, "a", X1, "bpe"), (2, "a", X1, "bpe")], [{"x": 1}] * 2),
    ((*STREAMED, "gemini"), [(1, "a", X1, "bpe"), (1, "b", X1, "bpe")], [{"x": 1}] * 2),
    ((*STREAMED, "gemini"), [(1, "", X1, "bpe")] * 2, [{"x": 1}] * 2),
])  # fmt: skip
def test_a_call_sent_again_under_its_index_and_id_is_one_call(
    wires: tuple[str, ...], sent: list[tuple[int, str, str, str]], found: list[dict[str, int]]
) -> None:
    for wire in wires:
        assert sent_calls(wire, *sent) == [("A", arguments) for arguments in found], wire


def test_a_name_in_each_piece_is_one_call() -> None:
    pieces = [
        {"index": 0, "function": {"name": "A", "arguments": text}} for text in ('{"x"', ":1}", "")
    ]
    reply = chat({"tool_calls": pieces})
    assert reply.parts == (ToolCall("", "A", {"x": 1}),)


@pytest.mark.parametrize("given", [
    [("A", ""), ("", '{"x"'), ("", ":1}")],
    [("A", '{"x":1}')],
    [("A", '{"x"'), ("A", ":1}")],
    [("A", {"x": 1})],
])  # fmt: skip
def test_the_one_call_of_servers_from_before_tool_calls_is_a_call(
    given: list[tuple[str, Any]],
) -> None:
    calls = [{"name": name or None, "arguments": text} for name, text in given]
    deltas = [{"function_call": call} for call in calls]
    for some in (
        [{"content": "I look."}, *deltas],
        [{"content": "I look."} | deltas[0], *deltas[1:]],
    ):
        reply = chat(*some, stop="function_call")
        assert reply.parts == (Text("I look."), ToolCall("", "A", {"x": 1}))
        assert reply.stop == "calls"


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_events_under_the_name_of_json_or_with_status_201_are_events(wire: str) -> None:
    whole = STREAMS["text"][wire]
    ends = await told(wire, Answer(whole, headers=JSON), Answer(whole, status=201), times=2)
    assert [text_of(end) for end in ends] == ["Hello 你好"] * 2


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["close", "reset", "silent"])
async def test_an_answer_of_gemini_that_said_why_it_stopped_is_whole_however_its_connection_ends(
    end: str,
) -> None:
    found = text_of((await told("gemini", Answer(STREAMS["text"]["gemini"], end=end)))[0])
    assert found == "Hello 你好"


@pytest.mark.anyio
@pytest.mark.parametrize("cut", [1, 2])
async def test_a_reply_of_gemini_that_is_whole_ends_although_its_connection_does_not(
    cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longrein.models.http_model.TRAILING_WAIT_S", 0.1)
    events = [
        {"candidates": [{"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP"}]},
        {"usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5}},
        {"candidates": [{"content": {"parts": [{"text": " there"}]}, "finishReason": "STOP"}]},
    ]
    chunks = [sse(*events[:cut]), sse(*events[cut:]), b"data: {half"]
    async with serve_answers(Answer(chunks=chunks, end="silent")) as server:
        model = open_wire_model("gemini", server.url, idle_timeout_s=10 * HANG_S)
        async with asyncio.timeout(HANG_S):
            end = (await answer_of(model, ASKED))[-1]
        await model.aclose()
    assert isinstance(end, Reply)
    assert (text_of(end), end.usage) == ("Hello there", Usage(10, 0, 0, 5))


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [
    PAGE,
    Answer(b'{"hello": 1}', headers=JSON),
    Answer(headers=JSON),
    Answer(b"Hello!\n", headers={"content-type": "text/plain"}),
])  # fmt: skip
async def test_who_is_no_model_is_asked_again_only_where_a_model_was_heard_before(
    answer: Answer,
) -> None:
    heard = Answer(STREAMS["text"]["openai-chat"])
    first, _, later = await told("openai-chat", answer, heard, answer, times=3)
    assert isinstance(first, Failure)
    assert (first.kind, later.kind) == ("invalid", "server")
    assert first.message.endswith(
        "/v1/chat/completions gave an answer that is not a model's; is base_url right?"
    )


@pytest.mark.anyio
@pytest.mark.parametrize(("answer", "said"), [
    (Answer(b"<h1>404 Not Found</h1>", 404), "404 Not Found"),
    (Answer(b"", 405), "HTTP 405"),
    (Answer(b'{"error":{"message":"no model x"}}', 404), "no model x (HTTP 404)"),
])  # fmt: skip
async def test_what_is_not_there_is_told_with_the_address_that_was_asked(
    answer: Answer, said: str
) -> None:
    async with serve_answers(answer) as server:
        model = open_wire_model("openai-chat", server.url + "/v1/chat/completions")
        (end,) = await answer_of(model, ASKED)
        await model.aclose()
    assert isinstance(end, Failure)
    asked = f"{server.url}/v1/chat/completions/chat/completions"
    assert end.message == f"{said}; asked was {asked}: are base_url and model right?"


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_a_request_is_sent_on_to_another_path_of_the_same_server_with_all_it_holds(
    wire: str,
) -> None:
    async with serve_answers(
        Answer(status=307, headers={"location": "/elsewhere"}), Answer(STREAMS["text"][wire])
    ) as server:
        model = open_wire_model(wire, server.url)
        assert text_of((await answer_of(model, ASKED))[-1]) == "Hello 你好"  # type: ignore[arg-type]
        assert server.bodies[0] == server.bodies[1]
        assert server.heads[1].startswith("POST /elsewhere ")
        assert "k-123" in server.heads[1]
        await model.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "location"),
    [(307, "http://localhost:9/v1?k=1"), (308, "https://127.0.0.1/v1"), (301, "/v1/")],
)
async def test_a_key_goes_to_no_server_that_it_was_not_given_for(
    status: int, location: str
) -> None:
    moved = Answer(status=status, headers={"location": location})
    async with serve_answers(moved) as server:
        model = open_wire_model("anthropic", server.url)
        end = (await answer_of(model, ASKED))[-1]
        assert end == Failure(
            "invalid",
            f"{server.url}/v1/messages sends requests on to {location.partition('?')[0]}; "
            "set base_url to where they are to go",
            status,
        )
        assert len(server.heads) == 1
        await model.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["", "/a%20b"], ids=["own connection", "library"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
async def test_no_redirect_carries_the_key_to_another_port_or_host(
    host: str, status: int, path: str
) -> None:
    async with serve_answers(Answer()) as other:
        port = other.url.rpartition(":")[2]
        for location in (f"http://{host}:{port}/v1", f"//{host}:{port}/v1"):
            async with serve_answers(
                Answer(status=status, headers={"location": location})
            ) as server:
                model = open_wire_model("openai-chat", server.url + path)
                assert isinstance((await answer_of(model, ASKED))[-1], Failure)
                assert len(server.heads) == 1
                await model.aclose()
        assert other.heads == []


@pytest.mark.anyio
async def test_a_server_that_sends_on_and_on_is_left_alone_after_a_few_times() -> None:
    async with serve_answers(Answer(status=307, headers={"location": "/round"})) as server:
        model = open_wire_model("openai-chat", server.url)
        end = (await answer_of(model, ASKED))[-1]
        assert (end.kind, len(server.heads)) == ("invalid", 4)
        await model.aclose()


@pytest.mark.parametrize("levels", [150, 5_000, 10_000])
@pytest.mark.parametrize("wire", WIRES)
def test_arguments_nested_deep_are_a_call_that_never_runs(wire: str, levels: int) -> None:
    deep = b"[" * levels + b"]" * levels
    stream = STREAMS["text and parallel calls, one without arguments"][wire]
    end = read(wire, re.sub(rb'\\?"a\\?"', deep, stream))[1]
    if isinstance(end, Failure):  # an object of the event itself, which cannot be read
        assert wire == "gemini"
        assert levels >= 5_000
        return
    calls = [part for part in end.parts if isinstance(part, ToolCall)]
    assert [call.arguments for call in calls] == [None, {}]


def test_an_error_nested_deep_is_told_as_it_came() -> None:
    body = '{"error":' * 900 + "1" + "}" * 900
    assert error_text(body).startswith('{"error":{"error":')
