"""The supervisor's waiting: descriptors and timers, nothing else. Seconds are monotonic throughout."""

import math
import select
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

READ, WRITE = select.POLLIN, select.POLLOUT


class Loop:
    """Calls what was asked for when its descriptor is ready or its time has come."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._poll = select.poll()
        self._calls: dict[int, Callable[[], object]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def watch(self, descriptor: int, call: Callable[[], object], events: int = READ) -> None:
        """Call it whenever the descriptor is ready, in place of what was called before."""
        self._calls[descriptor] = call
        self._poll.register(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        """No longer."""
        if self._calls.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call it once, then."""
        heappush(self._timers, (self.clock() + seconds, next(self._numbers), call))

    def step(self, at_most_s: float | None) -> None:
        """Wait for the next thing, at most so long, and do what is due."""
        if self._timers:
            due_s = max(0.0, self._timers[0][0] - self.clock())
            at_most_s = due_s if at_most_s is None else min(due_s, at_most_s)
        ready = self._poll.poll(None if at_most_s is None else math.ceil(1000 * at_most_s))
        for descriptor, call in [(descriptor, self._calls[descriptor]) for descriptor, _ in ready]:
            if self._calls.get(descriptor) is call:  # not given up by one that came before it
                call()
        while self._timers and self._timers[0][0] <= self.clock():
            heappop(self._timers)[2]()
