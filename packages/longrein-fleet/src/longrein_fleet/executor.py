"""Base of the engines that run the attempts of a fleet, and what they share."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

import msgspec

from longrein_fleet.fleet_state import AttemptEnded
from longrein_fleet.fleet_tasks import Task


class Attempt(msgspec.Struct, frozen=True):
    """An attempt to be run, or to go on with."""

    task: Task
    number: int
    session: str
    delay_s: float = 0.0
    """Wait before it starts, after an outage of the provider."""
    mode: str = "acceptEdits"
    """Permission mode of the agent."""
    flags: tuple[str, ...] = ()
    """Further flags of `longrein`."""
    is_typed: bool = True
    """True if the user has written the prompt: `@name` in it attaches a file."""

    @property
    def path(self) -> str:
        """Its folder, below that of the fleet."""
        return f"tasks/{self.task.id}/{self.number}"


class Executor(ABC):
    """Runs attempts, each in a task of one event loop."""

    def __init__(self) -> None:
        self._ends = asyncio.Queue[AttemptEnded]()
        self._running = dict[str, asyncio.Task[None]]()

    @abstractmethod
    async def run_attempt(self, attempt: Attempt) -> AttemptEnded:
        """Run an attempt to its end; cancelled, end what it runs."""

    def submit(self, attempt: Attempt) -> None:
        """Start an attempt; its end comes with `events`."""
        self._running[attempt.task.id] = asyncio.ensure_future(self._run(attempt))

    def cancel(self, task: str) -> None:
        """End the attempt of a task; no event comes of it, and it can go on later."""
        self._running[task].cancel()

    async def events(self) -> AsyncGenerator[AttemptEnded, None]:
        """Iterate the ends of attempts, without an end."""
        while True:
            yield await self._ends.get()

    async def close(self) -> None:
        """Cancel what runs and wait until its processes are gone."""
        for running in self._running.values():
            running.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _run(self, attempt: Attempt) -> None:
        await asyncio.sleep(attempt.delay_s)
        self._ends.put_nowait(await self.run_attempt(attempt))
