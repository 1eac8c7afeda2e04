"""Share of a summary request that the provider reads from its cache, as a local provider counts it.

`python -m lab.context.cached`. Real HTTP, a real wire, the provider's own rules for marks
and prefixes.
"""

import asyncio
import sys
from random import Random
from typing import Any

import msgspec

from lab.context.material import text
from lab.context.playing import PRICE, small_tools
from lab.context.stall import RealClock
from lab.context.table import Row, print_table
from longrein.agent import UserMessage
from longrein.models import ModelOptions, open_model
from longrein.testing.harness import memory_dependencies, open_test_session
from longrein.testing.loopback import Call, Limits, LoopbackProvider, Received, Turn
from longrein.testing.store import MemoryDisk
from longrein_context import Budget
from longrein_context.events import Asked, Entry, Replied, Text

WINDOW = 64_000
STEPS = 120
REACH = 0.97
PROSE = (
    "1. Request and intent\nGo through all of it.\n8. Current work\nReading on.\n9. Next "
    "step\nRead on."
)


async def play(wire: str) -> list[Entry]:
    """A long turn over real HTTP; gives the log."""
    random, left = Random(3), [STEPS]

    def answer(request: Received) -> Turn:
        if b"nine" in request.body[-3_000:]:
            return Turn(text=PROSE)
        left[0] -= 1
        said = text("prose", 1_200, random)
        calls = (Call("Feed", {"kind": "code", "chars": 600}),)
        return Turn(text=said, calls=calls) if left[0] > 0 else Turn(text="ok")

    async with LoopbackProvider(answer, limits=Limits(window_tokens=WINDOW)) as server:
        budget = Budget(WINDOW, 8_000, PRICE)
        options = ModelOptions("loopback", "small", wire, server.url, "key", budget)
        disk, clock = MemoryDisk(), RealClock()
        model: Any = open_model(options, lambda blob: disk.blobs()[blob], clock)
        model.budget = msgspec.structs.replace(
            budget, clears=()
        )  # else clearing does, and nobody asks for a summary
        deps = memory_dependencies(model, disk, clock=clock, tools=small_tools())
        session = open_test_session(model, disk=disk, deps=deps, mode="bypassPermissions")
        session.tell(UserMessage((Text("work through all of it"),)))
        await session.run(once=True)
        await session.close()
        return list(disk.history(1, session.state.seq))


def share(log: list[Entry]) -> tuple[float, int]:
    """Return (cached share of all input of summary requests, number of these requests)."""
    asked = {e.seq for e in log if isinstance(e.event, Asked) and e.event.purpose == "summary"}
    usages = [e.event.usage for e in log if isinstance(e.event, Replied) and e.event.asked in asked]
    carried = sum(usage.context_tokens for usage in usages)
    return sum(usage.cache_read_tokens for usage in usages) / max(1, carried), len(usages)


def measure() -> list[Row]:
    """Return the row of the table."""
    got, many = share(asyncio.run(play("anthropic")))
    note = f"{many} summaries in a window of {WINDOW:,}, prepared beside the work"
    return [
        Row(
            "compaction request read from the cache",
            f"{got:.3f}",
            f">= {REACH}",
            got >= REACH and many > 0,
            note,
        )
    ]


if __name__ == "__main__":
    sys.exit(print_table(measure()))
