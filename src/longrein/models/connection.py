"""What requests go over: a pool of connections of `httpcore2`, the lower half of `httpx2`.

Importing the upper half costs as much again, and all that is used of it here is rare: addresses that are not plain,
proxies, answers that are compressed although nobody asked. These import it when they occur.
"""

import base64
import string
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import urljoin, urlsplit

from longrein.models.library import http_library
from longrein.models.network import Network
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
PLAIN = frozenset(string.ascii_letters + string.digits + "-._~:/?&=")
"""What an address may hold that is sent as it stands."""
PORT_MAX = 65_535


class AddressInvalid(ValueError):
    """An address that no request can be sent to."""


class Answer:
    """Status, headers and body of one answer; it holds its connection until `aclose`."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status
        self.headers = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
        self.stream: AsyncIterable[bytes] = response.stream
        self._response = response

    def chunks(self) -> AsyncIterable[bytes]:
        """The body as it comes, decoded. Raises one of `broken()`."""
        return self._decoded() if "content-encoding" in self.headers else self.stream

    async def whole(self) -> bytes:
        """The body to its end."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def aclose(self) -> None:
        """Give the connection back: for the next request where the body was read to its end, else closed."""
        await self._response.aclose()

    async def _decoded(self) -> AsyncIterator[bytes]:
        import httpx2

        response = httpx2.Response(self.status, headers=self._response.headers, content=aiter(self.stream))
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.DecodingError as error:
            raise http_library().ReadError(str(error)) from None


class Connections:
    """The connections of one model to one address. No socket is opened before the first request."""

    def __init__(self, options: ModelOptions, address: str) -> None:
        core = http_library()
        secure = address.startswith("https:")
        self._address = address
        self._pool = core.AsyncConnectionPool(
            ssl_context=core.default_ssl_context() if secure else None,  # knows SSL_CERT_FILE; takes 20 ms
            proxy=_proxy(options.proxy) if secure and options.proxy else None,
            max_connections=None,
            keepalive_expiry=KEEPALIVE_S,
            network_backend=Network(),
        )

    async def post(self, body: bytes, headers: Mapping[str, str], timeout: Mapping[str, float]) -> Answer:
        """Send `body`, also onward to another path of the same server: a key goes to the host it was given for.

        The answer's head is there when this returns, its body comes after. `timeout`: seconds of `connect`, `write`,
        `pool` and `read`; the last is looked up once more when the body is read. Raises `AddressInvalid` and one of
        `broken()`.
        """
        address = self._address
        answer = await self._post(address, body, headers, timeout)
        for _ in range(REDIRECTS_MAX):
            address = onward(address, answer)
            if not address:
                break
            await answer.aclose()
            answer = await self._post(address, body, headers, timeout)
        return answer

    async def _post(
        self, address: str, body: bytes, headers: Mapping[str, str], timeout: Mapping[str, float]
    ) -> Answer:
        url, own = _target(address)
        sent = HEADERS | {name.lower(): value for name, value in headers.items()} | own
        sent["content-length"] = str(len(body))
        request = http_library().Request("POST", url, headers=sent, content=body, extensions={"timeout": timeout})
        return Answer(await self._pool.handle_async_request(request))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


def broken() -> tuple[type[Exception], ...]:
    """What a request may end with beside an answer."""
    core = http_library()
    return core.TimeoutException, core.NetworkError, core.ProtocolError, core.ProxyError, core.UnsupportedProtocol


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


def _target(address: str) -> tuple[Any, dict[str, str]]:
    """`address` taken apart, and the headers that follow from it."""
    url, own = _plain(address) if all(char in PLAIN for char in address) else _odd(address)
    if url.scheme in (b"http", b"https") and not url.host:
        raise AddressInvalid("it names no host")
    return url, own


def _plain(address: str) -> tuple[Any, dict[str, str]]:
    try:
        url = http_library().URL(address)
    except ValueError as error:  # its port
        raise AddressInvalid(str(error)) from None
    host = url.host.decode()
    return url, {"host": host if url.port is None else f"{host}:{url.port}"}


def _odd(address: str) -> tuple[Any, dict[str, str]]:
    """With a name and password, an address of IPv6, letters of other scripts, or what must be escaped."""
    import httpx2

    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL as error:
        raise AddressInvalid(str(error)) from None
    own = {"host": url.netloc.decode("ascii")}
    if url.username or url.password:
        pair = f"{url.username}:{url.password}".encode()
        own["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return _lower(url), own


def _proxy(address: str) -> Any:
    import httpx2

    try:
        proxy = httpx2.Proxy(address)
    except (httpx2.InvalidURL, ValueError) as error:
        raise AddressInvalid(f"its proxy: {error}") from None
    if proxy.url.scheme.startswith("socks") and not find_spec("socksio"):
        raise AddressInvalid("its proxy needs the package socksio, which is not here")
    return http_library().Proxy(_lower(proxy.url), auth=proxy.raw_auth, headers=proxy.headers.raw)


def _lower(url: Any) -> Any:
    """An address of the upper half as one of the lower."""
    if url.port is not None and url.port > PORT_MAX:
        raise AddressInvalid(f"there is no port {url.port}")
    return http_library().URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
