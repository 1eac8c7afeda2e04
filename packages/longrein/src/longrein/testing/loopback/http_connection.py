"""HTTP/1.1 connections of the loopback server, and the writes of an answer with delivery faults."""

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Mapping

import h11

from longrein.testing.loopback.script import Fault, Turn

READ_BYTES = 1 << 18
"""Largest read from the socket."""


class Connection:
    """Server side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def read_request(self) -> tuple[h11.Request, bytes] | None:
        """Read a request and its body; None if no other one can follow. Raises
        `h11.RemoteProtocolError`.
        """
        if self._http.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None  # the client wanted the connection closed
        head: h11.Request | None = None
        body: list[bytes] = []
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(READ_BYTES))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return head, b"".join(body)
            else:
                return None

    async def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole answer."""
        head = {"content-type": "application/json", **headers, "content-length": str(len(body))}
        await self._write(
            h11.Response(status_code=status, headers=list(head.items())), h11.Data(data=body)
        )
        await self.end_stream()

    async def begin_stream(self, headers: Mapping[str, str]) -> None:
        """Begin a stream."""
        head = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            **headers,
        }
        await self._write(h11.Response(status_code=200, headers=list(head.items())))

    async def stream(self, writes: list[bytes], pace_s: float = 0.0) -> None:
        """Send pieces of a stream, `pace_s` apart. Raises `ConnectionError` if the client has
        gone.
        """
        for n, data in enumerate(writes):
            if n and pace_s:
                await self.sleep(pace_s)
            if data:
                await self._write(h11.Data(data=data))
            if not n % 16:
                await asyncio.sleep(0)  # serve other connections during a long stream

    async def end_stream(self) -> None:
        """End a stream properly."""
        await self._write(h11.EndOfMessage())

    async def _write(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
        await self._writer.drain()

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises `ConnectionResetError` as soon as the client disconnects."""
        try:
            async with asyncio.timeout(seconds):
                await self._reader.read(
                    1
                )  # a client sends nothing during an answer, so a read returns only at its end
        except TimeoutError:
            return
        raise ConnectionResetError("the client has gone")

    async def reset(self) -> None:
        """Reset the connection (RST) after the written bytes have arrived."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        while _unacknowledged_bytes(sock):  # noqa: ASYNC110 (the kernel does not report an empty queue)
            await asyncio.sleep(0.001)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _unacknowledged_bytes(sock: socket.socket) -> int:
    if sock.fileno() < 0:
        return 0
    answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0" * 4)
    return int(struct.unpack("i", answer)[0])


def planned_writes(
    turn: Turn, fault: Fault | None, events: list[bytes], error: bytes
) -> list[bytes]:
    """Plan the writes of `events` under `fault`. `error` is the wire's error event, for a fault
    of that kind.
    """
    match fault:
        case Fault(kind="garbage", at=at, body=body):
            line = "data: {this is not JSON\n\n" if body is None else body
            events = [*events[:at], line.encode("utf-8", "surrogateescape"), *events[at:]]
        case Fault(kind="error", at=at):
            events = [*events[:at], error]
        case Fault(kind="no_end"):
            events = events[:-1]
        case Fault(kind="drip", bytes=size):
            data = b"".join(events)
            return [data[at : at + size] for at in range(0, len(data), max(1, size))]
    size = turn.batch or len(events) or 1
    return [b"".join(events[at : at + size]) for at in range(0, len(events), size)]


def split_writes(writes: list[bytes], at: int) -> tuple[list[bytes], list[bytes]]:
    """Split `writes` at byte `at`."""
    for n, data in enumerate(writes):
        if at < len(data):
            return [*writes[:n], data[:at]], [data[at:], *writes[n + 1 :]]
        at -= len(data)
    return writes, []
