"""Virtual time: `VirtualClock`, and `SimLoop`, an event loop whose clock jumps to the next timer.

An hour of virtual time takes a millisecond, and the load of the machine has no influence. When no
task is ready and no timer runs, the loop raises `Deadlock` instead of hanging.
"""

import asyncio
import heapq
from asyncio import base_events
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

START_US = 1_700_000_000_000_000
"""Start of a virtual clock: 14 November 2023, 22:13:20 UTC."""
ROUNDS_MAX = 200_000
"""Rounds of a loop after which it raises `Livelock`."""

T = TypeVar("T")


class Deadlock(AssertionError):
    """No task is ready, no timer runs, and the work is not done."""


class Livelock(AssertionError):
    """The work did not end within `ROUNDS_MAX` rounds."""


class VirtualClock:
    """An `agent.Clock`. A `SimLoop` moves it; on any other loop it stands until `turn` moves it."""

    def __init__(self, start_us: int = START_US) -> None:
        self.start_us = start_us
        """Wall time at the start, in microseconds UTC."""
        self.elapsed_s = 0.0
        """Virtual seconds since the start."""
        self.slept: list[float] = []
        """All sleeps in seconds, in order."""
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def wall_us(self) -> int:
        return self.start_us + round(self.elapsed_s * 1e6)

    def mono_s(self) -> float:
        return self.elapsed_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        loop = asyncio.get_running_loop()
        if isinstance(loop, SimLoop) and loop.clock is self:
            await asyncio.sleep(seconds)
            return
        woken: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self.elapsed_s + seconds, len(self.slept), woken))
        await woken

    def turn(self, seconds: float) -> None:
        """Advance the clock by `seconds` and wake the sleepers that are due."""
        self.elapsed_s += seconds
        while self._sleepers and self._sleepers[0][0] <= self.elapsed_s:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)


class _VirtualSelector:
    """Selector of the loop: advances the clock instead of waiting."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> tuple[()]:
        self._loop.pass_time(timeout)
        return ()


class SimLoop(base_events.BaseEventLoop):
    """An event loop in virtual time, without sockets, processes or threads.

    With `seed`, tasks that are ready in the same round run in random order; plain callbacks keep
    their order, as asyncio promises. The same seed and program give the same run.
    """

    def __init__(self, clock: VirtualClock | None = None, *, seed: int | None = None) -> None:
        super().__init__()
        self.clock = clock or VirtualClock()
        """Clock of the loop."""
        self.rounds = 0
        """Number of rounds so far."""
        self._random = None if seed is None else Random(seed)
        self._selector = _VirtualSelector(self)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.clock.elapsed_s

    def pass_time(self, timeout: float | None) -> None:
        """Advance to the next timer in `timeout` seconds; None means no timer. Raises `Deadlock`
        and `Livelock`.
        """
        self.rounds += 1
        if self.rounds > ROUNDS_MAX:
            raise Livelock(f"{ROUNDS_MAX} rounds and no end; {self._waiting()}")
        if timeout is None:
            raise Deadlock(
                f"nothing can happen any more at {self.clock.elapsed_s:.3f} s; {self._waiting()}"
            )
        if timeout > 0:
            self.clock.turn(timeout)
        elif self._random is not None:
            self._shuffle(self._random)

    def _waiting(self) -> str:
        tasks = sorted(f"{task.get_name()} {task.get_coro()}" for task in asyncio.all_tasks(self))
        return "waiting: " + "; ".join(tasks)

    def _shuffle(self, random: Random) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        places = [at for at, handle in enumerate(ready) if _is_task(handle)]
        if len(places) < 2:
            return
        handles = [ready[at] for at in places]
        random.shuffle(handles)
        for at, handle in zip(places, handles, strict=True):
            ready[at] = handle

    def _process_events(self, event_list: object) -> None:
        """Do nothing: the selector reports no events."""

    def _write_to_self(self) -> None:
        """Do nothing: the selector never sleeps."""


def _is_task(handle: Any) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)


def run_virtual(
    main: Coroutine[Any, Any, T], *, clock: VirtualClock | None = None, seed: int | None = None
) -> T:
    """Run `main` on a new `SimLoop`, return its result and cancel the remaining tasks.

    Raises what `main` raises, `Deadlock` and `Livelock`.
    """
    loop = SimLoop(clock, seed=seed)
    try:
        return loop.run_until_complete(main)
    finally:
        _cancel_rest(loop)


def _cancel_rest(loop: SimLoop) -> None:
    left = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in left:
        task.cancel()
    try:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True)) if left else None
        loop.run_until_complete(loop.shutdown_asyncgens())
    except Deadlock:
        pass  # the first `Deadlock` is already being raised
    finally:
        loop.close()
