"""HTTP client of the models, and server-sent events.

`httpx2` is imported with the first request: it takes 48 ms of CPU, which a start should not wait
for.
"""

import asyncio
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec

from longrein.models.model_port import ModelOptions
from longrein_context.events import decode_json

# --- Requests -------------------------------------------------------------------------------------


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


class AddressInvalid(ValueError):
    """The address is invalid."""


KEEPALIVE_S = 90.0
"""Time an idle connection is kept, for instance while a tool runs."""
HEADERS = {
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",
    "user-agent": "longrein",
}
"""Default headers of every request."""
REDIRECTS_MAX = 3
"""Redirects followed for one request."""
ANSWER_BYTES_MAX = 256 << 20
"""Largest answer, all events included."""
PORT_MAX = 65_535


@cache
def load_http_client() -> None:
    """Begin once to import `httpx2` in a thread, while the session opens and the user types."""
    threading.Thread(target=_import_http_client, daemon=True).start()


def _import_http_client() -> None:
    import httpx2  # noqa: F401


class HttpResponse:
    """Status, headers and body of one answer; holds its connection until `aclose`."""

    def __init__(self, response: Any, idle_s: float) -> None:
        """`response`: of `httpx2`. `idle_s`: longest silence of its body."""
        self._response = response
        self._idle_s = idle_s
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def aclose(self) -> None:
        """Release the connection: reused if the body was read to its end, else closed."""
        await self._response.aclose()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the decoded body as it arrives.

        Raises `TransportError`: `ReadTimeout` after a silence, `ResponseTooLong` past
        `ANSWER_BYTES_MAX`.
        """
        received = 0
        body = aiter(self._response.aiter_bytes())
        while True:
            with _client_errors():
                async with asyncio.timeout(self._idle_s):
                    chunk = await anext(body, None)
            if chunk is None:
                return
            received += len(chunk)
            if received > ANSWER_BYTES_MAX:
                raise ResponseTooLong(f"it is longer than {ANSWER_BYTES_MAX >> 20} MB")
            yield chunk


class HttpClient:
    """Connections of one model to one address. The first request opens the first socket."""

    def __init__(self, options: ModelOptions, address: str) -> None:
        """Raises `AddressInvalid`."""
        import httpx2

        self._options = options
        self._address = str(_checked_url(_url(address)))
        secure = self._address.startswith("https:")
        self._client = httpx2.AsyncClient(
            proxy=_proxy(options.proxy) if secure and options.proxy else None,
            verify=tls_context() if secure else False,
            trust_env=False,
            limits=httpx2.Limits(keepalive_expiry=KEEPALIVE_S),
            timeout=httpx2.Timeout(None, connect=options.connect_timeout_s),
        )

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
        with _client_errors():
            request = self._client.build_request("POST", address, content=body, headers=sent)
            async with asyncio.timeout(first_byte_s):
                response = await self._client.send(request, stream=True)
        return HttpResponse(response, self._options.idle_timeout_s)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


@contextmanager
def _client_errors() -> Iterator[None]:
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
        raise kind(_reason(error)) from None
    except httpx2.RemoteProtocolError as error:
        raise ClosedEarly(str(error)) from None
    except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
        raise RequestInvalid(str(error)) from None
    except httpx2.HTTPError as error:
        raise ReadFailed(_reason(error)) from None


def _reason(error: BaseException) -> str:
    """Return the words of an error, or of the system's error below it, without its number."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror and not isinstance(below, ssl.SSLError):
            return below.strerror
        below = below.__cause__ or below.__context__
    return str(error)


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


def _url(address: str) -> Any:
    import httpx2

    try:
        return httpx2.URL(address)
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
    if url.scheme in ("http", "https") and not url.host:
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
