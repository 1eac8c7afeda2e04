"""Faults of the loopback provider, as a client sees them on each wire, byte for byte where that matters."""

import json
import re

import pytest

from longrein.testing.loopback import OVERFLOWS, Call, Fault, LoopbackProvider, Turn, overflow
from tests.testing.http_client import Answer
from tests.testing.loopback_requests import STOPS, WIRES, ask, reply_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("status", [429, 529, 500, 503, 401])
async def test_R001_R003_an_error_status_with_the_wires_own_body(wire: str, status: int) -> None:
    fault = Fault(status=status, headers={"retry-after": "2"}, times=2)
    async with LoopbackProvider([Turn(text="at last", fault=fault)]) as server:
        first, second, third = [await ask(server, wire) for _ in range(3)]
        assert (first.status, first.headers["retry-after"], second.status) == (status, "2", status)
        assert len(first.said) > 5
        assert reply_of(wire, third)[0] == "at last"
        assert [request.fault for request in server.requests] == ["status", "status", ""]
        assert server.unused() == []


async def test_a_turn_that_is_nothing_but_its_fault_is_used_up_by_it() -> None:
    async with LoopbackProvider([Turn(fault=Fault(status=500)), Turn(text="ok")]) as server:
        assert [(await ask(server)).status for _ in range(2)] == [500, 200]
        assert server.unused() == []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("how", "end"), [("reset", "reset"), ("close", "cut"), ("end", "whole")])
@pytest.mark.parametrize("at", [0, 1, 300])
async def test_R005_the_stream_is_cut_at_the_byte(wire: str, how: str, end: str, at: int) -> None:
    turn = Turn(text="a text that is long enough " * 9, fault=Fault(kind="cut", at=at, how=how))
    async with LoopbackProvider([turn]) as server:
        cut, whole = await ask(server, wire), await ask(server, wire)
    assert (len(cut.body), cut.end, whole.end) == (at, end, "whole")
    assert reply_of(wire, whole)[0] == turn.text


async def test_a_cut_behind_the_last_byte_leaves_the_answer_whole() -> None:
    for at, left in ((10_000, []), (10, ["turn 0: 'Hi.'"])):
        async with LoopbackProvider([Turn(text="Hi.", fault=Fault(kind="cut", at=at, how="close"))]) as server:
            assert (await ask(server)).end == "cut"
            assert server.unused() == left


@pytest.mark.parametrize("wire", WIRES)
async def test_R007_the_stream_falls_silent_with_the_socket_open(wire: str) -> None:
    turn = Turn(text="words " * 40, fault=Fault(kind="stall", at=200))
    async with LoopbackProvider([turn]) as server:
        answer = await ask(server, wire, patience_s=0.05)
        assert (len(answer.body), answer.end) == (200, "silent")
        request = server.requests[0]
        assert request.done is not None
        await request.done.wait()
        assert request.gone, "the provider knows that the client hung up"


async def test_R007_a_silence_may_hold_comments_and_may_end() -> None:
    fault = Fault(kind="stall", at=0, stall_s=0.03, ping_s=0.01)
    async with LoopbackProvider([Turn(text="Hi.", fault=fault)]) as server:
        answer = await ask(server)
        assert server.unused() == []
    assert answer.body.startswith(b": ping\n\n: ping\n\nevent: message_start")
    assert answer.end == "whole"


LAST = {
    "anthropic": b"message_stop",
    "openai-chat": b"[DONE]",
    "openai-responses": b"response.completed",
    "gemini": b"STOP",
}


@pytest.mark.parametrize("wire", WIRES)
async def test_R009_the_terminal_event_is_missing(wire: str) -> None:
    async with LoopbackProvider([Turn(text="Hi.", fault=Fault(kind="no_end"))]) as server:
        cut, whole = await ask(server, wire), await ask(server, wire)
    assert (LAST[wire] in cut.body, LAST[wire] in whole.body) == (False, True)
    assert (cut.end, b"Hi." in cut.body) == ("whole", True)


