"""The supervisor's waiting: descriptors and timers, nothing else. Seconds are monotonic throughout."""

import selectors
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Loop:
    """Calls what was asked for when its descriptor is ready or its time has come."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def watch(self, descriptor: int, call: Callable[[], object], events: int = READ) -> None:
        """Call it whenever the descriptor is ready, in place of what was called before."""
        if descriptor in self._selector.get_map():
            self._selector.modify(descriptor, events, call)
        else:
            self._selector.register(descriptor, events, call)

    def unwatch(self, descriptor: int) -> None:
        """No longer."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call it once, then."""
        heappush(self._timers, (self.clock() + seconds, next(self._numbers), call))

    def step(self, at_most_s: float | None) -> None:
        """Wait for the next thing, at most so long, and do what is due."""
        if self._timers:
            due_s = max(0.0, self._timers[0][0] - self.clock())
            at_most_s = due_s if at_most_s is None else min(due_s, at_most_s)
        ready = self._selector.select(at_most_s)
        for key, _ in ready:
            if self._selector.get_map().get(key.fd) == key:  # not given up by one that came before it
                key.data()
        while self._timers and self._timers[0][0] <= self.clock():
            heappop(self._timers)[2]()
