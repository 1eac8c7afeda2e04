"""Where requests go and what comes back: a pool of connections to one address, and the answers that came over them.

Plain addresses go over our own connections. Proxies, addresses that are not plain and answers that are compressed
although nobody asked are rare: `httpx2`, which is dear to import, does those.
"""

import asyncio
import ssl
import string
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from urllib.parse import urljoin, urlsplit

import h11

from longrein.models.network import (
    ConnectFailed,
    Connection,
    ConnectTimeout,
    Cut,
    ReadFailed,
    ReadTimeout,
    RequestInvalid,
    TooLong,
    connect,
)
from longrein.models.port import ModelOptions

KEEPALIVE_S = 90.0
"""An idle connection is kept this long; a tool may run meanwhile."""
HEADERS = {
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",
    "connection": "keep-alive",
    "user-agent": "longrein",
}
"""Of every request, unless it has its own."""
REDIRECTS_MAX = 3
"""Followed for one request."""
ANSWER_BYTES_MAX = 256 << 20
"""One answer in all, with what its events say beside the reply."""
PLAIN = frozenset(string.ascii_letters + string.digits + "-._~:/?&=")
"""What an address may hold that is sent as it stands."""
PORT_MAX = 65_535
_PORTS = {"http": 80, "https": 443}


class AddressInvalid(ValueError):
    """An address that no request can be sent to."""


