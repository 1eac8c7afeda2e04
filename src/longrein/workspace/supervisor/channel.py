"""Messages between longrein and the supervisor over a stream socket: `marshal`, the length before it, descriptors
beside it.

Both ends use this. It never blocks: what cannot be sent yet is kept, up to a limit. `json` would be a fifth of the
supervisor's start.
"""

import _socket as socket
import array
import marshal
import os
from collections import deque
from collections.abc import Sequence

VERSION = 3
"""Of what is said and of what lies in the spool."""
MARSHAL_VERSION = 2
"""Which every Python reads that may sit at the other end."""
SOCKET = f"v{VERSION}.sock"
"""In the spool: where a supervisor is found."""
RECORD = f"v{VERSION}"
"""Its record there, as `v3.json`: who it is."""
LENGTH_BYTES = 4
READ_BYTES = 1 << 16
MESSAGE_BYTES_MAX = 64 << 20
"""One message: a command line, its environment and little more."""
WAITING_BYTES_MAX = 256 << 20
"""Unsent; who does not read for so long is gone."""
DESCRIPTORS_MAX = 16
"""In one message."""

_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""0 where the system has no such flag: then it is done one by one."""


class Channel:
    """One end of a conversation."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.closed = False
        """The other end is gone, or `close` was called."""
        self.descriptors: deque[int] = deque()
        """Received, in order, not yet taken; who takes one closes it."""
        self._read = bytearray()
        self._waiting: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._waiting_bytes = 0

    def send(self, message: dict[str, object], descriptors: Sequence[int] = ()) -> bool:
        """Send, now or by later `flush`es; the descriptors are closed here once they are on their way.

        False when something waits for a `flush`.
        """
        self.put(message, descriptors)
        return self.flush()

    def put(self, message: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        """Have it wait for the next `flush`."""
        data = marshal.dumps(message, MARSHAL_VERSION)
        data = len(data).to_bytes(LENGTH_BYTES, "big") + data
        if self.closed or self._waiting_bytes > WAITING_BYTES_MAX:
            self.closed = True
            _close(descriptors)
            return
        self._waiting.append((memoryview(data), descriptors))
        self._waiting_bytes += len(data)

    def flush(self) -> bool:
        """Send what waits; False when some of it still does."""
        while self._waiting and not self.closed:
            data, descriptors = self._waiting[0]
            try:
                sent = self._send(data, descriptors)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                self._hang_up()
                return True
            _close(descriptors)
            self._waiting_bytes -= sent
            if sent == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = data[sent:], ()
        return True

    def _send(self, data: memoryview, descriptors: Sequence[int]) -> int:
        if not descriptors:
            return self.socket.send(data)
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        return self.socket.sendmsg([data], beside)

    def receive(self) -> list[dict[str, object]]:
        """The messages that are there. `closed` is set when the other end is gone; what it said before is given."""
        while not self.closed and self._take():
            pass
        return self._whole()

    def _take(self) -> bool:
        try:
            space = socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize)
            data, beside, _, _ = self.socket.recvmsg(READ_BYTES, space, _CLOSE_ON_EXEC)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data, beside = b"", []
        for level, kind, given in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(given[: len(given) - len(given) % numbers.itemsize])
                self.descriptors.extend(numbers)
                for number in () if _CLOSE_ON_EXEC else numbers:
                    os.set_inheritable(number, False)
        self._read += data
        if not data:
            self.closed = True
        return len(data) == READ_BYTES or bool(beside)

    def _whole(self) -> list[dict[str, object]]:
        found, at = [], 0
        while len(self._read) - at >= LENGTH_BYTES:
            start = at + LENGTH_BYTES
            size = int.from_bytes(self._read[at:start], "big")
            if size > MESSAGE_BYTES_MAX:
                self.closed = True
                break
            if len(self._read) < start + size:
                break
            found.append(marshal.loads(self._read[start : start + size]))
            at = start + size
        del self._read[:at]
        return found

    def take(self, count: int) -> list[int]:
        """The next `count` descriptors; none when they did not all arrive, because this process has too many open."""
        if len(self.descriptors) < count:
            _close(self.descriptors)
            self.descriptors.clear()
            return []
        return [self.descriptors.popleft() for _ in range(count)]

    def _hang_up(self) -> None:
        self.closed = True
        for _, descriptors in self._waiting:
            _close(descriptors)
        self._waiting.clear()

    def close(self) -> None:
        """Hang up and close everything that is still held."""
        self._hang_up()
        _close(self.descriptors)
        self.descriptors.clear()
        self.socket.close()


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
