"""Starts commands beside longrein, without a sandbox. Their end is told by the process, never by the pipe (R051)."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from longrein.workspace import child as children
from longrein.workspace.child import Child
from longrein.workspace.environment import DEFAULT_PATH
from longrein.workspace.paths import find_program, spellings
from longrein.workspace.port import Ended, Sink
from longrein.workspace.trees import COMMAND_MARK, GRACE_S, Trees, owner_mark, survivors

HELD_PIPE_S = 0.1
"""How long output is awaited after the exit while somebody else holds the pipe."""
PIPE_BYTES = 1 << 20
"""What a pipe is enlarged to once it was found full."""
READ_BYTES = 1 << 16
BIG_READ_BYTES = 1 << 18
LEFT_OPEN_MAX = 64
"""Pipes still read for processes that outlive their command; the oldest is closed."""
LEFT_OPEN_BYTES_MAX = 64 << 20
"""What such a process may print before its pipe is closed."""

_spawners = count(1)


class Running:
    """One command while it runs: its output, its limits, and a future for its end."""

    def __init__(self, child: Child, sink: Sink, output_bytes_max: int, stop: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.child = child
        self._sink = sink
        self._left_bytes = output_bytes_max
        self._stop = stop
        self._read_bytes = READ_BYTES
        self.output = child.output
        """Read end of the output; -1 once it is closed or given away."""
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._late: asyncio.TimerHandle | None = None
        self._loop.add_reader(self.output, self._read)
        self._unwatch = children.on_exit(child.process, self._exited)

    def _read(self) -> bool:
        """Take what is there, one piece, so that others get their turn. False when there is nothing more."""
        try:
            data = os.read(self.output, self._read_bytes)
        except BlockingIOError:
            return False
        if not data:
            self._close_output()
            return False
        self._take(data)
        if len(data) == READ_BYTES == self._read_bytes:
            self._widen()
        return True

    def _take(self, data: bytes) -> None:
        if len(data) > self._left_bytes:
            data = data[: self._left_bytes]
            self._loop.remove_reader(self.output)
            self._stop("flood")
        self._left_bytes -= len(data)
        if data:
            self._sink.write(data)

    def _widen(self) -> None:
        """A full pipe: a larger one saves switches between us and the writer."""
        self._read_bytes = BIG_READ_BYTES
        try:
            import fcntl

            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except (AttributeError, OSError):
            return  # macOS, or this user's pipes hold enough already

    def _exited(self) -> None:
        """What is in the pipe now is all of it, unless somebody else holds it."""
        pieces = 2 * PIPE_BYTES // READ_BYTES
        while self.output >= 0 and self._left_bytes > 0 and pieces > 0 and self._read():
            pieces -= 1
        if self.output < 0 or self._left_bytes <= 0:
            self._finish()
        else:
            self._late = self._loop.call_later(HELD_PIPE_S, self._finish)

    def _close_output(self) -> None:
        if self.output >= 0:
            self._loop.remove_reader(self.output)
            os.close(self.output)
            self.output = -1
        if self._late is not None:
            self._finish()

    def _finish(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if not self.ended.done():
            self.ended.set_result(None)

    def give_away(self) -> int:
        """The output pipe, if somebody still holds it; -1 else. Who has it closes it."""
        output, self.output = self.output, -1
        if output >= 0:
            self._loop.remove_reader(output)
        return output

    def abandon(self) -> None:
        """Nobody wants the rest: the pipe is closed; the process is still watched, so that it is reaped."""
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


class PlainSpawner:
    """A `Spawner` whose children are children of this process. Belongs to one event loop."""

    def __init__(self, search_path: str = DEFAULT_PATH, roots: Sequence[str] = (), *, grace_s: float = GRACE_S) -> None:
        """`search_path` is where `bash` (else `sh`) is looked for, outside `roots`; `grace_s` is TERM to KILL."""
        outside = spellings(roots)
        found = (find_program(name, path, outside) for name in ("bash", "sh") for path in (search_path, DEFAULT_PATH))
        self.shell = next(filter(None, found), "/bin/sh")
        self._mark = f"{owner_mark()}.{next(_spawners)}."
        self._numbers = count(1)
        self._used = False
        self._trees = Trees(grace_s)
        self._left_open = LeftOpen()

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        sink: Sink,
        timeout_s: float,
        output_bytes_max: int,
    ) -> Ended:
        """See `Spawner.run`."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        own = f"{self._mark}{next(self._numbers)}/"
        try:
            child = children.start(command, self.shell, cwd, {**env, COMMAND_MARK: env.get(COMMAND_MARK, "") + own})
        except (OSError, ValueError) as error:
            return children.not_started(error, command, cwd)
        self._used = True
        cause, ending = "exit", None

        def stop(why: str) -> None:
            nonlocal cause, ending
            if ending is None and child.process.returncode is None:
                cause, ending = why, self._trees.end(own, child.process.pid)

        running = Running(child, sink, output_bytes_max, stop)
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
            cwd_left = children.last_folder(child.report)
            children.close(child.report)
        self._leave(running, cause)
        return children.ended(child.process.returncode, cause, loop.time() - started, cwd_left)

    def _leave(self, running: Running, cause: str) -> None:
        output = running.give_away()
        if cause == "exit" and output >= 0:
            self._left_open.keep(output)
        else:
            children.close(output)

    async def drain(self) -> None:
        """Wait for pending kills, then end what commands left running. For shutdown; nothing may run meanwhile."""
        await self._trees.wait_all()
        if self._used and survivors(self._mark):
            self._trees.end(self._mark, 0)
            await self._trees.wait_all()
        self._left_open.close()
