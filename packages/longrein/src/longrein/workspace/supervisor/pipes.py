"""The supervisor's event loop, and its ends of the commands' pipes."""

import math
import os
import select
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from longrein.workspace.supervisor.command_processes import Command
from longrein.workspace.supervisor.shell_lines import LEFT_OPEN_BYTES_MAX, LEFT_OPEN_MAX, close

# --- Event loop -----------------------------------------------------------------------------------
#
# Descriptors and timers, nothing else. All seconds are monotonic.

READ, WRITE = select.POLLIN, select.POLLOUT


class Loop:
    """Calls functions when a descriptor is ready or a time has come."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._poll = select.poll()
        self._calls: dict[int, Callable[[], object]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def watch(self, descriptor: int, call: Callable[[], object], events: int = READ) -> None:
        """Call `call` whenever the descriptor is ready, in place of an earlier one."""
        self._calls[descriptor] = call
        self._poll.register(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching the descriptor."""
        if self._calls.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call `call` once, after `seconds`."""
        heappush(self._timers, (self.clock() + seconds, next(self._numbers), call))

    def step(self, at_most_s: float | None) -> None:
        """Wait for the next event, at most `at_most_s`, and run what is due."""
        if self._timers:
            due_s = max(0.0, self._timers[0][0] - self.clock())
            at_most_s = due_s if at_most_s is None else min(due_s, at_most_s)
        ready = self._poll.poll(None if at_most_s is None else math.ceil(1000 * at_most_s))
        for descriptor, call in [(descriptor, self._calls[descriptor]) for descriptor, _ in ready]:
            if self._calls.get(descriptor) is call:  # an earlier call may have unwatched it
                call()
        while self._timers and self._timers[0][0] <= self.clock():
            heappop(self._timers)[2]()


# --- Pipes ----------------------------------------------------------------------------------------

READ_BYTES = 1 << 18
LAST_READ_BYTES = 8 << 20
"""Most bytes read from the pipe after its command has ended."""
INPUT_BYTES_MAX = 1 << 20
"""Most input bytes that wait to be read."""


class Pipes:
    """Output to the spool or to nobody, and input that waits."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._left_open: deque[Command] = deque()

    def spool(self, command: Command) -> None:
        """Write a task's output to the spool from now on."""
        if command.output >= 0:
            self._loop.watch(command.output, lambda: self.take(command))

    def take(self, command: Command, most_bytes: int = READ_BYTES) -> bool:
        """Read a task's output into the spool; False when the pipe has ended."""
        assert command.spool is not None
        return self._read(command, command.spool.write, most_bytes)

    def _read(self, command: Command, take: Callable[[bytes], None], left: int) -> bool:
        while left > 0 and command.output >= 0:
            try:
                data = os.read(command.output, min(left, READ_BYTES))
            except BlockingIOError:
                return True
            if not data:
                self.close_output(command)
            else:
                take(data)
            left -= len(data)
        return command.output >= 0

    def discard_output(self, command: Command) -> None:
        """Read and drop the output, so that writing to the pipe neither blocks nor kills.

        Once the command is over, only up to a limit.
        """
        if command.output < 0:
            return
        left = LEFT_OPEN_BYTES_MAX

        def count_down(data: bytes) -> None:
            nonlocal left
            left -= len(data) if command.over else 0
            if left <= 0:
                self.close_output(command)

        self._loop.watch(command.output, lambda: self._read(command, count_down, READ_BYTES))
        if command.over:
            self._left_open.append(command)
            if len(self._left_open) > LEFT_OPEN_MAX:
                self.close_output(self._left_open.popleft())

    def close_output(self, command: Command) -> None:
        """Close the output pipe."""
        if command.output >= 0:
            self._loop.unwatch(command.output)
            close(command.output)
            command.output = -1
        if command in self._left_open:
            self._left_open.remove(command)

    def give(self, command: Command, data: bytes, eof: bool) -> str:
        """Write to the command's input; with `eof` close it afterwards. Returns why not, or ''."""
        if command.stdin < 0:
            return "it takes no input (any more)"
        if len(command.waiting_input) + len(data) > INPUT_BYTES_MAX:
            return "it has not read what it was given before"
        command.waiting_input += data
        command.close_input = command.close_input or eof
        return "" if self._feed(command) else "nobody reads its input"

    def _feed(self, command: Command) -> bool:
        """Write the waiting bytes; False when no process reads."""
        try:
            while command.waiting_input:
                del command.waiting_input[: os.write(command.stdin, command.waiting_input)]
        except BlockingIOError:
            self._loop.watch(command.stdin, lambda: self._feed(command), WRITE)
            return True
        except OSError:
            self.close_input(command)
            return False
        self._loop.unwatch(command.stdin)
        if command.close_input:
            self.close_input(command)
        return True

    def close_input(self, command: Command) -> None:
        """Close the input pipe."""
        if command.stdin >= 0:
            self._loop.unwatch(command.stdin)
            close(command.stdin)
            command.stdin = -1
