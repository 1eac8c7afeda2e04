"""Run commands as children of this process, without a supervisor.

A command ends when its process exits, not when its output pipe closes: a grandchild may hold
the pipe.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from subprocess import DEVNULL, Popen

from longrein.workspace.command_environment import DEFAULT_PATH
from longrein.workspace.files import find_program, spellings
from longrein.workspace.supervisor.popen import launch
from longrein.workspace.supervisor.process_tree import (
    COMMAND_MARK,
    GRACE_S,
    SANDBOX_MARK,
    Terminations,
    Tree,
    owner_mark,
)
from longrein.workspace.supervisor.shell_lines import (
    HELD_PIPE_S,
    LANDLOCK,
    LEFT_OPEN_BYTES_MAX,
    LEFT_OPEN_MAX,
    close,
    confined_returncode,
    last_folder,
    reports_folder,
    sandbox_mark,
    signal_name,
    start_error_text,
)
from longrein.workspace.workspace_port import (
    BackgroundOptions,
    CommandExit,
    CommandSpec,
    Sink,
    SpooledTask,
    Streams,
)

# --- End of a process tree ------------------------------------------------------------------------


class TreeTerminator:
    """The process trees that are being ended: TERM, a grace period, KILL, until none is left.

    Processes that ignore TERM, fork away or hide are found too. One task handles all trees, with
    one look at the process table per round.
    """

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._trees = Terminations(time.monotonic)
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def end(self, mark: str, root: int) -> asyncio.Future[None]:
        """Begin to end a tree; the future is done when no process is left.

        The process group gets TERM now, the rest within a round. `root` is the pid of the session's
        leader, 0 when only the mark counts.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not ended.done():
                ended.set_result(None)

        self._trees.end(Tree(mark, root, time.monotonic() + self._grace_s), done)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._walk())
        self._news.set()
        return ended

    def hurry(self) -> None:
        """Look again now, because a process has just exited."""
        self._trees.hurry()
        self._news.set()

    async def wait_all(self) -> None:
        """Wait until every tree has ended."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _walk(self) -> None:
        try:
            while (wait_s := self._trees.wait_s()) is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), wait_s)
                self._news.clear()
                self._trees.walk()
        except asyncio.CancelledError:  # the loop is closing
            self._trees.kill_now()
            raise


# --- Reading a command's output -------------------------------------------------------------------

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


class OpenPipes:
    """Pipes of processes that outlive their command (`server &`).

    They are read and discarded: a closed pipe would kill its writer.
    """

    def __init__(self) -> None:
        self._left: list[OutputReader] = []
        """Oldest first."""

    def keep(self, output: int) -> None:
        """Read this pipe until it ends or reaches its limit."""
        self._left = [one for one in self._left if one.output >= 0]
        if len(self._left) >= LEFT_OPEN_MAX:
            self._left[0].close()
        reader = OutputReader(output, NullSink(), LEFT_OPEN_BYTES_MAX, lambda _: reader.close())
        reader.start()
        self._left.append(reader)

    def close(self) -> None:
        """Close all pipes."""
        for reader in self._left:
            reader.close()


# --- Started commands -----------------------------------------------------------------------------

LOST_EXIT = CommandExit(
    None, "", "lost", "the supervisor of processes ended, and what it had started was ended with it"
)


class RunningCommand:
    """A `StartedCommand`: the part that does not depend on whose child the process is."""

    def __init__(self, pipes: tuple[int, int], sink: Sink | None, output_bytes_max: int) -> None:
        """`pipes`: our ends of output and report (-1 for none). Without a sink nothing is read."""
        self.pid = 0
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._output = OutputReader(pipes[0], sink, output_bytes_max, self.end)
        self._output.ended.add_done_callback(self._on_output_end)
        self._report = pipes[1]
        self._end: asyncio.Future[CommandExit] = self._loop.create_future()

    def _on_output_end(self, _: object) -> None:
        """Set `_end`, once the process has exited and its output is read."""
        raise NotImplementedError

    async def ended(self) -> CommandExit:
        ended = await asyncio.shield(self._end)
        self.abandon()
        return ended

    def end(self, cause: str) -> None:
        """See `StartedCommand.end`. After an interrupt, output is discarded."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Close the pipes; the command can no longer go to the background."""
        raise NotImplementedError

    async def run(self, until: float) -> CommandExit:
        """Wait for the end; end the command at `until` (loop time), or when the wait is
        cancelled.
        """
        timer = self._loop.call_at(until, self.end, "timeout")
        try:
            return await self.ended()
        except asyncio.CancelledError:
            self.end("interrupt")
            self.abandon()
            raise
        finally:
            timer.cancel()

    def _exit(self, returncode: int, cause: str) -> CommandExit:
        """Build the outcome of a return code: an exit code or the name of a signal."""
        code, name = (returncode, "") if returncode >= 0 else (None, signal_name(-returncode))
        return CommandExit(
            code, name, cause, "", self._loop.time() - self._began, last_folder(self._report)
        )

    def _close_pipes(self) -> None:
        close(self._output.detach_output(), self._report)
        self._report = -1


