"""Addresses, headers, redirects and compressed answers of a request."""

import asyncio
import gzip
import ssl
from pathlib import Path
from typing import Any

import pytest

from longrein.models import Failure, Reply, pause_s
from longrein.models.http_model import request_failure
from longrein.models.transport import ConnectFailed, ConnectRefused
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
from tests.timeouts import HANG_S

pytestmark = pytest.mark.anyio
ASKED = request(item(1, Text("hi")), wire="openai-chat")
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


async def asked(url: str, **options: Any) -> Any:
    """Return the last delta of a request to `url`."""
    model: Any = open_wire_model("openai-chat", url, **options)
    try:
        return (await answer_of(model, ASKED))[-1]
    finally:
        await model.aclose()


@pytest.mark.parametrize(
    ("before", "after", "line", "more"),
    [
        ("", "/v1", "POST /v1/chat/completions HTTP/1.1", "authorization: Bearer k-123"),
        ("", "/v1/", "POST /v1/chat/completions HTTP/1.1", "connection: keep-alive"),
        (
            "",
            "/v 1/é?x=y z",
            "POST /v%201/%C3%A9?x=y%20z/chat/completions HTTP/1.1",
            "accept-encoding: identity",
        ),
        ("", "/a%20b", "POST /a%20b/chat/completions HTTP/1.1", "user-agent: longrein"),
        (
            "us%40er:p%20w@",
            "/v1",
            "POST /v1/chat/completions HTTP/1.1",
            "authorization: Basic dXNAZXI6cCB3",
        ),
    ],
)
async def test_an_address_is_sent_as_it_is_meant(
    before: str, after: str, line: str, more: str
) -> None:
    async with serve_answers(Answer(status=400)) as server:
        host = server.url.removeprefix("http://")
        await asked(f"http://{before}{host}{after}")
        head = server.heads[0].split("\r\n")
        assert head[0] == line
        hosts = [one[5:].strip() for one in head if one.lower().startswith("host:")]
        assert hosts == [host]
        assert more in [one[:14].lower() + one[14:] for one in head]
        found = len({one.partition(":")[0].lower() for one in head[1:] if one})
        assert found == len([one for one in head[1:] if one])


async def test_a_header_of_the_user_stands_once_and_wins() -> None:
    async with serve_answers(Answer(status=400)) as server:
        await asked(f"{server.url}/v1", headers=(("User-Agent", "mine"), ("X-Team", "seven")))
        head = server.heads[0].split("\r\n")
        found = [one for one in head if one.startswith(("user-agent", "x-team"))]
        assert found == ["user-agent: mine", "x-team: seven"]


@pytest.mark.parametrize(("url", "options", "said"), [
    ("http:///v1", {}, "is not valid: it names no host"),
    ("http://127.0.0.1:99999/v1", {}, "is not valid: there is no port 99999"),
    ("http://u@127.0.0.1:99999/v1", {}, "is not valid: there is no port 99999"),
    ("http://127.0.0.1:abc/v1", {}, "is not valid: Invalid port"),
    ("http://[::1/v1", {}, "is not valid: Invalid port"),
    ("localhost:8080/v1", {}, "cannot be made; check base_url"),
    ("ftp://x/v1", {}, "cannot be made; check base_url"),
    ("https://x.invalid/v1", {"proxy": "ftp://x"}, "is not valid: its proxy: Unknown scheme"),
    ("https://x.invalid/v1", {"proxy": "http://h:99999"}, "is not valid: there is no port 99999"),
])  # fmt: skip
async def test_an_address_that_cannot_be_is_a_failure(
    url: str, options: dict[str, Any], said: str
) -> None:
    failed = await asked(url, **options)
    assert failed.kind == "invalid"
    assert said in failed.message


async def test_a_proxy_is_told_where_to_go_and_who_asks() -> None:
    async with serve_answers(Answer(head=False, end="close")) as server:
        proxy = server.url.replace("http://", "http://u:p@")
        failed = await asked("https://api.invalid/v1", proxy=proxy)
    assert failed.kind == "network"
    head = server.heads[0].split("\r\n")
    assert head[0] == "CONNECT api.invalid:443 HTTP/1.1"
    assert "Proxy-Authorization: Basic dTpw" in head


