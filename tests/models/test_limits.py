"""Limits of endless answers in bytes and time; reaching one is a failure that names it."""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from longrein.models import Delta, Reply
from longrein.models.http_model import read_events
from longrein.models.transport import EVENT_BYTES_MAX, EventSplitter, EventTooLong
from longrein.models.wire_content import PART_CHARS, PIECE_CHARS, REPLY_CHARS_MAX, ReplyBuilder
from tests.models.http_server import Answer, answer_of, open_wire_model, serve_answers, sse
from tests.models.provider_streams import STREAMS, WIRES
from tests.models.test_replies import ASKED, reading
from tests.timeouts import HANG_S

pytestmark = pytest.mark.anyio
JSON = {"content-type": "application/json"}
PIECE = "x" * 60_000
ENDLESS = 2_000
"""Pieces of 60 kB: more than any limit below."""


def growing(wire: str, kind: str, piece: str) -> dict[str, Any]:
    """Make an event of `wire` with more text, thinking or arguments."""
    match wire:
        case "anthropic":
            name, field = {
                "text": ("text_delta", "text"),
                "thinking": ("thinking_delta", "thinking"),
                "arguments": ("input_json_delta", "partial_json"),
            }[kind]
            return {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": name, field: piece},
            }
        case "openai-chat":
            call = [{"index": 0, "function": {"name": "Write", "arguments": piece}}]
            delta = {
                "text": {"content": piece},
                "thinking": {"reasoning": piece},
                "arguments": {"tool_calls": call},
            }
            return {"choices": [{"delta": delta[kind]}]}
        case "openai-responses":
            name = {
                "text": "output_text",
                "thinking": "reasoning_text",
                "arguments": "function_call_arguments",
            }[kind]
            return {"type": f"response.{name}.delta", "output_index": 0, "delta": piece}
        case _:
            part = {"text": piece} | ({"thought": True} if kind == "thinking" else {})
            if kind == "arguments":
                part = {"functionCall": {"name": "Write", "args": {"text": piece}}}
            return {"candidates": [{"content": {"parts": [part]}}]}


@pytest.mark.parametrize("kind", ["text", "thinking", "arguments"])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_reply_that_grows_without_an_end_is_cut(wire: str, kind: str) -> None:
    async with serve_answers(Answer(chunks=[sse(growing(wire, kind, PIECE))] * ENDLESS)) as server:
        model = open_wire_model(wire, server.url, idle_timeout_s=HANG_S)
        failed = (await answer_of(model, ASKED))[-1]
        await model.aclose()
    found = (failed.kind, failed.message)
    assert found == ("invalid", "the model's answer was cut: it grew beyond 32 MB without an end")
    assert failed.partial, "what had come is kept"


@pytest.mark.parametrize("wire", WIRES)
def test_small_pieces_count_for_the_memory_that_they_take(wire: str) -> None:
    reader = reading(wire)
    out: list[Delta] = []
    reader.feed(json.dumps(growing(wire, "text", "x")).encode(), out)
    first = reader.builder.size_chars
    reader.feed(json.dumps(growing(wire, "text", "x")).encode(), out)
    assert reader.builder.size_chars - first == PIECE_CHARS + 1


def test_many_calls_and_many_signatures_count_too() -> None:
    builder = ReplyBuilder()
    for _ in range(3):
        builder.open("call", name="Read")
    assert builder.size_chars == 3 * (PART_CHARS + 4)
    reader = reading("anthropic")
    delta = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "S" * 100},
    }
    for _ in range(2):
        assert read_events(reader, [json.dumps(delta).encode()]) == ([], None)
    assert reader.builder.size_chars >= 200
    assert REPLY_CHARS_MAX < 1 << 26


def test_an_event_without_an_end_is_given_up_and_until_then_costs_the_same_for_each_piece() -> None:
    splitter, piece = EventSplitter(), b"x" * (1 << 16)
    begun = time.process_time()
    splitter.feed(b"data: ")
    with pytest.raises(EventTooLong):
        deque(map(splitter.feed, [piece] * (2 * EVENT_BYTES_MAX >> 16)))
    assert time.process_time() - begun < 5, (
        "once over each byte takes 0.05 s; once more over all of it each time, 30"
    )


BIG = PIECE.encode()


