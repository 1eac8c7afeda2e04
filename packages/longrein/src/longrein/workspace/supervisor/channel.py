"""Message channel between longrein and the supervisor: `marshal` with a length prefix, over a
stream socket.

Both ends use it. File descriptors travel beside the bytes. The channel never blocks: unsent
messages wait, up to a limit. Importing `json` would take a fifth of the supervisor's start.
"""

import marshal
import os
import socket
from collections import deque
from collections.abc import Sequence

from longrein.workspace.supervisor.shell_lines import close

VERSION = 6
"""Version of the messages and of the spool's files."""
MARSHAL_VERSION = 2
"""Version of `marshal` that every supported Python reads."""
SOCKET = f"v{VERSION}.sock"
"""Name of the supervisor's socket in the spool."""
RECORD = f"v{VERSION}"
"""Name of the supervisor's record in the spool, as `v6.json`."""
LENGTH_BYTES = 4
READ_BYTES = 1 << 16
MESSAGE_BYTES_MAX = 64 << 20
"""Largest message: a command line, its environment and little more."""
WAITING_BYTES_MAX = 256 << 20
"""Most unsent bytes; a peer that reads nothing for so long counts as gone."""
DESCRIPTORS_MAX = 16
"""Most descriptors in one message."""


class Channel:
    """A message channel's end."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.closed = False
        """True when the other end is gone or `close` was called."""
        self.descriptors: deque[int] = deque()
        """Received descriptors, in order, not yet taken. Whoever takes one closes it."""
        self._read = bytearray()
        self._waiting: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._waiting_bytes = 0

    def send(self, message: dict[str, object], descriptors: Sequence[int] = ()) -> bool:
        """Send a message now or with later `flush`es; False when something still waits.

        The descriptors are closed here once they are sent.
        """
        self.put(message, descriptors)
        return self.flush()

    def put(self, message: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        """Queue a message for the next `flush`."""
        data = marshal.dumps(message, MARSHAL_VERSION)
        data = len(data).to_bytes(LENGTH_BYTES, "big") + data
        if self.closed or self._waiting_bytes > WAITING_BYTES_MAX:
            self.closed = True
            close(*descriptors)
            return
        self._waiting.append((memoryview(data), descriptors))
        self._waiting_bytes += len(data)

    def flush(self) -> bool:
        """Send what is queued; False when some of it still waits."""
        while self._waiting and not self.closed:
            data, descriptors = self._waiting[0]
            try:
                sent = (
                    socket.send_fds(self.socket, [data], descriptors)
                    if descriptors
                    else self.socket.send(data)
                )
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                self._hang_up()
                return True
            close(*descriptors)
            self._waiting_bytes -= sent
            if sent == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = data[sent:], ()
        return True

    def receive(self) -> list[dict[str, object]]:
        """Return the messages that have arrived.

        `closed` is set when the other end is gone; messages sent before are still returned.
        """
        while not self.closed and self._take():
            pass
        return self._whole()

    def _take(self) -> bool:
        try:
            data, found, _, _ = socket.recv_fds(self.socket, READ_BYTES, DESCRIPTORS_MAX)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data, found = b"", []
        for descriptor in found:
            os.set_inheritable(descriptor, False)  # `recv_fds` ignores its flags in Python 3.11
        self.descriptors.extend(found)
        self._read += data
        if not data:
            self.closed = True
        return len(data) == READ_BYTES or bool(found)

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
        """Take the next `count` descriptors; none when some were lost, because too many are open
        here.
        """
        if len(self.descriptors) < count:
            close(*self.descriptors)
            self.descriptors.clear()
            return []
        return [self.descriptors.popleft() for _ in range(count)]

    def _hang_up(self) -> None:
        self.closed = True
        for _, descriptors in self._waiting:
            close(*descriptors)
        self._waiting.clear()

    def close(self) -> None:
        """Close the socket and every descriptor still held."""
        self._hang_up()
        close(*self.descriptors)
        self.descriptors.clear()
        self.socket.close()
