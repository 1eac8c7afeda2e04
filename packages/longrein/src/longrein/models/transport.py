"""HTTP client of the models: connections, a connection pool, and server-sent events.

Plain addresses use the connections of this module, over `h11`. Proxies, unusual addresses and
compressed answers are rare; `httpx2` handles them. Over loopback, on one core:

| | this module | `httpx2` |
|---|---|---|
| first request, with its imports | 16 to 22 ms | 94 to 119 ms |
| first byte of a later one | 0.3 ms | 0.7 to 1.0 ms |
| CPU of 1 MB in 9,500 events | 80 to 90 ms | 170 to 210 ms |
| memory | 0.1 MB | 7.2 MB |
"""

import asyncio
import os
import ssl
import string
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from urllib.parse import urljoin, urlsplit

import h11
import msgspec

from longrein.models.model_port import ModelOptions
from longrein_context.events import decode_json

# --- HTTP/1.1 on asyncio --------------------------------------------------------------------------
#
# One connection, one exchange at a time; `h11` implements the protocol. Head and body of a request
# leave as one packet, and a request takes two rounds of the event loop.


READ_BYTES = 1 << 16
"""Largest read from the socket."""
UNREAD_BYTES_MAX = 1 << 20
"""Unread bytes above which reading from the socket pauses."""
JOIN_BYTES_MAX = 1 << 18
"""Size up to which head and body are sent as one piece."""
HAPPY_EYEBALLS_S = 0.25
"""Delay before the next address of a host is tried in parallel (RFC 8305)."""
HEAD_BYTES_MAX = 1 << 16
"""Largest head of an answer or of a chunk, and largest trailers."""


class TransportError(Exception):
    """A request ended without its complete answer."""


class ConnectTimeout(TransportError):
    """The connection was not established in time."""


class ConnectFailed(TransportError):
    """The connection failed, or its certificate is not trusted."""


class ConnectRefused(ConnectFailed):
    """No server takes connections at the address."""


class ReadTimeout(TransportError):
    """No bytes arrived in time."""


class ReadFailed(TransportError):
    """The connection broke."""


class ClosedEarly(TransportError):
    """The server closed the connection inside its answer, or sent invalid HTTP."""


class RequestInvalid(TransportError):
    """The request cannot be sent: its address is not HTTP, or a header is invalid."""


class ResponseTooLong(TransportError):
    """The answer exceeds a size limit."""


class SocketStream(asyncio.BufferedProtocol):
    """Byte stream of one connection, with one reader at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._received: deque[bytes] = deque()
        self._unread = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: Exception | None = None

    # --- asyncio callbacks ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def get_buffer(self, _: int) -> memoryview:  # pieces of a bytearray would be copies
        """Buffer for the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Queue the bytes and wake the reader."""
        self._received.append(bytes(self._buffer[:nbytes]))
        self._unread += nbytes
        if self._unread > UNREAD_BYTES_MAX:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """End the stream."""
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """End the stream, with the error if there is one."""
        self._ended, self._error = True, self._error or error
        self._wake()

    def _wake(self, error: Exception | None = None) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)

    # --- reading and writing ----------------------------------------------------------------------

    @property
    def stale(self) -> bool:
        """True if the server has closed the idle connection, as far as asyncio knows.

        Asking the kernel would yield to another thread between a result and the next request.
        """
        return self._ended or bool(self._received)

    def send(self, *pieces: bytes) -> None:
        """Send bytes; the transport buffers what the socket does not take."""
        if sum(map(len, pieces)) <= JOIN_BYTES_MAX:
            pieces = (b"".join(pieces),)
        for piece in pieces:
            self._transport.write(piece)

    async def read(self, timeout_s: float) -> bytes:
        """Return the next bytes, b'' at the end, waiting at most `timeout_s`. Raises
        `ReadTimeout`, `ReadFailed`.
        """
        if not self._received and not self._ended:
            await self._wait(timeout_s)
        if self._received:
            return self._pop()
        if self._error is not None:
            raise ReadFailed(error_reason(self._error))
        return b""

    async def _wait(self, timeout_s: float) -> None:
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._wake, ReadTimeout())
        try:
            await self._waiter
        finally:
            self._waiter = None
            timer.cancel()

    def _pop(self) -> bytes:
        data = self._received.popleft()
        self._unread -= len(data)
        if self._paused and self._unread <= UNREAD_BYTES_MAX // 2:
            self._paused = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        """Close at once, without a TLS or TCP goodbye."""
        self._transport.abort()


async def connect(
    host: str, port: int, timeout_s: float, context: ssl.SSLContext | None = None
) -> SocketStream:
    """Connect to `host`, encrypted if `context` is given. Raises `ConnectTimeout` and
    `ConnectFailed`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            _, stream = await asyncio.get_running_loop().create_connection(
                SocketStream,
                host,
                port,
                ssl=context,
                happy_eyeballs_delay=HAPPY_EYEBALLS_S,
                interleave=1,
            )
    except TimeoutError:
        raise ConnectTimeout from None
    except (
        OSError,
        UnicodeError,
    ) as error:  # `SSLError` is an `OSError`; an invalid host name raises `UnicodeError`
        kind = ConnectRefused if _is_refused(error) else ConnectFailed
        raise kind(error_reason(error)) from None
    return stream


