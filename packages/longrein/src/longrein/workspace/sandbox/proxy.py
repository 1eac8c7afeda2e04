"""HTTP proxy that lets commands reach allowed domains only.

Commands in a network namespace reach it through a Unix socket (`proxy_forwarder`). The proxy looks
each name up itself, refuses addresses that are not public, and connects to the address that it has
checked, so that a second look-up cannot lead elsewhere.
"""

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

import h11

from longrein.permissions.network_hosts import (
    Target,
    canonical_host,
    is_address,
    is_public,
    matches_entry,
)

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

HEADER_BYTES_MAX = 1 << 16
TRANSFER_BYTES_MAX = 8 << 30
"""Bytes of one connection in one direction."""
CHUNK_BYTES = 1 << 16
HEADER_S = 10.0
RESOLVE_S = 10.0
CONNECT_S = 15.0
IDLE_S = 300.0
CONNECTIONS_MAX = 256
BACKLOG = 128
OWN_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NOT_FORWARDED = frozenset(
    b"connection proxy-connection proxy-authorization proxy-authenticate keep-alive te trailer "
    b"upgrade host".split()
)


class RefusedError(Exception):
    """A request that the proxy does not carry out: an HTTP status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


# --- Addresses ------------------------------------------------------------------------------------


def _acceptable(target: Target, address: str, entries: Sequence[str]) -> bool:
    """Judge an address that a name resolved to: public, or an entry names the address or its range.

    Of entries with names only `localhost` leads to this machine.
    """
    if is_public(address):
        return True
    if target.host == "localhost":
        return ipaddress.ip_address(address).is_loopback
    return any(matches_entry(entry, Target(address, target.port)) for entry in entries)


def proxy_environment(port: int, entries: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables by which commands find the proxy on a loopback port.

    The loopback of a command's own network is reached without the proxy, unless `entries` name that
    of this machine.
    """
    url = f"http://127.0.0.1:{port}"
    own = [host for host in OWN_LOOPBACK if not any(host in entry for entry in entries)]
    direct = ",".join(own)
    found = {"NODE_USE_ENV_PROXY": "1"}
    for name, value in (
        ("HTTP_PROXY", url),
        ("HTTPS_PROXY", url),
        ("ALL_PROXY", url),
        ("NO_PROXY", direct),
    ):
        found[name] = found[name.lower()] = value
    return found


# --- The proxy ------------------------------------------------------------------------------------


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Proxy:
    """Proxy server of a session. Close it with `close`."""

    def __init__(
        self,
        entries: Sequence[str],
        decide: Callable[[Target], Awaitable[str]],
        refused: Callable[[str], None] = lambda _reason: None,
        *,
        resolve: Callable[[str, int], Awaitable[list[str]]] = resolve,
        connect: Callable[[str, int], Awaitable[Connection]] = asyncio.open_connection,
    ) -> None:
        """Make a proxy. `decide` returns why a host is refused, '' where it is allowed; `refused`
        is told refusals.

        Addresses that are not public need one of `entries` (those of `sandbox.network`).
        """
        self.entries = tuple(entries)
        self._decide = decide
        self._refused = refused
        self._resolve = resolve
        self._connect = connect
        self._servers: list[asyncio.Server] = []
        self._starting: list[asyncio.Task[None]] = []
        self._open: set[asyncio.Task[None]] = set()

    def listen_unix(self, path: str) -> None:
        """Listen on a Unix socket that only this user may use. Clients may connect at once.
        Raises OSError.
        """
        listening = _bound_socket(path)
        listening.listen(BACKLOG)
        self._starting.append(asyncio.ensure_future(self._accept(listening)))

    async def _accept(self, listening: socket.socket) -> None:
        self._servers.append(
            await asyncio.start_unix_server(self._serve, sock=listening, backlog=BACKLOG)
        )

    async def close(self) -> None:
        """Stop listening and cut all connections."""
        await asyncio.gather(*self._starting, return_exceptions=True)
        for server in self._servers:
            server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if len(self._open) > CONNECTIONS_MAX:
                raise RefusedError(503, "too many connections")
            await self._serve_request(reader, writer)
        except RefusedError as error:
            with suppress(OSError):
                writer.write(_refusal(error))
                await asyncio.wait_for(writer.drain(), IDLE_S)
        except (OSError, TimeoutError, asyncio.CancelledError, h11.RemoteProtocolError):
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        client = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)
        try:
            async with asyncio.timeout(HEADER_S):
                request = await _next_event(client, reader)
        except (h11.RemoteProtocolError, TimeoutError):
            raise RefusedError(400, "not a request that a proxy understands") from None
        if not isinstance(request, h11.Request):
            return
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
            raise RefusedError(400, "a request with two lengths")
        if request.method == b"CONNECT":
            target = _target(_text(request.target), 0)
            upstream = await self._open_target(target)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            upstream[1].write(client.trailing_data[0])
            await _tunnel((reader, writer), upstream)
        else:
            url = _absolute_url(_text(request.target))
            target = _target(url.netloc.rpartition("@")[2], 80)
            upstream = await self._open_target(target)
            try:
                server = await _forward_request(client, reader, request, url, upstream[1])
                await _return_response(server, upstream[0], writer)
            finally:
                upstream[1].close()

    async def _open_target(self, target: Target) -> Connection:
        """Connect to a target that is allowed. Raises RefusedError."""
        if refusal := await self._decide(target):
            self._refused(refusal)
            raise RefusedError(403, f"sandbox: {refusal}")
        try:
            async with asyncio.timeout(RESOLVE_S):
                found = (
                    [target.host]
                    if is_address(target.host)
                    else await self._resolve(target.host, target.port)
                )
        except (OSError, UnicodeError):
            raise RefusedError(502, f"{target.host} has no address") from None
        good = [address for address in found if _acceptable(target, address, self.entries)]
        if not good:
            shown = ", ".join(found[:3])
            refusal = (
                f"{target.host} leads to {shown}, which is not public; sandbox.network can "
                "name such addresses"
            )
            self._refused(refusal)
            raise RefusedError(403, f"sandbox: {refusal}")
        for address in good[:4]:
            with suppress(OSError):  # TimeoutError is one
                return await asyncio.wait_for(self._connect(address, target.port), CONNECT_S)
        raise RefusedError(502, f"{target.host} cannot be reached")


