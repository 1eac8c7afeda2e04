"""Time from the user's interrupt to an idle session. Run: `python -m
lab.concurrency.interrupt`.

A session in this process with real commands that obey TERM: one, four in one reply, one with child
processes, and a reply in mid-stream. The interrupt comes at a random instant. The session is idle
when `TurnEnded` can be read.
"""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from longrein.agent import UserMessage
from longrein.app import Additions, App
from longrein.app.run_context import read_run_context
from longrein.models import Delta, Reply, TextDelta
from longrein.options import Options
from longrein_context import Budget, Request
from longrein_context.events import Entry, Text, ToolCall, ToolStarted, TurnEnded, Usage

ROUNDS = 120
KINDS: dict[str, tuple[str, ...]] = {
    "one command": ("sleep 30",),
    "four at once": ("sleep 30",) * 4,
    "with children": ("(sleep 30 & sleep 30 & wait)",),
    "a pipe": ("yes | sleep 30",),
    "streaming": (),
}


class BusyModel:
    """Model that calls commands of `kind`; without one it streams without end."""

    name, provider, model, wire = "test/busy", "test", "busy", "scripted"
    budget = Budget(200_000, 4_000)

    def __init__(self) -> None:
        self.commands: tuple[str, ...] = ()
        self.streaming = asyncio.Event()

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `models.Model.stream`."""
        self.streaming.set()
        while not self.commands:
            yield [TextDelta("on and on ")]
            await asyncio.sleep(0.005)
        calls = tuple(ToolCall("", "Bash", {"command": command}, "{}") for command in self.commands)
        yield [Reply((Text("so be it"), *calls), "calls", Usage(10, output_tokens=5))]

    def warm(self) -> None:
        """Do nothing: no connection to prepare."""

    async def aclose(self) -> None:
        """Do nothing: no connection to close."""


async def measure_interrupts(folder: Path, rounds: int) -> list[float]:
    """Return the seconds from each interrupt to the end of its turn."""
    model, luck, took = BusyModel(), random.Random(1), []
    options = Options(state_dir=str(folder / "state"), permission_mode="bypassPermissions")
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    app = App(read_run_context(options, environ, folder=str(folder)), print)
    built = await app.open(fresh=True, additions=Additions(model))
    session = built.session
    walk = asyncio.ensure_future(session.run(once=False))
    heard = session.follow(0, streaming=False)
    for n in range(rounds):
        model.commands = list(KINDS.values())[n % len(KINDS)]
        model.streaming.clear()
        await session.tell(UserMessage((Text("go"),)))
        await (read_until(heard, ToolStarted) if model.commands else model.streaming.wait())
        await asyncio.sleep(luck.random() * 0.05)
        begun = time.perf_counter()
        session.interrupt()
        await read_until(heard, TurnEnded)
        took.append(time.perf_counter() - begun)
    await session.close()
    await walk
    return took


async def read_until(heard: AsyncIterator[object], kind: type) -> None:
    """Read up to the first entry of that kind."""
    async for one in heard:
        if isinstance(one, Entry) and isinstance(one.event, kind):
            return


def measure(rounds: int = ROUNDS) -> list[tuple[str, str, str, bool]]:
    """Return (measure, reached, goal, whether it was met)."""
    with tempfile.TemporaryDirectory() as folder:
        took = sorted(asyncio.run(measure_interrupts(Path(folder), rounds)))
    p99, median = took[int(len(took) * 0.99)], took[len(took) // 2]
    told = f"{1000 * p99:.0f} ms (median {1000 * median:.0f} ms, {len(took)} interrupts)"
    return [("interrupt to idle, p99", told, "≤ 200 ms", p99 <= 0.2)]


if __name__ == "__main__":
    for row in measure():
        print("| " + " | ".join(map(str, row)) + " |")