class Answer:
    """Status, headers and body of one answer; it holds its connection until `aclose`."""

    def __init__(
        self,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        body: AsyncIterator[bytes],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self.status = status
        self.headers = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in headers}
        self.aclose = close
        """Give the connection back: for the next request where the body was read to its end, else closed."""
        self.body = body
        """The bytes as they were sent, from where they were last read."""
        self._came = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, decoded. Raises `Broken`: `ReadTimeout` after a silence, `TooLong` past the limit."""
        async for chunk in self._decoded() if "content-encoding" in self.headers else self.body:
            self._came += len(chunk)
            if self._came > ANSWER_BYTES_MAX:
                raise TooLong(f"it is longer than {ANSWER_BYTES_MAX >> 20} MB")
            yield chunk

    async def _decoded(self) -> AsyncIterator[bytes]:
        import httpx2

        response = httpx2.Response(self.status, headers=self.headers, content=self.body)
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.DecodingError as error:
            raise ReadFailed(str(error)) from None


class Connections:
    """The connections of one model to one address. No socket is opened before the first request."""

    def __init__(self, options: ModelOptions, address: str) -> None:
        secure = address.startswith("https:")
        self._address = address
        self._options = options
        self._proxy = _proxy(options.proxy) if secure and options.proxy else None
        self._context = tls() if secure else None  # takes 20 ms
        self._idle: list[Connection] = []
        self._client: Any = None

    async def post(self, body: bytes, headers: Mapping[str, str], first_s: float) -> Answer:
        """Send `body`, also onward to another path of the same server: a key goes to the host it was given for.

        The answer's head is there when this returns, after at most `first_s`; its body comes after. Raises
        `AddressInvalid` and `Broken`.
        """
        address = self._address
        answer = await self._post(address, body, headers, first_s)
        for _ in range(REDIRECTS_MAX):
            address = onward(address, answer)
            if not address:
                break
            await answer.aclose()
            answer = await self._post(address, body, headers, first_s)
        return answer

    async def _post(self, address: str, body: bytes, headers: Mapping[str, str], first_s: float) -> Answer:
        sent = HEADERS | {name.lower(): value for name, value in headers.items()}
        if self._proxy is not None or not all(char in PLAIN for char in address):
            return await self._post_by_library(address, body, sent, first_s)
        host, port, target = _taken_apart(address)
        sent |= {"host": urlsplit(address).netloc, "content-length": str(len(body))}
        connection = self._free() or Connection(
            await connect(host, port, self._options.connect_timeout_s, self._context)
        )
        try:
            head = await connection.ask(target, sent, body, first_s)
        except BaseException:
            connection.stream.close()
            raise
        idle_s = self._options.idle_timeout_s

        async def give_back() -> None:
            self._give_back(connection)

        return Answer(head.status_code, head.headers, _Body(connection, idle_s), give_back)

    def _free(self) -> Connection | None:
        """An idle connection that still stands."""
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if not connection.stream.stale and now_s - connection.idle_since_s < KEEPALIVE_S:
                return connection
            connection.stream.close()
        return None

    def _give_back(self, connection: Connection) -> None:
        if connection.reuse(asyncio.get_running_loop().time()):
            self._idle.append(connection)
        else:
            connection.stream.close()

    async def _post_by_library(self, address: str, body: bytes, headers: dict[str, str], first_s: float) -> Answer:
        """With a proxy, a name and password, an address of IPv6, letters of other scripts, or what must be escaped."""
        import httpx2

        url = _odd(address)
        if self._client is None:
            verify = self._context or False
            self._client = httpx2.AsyncClient(proxy=self._proxy, verify=verify, trust_env=False)
        timeout = httpx2.Timeout(None, connect=self._options.connect_timeout_s)
        headers["host"] = url.netloc.decode("ascii")
        request = self._client.build_request("POST", url, content=body, headers=headers, timeout=timeout)
        with _library_errors():
            async with asyncio.timeout(first_s):
                response = await self._client.send(request, stream=True)
        body_read = _LibraryBody(aiter(response.aiter_raw()), self._options.idle_timeout_s)
        return Answer(response.status_code, response.headers.raw, body_read, response.aclose)

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in self._idle:
            connection.stream.close()
        self._idle.clear()
        if self._client is not None:
            await self._client.aclose()


class _Body:
    """The body of an answer over a connection of ours."""

    def __init__(self, connection: Connection, idle_s: float) -> None:
        self._connection = connection
        self._idle_s = idle_s
        self._over = False

    def __aiter__(self) -> "_Body":
        return self

    async def __anext__(self) -> bytes:
        event = None if self._over else await self._connection.event(self._idle_s)
        if isinstance(event, h11.Data):
            return bytes(event.data)
        self._over = True
        raise StopAsyncIteration


class _LibraryBody:
    """The body of an answer that the library reads."""

    def __init__(self, body: AsyncIterator[bytes], idle_s: float) -> None:
        self._body = body
        self._idle_s = idle_s

    def __aiter__(self) -> "_LibraryBody":
        return self

    async def __anext__(self) -> bytes:
        with _library_errors():
            async with asyncio.timeout(self._idle_s):
                return await anext(self._body)


@contextmanager
def _library_errors() -> Iterator[None]:
    """Errors of `httpx2` as ours."""
    import httpx2

    try:
        yield
    except httpx2.ConnectTimeout:
        raise ConnectTimeout from None
    except (httpx2.TimeoutException, TimeoutError):
        raise ReadTimeout from None
    except httpx2.ConnectError as error:
        raise ConnectFailed(str(error)) from None
    except httpx2.RemoteProtocolError as error:
        raise Cut(str(error)) from None
    except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
        raise RequestInvalid(str(error)) from None
    except httpx2.HTTPError as error:
        raise ReadFailed(str(error)) from None


def onward(address: str, answer: Answer) -> str:
    """Where a request to `address` is to be sent instead, if that is another path of the same server; else ''."""
    if answer.status not in (307, 308) or "location" not in answer.headers:
        return ""
    try:
        found = urljoin(address, answer.headers["location"])
        before, after = urlsplit(address), urlsplit(found)
    except ValueError:
        return ""
    return found if (before.scheme, before.netloc) == (after.scheme, after.netloc) else ""


def tls() -> ssl.SSLContext:
    """Certificates to trust: `SSL_CERT_FILE`, else the system's, which `httpx2` finds where Python does not."""
    paths = ssl.get_default_verify_paths()
    if sys.platform != "linux" or not (paths.cafile or paths.capath):
        import httpx2

        made: ssl.SSLContext = httpx2.create_ssl_context()
        return made
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _taken_apart(address: str) -> tuple[str, int, str]:
    """Host, port and target of a plain address. Raises `AddressInvalid` and `RequestInvalid`."""
    url = urlsplit(address)
    try:
        port = url.port
    except ValueError as error:
        raise AddressInvalid(str(error)) from None
    if url.scheme not in _PORTS:
        raise RequestInvalid(f"{url.scheme or address} is no http")
    if not url.hostname:
        raise AddressInvalid("it names no host")
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    return url.hostname, _PORTS[url.scheme] if port is None else port, target


def _odd(address: str) -> Any:
    import httpx2

    try:
        return _with_port(httpx2.URL(address))
    except httpx2.InvalidURL as error:
        raise AddressInvalid(str(error)) from None


def _proxy(address: str) -> Any:
    import httpx2

    try:
        proxy = httpx2.Proxy(address)
    except (httpx2.InvalidURL, ValueError) as error:
        raise AddressInvalid(f"its proxy: {error}") from None
    if proxy.url.scheme.startswith("socks") and not find_spec("socksio"):
        raise AddressInvalid("its proxy needs the package socksio, which is not here")
    _with_port(proxy.url)
    return proxy


def _with_port(url: Any) -> Any:
    """`url`, if a port of that number can be."""
    if url.port is not None and url.port > PORT_MAX:
        raise AddressInvalid(f"there is no port {url.port}")
    if url.scheme in _PORTS and not url.host:
        raise AddressInvalid("it names no host")
    return url