@pytest.mark.parametrize(("answer", "kind", "said"), [
    (Answer(chunks=[b"data: ", *[BIG] * ENDLESS]), "invalid", "one event is longer than 32 MB"),
    (Answer(chunks=[b'{"a":"', *[BIG] * ENDLESS], headers=JSON), "invalid", "longer than 32 MB"),
    (Answer(headers={"x-long": "y" * 200_000}), "network", "broke: Receive buffer too long"),
    (Answer(chunks=[BIG] * ENDLESS, status=500), "server", "x" * 500 + " (HTTP 500)"),
])  # fmt: skip
async def test_a_body_a_head_or_an_event_without_an_end(
    answer: Answer, kind: str, said: str
) -> None:
    async with serve_answers(answer) as server:
        model = open_wire_model("anthropic", server.url, idle_timeout_s=HANG_S)
        (failed,) = await answer_of(model, ASKED)
        await model.aclose()
    assert failed.kind == kind
    assert failed.message.endswith(said)


async def test_all_of_an_answer_has_a_limit_whatever_it_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longrein.models.transport.ANSWER_BYTES_MAX", 4 << 20)
    ping = sse({"type": "ping"}) * 2_000
    async with serve_answers(Answer(chunks=[ping] * ENDLESS)) as server:
        model = open_wire_model("anthropic", server.url, idle_timeout_s=HANG_S)
        failed = (await answer_of(model, ASKED))[-1]
        await model.aclose()
    found = (failed.kind, failed.message)
    assert found == ("invalid", "the model's answer was cut: it is longer than 4 MB")


# --- in time --------------------------------------------------------------------------------------


@asynccontextmanager
async def repeating(head: bytes, beat: bytes) -> AsyncIterator[str]:
    """Serve `head` and then `beat` until the client disconnects; yields the address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            while not over.is_set():
                writer.write(beat)
                await writer.drain()
                await asyncio.sleep(0.002)
        except ConnectionError:
            pass
        finally:
            writer.close()

    over = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        over.set()
        server.close()


def head(kind: str = "text/event-stream", status: int = 200) -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n\r\n".encode()


EMPTY: dict[str, Sequence[Any]] = {
    "anthropic": (
        {"type": "ping"},
        {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 3}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}},
    ),
    "openai-chat": (
        {"choices": []},
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"content": None}}], "usage": None},
    ),
    "openai-responses": (
        {"type": "response.in_progress", "response": {}},
        {"type": "keepalive", "sequence_number": 7},
        {"type": "response.output_text.delta", "output_index": 0, "delta": ""},
    ),
    "gemini": (
        {"usageMetadata": {"promptTokenCount": 3}},
        {"candidates": [{"content": {"parts": [{"text": ""}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "", "thought": True}]}}]},
    ),
}


@pytest.mark.parametrize(
    ("wire", "beat"),
    [(wire, sse(event)) for wire, events in EMPTY.items() for event in events]
    + [(wire, b": still here\n\n") for wire in WIRES],
)
async def test_events_that_bring_nothing_keep_no_answer_alive(wire: str, beat: bytes) -> None:
    begun = STREAMS["text"][wire]
    begun = begun[: begun.rindex(b"\n\n", 0, begun.index("你好".encode())) + 2]
    for before in (b"", begun):
        async with repeating(head() + before, beat) as url:
            model = open_wire_model(wire, url, idle_timeout_s=HANG_S, content_timeout_s=0.05)
            failed = (await answer_of(model, ASKED))[-1]
            await model.aclose()
        found = (failed.kind, failed.message)
        assert found == ("stalled", "the model sent nothing but heartbeats for 0.05 s")


@pytest.mark.parametrize(("begun", "beat", "kind"), [
    (b"", b"HTTP/1.1 102 Processing\r\n\r\n", "timeout"),
    (b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n", "timeout"),
    (head("application/json"), b" ", "stalled"),
    (head("text/html", 502), b"<br>", "server"),
])  # fmt: skip
async def test_what_comes_before_an_answer_has_its_time_too(
    begun: bytes, beat: bytes, kind: str
) -> None:
    async with repeating(begun, beat) as url:
        model = open_wire_model("openai-chat", url, idle_timeout_s=0.05, content_timeout_s=0.2)
        async with asyncio.timeout(HANG_S):
            failed = (await answer_of(model, ASKED))[-1]
        await model.aclose()
    assert failed.kind == kind
    assert not isinstance(failed, Reply)
