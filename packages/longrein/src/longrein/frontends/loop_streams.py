"""Streams and signals of a frontend in an event loop: lines of stdin, output that never blocks,
handlers of signals, and the end of a frontend's tasks.
"""

import asyncio
import os
import select
import signal
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from longrein.frontends.stdio import STDIN_BYTES_MAX, read_chunk
from longrein_context.events.escape import escape_bytes


async def read_lines(fd: int, *, blank: bool = False) -> AsyncIterator[bytes]:
    """Yield the lines of `fd` as they arrive, without newlines; blank lines only with `blank`.

    Reading never blocks the loop, except for a plain file, which is always ready. Of a line above
    `STDIN_BYTES_MAX` only a beginning that is longer than that is kept.
    """
    rest = bytearray()
    while chunk := await wait_chunk(fd):
        rest += chunk
        if b"\n" in chunk:
            *whole, rest = rest.split(b"\n")
            for line in map(bytes, whole):
                if blank or line.strip():
                    yield line
        del rest[STDIN_BYTES_MAX + 1 :]
    if rest.strip():
        yield bytes(rest)


async def wait_chunk(fd: int) -> bytes:
    """Wait for the next bytes of `fd`; b'' at its end."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(fd, came.set)
    except OSError:  # epoll takes no plain files
        return read_chunk(fd)
    try:
        await came.wait()
    finally:
        loop.remove_reader(fd)
    return read_chunk(fd)


# --- Buffered output ------------------------------------------------------------------------------
#
# Buffered output to a pipe or file that never blocks the event loop.

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


# --- Signals --------------------------------------------------------------------------------------
#
# Signal handlers of the event loop, and the end of a frontend's tasks.

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a headless run with 128 + their number."""
STOP_REASONS: dict[int, str] = {
    signal.SIGTERM: "interrupted: longrein was told to end",
    signal.SIGHUP: "interrupted: the terminal was closed",
}
"""Signal -> words for the model about what it has interrupted; others are the user's."""


@contextmanager
def signal_handlers(handlers: dict[int, Callable[[], object]]) -> Iterator[None]:
    """Call a handler on each signal that is received in the block. Needs the main thread and a
    running loop.
    """
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their ends; raise the first exception that is no cancellation."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
            raise error
