"""Loopback HTTP server with fixed answers, and shared values for tests of wires."""

import asyncio
import json
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import msgspec

from longrein.models import Delta, Model, ModelOptions, open_model
from longrein_context import Item, Request
from longrein_context.events import AnyPart, PrefixSet, ProviderBlock, ToolResult, ToolSpec
from tests.timeouts import HANG_S

SSE = "text/event-stream"


class Answer(msgspec.Struct):
    """Answer of the server to one request."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = {}
    chunks: Sequence[bytes] = ()
    """Sent one after the other, instead of `body`."""
    end: str = "clean"
    """`clean`; `reset`: RST; `close`: FIN without the last chunk; `silent`: the socket stays
    open.
    """
    head: bool = True
    """Whether a status line is sent at all."""


class Server:
    """Plays its answers in order, repeats the last one, and keeps the requests."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.heads: list[str] = []
        self.connections = 0
        self.url = ""
        self.over = asyncio.Event()

    @property
    def sent(self) -> list[Any]:
        return [json.loads(body) for body in self.bodies]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next(
            (
                int(v)
                for k, _, v in (line.partition(":") for line in head.split("\r\n"))
                if k.lower() == "content-length"
            ),
            0,
        )
        self.heads.append(head)
        self.bodies.append(await reader.readexactly(size))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.head:
            headers = {"content-type": SSE, "transfer-encoding": "chunked", **answer.headers}
            lines = [f"HTTP/1.1 {answer.status} X", *(f"{k}: {v}" for k, v in headers.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode())
        for chunk in answer.chunks or ([answer.body] if answer.body else []):
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
            if len(answer.chunks) > 1:
                await asyncio.sleep(0)
        match answer.end:
            case "clean":
                writer.write(b"0\r\n\r\n")
                return True
            case "reset":
                await writer.drain()
                writer.get_extra_info("socket").setsockopt(
                    SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0)
                )
                writer.transport.abort()
            case "silent":
                await self.over.wait()
        return False


@asynccontextmanager
async def serve_answers(
    *answers: Answer, context: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(answers)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.url = f"http{'s' if context else ''}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        server.over.set()
        listening.close()


class FixedClock:
    """Clock fixed at 2026-11-21 10:00:00 UTC, which never really waits."""

    slept: list[float]

    def __init__(self) -> None:
        self.slept = []

    def wall_us(self) -> int:
        return 1_795_255_200_000_000

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63606060000000040001f61738550000000049454e44ae426082"
)
"""A real picture of one pixel."""
BLOBS = {
    "real": PIXEL,
    "img1": PIXEL[:24],
    "broken": b"\x89PNG-not-really",
    **{f"p{n}": PIXEL + bytes([n]) for n in range(8)},
    "doc1": b"first line\nsecond line",
    "pdf1": b"%PDF-1.7",
}


def open_wire_model(wire: str, url: str, model: str = "test-model", **options: Any) -> Model:
    given = {"provider": "mock", "api_key": "k-123", "idle_timeout_s": HANG_S, **options}
    return open_model(
        ModelOptions(model=model, wire=wire, base_url=url, **given), BLOBS.__getitem__, FixedClock()
    )


READ = ToolSpec(
    "Read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}}
)
MINE = {"ToolCall": "call", "Thinking": "thinking", "ToolResult": "result"}


def item(
    seq: int,
    part: AnyPart,
    kind: str = "",
    n: int = 0,
    raw: str = "",
    wire: str = "",
    by: str = "test-model",
) -> Item:
    block = ProviderBlock(n, wire, by, raw) if raw else None
    kind = kind or MINE.get(type(part).__name__, "user")
    return Item((seq, n, 0), kind, (seq, seq), f"r{seq}", part, block=block, owner=by)  # type: ignore[arg-type]


def request(
    *items: Item,
    marks: tuple[int, ...] = (),
    system: str = "You are longrein.",
    wire: str = "anthropic",
) -> Request:
    prefix = PrefixSet("start", "mock", "test-model", wire, system, (READ,))
    return Request("s-1", prefix, 2, items, marks, 1000)


def result(call: str, *parts: AnyPart, status: str = "ok", name: str = "Read") -> ToolResult:
    return ToolResult(call, name, status, parts)


async def answer_of(model: Model, asked: Request) -> list[Delta]:
    """Return all deltas of one answer."""
    deltas: list[Delta] = []
    async for batch in model.stream(asked):
        deltas += batch
    return deltas


def sse(*events: Any, done: bool = False, named: bool = False) -> bytes:
    """Encode events as a provider sends them."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        lines.append(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n")
    return ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()
