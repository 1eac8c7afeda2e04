"""Output that notices when its reader has left: buffered, to a pipe or file without blocking the
event loop, or plain.
"""

import asyncio
import os
import select
import stat
from contextlib import suppress

from longrein.steps.human_text import escape_bytes

PIECE_BYTES = 4096
"""A pipe that is writable takes this much without waiting (PIPE_BUF on Linux)."""


class BufferedOutput:
    """Buffered writer to a file descriptor that never blocks, and notices when the reader has
    left.
    """

    def __init__(self, fd: int) -> None:
        """`fd` belongs to the caller. It is not made non-blocking, as other processes may share
        it.
        """
        self._fd = fd
        self.unwritten = bytearray()
        self._poll: select.poll | None = None
        self._ready = asyncio.Event()
        self._no_wait = False
        self._terminal = False
        self.write_error = ""
        """Reason why writing has failed: `closed` when the reader left, else the system's error;
        '' while it works.
        """
        try:
            mode = os.fstat(fd).st_mode
        except OSError as error:
            self.write_error = error.strerror or "closed"
            return
        self._terminal = stat.S_ISCHR(mode) and os.isatty(fd)
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            self._poll = select.poll()
            self._poll.register(fd, select.POLLOUT)

    def put(self, data: bytes) -> None:
        """Write `data`, whole lines in UTF-8, as far as possible without waiting; buffer the rest.

        Drops `data` after a write error. Escapes control characters on a terminal.
        """
        if self.write_error:
            return
        self.unwritten += escape_bytes(data) if self._terminal else data
        self._push()

    def stop_waiting(self) -> None:
        """Make `drain` without a limit return at once from now on."""
        self._no_wait = True
        self._ready.set()

    async def drain(self, limit_s: float | None = None) -> None:
        """Wait until all is written, writing has failed, or `limit_s` seconds are over. Does not
        raise for these.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while (
                    self.unwritten
                    and not self.write_error
                    and not (self._no_wait and limit_s is None)
                ):
                    await self._wait_writable()
                    self._push()

    def _push(self) -> None:
        taken = 0
        try:
            with memoryview(self.unwritten) as view:
                while taken < len(view) and (self._poll is None or self._poll.poll(0)):
                    end = len(view) if self._poll is None else taken + PIECE_BYTES
                    taken += os.write(self._fd, view[taken:end])
        except BlockingIOError:
            pass
        except OSError as error:
            self.write_error = (
                "closed" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
            )
            taken = len(self.unwritten)
        del self.unwritten[:taken]

    async def _wait_writable(self) -> None:
        self._ready.clear()
        loop = asyncio.get_running_loop()
        loop.add_writer(self._fd, self._ready.set)
        try:
            await self._ready.wait()
        finally:
            loop.remove_writer(self._fd)


# --- Plain output ---------------------------------------------------------------------------------


_ASCII = str.maketrans(
    {
        "●": "*",
        "○": "o",
        "›": ">",
        "…": "...",
        "·": "-",
        "─": "-",
        "│": "|",
        "█": "#",
        "⋮": ":",
        "↑": "^",
        "↓": "v",
    }
)


class PlainOutput:
    """Output to `fd` in an encoding that may be ASCII only. Writes nothing after an error."""

    def __init__(self, fd: int, encoding: str) -> None:
        self._fd, self._encoding = fd, encoding
        self._wide = encoding.lower().replace("-", "") == "utf8"
        self.closed = False
        self.last = ""

    def put(self, text: str) -> None:
        """Write escaped `text`; characters missing in the encoding become ASCII or `\\uXXXX`."""
        self.last = text
        known = text if self._wide else text.translate(_ASCII)
        data = known.encode(self._encoding, "backslashreplace")
        try:
            while data and not self.closed:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self.closed = True
