"""HTTP client for the loopback provider, and `check`, which expects a refusal in exact words."""

import asyncio
import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

from longrein.testing.loopback import Limits, LoopbackProvider, Rules, Turn

PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
}
HEADERS = {"anthropic-version": "2023-06-01"}


class Answer:
    """Received status, headers and body, and how the connection ended."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes, end: str) -> None:
        self.status, self.headers, self.body, self.end = status, headers, body, end

    @property
    def said(self) -> str:
        """The text of an error, in whatever form."""
        error = json.loads(self.body)["error"]
        return str(error["message"])

    @property
    def events(self) -> list[Any]:
        """The payloads of the stream."""
        data = [e.split(b"data: ", 1)[1] for e in self.body.replace(b"\r", b"").split(b"\n\n") if b"data: " in e]
        return [payload.decode() if payload == b"[DONE]" else json.loads(payload) for payload in data]


async def post(
    server: LoopbackProvider, path: str, body: Any, headers: dict[str, str] | None = None, patience_s: float = 5.0
) -> Answer:
    """Send one request on a new connection; `end` is `whole`, `cut` (no proper end), `reset` or `silent`."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in {**HEADERS, **(headers or {})}.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + data)
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(patience_s):
            first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            got = dict(line.split(": ", 1) for line in rest)
            end = await _read(reader, got, pieces)
    except TimeoutError:
        end = "silent"
    writer.close()
    return Answer(int(first.split()[1]), got, b"".join(pieces), end)


async def _read(reader: asyncio.StreamReader, headers: dict[str, str], pieces: list[bytes]) -> str:
    try:
        if "content-length" in headers:
            pieces.append(await reader.readexactly(int(headers["content-length"])))
            return "whole"
        while size := int(await reader.readline() or b"-1", 16):
            if size < 0:
                return "cut"
            pieces.append((await reader.readexactly(size + 2))[:-2])
        return "whole"
    except ConnectionResetError:
        return "reset"
    except asyncio.IncompleteReadError as error:
        pieces.append(error.partial)
        return "cut"


async def check(
    wire: str,
    body: Any,
    status: int,
    said: str,
    *,
    rules: Rules | None = None,
    limits: Limits | None = None,
    path: str = "",
    headers: dict[str, str] | None = None,
) -> Answer:
    """Assert that `body` is answered with `status`, and an error with exactly these words."""
    async with LoopbackProvider(lambda _: Turn(text="fine"), rules=rules, limits=limits) as server:
        answer = await post(server, path or PATHS[wire], body, headers)
    told = answer.said if answer.status != 200 else ""
    assert (answer.status, told) == (status, said), f"{answer.status} {told}"
    assert (server.requests[0].refused != "") == (status != 200)
    return answer


Change = Callable[[dict[str, Any]], None]


def changed(make: Callable[[], dict[str, Any]], change: Change) -> dict[str, Any]:
    """Make a request and apply `change` to it."""
    body = make()
    change(body)
    return body


def png(width: int, height: int, fill: int = 0) -> str:
    """Base64 of a PNG header of `width` x `height` pixels, followed by `fill` bytes."""
    head = struct.pack(">II", width, height) + b"\x08\x02\0\0\0"
    chunk = b"IHDR" + head
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + b"\0" * fill
    return b64encode(data).decode()


def table(*rows: tuple[str, Change, int, str]) -> dict[str, Sequence[Any]]:
    """Arguments of `pytest.mark.parametrize` for rows of (rule, change, status, words)."""
    return {"argnames": ("change", "status", "said"), "argvalues": [r[1:] for r in rows], "ids": [r[0] for r in rows]}
