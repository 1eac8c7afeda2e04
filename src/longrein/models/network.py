"""HTTP/1.1 on asyncio: one connection, one exchange on it at a time. `h11` knows the protocol, this moves the bytes.

Head and body of a request leave as one packet, and a request takes two rounds of the event loop: 0.5 ms for a small
answer on a slow machine, half of what a general HTTP library takes.
"""

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Any

import h11

READ_BYTES = 1 << 16
"""At most this much comes with one read of the socket."""
UNREAD_BYTES_MAX = 1 << 20
"""The socket is not read while more than this waits to be taken."""
TOGETHER_BYTES_MAX = 1 << 18
"""Head and body are copied into one piece up to this size."""
NEXT_ADDRESS_S = 0.25
"""How long one address of a host is tried before the next is, beside it (RFC 8305)."""
HEAD_BYTES_MAX = 1 << 16
"""The head of an answer; also the head of a chunk, and the trailers."""


class Broken(Exception):
    """A request that ended without its whole answer."""


class ConnectTimeout(Broken):
    """No connection in time."""


class ConnectFailed(Broken):
    """No connection, or none that can be trusted."""


class ReadTimeout(Broken):
    """Nothing came in time."""


class ReadFailed(Broken):
    """The connection broke."""


class Cut(Broken):
    """The other side closed the connection before its answer was over, or sent what is no HTTP."""


class RequestInvalid(Broken):
    """A request that cannot be sent: an address that is no HTTP, a header that HTTP forbids."""


class TooLong(Broken):
    """More came than an answer may have."""


class Stream(asyncio.BufferedProtocol):
    """The bytes of one connection; one reader at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._room = memoryview(bytearray(READ_BYTES))
        self._came: deque[bytes] = deque()
        self._unread = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        self._error: Exception | None = None

    # --- what asyncio says --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport = transport

    def get_buffer(self, _: int) -> memoryview:  # pieces of a bytearray would be copies
        """Where the next bytes go."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        self._came.append(bytes(self._room[:nbytes]))
        self._unread += nbytes
        if self._unread > UNREAD_BYTES_MAX:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """The other side will say no more."""
        self._over = True
        self._wake()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        self._over, self._error = True, self._error or error
        self._wake()

    def _wake(self, error: Exception | None = None) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)

    # --- what an exchange needs ----------------------------------------------------------------------------------

    @property
    def stale(self) -> bool:
        """Whether the other side has closed an idle connection, as far as asyncio has heard.

        The kernel is not asked again: that would let another thread go first, between a result and the next request.
        """
        return self._over or bool(self._came)

    def send(self, *pieces: bytes) -> None:
        """Send bytes; what cannot leave yet is kept until it can."""
        if sum(map(len, pieces)) <= TOGETHER_BYTES_MAX:
            pieces = (b"".join(pieces),)
        for piece in pieces:
            self._transport.write(piece)

    async def read(self, timeout_s: float) -> bytes:
        """The next bytes, b'' at the end; waits at most `timeout_s`. Raises `ReadTimeout` and `ReadFailed`."""
        if not self._came and not self._over:
            await self._wait(timeout_s)
        if self._came:
            return self._taken()
        if self._error is not None:
            raise ReadFailed(reason(self._error))
        return b""

    async def _wait(self, timeout_s: float) -> None:
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._wake, ReadTimeout())
        try:
            await self._waiter
        finally:
            self._waiter = None
            timer.cancel()

    def _taken(self) -> bytes:
        data = self._came.popleft()
        self._unread -= len(data)
        if self._paused and self._unread <= UNREAD_BYTES_MAX // 2:
            self._paused = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        """Let go of it; nobody waits for the other side's farewell."""
        self._transport.abort()


async def connect(host: str, port: int, timeout_s: float, context: ssl.SSLContext | None = None) -> Stream:
    """A connection to `host`, encrypted with a `context`. Raises `ConnectTimeout` and `ConnectFailed`."""
    try:
        async with asyncio.timeout(timeout_s):
            _, stream = await asyncio.get_running_loop().create_connection(
                Stream, host, port, ssl=context, happy_eyeballs_delay=NEXT_ADDRESS_S, interleave=1
            )
    except TimeoutError:
        raise ConnectTimeout from None
    except (OSError, UnicodeError) as error:  # an `SSLError` is one; a name that is none is the other
        raise ConnectFailed(reason(error)) from None
    return stream


class Connection:
    """A connection that requests go over, one after the other."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.idle_since_s = 0.0
        """When it last became free, by the clock of the event loop."""
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def ask(self, target: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> h11.Response:
        """Send a request; the head of its answer, which must be there after `timeout_s`. Raises `Broken`."""
        http = self._http
        try:
            head = http.send(h11.Request(method="POST", target=target, headers=list(headers.items())))
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
            raise Cut("it was closed without an answer")
        return event

    async def event(self, timeout_s: float) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """What comes next of the answer. Raises `Broken`."""
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self.stream.read(timeout_s))
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:
                raise TooLong(f"a head in its answer is longer than {HEAD_BYTES_MAX >> 10} kB") from None
            raise Cut(str(error)) from None
        return event

    def reuse(self, now_s: float) -> bool:
        """Make it ready for the next request; False when it cannot have one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE or self.stream.stale:
            return False
        self._http.start_next_cycle()
        self.idle_since_s = now_s
        return True


def reason(error: Exception) -> str:
    """What the system says, without numbers and addresses."""
    number = getattr(error, "errno", None)
    if isinstance(error, ssl.SSLError) or not isinstance(number, int) or number <= 0:
        return str(getattr(error, "strerror", "") or error)
    return os.strerror(number)
