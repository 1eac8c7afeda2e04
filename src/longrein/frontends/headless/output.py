"""stdout that never stops the loop: what the reader does not take yet waits here, and a reader that left is noticed."""

import asyncio
import os
import select
import stat

from longrein.frontends.safe import escape_bytes

PIECE_BYTES = 4096
"""A pipe that is writable takes this much without waiting (PIPE_BUF on Linux)."""


class Output:
    """Bytes to a file descriptor, in order, at once where possible."""

    def __init__(self, fd: int) -> None:
        """`fd` stays the caller's; it is not made non-blocking, for others may share it."""
        self._fd = fd
        self._waiting = bytearray()
        self._poll: select.poll | None = None
        self._ready: asyncio.Future[None] | None = None
        self._hurried = False
        self._terminal = False
        """Whether `fd` is a terminal, which must not obey what a model or a provider wrote."""
        self.deaf = ""
        """Why nothing can be written any more: `closed` when the reader left, else the system's words."""
        try:
            mode = os.fstat(fd).st_mode
        except OSError as error:
            self.deaf = error.strerror or "closed"
            return
        self._terminal = stat.S_ISCHR(mode) and os.isatty(fd)
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            self._poll = select.poll()
            self._poll.register(fd, select.POLLOUT)

    @property
    def waiting_bytes(self) -> int:
        """What has not been taken yet."""
        return len(self._waiting)

    def put(self, data: bytes) -> None:
        """Write `data`, whole lines in UTF-8, as far as that needs no waiting; the rest stays. Drops it when there is
        no reader. On a terminal escapes and controls are shown, not obeyed."""
        if self.deaf:
            return
        self._waiting += escape_bytes(data) if self._terminal else data
        self._push()

    def hurry(self) -> None:
        """From now on, `drain` without a limit does not wait."""
        self._hurried = True
        self._wake()

    async def drain(self, limit_s: float | None = None) -> None:
        """Wait until all is written, the reader has left, or `limit_s` is over. Never raises for these."""
        try:
            async with asyncio.timeout(limit_s):
                while self._waiting and not self.deaf and not (self._hurried and limit_s is None):
                    await self._wait_writable()
                    self._push()
        except TimeoutError:
            return

    def _push(self) -> None:
        taken = 0
        try:
            with memoryview(self._waiting) as view:
                while taken < len(view) and (self._poll is None or self._poll.poll(0)):
                    end = len(view) if self._poll is None else taken + PIECE_BYTES
                    taken += os.write(self._fd, view[taken:end])
        except BlockingIOError:
            pass
        except OSError as error:
            self.deaf = "closed" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
            taken = len(self._waiting)
        del self._waiting[:taken]

    async def _wait_writable(self) -> None:
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        loop.add_writer(self._fd, self._wake)
        try:
            await self._ready
        finally:
            loop.remove_writer(self._fd)

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)
