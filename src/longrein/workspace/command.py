"""Starts commands beside longrein, without a sandbox. Their end is told by the process, never by the pipe (R051)."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from subprocess import Popen

import msgspec

from longrein.workspace.environment import DEFAULT_PATH
from longrein.workspace.files import find_program, spellings
from longrein.workspace.port import CommandExit, Sink
from longrein.workspace.supervisor.launch import launch
from longrein.workspace.supervisor.process_tree import COMMAND_MARK, GRACE_S, has_marked, owner_mark
from longrein.workspace.supervisor.shell import (
    HELD_PIPE_S,
    LEFT_OPEN_BYTES_MAX,
    LEFT_OPEN_MAX,
    close,
    last_folder,
    report_pipe,
    signal_name,
    start_error_text,
)
from longrein.workspace.terminate import TreeTerminator

# ---------------------------------------------------------------------------------------------------------------------
#
# What a command prints, read beside everything else until the process has ended; never until its pipe has (R051).


PIPE_BYTES = 1 << 20
"""What a pipe is enlarged to once much has come through it."""
READ_BYTES = 1 << 16
READS_MAX = 4
"""Reads in one go, before others get their turn."""
BATCH_ABOVE_BYTES = 1 << 16
"""From here on output is waited for a moment, so that it comes in large pieces: each one costs as much as 50 kB do."""
BATCH_PAUSE_S = 0.001
"""That moment. A pipe of 1 MB does not fill sooner."""


class NullSink:
    """A `Sink` that forgets."""

    def write(self, data: bytes) -> None:
        """See `Sink.write`."""


class OutputReader:
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
        if self.size_bytes > BATCH_ABOVE_BYTES and self.output >= 0 and self._left_bytes > 0:
            self._loop.remove_reader(self.output)
            self._pause = self._loop.call_later(BATCH_PAUSE_S, self._listen)

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
        if self.size_bytes > BATCH_ABOVE_BYTES and not self._wide:
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
        self._sink = NullSink()

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


class OpenPipes:
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


# --- One child process of longrein's own: its end told by the kernel, what became of it in words ---------------------


POLL_FIRST_S = 0.002
POLL_LAST_S = 0.03
"""Where a process's end cannot be waited for as a file descriptor (macOS, old kernels)."""


class ChildProcess(msgspec.Struct):
    """A started process and our ends of its pipes."""

    process: Popen[bytes]
    output: int
    """Read end, non-blocking."""
    report: int
    """Read end of the pipe in which the shell says its last folder; -1 when it was not asked to."""


def start_child(command: str | Sequence[str], shell: str, cwd: str, env: Mapping[str, str]) -> ChildProcess:
    """Start it. Raises OSError or ValueError (nothing to start, NUL, what cannot be encoded)."""
    output, their_output = os.pipe()
    report, their_report = report_pipe(command, shell)
    try:
        process = launch(command, shell, cwd, env, output=their_output, report=their_report)
    except BaseException:
        close(output, report)
        raise
    finally:
        close(their_output, their_report)
    os.set_blocking(output, False)
    return ChildProcess(process, output, report)


def on_exit(process: Popen[bytes], tell: Callable[[], None]) -> Callable[[], None]:
    """Call `tell` once when the process has exited and is reaped. Gives what stops the watching."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return _poll(loop, process, tell)

    def stop() -> None:
        nonlocal descriptor
        if descriptor >= 0:
            loop.remove_reader(descriptor)
            close(descriptor)
            descriptor = -1

    def look() -> None:
        if process.poll() is not None:
            stop()
            tell()

    loop.add_reader(descriptor, look)
    return stop


def _poll(loop: asyncio.AbstractEventLoop, process: Popen[bytes], tell: Callable[[], None]) -> Callable[[], None]:
    timer: asyncio.TimerHandle

    def look(pause_s: float) -> None:
        nonlocal timer
        if process.poll() is not None:
            tell()
        else:
            timer = loop.call_later(pause_s, look, min(pause_s * 1.5, POLL_LAST_S))

    timer = loop.call_later(POLL_FIRST_S, look, POLL_FIRST_S)

    def stop() -> None:
        timer.cancel()

    return stop


def exit_of(returncode: int, cause: str, elapsed_s: float, cwd: str) -> CommandExit:
    """How it ended, exactly: a code, or the name of the signal."""
    if returncode >= 0:
        return CommandExit(returncode, "", cause, "", elapsed_s, cwd)
    return CommandExit(None, signal_name(-returncode), cause, "", elapsed_s, cwd)


def start_failure(error: OSError | ValueError, command: str | Sequence[str], cwd: str) -> CommandExit:
    """Why it could not start, in one line. The code is what a shell would give: 127 not found, else 126."""
    return CommandExit(
        127 if isinstance(error, FileNotFoundError) else 126, "", "not_started", start_error_text(error, command, cwd)
    )


# --- spawner ---------------------------------------------------------------------------------------------------------


_spawners = count(1)


def find_shell(search_path: str, roots: Sequence[str]) -> str:
    """`bash`, else `sh`, on the search path or the system's own, never from inside `roots`."""
    outside = spellings(roots)
    found = (find_program(name, path, outside) for name in ("bash", "sh") for path in (search_path, DEFAULT_PATH))
    return next(filter(None, found), "/bin/sh")


class PlainSpawner:
    """A `Spawner` whose children are children of this process. Belongs to one event loop."""

    def __init__(self, search_path: str = DEFAULT_PATH, roots: Sequence[str] = (), *, grace_s: float = GRACE_S) -> None:
        """`search_path` is where `bash` (else `sh`) is looked for, outside `roots`; `grace_s` is TERM to KILL."""
        self.shell = find_shell(search_path, roots)
        self._mark = f"{owner_mark()}.{next(_spawners)}."
        self._numbers = count(1)
        self._used = False
        self._trees = TreeTerminator(grace_s)
        self._left_open = OpenPipes()

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        sink: Sink,
        timeout_s: float,
        output_bytes_max: int,
    ) -> CommandExit:
        """See `Spawner.run`."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        own = f"{self._mark}{next(self._numbers)}/"
        try:
            child = start_child(command, self.shell, cwd, {**env, COMMAND_MARK: env.get(COMMAND_MARK, "") + own})
        except (OSError, ValueError) as error:
            return start_failure(error, command, cwd)
        self._used = True
        cause, ending = "exit", None

        def stop(why: str) -> None:
            nonlocal cause, ending
            if ending is None and child.process.returncode is None:
                cause, ending = why, self._trees.end(own, child.process.pid)

        running = OutputReader(child.output, sink, output_bytes_max, stop)
        on_exit(child.process, running.exited)
        timer = loop.call_later(timeout_s, stop, "timeout")
        try:
            await running.ended
            if ending is not None:
                self._trees.hurry()
                await asyncio.shield(ending)
        except asyncio.CancelledError:
            stop("interrupt")
            running.abandon()
            raise
        finally:
            timer.cancel()
            cwd_left = last_folder(child.report)
            close(child.report)
        self._leave(running, cause)
        return exit_of(child.process.returncode, cause, loop.time() - started, cwd_left)

    def _leave(self, running: OutputReader, cause: str) -> None:
        output = running.give_away()
        if cause == "exit" and output >= 0:
            self._left_open.keep(output)
        else:
            close(output)

    async def drain(self) -> None:
        """Wait for pending kills, then end what commands left running. For shutdown; nothing may run meanwhile."""
        await self._trees.wait_all()
        if self._used and has_marked(self._mark):
            self._trees.end(self._mark, 0)
            await self._trees.wait_all()
        self._left_open.close()
