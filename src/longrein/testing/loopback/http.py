"""Just enough HTTP/1.1 to serve streams: keep-alive, chunked bodies both ways, and ways to break off."""

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Mapping

import msgspec

from longrein.testing.loopback.script import Fault, Turn

BUFFER_BYTES = 1 << 23
"""Of a request that may wait unread: a long history comes in one piece."""
HEAD_END = b"\r\n\r\n"
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 413: "Content Too Large"}
_REASONS |= {429: "Too Many Requests", 500: "Internal Server Error", 529: "Overloaded"}


class RequestHead(msgspec.Struct):
    """The head of a request."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in small letters."""

    @property
    def last(self) -> bool:
        """Whether the client closes the connection after it."""
        return self.headers.get("connection", "").lower() == "close"


async def read_head(reader: asyncio.StreamReader) -> RequestHead | None:
    """The next head; None when the connection is over."""
    try:
        raw = await reader.readuntil(HEAD_END)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    pairs = (line.partition(":") for line in lines)
    return RequestHead(method, rest.rpartition(" ")[0], {name.lower(): value.strip() for name, _, value in pairs})


async def read_body(reader: asyncio.StreamReader, head: RequestHead) -> bytes:
    """The body that follows `head`. Raises `asyncio.IncompleteReadError` when it does not come whole."""
    if head.headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(head.headers.get("content-length", 0)))
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
    await reader.readuntil(b"\r\n")
    return b"".join(pieces)


class Responder:
    """The answering side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """A whole answer."""
        self._head(status, {"content-type": "application/json", **headers, "content-length": str(len(body))})
        self._writer.write(body)
        await self._writer.drain()

    async def begin_stream(self, headers: Mapping[str, str]) -> None:
        """Begin a stream."""
        self._head(200, {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers})
        await self._writer.drain()

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        if "content-length" not in headers:
            headers = {**headers, "transfer-encoding": "chunked"}
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", *(f"{k}: {v}" for k, v in headers.items())]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def chunk(self, data: bytes) -> None:
        """One piece of the stream. Raises `ConnectionError` when the client has gone."""
        if data:
            self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await self._writer.drain()

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises `ConnectionResetError` as soon as the client goes away."""
        try:
            async with asyncio.timeout(seconds):
                await self._reader.read(1)  # no client sends anything while it is being answered
        except TimeoutError:
            return
        raise ConnectionResetError("the client has gone")

    async def end_stream(self) -> None:
        """The proper end of a stream."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def reset(self) -> None:
        """Break off with RST, after what was written has arrived."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        while _unacknowledged_bytes(sock):  # noqa: ASYNC110 (the kernel tells nobody when its queue is empty)
            await asyncio.sleep(0.001)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _unacknowledged_bytes(sock: socket.socket) -> int:
    """Bytes that the other side has not acknowledged."""
    if sock.fileno() < 0:
        return 0
    answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0" * 4)
    return int(struct.unpack("i", answer)[0])


# --- From events to writes on the socket, with what goes wrong on the way --------------------------------------------


GARBAGE = "data: {this is not JSON\n\n"


class Delivery(msgspec.Struct):
    """Writes, then how it ends."""

    writes: list[bytes]
    """Parts of the body, each written by itself."""
    ending: str = "end"
    """`end` (a proper end of the body), `reset`, `close` or `stall`."""
    rest: list[bytes] = []
    """`stall`: what comes after the silence; then the body ends properly."""
    whole: bool = True
    """Whether the client gets every word, if it is patient."""


def plan_delivery(turn: Turn, fault: Fault | None, events: list[bytes], error: bytes) -> Delivery:
    """How `events` reach the client. `error` is an error event of the wire, for a fault of that kind."""
    kind = fault.kind if fault is not None else ""
    match fault:
        case Fault(kind="garbage"):
            line = GARBAGE if fault.body is None else fault.body
            events = [*events[: fault.at], line.encode("utf-8", "surrogateescape"), *events[fault.at :]]
        case Fault(kind="error"):
            events = [*events[: fault.at], error]
        case Fault(kind="no_end"):
            events = events[:-1]
        case Fault(kind="drip"):
            return Delivery(_in_slices(b"".join(events), fault.bytes))
    writes = _in_batches(events, turn.batch)
    if fault is None or kind not in ("cut", "stall"):
        return Delivery(writes, whole=kind not in ("error", "empty"))
    before, rest = _split(writes, fault.at)
    if kind == "stall":
        return Delivery(before, "stall", rest)
    return Delivery(before, fault.how, whole=not rest)


def _in_slices(data: bytes, size: int) -> list[bytes]:
    size = max(1, size)
    return [data[at : at + size] for at in range(0, len(data), size)]


def _in_batches(events: list[bytes], batch: int) -> list[bytes]:
    if batch == 1:
        return events
    size = batch or len(events) or 1
    return [b"".join(events[at : at + size]) for at in range(0, len(events), size)]


def _split(writes: list[bytes], at: int) -> tuple[list[bytes], list[bytes]]:
    """`writes` up to byte `at` and from there on."""
    before: list[bytes] = []
    for n, data in enumerate(writes):
        if at < len(data):
            return [*before, data[:at]] if at else before, [data[at:], *writes[n + 1 :]]
        before.append(data)
        at -= len(data)
    return before, []