def _is_refused(error: Exception) -> bool:
    """Return True if no server listens. Several addresses of one host are one `OSError` without a
    number.
    """
    is_several = isinstance(error, OSError) and error.errno is None
    is_several = is_several and not isinstance(error, ssl.SSLError)
    return isinstance(error, ConnectionRefusedError) or is_several


class Connection:
    """HTTP/1.1 connection for one request after the other."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self.idle_since_s = 0.0
        """Time of the event loop at which it last became idle."""
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def ask(
        self, target: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> h11.Response:
        """Send a request and return the head of its answer, within `timeout_s`. Raises
        `TransportError`.
        """
        http = self._http
        try:
            head = http.send(
                h11.Request(method="POST", target=target, headers=list(headers.items()))
            )
            rest = [http.send(h11.Data(data=body)), http.send(h11.EndOfMessage())]
        except h11.LocalProtocolError as error:
            raise RequestInvalid(str(error)) from None
        self.stream.send(head or b"", *(piece for piece in rest if piece))
        try:
            async with asyncio.timeout(timeout_s):
                while isinstance(event := await self.event(timeout_s), h11.InformationalResponse):
                    pass
        except TimeoutError:
            raise ReadTimeout from None
        if not isinstance(event, h11.Response):
            raise ClosedEarly("it was closed without an answer")
        return event

    async def event(self, timeout_s: float) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event of the answer. Raises `TransportError`."""
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self.stream.read(timeout_s))
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:
                raise ResponseTooLong(
                    f"a head in its answer is longer than {HEAD_BYTES_MAX >> 10} kB"
                ) from None
            raise ClosedEarly(str(error)) from None
        return event

    def reuse(self, now_s: float) -> bool:
        """Prepare for the next request; False if the connection cannot be reused."""
        if (
            self._http.our_state is not h11.DONE
            or self._http.their_state is not h11.DONE
            or self.stream.stale
        ):
            return False
        self._http.start_next_cycle()
        self.idle_since_s = now_s
        return True


def error_reason(error: Exception) -> str:
    """Text of a system error, without numbers and addresses."""
    number = getattr(error, "errno", None)
    if isinstance(error, ssl.SSLError) or not isinstance(number, int) or number <= 0:
        return str(getattr(error, "strerror", "") or error)
    return os.strerror(number)


# --- Connection pool ------------------------------------------------------------------------------


