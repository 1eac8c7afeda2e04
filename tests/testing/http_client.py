"""HTTP client for the loopback provider, and `check`, which expects a refusal."""

import asyncio
import json
import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from longrein.testing.loopback import Limits, LoopbackProvider, Rules, Turn

PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
}
Change = Callable[[dict[str, Any]], None]


class Answer:
    """Received status and body."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body

    @property
    def said(self) -> str:
        """The text of an error, '' for none."""
        return "" if self.status == 200 else str(json.loads(self.body)["error"]["message"])

    @property
    def events(self) -> list[Any]:
        """The payloads of the stream."""
        data = [
            e.split(b"data: ", 1)[1]
            for e in self.body.replace(b"\r", b"").split(b"\n\n")
            if b"data: " in e
        ]
        return [json.loads(payload) for payload in data if payload != b"[DONE]"]


async def post(
    server: LoopbackProvider, path: str, body: Any, headers: dict[str, str] | None = None
) -> Answer:
    """Send one request on a new connection, and read the whole answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    lines = [
        f"POST {path} HTTP/1.1",
        "host: x",
        "connection: close",
        f"content-length: {len(data)}",
    ]
    lines += [
        f"{name}: {value}"
        for name, value in {"anthropic-version": "2023-06-01", **(headers or {})}.items()
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + data)
    head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if b"transfer-encoding: chunked" in head.lower():
        rest, chunks = b"", rest
        while size := int(chunks.partition(b"\r\n")[0], 16):
            begin = chunks.index(b"\r\n") + 2
            rest, chunks = rest + chunks[begin : begin + size], chunks[begin + size + 2 :]
    return Answer(int(head.split()[1]), rest)


async def check(
    wire: str,
    body: Any,
    said: str,
    *,
    status: int = 400,
    rules: Rules | None = None,
    limits: Limits | None = None,
    path: str = "",
    headers: dict[str, str] | None = None,
) -> None:
    """Assert that `body` is refused with words that begin with `said`, or accepted if it is
    empty; … stands for any.
    """
    async with LoopbackProvider(lambda _: Turn(text="fine"), rules=rules, limits=limits) as server:
        answer = await post(server, path or PATHS[wire], body, headers)
    assert answer.status == (status if said else 200), answer.body
    assert re.match(".*".join(map(re.escape, said.split("…"))), answer.said), answer.said
    assert server.requests[0].refused != "" or not said
    if answer.status == 400:
        assert (
            b"INVALID_ARGUMENT" in answer.body or b'"type":"invalid_request_error"' in answer.body
        )


def changed(make: Callable[[], dict[str, Any]], change: Change) -> dict[str, Any]:
    """Make a request and apply `change` to it."""
    body = make()
    change(body)
    return body


def png(width: int, height: int, fill: int = 0) -> str:
    """Base64 of a PNG header of `width` x `height` pixels, followed by `fill` bytes."""
    chunk = b"IHDR" + struct.pack(">II", width, height) + b"\x08\x02\0\0\0"
    data = (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + chunk
        + struct.pack(">I", zlib.crc32(chunk))
        + b"\0" * fill
    )
    return b64encode(data).decode()
