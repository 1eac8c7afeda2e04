"""Run a command with data on its standard input, and keep its two outputs apart."""

import asyncio
import os
from contextlib import ExitStack

import msgspec

from longrein.workspace.child_process import (
    CollectingSink,
    OutputReader,
    open_stream_pipes,
    start_failure,
)
from longrein.workspace.supervisor.shell_lines import close
from longrein.workspace.workspace_port import CommandExit, CommandSpec, Spawner, Streams


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
