"""Connections over loopback, plain and encrypted."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from longrein.models import Failure, Reply
from longrein.models.transport import JOIN_BYTES_MAX, UNREAD_BYTES_MAX, SocketStream, connect
from longrein_context.events import Text
from tests.models.http_server import (
    Answer,
    answer_of,
    item,
    open_wire_model,
    request,
    serve_answers,
)
from tests.models.provider_streams import STREAMS

pytestmark = pytest.mark.anyio
ASKED = request(item(1, Text("q"), "user"))
Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUS6J/Z1pt0gFxk1CCS+iU2ma+G0wwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTE4MzIwMFoYDzIxMjYxMDI4
MTgzMjAwWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAT8FPBsHIf9MdvoT9Zq6pswqIWhkmloWqOlgcyLSqApZp02aF7EH8TA
l26/KyNyybplr6btF5MRcwTAjxO5GzCKo28wbTAdBgNVHQ4EFgQUjm4nL2ur1xjS
s09O+ji8cSzvwwYwHwYDVR0jBBgwFoAUjm4nL2ur1xjSs09O+ji8cSzvwwYwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSQAwRgIhAMsnqFU1yOHtzbivSiIzOlc3Wd77o50R+t8EmQ8ktGiVAiEA
+bb6llWKSxPW6gKfuBBoUMuuR49hImZ5kWy8a/61rUA=
-----END CERTIFICATE-----
"""
"""Of nobody: for localhost, signed by itself."""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgIWLr244jlJ9qSdP0
mNeYGRdHRfG0fCrDZd3Kj2Wv+2ehRANCAAT8FPBsHIf9MdvoT9Zq6pswqIWhkmlo
WqOlgcyLSqApZp02aF7EH8TAl26/KyNyybplr6btF5MRcwTAjxO5GzCK
-----END PRIVATE KEY-----
"""


@asynccontextmanager
async def connected(play: Play) -> AsyncIterator[SocketStream]:
    """Connect to a server that runs `play`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await play(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        stream = await connect("localhost", server.sockets[0].getsockname()[1], 5)
        try:
            yield stream
        finally:
            stream.close()
    finally:
        server.close()


async def whole(stream: SocketStream) -> bytes:
    pieces = []
    while piece := await stream.read(5):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize("size", [JOIN_BYTES_MAX - 1, JOIN_BYTES_MAX + 1, 3 * UNREAD_BYTES_MAX])
async def test_much_goes_and_much_comes_back_in_order(size: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(size + 5))

    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with connected(serve) as stream:
        stream.send(b"head ", body)
        assert await whole(stream) == b"head " + body


async def test_a_server_that_is_not_read_is_held_back() -> None:
    sent = 0

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _part in range(64):
            writer.write(bytes(1 << 20))
            await writer.drain()
            sent += 1

    async with connected(serve) as stream:
        first = await stream.read(5)
        for _ in range(200):
            await asyncio.sleep(0)
        assert sent < 64
        assert len(first) + len(await whole(stream)) == 64 << 20


async def test_who_stops_waiting_may_wait_again() -> None:
    ready = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ready.wait()
        writer.write(b"here")

    async with connected(serve) as stream:
        waiting = asyncio.ensure_future(stream.read(5))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        ready.set()
        assert await stream.read(5) == b"here"


@pytest.mark.parametrize("before", ["", "u:p@"], ids=["our own connection", "the library's"])
async def test_the_certificates_of_the_environment_are_trusted_and_no_others(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "certificate").write_text(CERTIFICATE)
    (tmp_path / "key").write_text(KEY)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    ends = []
    for trusted in (True, False):
        monkeypatch.setenv(
            "SSL_CERT_FILE", str(tmp_path / "certificate") if trusted else "/etc/ssl/cert.pem"
        )
        async with serve_answers(Answer(STREAMS["text"]["anthropic"]), context=server) as address:
            model: Any = open_wire_model(
                "anthropic",
                address.url.replace("https://", f"https://{before}"),
                idle_timeout_s=9.0,
            )
            ends.append((await answer_of(model, ASKED))[-1])
            await model.aclose()
    assert isinstance(ends[0], Reply), ends[0]
    assert isinstance(ends[1], Failure)
    assert ends[1].kind == "network"
    assert "certificate verify failed" in ends[1].message