def _bound_socket(path: str) -> socket.socket:
    """Return a Unix socket bound to a path of any length, in place of one that a crash left
    there. Raises OSError.
    """
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    bound = socket.socket(socket.AF_UNIX)
    try:
        short = f"/proc/self/fd/{descriptor}/{name}"  # the path of a socket has at most 107 bytes
        with suppress(FileNotFoundError):
            os.unlink(path)
        before = os.umask(0o177)
        try:
            bound.bind(short)
        finally:
            os.umask(before)
    except OSError:
        bound.close()
        raise
    finally:
        os.close(descriptor)
    return bound


def _text(data: bytes) -> str:
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise RefusedError(400, "the address is not ASCII") from None
    if not text.isprintable() or " " in text or "\\" in text:
        raise RefusedError(400, "the address has odd characters")
    return text


def _absolute_url(written: str) -> SplitResult:
    try:
        url = urlsplit(written)
    except ValueError:
        raise RefusedError(400, "not an address") from None
    if url.scheme != "http" or not url.netloc:
        raise RefusedError(400, "only CONNECT and http:// addresses are proxied")
    return url


def _target(written: str, port: int) -> Target:
    """Read `host:port`. Raises RefusedError."""
    host, colon, tail = written.rpartition(":")
    if not colon or tail.endswith("]"):
        host, tail = written, str(port)
    try:
        if not re.fullmatch(r"[0-9]{1,5}", tail) or not 0 < int(tail) < 1 << 16:
            raise ValueError("not a port")
        return Target(canonical_host(host), int(tail))
    except ValueError as error:
        raise RefusedError(400, f"not an address: {error}") from None


def _refusal(error: RefusedError) -> bytes:
    body = f"longrein: {error.reason}\n".encode()
    head = f"HTTP/1.1 {error.status} {error.reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def _next_event(client: h11.Connection, reader: asyncio.StreamReader) -> object:
    while True:
        event = client.next_event()
        if event is not h11.NEED_DATA:
            return event
        client.receive_data(await reader.read(CHUNK_BYTES))


async def _forward_request(
    client: h11.Connection,
    reader: asyncio.StreamReader,
    request: h11.Request,
    url: SplitResult,
    upstream: asyncio.StreamWriter,
) -> h11.Connection:
    """Send one request with its body, without what was meant for the proxy; return the state for
    its response.
    """
    listed = [value for name, value in request.headers if name == b"connection"]
    dropped = {
        one.strip().lower() for value in listed for one in value.split(b",")
    } | _NOT_FORWARDED
    headers = [(name, value) for name, value in request.headers if name not in dropped]
    host = url.netloc.rpartition("@")[2].encode()
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    server = h11.Connection(h11.CLIENT)
    headers = [(b"host", host), *headers, (b"connection", b"close")]
    out = server.send(h11.Request(method=request.method, target=path.encode(), headers=headers))
    sent = 0
    while True:
        if out:
            upstream.write(out)
            await asyncio.wait_for(upstream.drain(), IDLE_S)
        if client.they_are_waiting_for_100_continue:
            raise RefusedError(417, "send the body without waiting")
        event = await asyncio.wait_for(_next_event(client, reader), IDLE_S)
        if isinstance(event, h11.EndOfMessage):
            upstream.write(server.send(h11.EndOfMessage()) or b"")
            return server
        if not isinstance(event, h11.Data) or (sent := sent + len(event.data)) > TRANSFER_BYTES_MAX:
            raise ConnectionError
        out = server.send(h11.Data(data=bytes(event.data)))


async def _return_response(
    server: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Copy one response as it is; h11 tells where it ends. What the client sends meanwhile is
    not for this host.
    """
    left = TRANSFER_BYTES_MAX
    while left > 0:
        piece = await asyncio.wait_for(reader.read(CHUNK_BYTES), IDLE_S)
        left -= len(piece)
        writer.write(piece)
        await asyncio.wait_for(writer.drain(), IDLE_S)
        server.receive_data(piece)
        while (event := server.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return


async def _tunnel(client: Connection, upstream: Connection) -> None:
    """Copy bytes until both sides have ended, or nothing moved for a while."""
    tasks = [
        asyncio.ensure_future(_copy(upstream[0], client[1])),
        asyncio.ensure_future(_copy(client[0], upstream[1])),
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        upstream[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    left = TRANSFER_BYTES_MAX
    while left > 0 and (piece := await asyncio.wait_for(reader.read(CHUNK_BYTES), IDLE_S)):
        left -= len(piece)
        writer.write(piece)
        await asyncio.wait_for(writer.drain(), IDLE_S)
    if left <= 0:
        raise ConnectionError
    if writer.can_write_eof():
        writer.write_eof()
