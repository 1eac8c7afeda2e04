"""Fuzzing of sessions: windows × summarisers × contents, from seeds. Every request must fit.

`python -m lab.context.fuzz 200` plays seeds 0 to 199, `… 1 77` seed 77 alone. Each seed is
one session; the last line of a failure is enough to play it again.
"""

import sys
import time
from dataclasses import dataclass
from random import Random

from lab.context.counting import DIALECTS, WIDE, Dialect
from lab.context.material import KINDS, text
from lab.context.playing import (
    BIG_BYTES,
    SUMMARISERS,
    Provider,
    budget_of,
    chaos_turn,
    play_session,
)
from lab.context.table import Row, print_table
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.store import MemoryDisk
from longrein_context import Budget, State, decide, decode_state, encode_state, fold
from longrein_context.events import TurnEnded

WINDOWS = (4_000, 8_000, 16_000, 32_000, 128_000, 200_000, 1_000_000)
SEEDS = 63  # Each window with each summariser once


@dataclass
class FuzzResult:
    """Result of one seed."""

    seed: int
    window: int
    summariser: str
    kinds: tuple[str, ...]
    requests: int = 0
    attempts: int = 0
    attempts_max: float = 0.0
    overflows: int = 0
    broken: tuple[str, ...] = ()
    ended: str = ""  # Why a turn ended otherwise than done; '' when all were done
    alike: bool = True  # Whether a session resumed from its log decides the same next

    @property
    def fine(self) -> bool:
        return (
            not (self.overflows or self.broken or self.ended) and self.attempts <= self.attempts_max
        )

    def line(self) -> str:
        """Return one line for display."""
        return (
            f"seed {self.seed}: window {self.window}, summariser {self.summariser}, "
            f"{'+'.join(self.kinds)}: "
            f"{self.requests} requests, {self.overflows} did not fit, "
            f"{self.attempts} of {self.attempts_max:.1f} attempts"
            + (f"; ended: {self.ended}" if self.ended else "")
            + "".join(f"\n    {wrong}" for wrong in self.broken[:3])
        )


def fuzz(
    seed: int,
    *,
    window: int = 0,
    summariser: str = "",
    steps: int = 40,
    dialects: tuple[Dialect, ...] = (WIDE,),
    kinds: tuple[str, ...] = (),
) -> FuzzResult:
    """Play one seed; missing arguments are drawn from it."""
    random = Random(seed)
    window = window or WINDOWS[seed % len(WINDOWS)]
    summariser = summariser or SUMMARISERS[seed // len(WINDOWS) % len(SUMMARISERS)]
    drawn = random.choice([("cjk",), ("prose", "code", "log"), KINDS, ("base64",), KINDS])
    kinds = kinds or drawn
    budget = budget_of(window, random.choice([0, 0, window // 2, 300]))
    provider = Provider(
        budget,
        chaos_turn(random, budget, steps, kinds=kinds),
        summariser,
        random.choice(dialects),
        seed,
    )
    disk = MemoryDisk()
    session = run_virtual(
        play_session(provider, _prompts(random, kinds, window), disk=disk),
        clock=VirtualClock(),
        seed=seed,
    )
    entries = disk.entries()
    ended = [
        e.event for e in entries if isinstance(e.event, TurnEnded) and e.event.reason != "done"
    ]
    again = fold(entries)
    return FuzzResult(
        seed,
        window,
        summariser,
        kinds,
        provider.requests,
        provider.attempts,
        2 + 2 * provider.entered / (0.1 * budget.usable_tokens),
        provider.overflows,
        (*provider.broken, *_differences(session.state, again)),
        f"{ended[0].reason}: {ended[0].message}" if ended else "",
        _decides_equally(session.state, budget),
    )


def _prompts(random: Random, kinds: tuple[str, ...], window: int) -> list[str]:
    prompts = [
        f"please {text(kinds[0], random.choice([30, 300, 2_000]), random)} [{n}]" for n in range(3)
    ]
    if random.random() < 0.3:  # one message larger than all
        prompts[random.randrange(3)] = text(
            kinds[0], random.choice([window, 4 * window, BIG_BYTES // 5]), random
        )
    return prompts


MADE_ANEW = (
    "worth",
)  # Fields that a policy makes again from the others; what it decides must be the same


def _differences(live: State, again: State) -> list[str]:
    """Law 1: the log alone gives the state."""
    names = [name for name in State.__struct_fields__ if name not in (*MADE_ANEW, "spent_usd")]
    return [
        f"law 1: {name} differs after a fold"
        for name in names
        if getattr(live, name) != getattr(again, name)
    ]


def _decides_equally(live: State, budget: Budget) -> bool:
    """Check law 10: a session resumed from its snapshot equals, and decides as, the
    uninterrupted one.
    """
    again = decode_state(encode_state(live))
    now_us = live.asked_at + 1
    return again == live and decide(live, budget, now_us) == decide(again, budget, now_us)


def campaign(
    count: int, first: int = 0, *, loud: bool = True, dialects: tuple[Dialect, ...] = DIALECTS
) -> list[Row]:
    """Play `count` seeds."""
    begun = time.monotonic()
    done = []
    for seed in range(first, first + count):
        found = fuzz(seed, dialects=dialects)
        done.append(found)
        if loud and not found.fine:
            print(found.line(), flush=True)
    requests, overflows = sum(f.requests for f in done), sum(f.overflows for f in done)
    over = [f for f in done if f.attempts > f.attempts_max]
    broken = [f for f in done if f.broken]
    unlike = [f.seed for f in done if not f.alike]
    stuck = [f for f in done if f.ended]
    note = f"{count} sessions, {requests} requests, {time.monotonic() - begun:.0f} s"
    worst = max(done, key=lambda f: f.attempts / f.attempts_max)
    return [
        Row(
            "fuzz: requests that do not fit the provider's window",
            str(overflows),
            "0",
            not overflows,
            note,
        ),
        Row("fuzz: sessions that stop before their work is done", str(len(stuck)), "0", not stuck),
        Row(
            "fuzz: attempts at summaries / allowed, worst session",
            f"{worst.attempts / worst.attempts_max:.2f}",
            "≤ 1.00",
            not over,
            f"{sum(f.attempts for f in done)} attempts",
        ),
        Row("fuzz: sessions that break one of laws 1 to 5", str(len(broken)), "0", not broken),
        Row("fuzz: sessions that decide otherwise once resumed", str(len(unlike)), "0", not unlike),
    ]


def measure() -> list[Row]:
    """Return the rows of the table."""
    return campaign(SEEDS, loud=False)


if __name__ == "__main__":
    sys.exit(print_table(campaign(*[int(argument) for argument in sys.argv[1:] or [str(SEEDS)]])))
