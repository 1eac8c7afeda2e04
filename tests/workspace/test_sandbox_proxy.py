"""Proxy of sandboxed commands: allowed domains only, public addresses only, over real sockets on
loopback.
"""

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from longrein.permissions import Rules
from longrein.permissions.network_hosts import Target, judge_host
from longrein.workspace.sandbox import proxy as proxy_module
from longrein.workspace.sandbox.proxy import Connection, Proxy, proxy_environment
from longrein.workspace.sandbox.proxy_forwarder import forwarder_words
from tests.tables import split_words
from tests.timeouts import HANG_S

pytestmark = pytest.mark.anyio

PUBLIC = "93.184.216.34"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
NAMES = {
    "good.example": [PUBLIC],
    "api.good.example": [PUBLIC],
    "other.example": [PUBLIC],
    "mixed.example": ["10.0.0.1", PUBLIC],
    "inside.example": ["10.0.0.1", "::1", "169.254.169.254"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
    "localhost": ["127.0.0.1"],
}


class World:
    """A server on loopback that stands for the internet, and what the proxy did."""

    def __init__(self) -> None:
        self.port = 0
        self.failing = 0
        """Number of connections that are refused before one is accepted."""
        self.connected: list[tuple[str, int]] = []
        self.received = b""
        self.resolved: list[str] = []
        self.answer = ANSWER
        self.ended = asyncio.Event()
        """Set when a connection to the server has ended."""

    async def resolve(self, host: str, port: int) -> list[str]:
        self.resolved.append(host)
        if host not in NAMES:
            raise OSError("no such host")
        return NAMES[host]

    async def connect(self, address: str, port: int) -> Connection:
        self.connected.append((address, port))
        if len(self.connected) <= self.failing:
            raise ConnectionRefusedError
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            self.received += await reader.readuntil(b"\r\n\r\n")
            if b"content-length: 4" in self.received.lower():
                self.received += await reader.readexactly(4)
            writer.write(self.answer)
            await writer.drain()
            self.received += await reader.read()
        self.ended.set()
        writer.close()


@asynccontextmanager
async def opened(
    entries: list[str], mode: str = "dontAsk", allow: tuple[str, ...] = (), **options: Any
) -> AsyncIterator[tuple[World, Proxy, str]]:
    world = World()

    async def decide(target: Target) -> str:
        verdict = judge_host(target, entries, Rules(allow), mode)
        return "" if verdict.kind == "allow" else verdict.reason

    server = await asyncio.start_server(world.serve, "127.0.0.1", 0)
    world.port = server.sockets[0].getsockname()[1]
    proxy = Proxy(
        entries, decide, **{"resolve": world.resolve, "connect": world.connect, **options}
    )
    with TemporaryDirectory() as folder:
        path = f"{folder}/proxy"
        proxy.listen_unix(path)
        try:
            yield world, proxy, path
        finally:
            await proxy.close()
            server.close()


async def exchange(path: str, request: bytes) -> bytes:
    """Send bytes, end the sending side and return all that comes back."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request)
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), HANG_S)
    finally:
        writer.close()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


# --- Names and addresses --------------------------------------------------------------------------


# --- Requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("allowed", "request_line", "code"), [
    (["good.example"], "CONNECT good.example:443 HTTP/1.1", 200),
    (["good.example"], "CONNECT GOOD.example.:443 HTTP/1.1", 200),
    (["*.good.example"], "CONNECT api.good.example:443 HTTP/1.1", 200),
    (["*.good.example"], "CONNECT good.example:443 HTTP/1.1", 403),
    (["good.example"], "CONNECT good.example:22 HTTP/1.1", 403),
    (["good.example"], "CONNECT good.example:0443 HTTP/1.1", 200),
    (["good.example"], "CONNECT good.example HTTP/1.1", 400),
    (["good.example"], "CONNECT good.example:99999 HTTP/1.1", 400),
    (["good.example"], "CONNECT good.example:-1 HTTP/1.1", 400),
    (["good.example"], "CONNECT other.example:443 HTTP/1.1", 403),
    (["good.example"], "CONNECT good.example\0.other.example:443 HTTP/1.1", 400),
    (["good.example"], "CONNECT good.example%00.other.example:443 HTTP/1.1", 400),
    (["good.example"], "CONNECT good.example@other.example:443 HTTP/1.1", 400),
    (["good.example"], "GET http://good.example/x?y HTTP/1.1", 200),
    (["good.example"], "GET http://user:password@good.example/ HTTP/1.1", 200),
    (["good.example"], "GET http://good.example@other.example/ HTTP/1.1", 403),
    (["good.example"], "GET http://other.example\\@good.example/ HTTP/1.1", 400),
    (["good.example"], "GET http://other.example#@good.example/ HTTP/1.1", 403),
    (["good.example"], "GET https://good.example/ HTTP/1.1", 400),
    (["good.example"], "GET file:///etc/passwd HTTP/1.1", 400),
    (["good.example"], "GET / HTTP/1.1", 400),
    (["good.example"], "nonsense", 400),
    (["mixed.example"], "CONNECT mixed.example:443 HTTP/1.1", 200),
    (["inside.example"], "CONNECT inside.example:443 HTTP/1.1", 403),
    (["mapped.example"], "CONNECT mapped.example:443 HTTP/1.1", 403),
    (["metadata.google.internal"], "GET http://metadata.google.internal/ HTTP/1.1", 403),
    (["unknown.example"], "CONNECT unknown.example:443 HTTP/1.1", 502),
    ([], "CONNECT good.example:443 HTTP/1.1", 403),
    ([], f"CONNECT {PUBLIC}:443 HTTP/1.1", 403),
    (["localhost:3000"], "CONNECT localhost:3000 HTTP/1.1", 200),
    (["localhost:3000"], "CONNECT localhost.:3000 HTTP/1.1", 200),
    (["good.example"], "CONNECT localhost.:443 HTTP/1.1", 403),
    (["127.0.0.1:3000"], "CONNECT 127.0.0.1:3000 HTTP/1.1", 200),
    (["127.0.0.1:3000"], "CONNECT 127.1:3000 HTTP/1.1", 400),
    (["good.example:65535"], "CONNECT good.example:65535 HTTP/1.1", 200),
    (["good.example:1"], "CONNECT good.example:1 HTTP/1.1", 200),
    (["good.example"], "CONNECT good.example:65536 HTTP/1.1", 400),
    (["good.example"], "CONNECT good.example:0 HTTP/1.1", 400),
    (["good.example"], "CONNECT good.example:000443 HTTP/1.1", 400),
    (["good.example"], "GET http:///x HTTP/1.1", 400),
    (["good.example"], "GET http://good.example:80/ HTTP/1.1", 200),
    (["good.example"], "GET http://good.example:81/ HTTP/1.1", 403),
    (["[2606:4700::1111]"], "GET http://[2606:4700::1111]/ HTTP/1.1", 200),
    (["[2606:4700::1111]"], "CONNECT [2606:4700::1111]:443 HTTP/1.1", 200),
    (["[2606:4700::1111]"], "CONNECT [2606:4700::1111] HTTP/1.1", 400),
    (["good.example"], "GET http://good.example/\xe9 HTTP/1.1", 400),
])  # fmt: skip
async def test_requests_are_answered_by_the_allow_list(
    allowed: list[str], request_line: str, code: int
) -> None:
    async with opened(allowed) as (world, _, path):
        answer = await exchange(path, f"{request_line}\r\nHost: good.example\r\n\r\n".encode())
        assert status(answer) == code
        assert bool(world.connected) is (code == 200)
        if code == 200 and "mixed" in request_line:
            assert world.connected == [(PUBLIC, 443)]


@pytest.mark.parametrize(
    "host",
    [
        *split_words("""
            127.0.0.1 [::1] 0.0.0.0 10.1.2.3 100.64.0.1 169.254.169.254 [fd00::1] [::ffff:7f00:1]
        """),
        *("2130706433", "0x7f.1", "localhost.", "metadata.google.internal"),
    ],
)
async def test_s063_rules_do_not_lead_inside(host: str) -> None:
    async with opened(["ask"], allow=("Network",)) as (world, _, path):
        for line in (f"CONNECT {host}:443 HTTP/1.1", f"GET http://{host}/ HTTP/1.1"):
            assert status(await exchange(path, f"{line}\r\nHost: x\r\n\r\n".encode())) in {400, 403}
        assert not world.connected


async def test_a_named_range_opens_names_that_lead_there() -> None:
    async with opened(["inside.example", "10.0.0.0/8"]) as (world, _, path):
        answer = await exchange(path, b"CONNECT inside.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status(answer), world.connected) == (200, [("10.0.0.1", 443)])


async def test_refusals_name_the_host_the_address_and_the_setting() -> None:
    told: list[str] = []
    async with opened(["good.example", "inside.example"], refused=told.append) as (_, _proxy, path):
        for host in ("other.example", "inside.example"):
            answer = await exchange(
                path, f"CONNECT {host}:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            )
            assert host.encode() in answer
            assert b"sandbox.network" in answer
    assert told[0].startswith("other.example is not allowed, and the mode dontAsk asks for no host")
    assert told[0].endswith('add "other.example" to sandbox.network to allow it')
    assert told[1].startswith(
        "inside.example leads to 10.0.0.1, ::1, 169.254.169.254, which is not public"
    )


async def test_what_is_meant_for_the_proxy_is_not_forwarded() -> None:
    request = (
        b"POST http://user:password@good.example/a?b HTTP/1.1\r\nHost: other.example\r\n"
        b"Proxy-Authorization: Basic bG9uZ3JlaW46c2VjcmV0\r\nProxy-Connection: keep-alive\r\n"
        b"Connection: x-hop\r\nX-Hop: 1\r\nAccept: text/plain\r\nContent-Length: 4\r\n\r\nbody"
        b"GET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n"
    )
    async with opened(["good.example"]) as (world, _, path):
        assert (await exchange(path, request)).endswith(b"hello")
        head, _, body = world.received.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /a?b HTTP/1.1\r\nhost: good.example\r\n")
        assert body == b"body"
        for word in (b"password", b"roxy", b"-hop", b"bG9uZ3JlaW46", b"other.example"):
            assert word not in world.received


async def test_headers_without_end_are_refused() -> None:
    async with opened(["good.example"]) as (world, _, path):
        reader, writer = await asyncio.open_unix_connection(path)
        with suppress(ConnectionError):
            writer.write(b"GET http://good.example/ HTTP/1.1\r\n" + b"X: y\r\n" * 50_000)
            await writer.drain()
            answer = await asyncio.wait_for(reader.read(), HANG_S)
            assert status(answer) in {0, 400}
        writer.close()
        assert not world.connected


@pytest.mark.parametrize("headers", [
    "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Content-Length: 4\r\nContent-Length: 5\r\n",
    "Content-Length: +4\r\n",
    "Content-Length : 4\r\n",
    "X: a\rHost: other.example\r\n",
    "X: a\0b\r\n",
    "Host: other.example\r\n",
])  # fmt: skip
async def test_headers_that_can_be_read_in_two_ways_are_refused(headers: str) -> None:
    body = "4\r\nbody\r\n0\r\n\r\nGET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n"
    async with opened(["good.example"]) as (world, _, path):
        request = f"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\n{headers}\r\n{body}"
        assert status(await exchange(path, request.encode())) in {0, 400}
        assert b"other.example" not in world.received
        assert not (
            b"content-length" in world.received.lower()
            and b"transfer-encoding" in world.received.lower()
        )


async def test_a_slow_client_is_dropped_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = b"CONNECT good.exam"
    async with opened(["good.example"]) as (_, _proxy, path):
        slow = [await asyncio.open_unix_connection(path) for _ in range(100)]
        for _, writer in slow:
            writer.write(part)
        answer = await exchange(path, b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(answer) == 200
        for _, writer in slow:
            writer.close()
        monkeypatch.setattr(proxy_module, "HEADER_S", 0.1)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(part)
        assert status(await asyncio.wait_for(reader.read(), HANG_S)) == 400
        writer.close()


async def test_more_connections_than_the_limit_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxy_module, "CONNECTIONS_MAX", 2)
    request = b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n"
    async with opened(["good.example"]) as (_, _proxy, path):
        waiting = [await asyncio.open_unix_connection(path) for _ in range(2)]
        assert status(await exchange(path, request)) == 503
        for reader, writer in waiting:
            writer.write(request)
            assert status(await asyncio.wait_for(reader.read(), HANG_S)) == 200
            writer.close()
        assert status(await exchange(path, request)) == 200


async def test_the_end_of_the_proxy_cuts_what_runs(tmp_path: Path) -> None:
    async with opened(["good.example"]) as (_, proxy, path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"CONNECT good.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        proxy.listen_unix(str(tmp_path / "s"))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))  # at once
        await proxy.close()
        assert await asyncio.wait_for(reader.read(), HANG_S) == b""
        writer.close()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_unix_connection(str(tmp_path / "s"))


async def test_what_comes_with_the_request_for_a_tunnel_goes_through_it() -> None:
    async with opened(["good.example"]) as (world, _, path):
        request = b"CONNECT good.example:443 HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n\r\n"
        assert (await exchange(path, request)).endswith(b"hello")
        assert world.received == b"GET / HTTP/1.1\r\n\r\n"


async def test_sockets_have_paths_of_any_length(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    (folder / "s").write_text("left by a crash")
    async with opened([]) as (_, proxy, _port):
        before = len(os.listdir("/proc/self/fd"))
        proxy.listen_unix(str(folder / "s"))
        assert len(os.listdir("/proc/self/fd")) == before + 1
        assert os.stat(folder / "s").st_mode & 0o777 == 0o600


# --- What goes through ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_line", ["CONNECT good.example:443 HTTP/1.1", "GET http://good.example/ HTTP/1.1"]
)
@pytest.mark.parametrize("who", ["the client", "the session"])
async def test_the_other_side_is_left_when_somebody_leaves(request_line: str, who: str) -> None:
    async with opened(["good.example"]) as (world, proxy, path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(f"{request_line}\r\nHost: good.example\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        if who == "the client":
            writer.close()
        else:
            await proxy.close()
        if request_line.startswith("CONNECT") and not world.received:
            await asyncio.wait_for(reader.read(), HANG_S)
        await asyncio.wait_for(world.ended.wait(), HANG_S)
        writer.close()


@pytest.mark.parametrize(("written", "sent"), [
    ("http://good.example", "/"),
    ("http://good.example?q=1", "/?q=1"),
    ("http://good.example/a/b?q=1&r", "/a/b?q=1&r"),
    ("http://good.example/a?", "/a"),
    ("http://good.example/a#part", "/a"),
])  # fmt: skip
async def test_the_path_is_sent_to_the_host(written: str, sent: str) -> None:
    async with opened(["good.example"]) as (world, _, path):
        await exchange(path, f"GET {written} HTTP/1.1\r\nHost: good.example\r\n\r\n".encode())
        assert world.received.startswith(f"GET {sent} HTTP/1.1\r\n".encode())


async def body(size: int, most: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Send a body in pieces; return True if the server has got it and the client the answer."""
    monkeypatch.setattr(proxy_module, "TRANSFER_BYTES_MAX", most)
    monkeypatch.setattr(proxy_module, "CHUNK_BYTES", 10)
    async with opened(["good.example"]) as (world, _, path):
        head = (
            b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        pieces = b"".join(b"1\r\nx\r\n" for _ in range(size)) + b"0\r\n\r\n"
        answer = await exchange(path, head + pieces)
        await asyncio.wait_for(world.ended.wait(), HANG_S)
        is_whole = world.received.endswith(b"1\r\nx\r\n" * min(size, 2) + b"0\r\n\r\n")
        assert answer.endswith(b"hello") is is_whole
        return is_whole


@pytest.mark.parametrize(("size", "passes"), [(60, True), (61, False), (200, False)])
async def test_a_body_above_the_limit_is_cut(
    size: int, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await body(size, 60, monkeypatch) is passes


@pytest.mark.parametrize("request_line", ["CONNECT good.example:443", "GET http://good.example/"])
@pytest.mark.parametrize(("size", "passes"), [(40, True), (90, False)])
async def test_an_answer_above_the_limit_is_cut(
    request_line: str, size: int, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_module, "TRANSFER_BYTES_MAX", 80)
    monkeypatch.setattr(proxy_module, "CHUNK_BYTES", 10)
    async with opened(["good.example"]) as (world, _, path):
        world.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
        reader, writer = await asyncio.open_unix_connection(path)
        request = f"{request_line} HTTP/1.1\r\nHost: good.example\r\n\r\n".encode()
        writer.write(request)
        if request_line.startswith("CONNECT"):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
        got = await asyncio.wait_for(reader.read(len(world.answer)), HANG_S)
        while len(got) < len(world.answer) and (
            more := await asyncio.wait_for(reader.read(100), HANG_S)
        ):
            got += more
        assert (got == world.answer) is passes
        writer.close()


@pytest.mark.parametrize(("head", "end"), [
    ("Content-Length: 3", "abc"),
    ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
    ("Content-Length: 0", ""),
])  # fmt: skip
async def test_the_answer_ends_where_its_head_says(head: str, end: str) -> None:
    async with opened(["good.example"]) as (world, _, path):
        world.answer = f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n{end}".encode()
        answer = await exchange(path, b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer == world.answer


async def test_a_client_that_waits_to_send_is_told_not_to() -> None:
    async with opened(["good.example"]) as (_world, _, path):
        request = (
            b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            b"Content-Length: 4\r\n\r\n"
        )
        assert status(await exchange(path, request)) == 417


@pytest.mark.parametrize(("failing", "code"), [(0, 200), (3, 200), (4, 502)])
async def test_the_first_addresses_of_a_host_are_tried(failing: int, code: int) -> None:
    addresses = [f"93.184.216.{n}" for n in range(1, 7)]

    async def resolve(_host: str, _port: int) -> list[str]:
        return addresses

    async with opened(["good.example"], resolve=resolve) as (world, _, path):
        world.failing = failing
        answer = await exchange(path, b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(answer) == code
        assert [address for address, _ in world.connected] == addresses[: min(failing + 1, 4)]
        assert (b"good.example cannot be reached" in answer) is (code == 502)


async def test_a_name_that_hangs_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "RESOLVE_S", 0.01)

    async def resolve(_host: str, _port: int) -> list[str]:
        await asyncio.sleep(2 * HANG_S)
        return []

    async with opened(["good.example"], resolve=resolve) as (_, _proxy, path):
        answer = await exchange(path, b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(answer) == 502
        assert b"good.example has no address" in answer


@pytest.mark.parametrize(("entries", "direct"), [
    ([], "localhost,127.0.0.1,::1"),
    (["good.example"], "localhost,127.0.0.1,::1"),
    (["localhost:3000"], "127.0.0.1,::1"),
    (["127.0.0.1:3000", "[::1]:80"], "localhost"),
])  # fmt: skip
async def test_variables_lead_commands_to_the_proxy(entries: list[str], direct: str) -> None:
    found = proxy_environment(3128, entries)
    assert (found["NO_PROXY"], found["no_proxy"]) == (direct, direct)
    for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        assert found[name] == "http://127.0.0.1:3128"


async def test_an_address_has_itself() -> None:
    assert await proxy_module.resolve("127.0.0.1", 80) == ["127.0.0.1"]


# --- Real clients ---------------------------------------------------------------------------------


async def test_a_namespace_without_network_reaches_the_proxy_by_its_socket(tmp_path: Path) -> None:
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    async with opened(["good.example"]) as (_, proxy, _port):
        path = str(tmp_path / "proxy.sock")
        proxy.listen_unix(path)
        assert os.stat(path).st_mode & 0o777 == 0o600
        bare = split_words("""
            bwrap --unshare-user --unshare-net --unshare-pid --ro-bind / / --dev /dev
        """)
        script = (
            "import urllib.request as r, urllib.error as "
            "e\nprint(r.urlopen('http://good.example/').read())\ntry: "
            "r.urlopen('http://other.example/')\nexcept e.HTTPError as error: print(error.code)\n"
        )
        words = [
            *bare,
            "--proc",
            "/proc",
            *forwarder_words(sys.executable, path),
            sys.executable,
            "-I",
            "-c",
            script,
        ]
        done = await asyncio.create_subprocess_exec(
            *words,
            env=proxy_environment(3128),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await asyncio.wait_for(
            done.communicate(), HANG_S
        )  # ends: the forwarder holds no output
        assert (printed, done.returncode) == (b"b'hello'\n403\n", 0)
