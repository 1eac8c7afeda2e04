"""Programs that longrein talks with over their standard input and output, such as an MCP server."""

import asyncio
import os
from collections import deque
from contextlib import ExitStack

import msgspec

from longrein.workspace.command_output import (
    CollectingSink,
    OutputReader,
    open_stream_pipes,
    start_failure,
)
from longrein.workspace.supervisor.shell_lines import close
from longrein.workspace.workspace_port import (
    CommandExit,
    CommandSpec,
    Spawner,
    StartedCommand,
    Streams,
)

LINE_BYTES_MAX = 16 << 20
"""Largest line that the program may print."""
ERROR_OUTPUT_BYTES_MAX = 1 << 62
"""Standard error is read to its end, but only its last bytes are kept."""
TAIL_BYTES = 4_000
CLOSE_WAIT_S = 0.5
"""Seconds that the program has to exit after its input is closed."""


class TailSink:
    """A `Sink` that keeps the last bytes."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def write(self, data: bytes) -> None:
        self._pieces.append(data[-TAIL_BYTES:])
        self._size += len(self._pieces[-1])
        while self._size - len(self._pieces[0]) >= TAIL_BYTES:
            self._size -= len(self._pieces.popleft())

    @property
    def text(self) -> str:
        """The last bytes as text."""
        return b"".join(self._pieces)[-TAIL_BYTES:].decode("utf-8", "replace")


class StreamProcess:
    """A running program with its two streams. Belongs to one event loop."""

    def __init__(
        self,
        command: StartedCommand,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        reading: asyncio.ReadTransport,
        errors: TailSink,
    ) -> None:
        self.reader, self.writer = reader, writer
        self.errors = errors
        """The end of standard error."""
        self._command, self._reading = command, reading
        self._end: asyncio.Task[CommandExit] = asyncio.ensure_future(command.ended())

    async def ended(self) -> CommandExit:
        """Wait for the exit of the program."""
        return await asyncio.shield(self._end)

    @property
    def exit(self) -> CommandExit | None:
        """Outcome of the process; None while it runs."""
        return self._end.result() if self._end.done() and not self._end.cancelled() else None

    async def close(self) -> None:
        """Close its input, wait a moment, then end it with all processes it has started."""
        self.writer.close()
        await asyncio.wait([self._end], timeout=CLOSE_WAIT_S)
        if not self._end.done():
            self._command.end("interrupt")
            await asyncio.wait([self._end])
        self._reading.close()


async def connect_streams(
    pipes: tuple[int, int], command: StartedCommand, errors: TailSink
) -> StreamProcess:
    """Turn our ends of the two pipes of a started program into streams."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipes[1], "rb", 0)
    )
    writing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(pipes[0], "wb", 0)
    )
    return StreamProcess(
        command, reader, asyncio.StreamWriter(writing, protocol, None, loop), reading, errors
    )


# --- One input, one output ------------------------------------------------------------------------


class PipedResult(msgspec.Struct, frozen=True):
    """Outcome of a command with separate outputs."""

    exit: CommandExit
    stdout: bytes
    stderr: bytes


async def run_with_input(
    spawner: Spawner, spec: CommandSpec, *, data: bytes, timeout_s: float, output_bytes_max: int
) -> PipedResult:
    """Run a command to its end with `data` on its standard input. See `Spawner.run`.

    More than `output_bytes_max` on standard output ends the command (cause `flood`); as much on
    standard error closes that pipe, so that the writer gets SIGPIPE.
    """
    try:
        (stdin, stderr), theirs = open_stream_pipes()
    except OSError as error:
        return PipedResult(start_failure(error, spec), b"", b"")
    loop = asyncio.get_running_loop()
    output = CollectingSink()
    errors = CollectingSink()
    os.set_blocking(stderr, False)
    reading = OutputReader(stderr, errors, output_bytes_max, lambda _: reading.close())
    reading.start()
    with ExitStack() as cleanup:  # other processes may hold the pipes, so nothing waits for them
        cleanup.callback(reading.close)
        cleanup.callback(reading.exited)
        cleanup.callback(close, *theirs)
        writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(stdin, "wb", 0))
        # without bytes that wait it closes itself
        cleanup.callback(lambda: writing.abort() if writing.get_write_buffer_size() else None)
        writing.write(data)
        writing.write_eof()
        ended = await spawner.run(
            msgspec.structs.replace(spec, streams=Streams(theirs[0], stderr=theirs[1])),
            sink=output,
            timeout_s=timeout_s,
            output_bytes_max=output_bytes_max,
        )
    return PipedResult(ended, bytes(output.data), bytes(errors.data))
