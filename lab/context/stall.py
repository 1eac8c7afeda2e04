"""Stall of the work while a model needs 60 seconds for a summary.

`python -m lab.context.stall`. Two runs: one in virtual time, where only the model takes
time, so a wait for the summary would show as 60 seconds; one in real time with a summary that never
comes, which measures longrein's own time between a result and the next request.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from random import Random
from statistics import quantiles
from time import perf_counter, time_ns

import msgspec

from lab.context.material import text
from lab.context.playing import Provider, budget_of, feed, reply, small_tools
from lab.context.table import Row, print_table
from longrein.agent import UserMessage
from longrein.models import Reply
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import memory_dependencies, open_test_session
from longrein.testing.store import MemoryDisk
from longrein_context import Request
from longrein_context.events import (
    Asked,
    AskFailed,
    Cleared,
    Entry,
    Replied,
    Summarized,
    Text,
    ToolEnded,
    UserSpoke,
)

SUMMARY_S = 60.0
TURN_S = 10.0
STEPS = 160
WINDOW = 32_000
REACH_MS = 200


class RealClock:
    """Clock in real time."""

    def wall_us(self) -> int:
        """Microseconds UTC."""
        return time_ns() // 1000

    def mono_s(self) -> float:
        """Seconds."""
        return perf_counter()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def provider_of(steps: int, turn_s: float, summary_s: float) -> Provider:
    """A model that tolerates no clearing, so that summaries are left; without `turn_s` it fills
    at once.
    """
    random, left = Random(7), [steps]

    def turn(_: Request) -> Reply:
        left[0] -= 1
        said = text("prose", 1_500 if turn_s == 0 else 500, random)
        return (
            reply(said, feed("code", 3_000 if turn_s == 0 else 1_000))
            if left[0] > 0
            else reply("done")
        )

    budget = msgspec.structs.replace(
        budget_of(WINDOW), clears=()
    )  # else clearing does, and nobody asks for a summary
    provider = Provider(budget, turn, check=False)
    provider.wait = _waiting(provider, turn_s, summary_s)
    return provider


def _waiting(
    provider: Provider, turn_s: float, summary_s: float
) -> Callable[[], Awaitable[object]]:
    known = [0]

    async def wait() -> None:
        summary = provider.attempts > known[0]
        known[0] = provider.attempts
        await asyncio.sleep(summary_s if summary else turn_s)

    return wait


async def play(provider: Provider, clock: VirtualClock | RealClock) -> list[Entry]:
    """Play one long turn; return the log."""
    disk = MemoryDisk()
    deps = memory_dependencies(provider, disk, clock=clock, tools=small_tools())
    session = open_test_session(provider, disk=disk, deps=deps, mode="bypassPermissions")
    session.tell(UserMessage((Text("work through all of it"),)))
    await session.run(once=True)
    await session.close()
    return list(disk.history(1, session.state.seq))


def stalls_ms(log: list[Entry]) -> list[float]:
    """From the last result (or word) to the request that carries it, for each request of purpose
    turn.
    """
    found, since = [], 0
    for entry in log:
        if isinstance(entry.event, ToolEnded | UserSpoke):
            since = entry.at
        elif isinstance(entry.event, Asked) and entry.event.purpose == "turn" and since:
            found.append((entry.at - since) / 1000)
            since = 0
    return found


def p95(values: list[float]) -> float:
    """Return the 95th percentile."""
    return quantiles(values, n=20)[-1]


def virtually(provider: Provider) -> list[Entry]:
    """The log of a run in virtual time."""
    clock = VirtualClock()
    return run_virtual(play(provider, clock), clock=clock)


def measure(*, real: bool = True) -> list[Row]:
    """Both runs; without `real` the second is in virtual time, too, where only a wait for the
    summary takes any.
    """
    never = provider_of(STEPS, 0.0, 3_600.0)
    slow = virtually(provider_of(STEPS, TURN_S, SUMMARY_S))
    return [
        _slow(slow),
        _never(asyncio.run(play(never, RealClock())) if real else virtually(never)),
    ]


def _slow(log: list[Entry]) -> Row:
    got = stalls_ms(log)
    prepared = sum(isinstance(e.event, Summarized) and bool(e.event.prose) for e in log)
    note = (
        f"{len(got)} requests of {TURN_S:.0f} s, a summariser of {SUMMARY_S:.0f} s, {prepared} "
        "summaries swapped in"
    )
    met = p95(got) < REACH_MS and prepared > 0
    return Row(
        "stall while a summary is written, p95", f"{p95(got):.0f} ms", f"< {REACH_MS} ms", met, note
    )


def _never(log: list[Entry]) -> Row:
    got = stalls_ms(log)
    digests = sum(isinstance(e.event, Summarized) for e in log)
    cleared = sum(isinstance(e.event, Cleared) for e in log)
    answered = sum(isinstance(e.event, Replied) for e in log)
    lost = sum(isinstance(e.event, AskFailed) for e in log)
    note = (
        f"{answered} answers, {cleared} clearings, {digests} digests, {lost} summaries given "
        f"up, max {max(got):.0f} ms"
    )
    met = p95(got) < REACH_MS and answered >= STEPS
    return Row(
        "stall when the summary never comes, p95",
        f"{p95(got):.1f} ms",
        f"< {REACH_MS} ms",
        met,
        note,
    )


if __name__ == "__main__":
    sys.exit(print_table(measure()))