KEEPALIVE_S = 90.0
"""Time an idle connection is kept, for instance while a tool runs."""
HEADERS = {
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",
    "connection": "keep-alive",
    "user-agent": "longrein",
}
"""Default headers of every request."""
REDIRECTS_MAX = 3
"""Redirects followed for one request."""
ANSWER_BYTES_MAX = 256 << 20
"""Largest answer, all events included."""
PLAIN = frozenset(string.ascii_letters + string.digits + "-._~:/?&=")
"""Characters of an address that need no escaping."""
PORT_MAX = 65_535
_DEFAULT_PORTS = {"http": 80, "https": 443}


class AddressInvalid(ValueError):
    """The address is invalid."""


class HttpResponse:
    """Status, headers and body of one answer; holds its connection until `aclose`."""

    def __init__(
        self,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        body: AsyncIterator[bytes],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self.status = status
        self.headers = {
            name.lower().decode("latin-1"): value.decode("latin-1") for name, value in headers
        }
        self.aclose = close
        """Release the connection: reused if the body was read to its end, else closed."""
        self.body = body
        """Raw bytes of the body that were not read yet."""
        self._received = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the decoded body as it arrives.

        Raises `TransportError`: `ReadTimeout` after a silence, `ResponseTooLong` past
        `ANSWER_BYTES_MAX`.
        """
        async for chunk in self._decoded() if "content-encoding" in self.headers else self.body:
            self._received += len(chunk)
            if self._received > ANSWER_BYTES_MAX:
                raise ResponseTooLong(f"it is longer than {ANSWER_BYTES_MAX >> 20} MB")
            yield chunk

    async def _decoded(self) -> AsyncIterator[bytes]:
        import httpx2

        response = httpx2.Response(self.status, headers=self.headers, content=self.body)
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.DecodingError as error:
            raise ReadFailed(str(error)) from None


class ConnectionPool:
    """Connections of one model to one address. The first request opens the first socket."""

    def __init__(self, options: ModelOptions, address: str) -> None:
        secure = address.startswith("https:")
        self._address = address
        self._options = options
        self._proxy = _proxy(options.proxy) if secure and options.proxy else None
        self._context = tls_context() if secure else None  # takes 20 ms
        self._idle: list[Connection] = []
        self._client: Any = None

    async def post(
        self, body: bytes, headers: Mapping[str, str], first_byte_s: float
    ) -> HttpResponse:
        """Send `body`, following redirects on the same server only, so that the key goes to no
        other host.

        Returns when the head of the answer is there, after at most `first_byte_s`. Raises
        `AddressInvalid` and `TransportError`.
        """
        address = self._address
        answer = await self._post(address, body, headers, first_byte_s)
        for _ in range(REDIRECTS_MAX):
            address = redirect_target(address, answer)
            if not address:
                break
            await answer.aclose()
            answer = await self._post(address, body, headers, first_byte_s)
        return answer

    async def _post(
        self, address: str, body: bytes, headers: Mapping[str, str], first_byte_s: float
    ) -> HttpResponse:
        sent = HEADERS | {name.lower(): value for name, value in headers.items()}
        if self._proxy is not None or not all(char in PLAIN for char in address):
            return await self._post_by_library(address, body, sent, first_byte_s)
        host, port, target = _split_address(address)
        sent |= {"host": urlsplit(address).netloc, "content-length": str(len(body))}
        connection = self._idle_connection() or Connection(
            await connect(host, port, self._options.connect_timeout_s, self._context)
        )
        try:
            head = await connection.ask(target, sent, body, first_byte_s)
        except BaseException:
            connection.stream.close()
            raise
        idle_s = self._options.idle_timeout_s

        async def release() -> None:
            self._release(connection)

        return HttpResponse(
            head.status_code, head.headers, _connection_body(connection, idle_s), release
        )

    def _idle_connection(self) -> Connection | None:
        """Take an idle connection that is still open."""
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if not connection.stream.stale and now_s - connection.idle_since_s < KEEPALIVE_S:
                return connection
            connection.stream.close()
        return None

    def _release(self, connection: Connection) -> None:
        if connection.reuse(asyncio.get_running_loop().time()):
            self._idle.append(connection)
        else:
            connection.stream.close()

    async def _post_by_library(
        self, address: str, body: bytes, headers: dict[str, str], first_byte_s: float
    ) -> HttpResponse:
        """Send by `httpx2`: with a proxy, a name and password, an IPv6 address, or characters to
        escape.
        """
        import httpx2

        url = _library_url(address)
        if self._client is None:
            verify = self._context or False
            self._client = httpx2.AsyncClient(proxy=self._proxy, verify=verify, trust_env=False)
        timeout = httpx2.Timeout(None, connect=self._options.connect_timeout_s)
        headers["host"] = url.netloc.decode("ascii")
        request = self._client.build_request(
            "POST", url, content=body, headers=headers, timeout=timeout
        )
        with _library_errors():
            async with asyncio.timeout(first_byte_s):
                response = await self._client.send(request, stream=True)
        body_read = _library_body(aiter(response.aiter_raw()), self._options.idle_timeout_s)
        return HttpResponse(response.status_code, response.headers.raw, body_read, response.aclose)

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in self._idle:
            connection.stream.close()
        self._idle.clear()
        if self._client is not None:
            await self._client.aclose()


async def _connection_body(connection: Connection, idle_s: float) -> AsyncIterator[bytes]:
    while isinstance(event := await connection.event(idle_s), h11.Data):
        yield bytes(event.data)


async def _library_body(body: AsyncIterator[bytes], idle_s: float) -> AsyncIterator[bytes]:
    while True:
        with _library_errors():
            async with asyncio.timeout(idle_s):
                piece = await anext(body, None)
        if piece is None:
            return
        yield piece


@contextmanager
def _library_errors() -> Iterator[None]:
    """Convert errors of `httpx2` to `TransportError`."""
    import httpx2

    try:
        yield
    except httpx2.ConnectTimeout:
        raise ConnectTimeout from None
    except (httpx2.TimeoutException, TimeoutError):
        raise ReadTimeout from None
    except httpx2.ConnectError as error:
        kind = ConnectFailed if "SSL" in str(error) else ConnectRefused
        raise kind(str(error)) from None
    except httpx2.RemoteProtocolError as error:
        raise ClosedEarly(str(error)) from None
    except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
        raise RequestInvalid(str(error)) from None
    except httpx2.HTTPError as error:
        raise ReadFailed(str(error)) from None


def redirect_target(address: str, answer: HttpResponse) -> str:
    """Return the address of a redirect to another path of the same server; else ''."""
    if answer.status not in (307, 308) or "location" not in answer.headers:
        return ""
    try:
        found = urljoin(address, answer.headers["location"])
        before, after = urlsplit(address), urlsplit(found)
    except ValueError:
        return ""
    return found if (before.scheme, before.netloc) == (after.scheme, after.netloc) else ""


def tls_context() -> ssl.SSLContext:
    """TLS context with the certificates of `SSL_CERT_FILE`, else the system's (found by `httpx2`
    if not by Python).
    """
    paths = ssl.get_default_verify_paths()
    if sys.platform != "linux" or not (paths.cafile or paths.capath):
        import httpx2

        made: ssl.SSLContext = httpx2.create_ssl_context()
        return made
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _split_address(address: str) -> tuple[str, int, str]:
    """Split a plain address into host, port and target. Raises `AddressInvalid` and
    `RequestInvalid`.
    """
    url = urlsplit(address)
    try:
        port = url.port
    except ValueError as error:
        raise AddressInvalid(str(error)) from None
    if url.scheme not in _DEFAULT_PORTS:
        raise RequestInvalid(f"{url.scheme or address} is no http")
    if not url.hostname:
        raise AddressInvalid("it names no host")
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    return url.hostname, _DEFAULT_PORTS[url.scheme] if port is None else port, target


def _library_url(address: str) -> Any:
    import httpx2

    try:
        return _checked_url(httpx2.URL(address))
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
    _checked_url(proxy.url)
    return proxy


def _checked_url(url: Any) -> Any:
    """Return `url` if its host and port are valid. Raises `AddressInvalid`."""
    if url.port is not None and url.port > PORT_MAX:
        raise AddressInvalid(f"there is no port {url.port}")
    if url.scheme in _DEFAULT_PORTS and not url.host:
        raise AddressInvalid("it names no host")
    return url


# --- Server-sent events ---------------------------------------------------------------------------
#
# Only `data` matters to the four wires, each of which repeats the event's name in its JSON. The
# splitter makes one pass over the bytes without decoding; the payloads go to a typed JSON decoder.


EVENT_BYTES_MAX = 32 << 20
"""Largest event; the longest known ones hold an image in base64 or repeat a whole response."""
_BOM = b"\xef\xbb\xbf"
"""Byte order mark, which may precede the first event."""


class EventTooLong(ValueError):
    """An event exceeds `EVENT_BYTES_MAX`."""


class EventSplitter:
    """Splits a byte stream into the payloads of complete events."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        """Chunks of the incomplete event, without `_line_end`."""
        self._partial_bytes = 0
        self._line_end = b""
        """Line end, or half of one, after these chunks."""

    @property
    def rest(self) -> bytes:
        """Bytes of the incomplete event."""
        return b"".join((*self._partial, self._line_end))

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes; return the payloads of events that end in `chunk`. Comments and pings have
        none.

        Raises `EventTooLong`.
        """
        text = self._line_end + chunk if self._line_end else chunk
        half = b""
        if b"\r" in text:
            if text.endswith(b"\r"):  # half of a \r\n, or a whole line end: the next byte will tell
                text, half = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events = text.split(b"\n\n")
        rest = events.pop()
        if events and self._partial:
            events[0] = b"".join((*self._partial, events[0]))
            self._partial, self._partial_bytes = [], 0
        self._keep_partial(rest, half)
        return [payload for event in events if (payload := _event_data(event))]

    def _keep_partial(self, rest: bytes, half: bytes) -> None:
        self._line_end = b"\n" + half if rest.endswith(b"\n") else half
        if kept := rest.removesuffix(b"\n"):
            self._partial.append(kept)
            self._partial_bytes += len(kept)
            if self._partial_bytes > EVENT_BYTES_MAX:
                raise EventTooLong

    def flush(self) -> list[bytes]:
        """Return the payload of a last event that lacks only its line end."""
        events = self.feed(b"\n\n")
        self._partial = []
        self._partial_bytes = 0
        self._line_end = b""
        return events