class ChildCommand(RunningCommand):
    """A child of this process, which cannot go to the background."""

    def __init__(
        self,
        process: Popen[bytes],
        mark: str,
        pipes: tuple[int, int],
        sink: Sink,
        output_bytes_max: int,
        trees: TreeTerminator,
        left_open: OpenPipes,
        *,
        is_confined: bool,
    ) -> None:
        """Its processes carry `mark`; `left_open` gets the pipe that other processes may still hold
        at its end.

        `is_confined`: `process` is the sandbox's program.
        """
        super().__init__(pipes, sink, output_bytes_max)
        self._is_confined = is_confined
        self.pid = process.pid
        self._process = process
        self._mark = mark
        self._trees = trees
        self._left_open = left_open
        self._cause = "exit"
        self._tree_end: asyncio.Future[None] | None = None
        self._output.start()
        on_exit(process, self._output.exited)

    def end(self, cause: str) -> None:
        if self._tree_end is None and self._process.returncode is None:
            self._cause = cause
            self._tree_end = self._trees.end(self._mark, self.pid)
            if cause == "interrupt":
                self._output.discard_output()

    def _on_output_end(self, _: object) -> None:
        if self._tree_end is not None and not self._tree_end.done():
            self._trees.hurry()
            self._tree_end.add_done_callback(self._on_output_end)
        else:
            code = self._process.returncode
            self._end.set_result(
                self._exit(confined_returncode(code) if self._is_confined else code, self._cause)
            )
            self.abandon()

    def abandon(self) -> None:
        """Close the pipes. After an exit, other processes may go on writing: theirs is read and
        dropped.
        """
        if (
            self._end.done()
            and self._cause == "exit"
            and (output := self._output.detach_output()) >= 0
        ):
            self._left_open.keep(output)
        self._close_pipes()

    async def keep(self, keeping: BackgroundOptions) -> SpooledTask:
        """See `StartedCommand.keep`. Always raises OSError."""
        raise OSError(
            f"{keeping.task} cannot go on in the background: there is no supervisor of processes"
        )


# --- Start of a child -----------------------------------------------------------------------------

POLL_FIRST_S = 0.002
POLL_LAST_S = 0.03
"""Polling intervals where an exit has no file descriptor (macOS, old kernels)."""


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


def start_child(
    spec: CommandSpec, shell: str, env: Mapping[str, str]
) -> tuple[Popen[bytes], tuple[int, int]]:
    """Start a process: (process, our ends of its output and report). Raises OSError or ValueError,
    as `launch`.
    """
    ours, (output, report) = open_pipes(reports=reports_folder(spec.command, shell))
    streams, confinement = spec.streams or Streams(DEVNULL), spec.confinement
    try:
        process = launch(
            spec.command,
            shell,
            spec.cwd,
            env,
            output=output,
            report=report,
            stdin=streams.stdin,
            stdout=streams.stdout,
            error=streams.stderr,
            confinement=(confinement.words, confinement.filter)
            if confinement is not None
            else None,
        )
    except BaseException:
        close(*ours)
        raise
    finally:
        close(output, report)
    return process, ours


