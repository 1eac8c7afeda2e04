"""HTTP/1.1 of the loopback server: keep-alive, chunked bodies, streams, and delivery faults."""

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Mapping

import msgspec

from longrein.testing.loopback.script import Fault, Turn

BUFFER_BYTES = 1 << 23
"""Buffer for an unread request; a long history arrives in one piece."""
HEAD_END = b"\r\n\r\n"
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 413: "Content Too Large"}
_REASONS |= {429: "Too Many Requests", 500: "Internal Server Error", 529: "Overloaded"}


class RequestHead(msgspec.Struct):
    """Head of a request."""

    method: str
    path: str
    headers: dict[str, str]
    """Headers by lower-case name."""

    @property
    def last(self) -> bool:
        """True if the client closes the connection after this request."""
        return self.headers.get("connection", "").lower() == "close"


async def read_head(reader: asyncio.StreamReader) -> RequestHead | None:
    """Read the next head; None at the end of the connection."""
    try:
        raw = await reader.readuntil(HEAD_END)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    pairs = (line.partition(":") for line in lines)
    return RequestHead(method, rest.rpartition(" ")[0], {name.lower(): value.strip() for name, _, value in pairs})


async def read_body(reader: asyncio.StreamReader, head: RequestHead) -> bytes:
    """Read the body after `head`. Raises `asyncio.IncompleteReadError` if it ends early."""
    if head.headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(head.headers.get("content-length", 0)))
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
    await reader.readuntil(b"\r\n")
    return b"".join(pieces)


class Responder:
    """Writes answers on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole answer."""
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
        """Send one piece of a stream. Raises `ConnectionError` if the client has gone."""
        if data:
            self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await self._writer.drain()

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises `ConnectionResetError` as soon as the client disconnects."""
        try:
            async with asyncio.timeout(seconds):
                await self._reader.read(1)  # a client sends nothing during an answer, so a read returns only at its end
        except TimeoutError:
            return
        raise ConnectionResetError("the client has gone")

    async def end_stream(self) -> None:
        """End a stream properly."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def reset(self) -> None:
        """Reset the connection (RST) after the written bytes have arrived."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        while _unacknowledged_bytes(sock):  # noqa: ASYNC110 (the kernel does not report an empty queue)
            await asyncio.sleep(0.001)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _unacknowledged_bytes(sock: socket.socket) -> int:
    """Number of bytes that the client has not acknowledged."""
    if sock.fileno() < 0:
        return 0
    answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0" * 4)
    return int(struct.unpack("i", answer)[0])


# --- Delivery --------------------------------------------------------------------------------------------------------
#
# From events to writes on the socket, with the faults of the script.


GARBAGE = "data: {this is not JSON\n\n"


class Delivery(msgspec.Struct):
    """Writes of an answer, and its ending."""

    writes: list[bytes]
    """Parts of the body, written one by one."""
    ending: str = "end"
    """`end` (a proper end of the body), `reset`, `close` or `stall`."""
    rest: list[bytes] = []
    """`stall`: parts after the silence; then the body ends properly."""
    whole: bool = True
    """True if a patient client gets the whole answer."""


def plan_delivery(turn: Turn, fault: Fault | None, events: list[bytes], error: bytes) -> Delivery:
    """Plan the writes of `events` under `fault`. `error` is the wire's error event, for a fault of that kind."""
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
    """Split `writes` at byte `at`."""
    before: list[bytes] = []
    for n, data in enumerate(writes):
        if at < len(data):
            return [*before, data[:at]] if at else before, [data[at:], *writes[n + 1 :]]
        before.append(data)
        at -= len(data)
    return before, []
