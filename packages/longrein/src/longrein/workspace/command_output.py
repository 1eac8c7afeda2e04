"""Pipes of commands: reading their output, up to a limit.

A command ends when its process exits, not when its output pipe closes: a grandchild may hold
the pipe.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress

from longrein.workspace.supervisor.shell_lines import HELD_PIPE_S, close, start_error_text
from longrein.workspace.workspace_port import CommandExit, CommandSpec, Sink

PIPE_BYTES = 1 << 20
"""Size that a pipe is enlarged to once much output has come through it."""
READ_BYTES = 1 << 16
READS_MAX = 4
"""Reads in a row before other work gets its turn."""
BATCH_ABOVE_BYTES = 1 << 16
"""Output above this is read in larger batches: each read costs as much as copying 50 kB."""
BATCH_PAUSE_S = 0.001
"""Pause between two batches. A pipe of 1 MB does not fill in less."""


class CollectingSink:
    """A `Sink` that collects all bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data


class NullSink:
    """A `Sink` that discards everything."""

    def write(self, data: bytes) -> None:
        """See `Sink.write`."""


class OutputReader:
    """Reads the output of one running command; a future reports its end.

    The owner calls `exited` when the process has exited.
    """

    def __init__(
        self, output: int, sink: Sink | None, output_bytes_max: int, stop: Callable[[str], None]
    ) -> None:
        """Prepare; reading begins with `start`. Without a sink the output stays in the pipe, which
        the caller may hand on. `stop("flood")` is called at the limit.
        """
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._left_bytes = output_bytes_max
        self._stop = stop
        self._wide = self._exited = False
        self.size_bytes = 0
        """Bytes given to the sink."""
        self.output = output
        """Read end of the output; -1 once it is closed or handed on."""
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def start(self) -> None:
        """Read from now on."""
        if self._sink is not None:
            self._loop.add_reader(self.output, self._on_readable)

    def _on_readable(self) -> None:
        """Read a few pieces, so that other work gets its turn."""
        for _ in range(READS_MAX):
            if self._read() < READ_BYTES:
                break
        else:
            return
        if self.size_bytes > BATCH_ABOVE_BYTES and self.output >= 0 and self._left_bytes > 0:
            self._loop.remove_reader(self.output)
            self._loop.call_later(BATCH_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self.output >= 0 and self._left_bytes > 0:
            self._loop.add_reader(self.output, self._on_readable)

    def _read(self) -> int:
        """Read one piece; returns its size, 0 when there is no more for now."""
        try:
            data = os.read(self.output, READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            os.close(self.detach_output())
            if self._exited:
                self._finish()
            return 0
        self._take(data)
        if self.size_bytes > BATCH_ABOVE_BYTES and not self._wide and self.output >= 0:
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
        """Enlarge the pipe, to save switches between reader and writer."""
        self._wide = True
        with suppress(AttributeError, OSError):  # macOS, or this user's pipes hold enough already
            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def exited(self) -> None:
        """Read the rest after the exit; wait a moment when another process holds the pipe."""
        pieces = 2 * PIPE_BYTES // READ_BYTES if self._sink is not None else 0
        while self.output >= 0 and self._left_bytes > 0 and pieces > 0 and self._read():
            pieces -= 1
        self._exited = True
        if self.output < 0 or self._left_bytes <= 0 or self._sink is None:
            self._finish()
        else:
            self._loop.call_later(HELD_PIPE_S, self._finish)

    def _finish(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def discard_output(self) -> None:
        """Read on without keeping anything, so that the command does not block."""
        self._sink = NullSink()

    def close(self) -> None:
        """Close the pipe: its writer gets SIGPIPE."""
        close(self.detach_output())

    def detach_output(self) -> int:
        """Hand the open output pipe to the caller, who closes it; -1 when it is closed."""
        output, self.output = self.output, -1
        if output >= 0:
            self._loop.remove_reader(output)
        return output


def open_pipes(*, reports: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Open the pipes for output and report: (our ends, the command's), -1 for no report. Raises
    OSError.
    """
    output, their_output = os.pipe()
    try:
        report, their_report = os.pipe() if reports else (-1, -1)
    except OSError:
        close(output, their_output)
        raise
    os.set_blocking(output, False)
    if reports:
        os.set_blocking(report, False)
    return (output, report), (their_output, their_report)


def open_stream_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Open a pipe to a command and one from it: (our ends, the command's). Raises OSError."""
    their_input, ours = os.pipe()
    try:
        output, their_output = os.pipe()
    except OSError:
        close(their_input, ours)
        raise
    return (ours, output), (their_input, their_output)


def start_failure(error: OSError | ValueError, spec: CommandSpec) -> CommandExit:
    """Build the `CommandExit` of a failed start, with a shell's code: 127 not found, else 126."""
    code = 127 if isinstance(error, FileNotFoundError) else 126
    text = start_error_text(error, spec.command, spec.cwd)
    return CommandExit(code, "", "not_started", text)


LOST_EXIT = CommandExit(
    None, "", "lost", "the supervisor of processes ended, and what it had started was ended with it"
)
