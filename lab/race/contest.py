"""Settings of the race, and its runs in two processes: each session by each policy of each loop."""

import asyncio
import importlib
import logging
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lab.race.model import Tally
from lab.race.played import begin
from lab.race.prices import TABLES
from lab.race.provider import RaceProvider, Request
from lab.race.sessions import NEEDS, SHAPES, Setting

LOOPS = ("raw", "langchain", "pydantic_ai", "openai_agents")
WINDOWS = (32_000, 64_000, 128_000, 200_000)
REQUESTS = (60, 100, 150, 220, 300)
OVERFLOWS = (0.6, 1.5, 2.5, 4.0)
REQUESTS_LARGE, OVERFLOWS_LARGE = (60, 80, 120), (0.6, 1.5, 2.5)
"""The same in the two largest windows, whose requests cost the most time."""
HELD_BACK, DEVELOPING = 70_000, 1_000
"""First seed of the sessions of the table, and of those that policies may be developed on."""


@dataclass(frozen=True)
class Run:
    """A session under one policy of one loop."""

    loop: str
    policy: str
    setting: Setting
    requests: tuple[Request, ...]
    tally: Tally
    cpu_s: float
    error: str = ""

    def cost(self, table: str = "") -> float:
        """Return the cost in uncached input tokens, by the session's own prices or another
        table. Refusals are free.
        """
        prices = TABLES[table or self.setting.price]
        return sum(
            prices.cost(one.prompt, one.cached, one.output)
            for one in self.requests
            if one.kind != "refused"
        )

    def count(self, kind: str) -> int:
        """Return the number of requests of a kind."""
        return sum(one.kind == kind for one in self.requests)


def settings(first_seed: int, rounds: int) -> list[Setting]:
    """Return `rounds` sessions for each kind of needs and window; the rest varies so that each
    value is used alike.
    """
    made: list[Setting] = []
    prices = tuple(TABLES)
    for at in range(rounds):
        for n, needs in enumerate(NEEDS):
            for w, window in enumerate(WINDOWS):
                lengths, overflows = (
                    (REQUESTS_LARGE, OVERFLOWS_LARGE) if window > 100_000 else (REQUESTS, OVERFLOWS)
                )
                made.append(
                    Setting(
                        seed=first_seed + len(made),
                        needs=needs,
                        window=window,
                        requests=lengths[(2 * at + n + 2 * w) % len(lengths)],
                        overflow=overflows[(2 * at + n + w) % len(overflows)],
                        shape=SHAPES[(n + 2 * w + at) % 3],
                        repair=("range", "whole")[(n + w // 2 + at) % 2],
                        price=prices[(at + n + 2 * w) % 4],
                    )
                )
    return made


def quick_settings(first_seed: int) -> list[Setting]:
    """Return one short session for each kind of needs, in a small window."""
    return [
        Setting(
            first_seed + n,
            needs,
            16_000,
            30,
            2.0,
            SHAPES[n % 3],
            ("range", "whole")[n % 2],
            list(TABLES)[n],
        )
        for n, needs in enumerate(NEEDS)
    ]


Job = tuple[str, str, Setting]


def jobs(
    sessions: Sequence[Setting], loops: Iterable[str], policies: Sequence[str] = ()
) -> list[Job]:
    """Return every session under every policy of the loops."""
    return [
        (loop, policy, setting)
        for setting in sorted(sessions, key=lambda one: one.window * one.requests)
        for loop in loops
        for policy in importlib.import_module(f"lab.race.loops.{loop}").POLICIES
        if not policies or policy in policies
    ]


def run_all(todo: Sequence[Job], processes: int) -> Iterator[Run]:
    """Run jobs, and yield each run when it is done."""
    if processes == 1:
        yield from map(run_one, todo)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(run_one, todo)


def run_one(job: Job) -> Run:
    """Run one job in an event loop of its own."""
    warnings.simplefilter("ignore")
    logging.getLogger("openai.agents").setLevel(
        logging.CRITICAL
    )  # refusals are counted, not logged
    return asyncio.run(_run(*job))


async def _run(loop: str, policy: str, setting: Setting) -> Run:
    play = importlib.import_module(f"lab.race.loops.{loop}").POLICIES[policy]
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        async with RaceProvider() as provider:
            played = begin(setting, provider, folder)
            error = ""
            try:
                await play(played)
            except Exception as failure:
                error = f"{type(failure).__name__}: {failure}"[:300]
            model = played.served.model
            if not error and model.at < len(model.steps):
                error = f"ended at step {model.at} of {len(model.steps)}"
    return Run(
        loop,
        policy,
        setting,
        tuple(played.served.requests),
        model.tally,
        time.process_time() - begun,
        error,
    )
