"""What a command prints, read beside everything else until the process has ended; never until its pipe has (R051)."""

import asyncio
import os
from collections.abc import Callable

from longrein.workspace.port import Sink
from longrein.workspace.words import HELD_PIPE_S, LEFT_OPEN_BYTES_MAX, LEFT_OPEN_MAX

PIPE_BYTES = 1 << 20
"""What a pipe is enlarged to once much has come through it."""
READ_BYTES = 1 << 16
READS_MAX = 4
"""Reads in one go, before others get their turn."""
MUCH_BYTES = 1 << 16
"""From here on output is waited for a moment, so that it comes in large pieces: each one costs as much as 50 kB do."""
PAUSE_S = 0.001
"""That moment. A pipe of 1 MB does not fill sooner."""


class Nobody:
    """A `Sink` that forgets."""

    def write(self, data: bytes) -> None:
        """See `Sink.write`."""


class Running:
    """The output of one command while it runs, and a future for its end. Who learns of its exit calls `exited`."""

    def __init__(self, output: int, sink: Sink | None, output_bytes_max: int, stop: Callable[[str], None]) -> None:
        """Without a sink it is left in the pipe, for who is given that."""
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._left_bytes = output_bytes_max
        self._stop = stop
        self._wide = False
        self._pause: asyncio.TimerHandle | None = None
        self.size_bytes = 0
        """Of what the sink was given."""
        self.output = output
        """Read end of the output; -1 once it is closed or given away."""
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._late: asyncio.TimerHandle | None = None
        if sink is not None:
            self._loop.add_reader(self.output, self._hear)

    def _hear(self) -> None:
        """Something has come. Of much output no more is read than others have the patience for."""
        for _ in range(READS_MAX):
            if self._read() < READ_BYTES:
                break
        else:
            return
        if self.size_bytes > MUCH_BYTES and self.output >= 0 and self._left_bytes > 0:
            self._loop.remove_reader(self.output)
            self._pause = self._loop.call_later(PAUSE_S, self._listen)

    def _listen(self) -> None:
        if self.output >= 0 and self._left_bytes > 0:
            self._loop.add_reader(self.output, self._hear)

    def _read(self) -> int:
        """Take one piece of what is there; gives its size, 0 when there is nothing more."""
        try:
            data = os.read(self.output, READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self._close_output()
            return 0
        self._take(data)
        if self.size_bytes > MUCH_BYTES and not self._wide:
            self._widen()
        return len(data) if self._left_bytes > 0 else 0

    def _take(self, data: bytes) -> None:
        if len(data) > self._left_bytes:
            data = data[: self._left_bytes]
            self._loop.remove_reader(self.output)
            self._stop("flood")
        self._left_bytes -= len(data)
        self.size_bytes += len(data)
        if data and self._sink is not None:
            self._sink.write(data)

    def _widen(self) -> None:
        """A larger pipe saves switches between us and the writer."""
        self._wide = True
        try:
            import fcntl

            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except (AttributeError, OSError):
            return  # macOS, or this user's pipes hold enough already

    def exited(self) -> None:
        """The process has ended. What is in the pipe now is all of it, unless somebody else holds it."""
        pieces = 2 * PIPE_BYTES // READ_BYTES if self._sink is not None else 0
        while self.output >= 0 and self._left_bytes > 0 and pieces > 0 and self._read():
            pieces -= 1
        if self.output < 0 or self._left_bytes <= 0 or self._sink is None:
            self._finish()
        else:
            self._late = self._loop.call_later(HELD_PIPE_S, self._finish)

    def _close_output(self) -> None:
        if self.output >= 0:
            self._loop.remove_reader(self.output)
            os.close(self.output)
            self.output = -1
        self._rest()
        if self._late is not None:
            self._finish()

    def _rest(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _finish(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if not self.ended.done():
            self.ended.set_result(None)

    def mute(self) -> None:
        """Nobody wants to hear the rest, which is read on so that it does not block."""
        self._sink = Nobody()

    def give_away(self) -> int:
        """The output pipe, if somebody still holds it; -1 else. Who has it closes it."""
        output, self.output = self.output, -1
        self._rest()
        if output >= 0:
            self._loop.remove_reader(output)
        return output

    def abandon(self) -> None:
        """Nobody wants the rest: the pipe is closed."""
        self._close_output()


class LeftOpen:
    """Pipes of what outlives its command (`server &`): read and thrown away, so that writing to them does not kill."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}
        """Descriptor -> bytes it may still bring, oldest first."""

    def keep(self, output: int) -> None:
        """Read this pipe until it ends or has brought too much."""
        if len(self._left) >= LEFT_OPEN_MAX:
            self._drop(next(iter(self._left)))
        self._left[output] = LEFT_OPEN_BYTES_MAX
        asyncio.get_running_loop().add_reader(output, self._read, output)

    def _read(self, output: int) -> None:
        try:
            size = len(os.read(output, READ_BYTES))
        except BlockingIOError:
            return
        self._left[output] -= size
        if size == 0 or self._left[output] <= 0:
            self._drop(output)

    def _drop(self, output: int) -> None:
        asyncio.get_running_loop().remove_reader(output)
        del self._left[output]
        os.close(output)

    def close(self) -> None:
        """Close all."""
        for output in list(self._left):
            self._drop(output)