def on_exit(process: Popen[bytes], tell: Callable[[], None]) -> None:
    """Call `tell` once the process has exited and is reaped."""
    loop = asyncio.get_running_loop()

    def look(pause_s: float) -> None:
        if process.poll() is not None:
            tell()
        else:
            loop.call_later(pause_s, look, min(pause_s * 1.5, POLL_LAST_S))

    def on_readable() -> None:
        if process.poll() is not None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            tell()

    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        look(POLL_FIRST_S)
    else:
        loop.add_reader(descriptor, on_readable)


def start_failure(error: OSError | ValueError, spec: CommandSpec) -> CommandExit:
    """Build the `CommandExit` of a failed start, with a shell's code: 127 not found, else 126."""
    code = 127 if isinstance(error, FileNotFoundError) else 126
    text = start_error_text(error, spec.command, spec.cwd)
    return CommandExit(code, "", "not_started", text)


_spawners = count(1)


def find_shell(search_path: str, roots: Sequence[str]) -> str:
    """Find `bash`, else `sh`, on the search path or the system's own, outside `roots`."""
    outside = spellings(roots)
    found = (
        find_program(name, path, outside)
        for name in ("bash", "sh")
        for path in (search_path, DEFAULT_PATH)
    )
    return next(filter(None, found), "/bin/sh")


class PlainSpawner:
    """A `Spawner` whose commands are children of this process. Belongs to one event loop."""

    def __init__(
        self,
        search_path: str = DEFAULT_PATH,
        roots: Sequence[str] = (),
        *,
        grace_s: float = GRACE_S,
    ) -> None:
        """Look for the shell on `search_path`, outside `roots`. `grace_s` is the time from TERM
        to KILL.
        """
        self.shell = find_shell(search_path, roots)
        self._mark = f"{owner_mark()}.{next(_spawners)}."
        self._numbers = count(1)
        self._used = False
        self._trees = TreeTerminator(grace_s)
        self._left_open = OpenPipes()

    def start(
        self, spec: CommandSpec, *, sink: Sink, output_bytes_max: int
    ) -> ChildCommand | CommandExit:
        """Start a command; see `Supervision.start`."""
        mark = f"{self._mark}{next(self._numbers)}/"
        env = {**spec.variables, COMMAND_MARK: spec.env.get(COMMAND_MARK, "") + mark}
        if spec.confinement is not None:
            env[SANDBOX_MARK] = sandbox_mark()
        try:
            process, pipes = start_child(spec, self.shell, env)
        except (OSError, ValueError) as error:
            return start_failure(error, spec)
        self._used = True
        is_confined = spec.confinement is not None and spec.confinement.words[0] != LANDLOCK
        return ChildCommand(
            process,
            mark,
            pipes,
            sink,
            output_bytes_max,
            self._trees,
            self._left_open,
            is_confined=is_confined,
        )

    async def run(
        self, spec: CommandSpec, *, sink: Sink, timeout_s: float, output_bytes_max: int
    ) -> CommandExit:
        until = asyncio.get_running_loop().time() + timeout_s
        started = self.start(spec, sink=sink, output_bytes_max=output_bytes_max)
        return started if isinstance(started, CommandExit) else await started.run(until)

    def warm(self) -> None:
        """See `Spawner.warm`: there is no other process."""

    async def unwritten(self, paths: Sequence[str]) -> tuple[Sequence[str], bool]:
        """See `Spawner.unwritten`: nothing is known."""
        return paths, False

    async def drain(self) -> None:
        """Wait for pending kills, then end what commands left running. For shutdown, with no
        command running.
        """
        await self._trees.wait_all()
        if self._used:
            self._trees.end(self._mark, 0)
            await self._trees.wait_all()
        self._left_open.close()