def _event_data(event: bytes) -> bytes:
    """Return the data of one event, its lines joined. The common forms have one `data:` line,
    maybe after `event:`. Gateways name an event or a field `error`, with data of any form.
    """
    first, found, data = event.partition(b"data: ")
    plain = not first or (first.startswith(b"event: ") and first.find(b"\n") == len(first) - 1)
    if found and plain and b"\n" not in data:
        return data if first[7:-1] != b"error" else _error_data(data)
    lines = event.removeprefix(_BOM).split(b"\n")
    if problem := _field(lines, b"error:"):
        return _error_data(problem)
    data = _field(lines, b"data:")
    return data if _field(lines, b"event:") != b"error" else _error_data(data)


def _field(lines: list[bytes], name: bytes) -> bytes:
    """Join the values of the lines that begin with `name`."""
    values = [line.removeprefix(name).removeprefix(b" ") for line in lines if line.startswith(name)]
    return values[0] if len(values) == 1 else b"\n".join(values)


def _error_data(data: bytes) -> bytes:
    """Return the data of an error event as JSON with a field `error`, which every wire reads."""
    try:
        value = decode_json(data)
    except msgspec.DecodeError:
        value = data.decode("utf-8", "replace")
    if isinstance(value, dict) and (value.get("error") or value.get("type") == "error"):
        return data
    return msgspec.json.encode({"type": "error", "error": value})