async def test_a_compressed_answer_is_read_all_the_same() -> None:
    packed = gzip.compress(STREAMS["text"]["openai-chat"])
    pieces = [packed[n : n + 7] for n in range(0, len(packed), 7)]
    async with serve_answers(Answer(headers={"content-encoding": "gzip"}, chunks=pieces)) as server:
        assert isinstance(await asked(f"{server.url}/v1"), Reply)
    async with serve_answers(
        Answer(headers={"content-encoding": "gzip"}, body=b"no gzip at all")
    ) as server:
        failed = await asked(f"{server.url}/v1")
    assert failed.kind == "network"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "u:p@127.0.0.1"])
async def test_a_server_of_this_machine_that_does_not_run_is_asked_for_after_three_attempts(
    host: str,
) -> None:
    async with serve_answers() as server:
        port = server.url.rpartition(":")[2]
    failed = await asked(f"http://{host}:{port}/v1")
    shown = host.removeprefix("u:p@")
    assert failed.message.startswith(
        f"no connection: is the server running at http://{shown}:{port}? Start it, or"
    )
    pauses = [pause_s(n, failed.kind, jitter=1.0, attempts_max=failed.attempts_max) for n in (1, 2)]
    assert sum(filter(None, pauses)) <= 2
    assert pause_s(3, failed.kind, attempts_max=failed.attempts_max) is None


def test_a_remote_server_and_a_bad_certificate_keep_the_usual_attempts() -> None:
    refused = ConnectRefused("Connection refused")
    for failed in (
        request_failure(refused, "https://10.1.2.3/v1"),
        request_failure(ConnectFailed("certificate verify failed"), "https://localhost/v1"),
    ):
        assert failed.message.startswith("cannot connect to ")
        assert failed.attempts_max == 0
        assert pause_s(9, failed.kind, attempts_max=failed.attempts_max) is not None


@pytest.mark.parametrize(("end", "kind"), [
    ("clean", ""),
    ("silent", "stalled"),
    ("close", "truncated"),
    ("reset", "network"),
    ("nobody", "network"),
])  # fmt: skip
async def test_an_answer_ends_or_says_how_it_broke(end: str, kind: str) -> None:
    whole = STREAMS["text"]["openai-chat"]
    part = whole if end == "clean" else whole[: whole.index("你好".encode())]
    async with serve_answers(Answer(part, end=end)) as server:
        url = server.url
        if end == "nobody":
            url = url.rpartition(":")[0] + ":1"
        last = await asked(f"{url}/v1", idle_timeout_s=0.1 if end == "silent" else HANG_S)
    assert (last.kind if isinstance(last, Failure) else "") == kind
    assert end != "reset" or last.message.endswith("Connection reset by peer")


@pytest.mark.parametrize("end", ["clean", "close"])
async def test_a_connection_is_used_again_only_after_a_whole_answer(end: str) -> None:
    async with serve_answers(Answer(STREAMS["text"]["openai-chat"], end=end)) as server:
        model: Any = open_wire_model("openai-chat", server.url)
        for _ in range(3):
            assert isinstance((await answer_of(model, ASKED))[-1], Reply)
        await model.aclose()
        assert server.connections == (1 if end == "clean" else 3)


async def test_requests_side_by_side_have_a_connection_each_and_keep_them() -> None:
    async with serve_answers(Answer(STREAMS["text"]["openai-chat"])) as server:
        model: Any = open_wire_model("openai-chat", server.url)
        for _ in range(2):
            ends = await asyncio.gather(*(answer_of(model, ASKED) for _ in range(5)))
            assert all(isinstance(end[-1], Reply) for end in ends)
        assert server.connections == 5
        await model.aclose()


async def test_the_certificates_of_the_environment_are_trusted_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
            model: Any = open_wire_model("anthropic", address.url, idle_timeout_s=9.0)
            ends.append((await answer_of(model, ASKED))[-1])
            await model.aclose()
    assert isinstance(ends[0], Reply), ends[0]
    assert isinstance(ends[1], Failure)
    assert ends[1].kind == "network"
    assert "certificate verify failed" in ends[1].message


async def test_an_answer_that_the_connections_end_ends_is_whole() -> None:
    """HTTP/1.0 and servers that close: the body has no length."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
            + STREAMS["text"]["openai-chat"]
        )
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        assert isinstance(
            await asked(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), Reply
        )
