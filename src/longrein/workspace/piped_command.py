"""Run a command with data on its standard input, and keep its two outputs apart."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from longrein.workspace.child_process import READ_BYTES, CollectingSink
from longrein.workspace.supervisor.shell_lines import close
from longrein.workspace.workspace_port import CommandExit, Confinement, Spawner, Streams


class PipedResult(msgspec.Struct, frozen=True):
    """Outcome of a command with separate outputs."""

    exit: CommandExit
    stdout: bytes
    stderr: bytes


class _Pipes:
    """Our ends of the command's standard input and standard error."""

    def __init__(self, data: bytes, error_bytes_max: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._data, self._left = memoryview(data), error_bytes_max
        self.error = bytearray()
        their_input, self._input = os.pipe()
        self._error, their_error = os.pipe()
        self.streams = Streams(their_input, stderr=their_error)
        os.set_blocking(self._input, False)
        os.set_blocking(self._error, False)
        self._loop.add_writer(self._input, self._write)
        self._loop.add_reader(self._error, self._read)

    def _write(self) -> None:
        """Write what fits; close the input at the end, or when nobody reads it."""
        try:
            self._data = (
                self._data[os.write(self._input, self._data[:READ_BYTES]) :]
                if self._data
                else self._data
            )
        except BlockingIOError:
            return
        except OSError:
            self._data = memoryview(b"")
        if not self._data:
            self._close_input()

    def _read(self) -> bool:
        """Read one piece; False at the end, and above the limit, where the writer gets SIGPIPE."""
        try:
            piece = os.read(self._error, READ_BYTES)
        except BlockingIOError:
            return False
        self.error += piece[: self._left]
        self._left -= len(piece)
        if not piece or self._left <= 0:
            self._close_error()
        return self._error >= 0

    def close_theirs(self) -> None:
        """Close the command's ends, once it has its own copies."""
        close(self.streams.stdin, self.streams.stderr)
        self.streams = Streams(-1)

    def close(self) -> None:
        """Read what is left and close everything; other processes may hold the pipe, so nothing
        waits for its end.
        """
        self.close_theirs()
        while self._error >= 0 and self._read():
            pass
        self._close_input()
        self._close_error()

    def _close_input(self) -> None:
        if self._input >= 0:
            self._loop.remove_writer(self._input)
            close(self._input)
            self._input = -1

    def _close_error(self) -> None:
        if self._error >= 0:
            self._loop.remove_reader(self._error)
            close(self._error)
            self._error = -1


async def run_with_input(
    spawner: Spawner,
    command: str | Sequence[str],
    *,
    data: bytes,
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float,
    output_bytes_max: int,
    confinement: Confinement | None = None,
) -> PipedResult:
    """Run a command to its end with `data` on its standard input. See `Spawner.run`.

    More than `output_bytes_max` on standard output ends the command (cause `flood`); as much on
    standard error closes that pipe.
    """
    try:
        pipes = _Pipes(data, output_bytes_max)
    except OSError as error:
        return PipedResult(
            CommandExit(126, "", "not_started", error.strerror or str(error)), b"", b""
        )
    sink = CollectingSink()
    try:
        ended = await spawner.run(
            command,
            cwd=cwd,
            env=env,
            sink=sink,
            timeout_s=timeout_s,
            output_bytes_max=output_bytes_max,
            confinement=confinement,
            streams=pipes.streams,
        )
    finally:
        with suppress(OSError):
            pipes.close()
    return PipedResult(ended, bytes(sink.data), bytes(pipes.error))