@pytest.mark.parametrize("wire", WIRES)
async def test_R012_an_answer_that_is_empty(wire: str) -> None:
    turn = Turn(text="Hi.", calls=(Call("Read"),), fault=Fault(kind="empty"))
    async with LoopbackProvider([turn]) as server:
        words, calls, stop = reply_of(wire, await ask(server, wire))
    assert (words, calls) == ("", [])
    assert stop in STOPS[wire][:2]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_line_that_is_not_of_the_protocol(wire: str) -> None:
    turn = Turn(text="Hi.", fault=Fault(kind="garbage", at=2, body="<html>\xff</html>\n\n"))
    async with LoopbackProvider([turn]) as server:
        garbled, whole = await ask(server, wire), await ask(server, wire)
    assert garbled.body.replace("<html>\xff</html>\n\n".encode(), b"").count(b"data: ") == whole.body.count(b"data: ")
    assert b"<html>" in garbled.body


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_that_comes_in_drops_is_the_same_stream(wire: str) -> None:
    async with LoopbackProvider(
        lambda r: Turn(text="Hé 你好", fault=Fault(kind="drip", bytes=3) if r.number == 1 else None)
    ) as server:
        dripped, whole = await ask(server, wire), await ask(server, wire)
    assert reply_of(wire, dripped) == reply_of(wire, whole)


ERRORS = {
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "openai-chat": {"error": {"message": "Overloaded", "type": "overloaded_error", "param": None, "code": 529}},
    "openai-responses": {
        "type": "response.failed",
        "response": {
            "id": "resp_failed",
            "object": "response",
            "status": "failed",
            "error": {"code": "overloaded_error", "message": "Overloaded"},
        },
    },
    "gemini": {"error": {"code": 529, "message": "Overloaded", "status": "UNAVAILABLE"}},
}


@pytest.mark.parametrize("wire", WIRES)
async def test_an_error_in_the_middle_of_the_stream(wire: str) -> None:
    async with LoopbackProvider([Turn(text="Hi.", fault=Fault(kind="error", at=1))]) as server:
        events = (await ask(server, wire)).events
    assert events[-1] == ERRORS[wire]
    assert LAST[wire] not in json.dumps(events).encode()


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses"])
async def test_R014_arguments_that_are_cut(wire: str) -> None:
    turn = Turn(calls=(Call("Read", {"path": "a"}), Call("Bash", {"command": "x" * 90})), fault=Fault(kind="bad_json"))
    async with LoopbackProvider([turn, Turn(calls=(Call("Read", raw="{not"),))]) as server:
        _, calls, _ = reply_of(wire, await ask(server, wire))
        assert json.loads(calls[0][1]) == {"path": "a"}
        with pytest.raises(json.JSONDecodeError):
            json.loads(calls[1][1])
        await ask(server, wire)
        assert reply_of(wire, await ask(server, wire))[1] == [("Read", "{not")]


async def test_R014_gemini_does_not_pass_on_a_call_that_it_cannot_read() -> None:
    async with LoopbackProvider([Turn(calls=(Call("Read", raw="{not"),))]) as server:
        assert reply_of("gemini", await ask(server, "gemini")) == ("", [], "MALFORMED_FUNCTION_CALL")


def ids(wire: str, answer: Answer) -> list[str]:
    text = answer.body.decode()
    form = "toolu" if wire == "anthropic" else "call"
    return list(dict.fromkeys(re.findall(f'"({form}_\\d+)"', text)))


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses"])
async def test_R019_ids_that_are_missing_or_the_same(wire: str) -> None:
    both = (Call("Read", {"path": "a"}), Call("Read", {"path": "b"}))
    turns = [Turn(calls=both, fault=Fault(kind=kind)) for kind in ("duplicate_ids", "missing_ids")]
    async with LoopbackProvider([*turns, Turn(calls=both)]) as server:
        assert [len(ids(wire, await ask(server, wire))) for _ in range(3)] == [1, 0, 2]
        assert server.unused() == []


@pytest.mark.parametrize("wire", WIRES)
async def test_R021_overflow_in_the_wires_own_words_or_another_providers(wire: str) -> None:
    faults = [
        Fault(kind="overflow"),
        Fault(kind="overflow", name="ollama"),
        Fault(kind="overflow", status=413, body=""),
    ]
    async with LoopbackProvider([Turn(fault=fault) for fault in faults]) as server:
        own, foreign, bare = [await ask(server, wire) for _ in faults]
    assert own.status == 400
    assert "200000" in own.said or "context window" in own.said
    assert foreign.body == b'{"error":"prompt too long; exceeded max context length by 12 tokens"}'
    assert (bare.status, bare.body) == (413, b"")


def test_every_overflow_is_the_body_of_an_error() -> None:
    for name in OVERFLOWS:
        status, body = overflow(name, 213_462, 200_000)
        assert status in (400, 413, 422)
        assert b"{used}" not in body
        assert not body or isinstance(json.loads(body), dict)
