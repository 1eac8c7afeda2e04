"""What all campaigns have in common: seeds, a limit of time, one line of result.

`run_campaign` plays seeds in processes of their own. It prints each seed that fails with the
command that plays it again, and ends with one line of figures.
"""

import argparse
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from itertools import islice
from multiprocessing import get_context

Play = Callable[[int], "Counter[str]"]
"""Plays one seed and returns figures of it. Raises AssertionError when a promise is broken."""
CLEANING_S = 3.0
"""Seconds after which the cleaning up of a seed that was given up is given up, too."""


def arguments(about: str, seeds: int, seconds: int) -> argparse.ArgumentParser:
    """Return the parser of a campaign's command line, with these defaults."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seeds", type=int, default=seeds, help="number of seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=int, default=seconds, help="begin no seed after this")
    parser.add_argument("--parallel", type=int, default=os.cpu_count() or 1)
    return parser


def run_campaign(target: str, play: Play, given: argparse.Namespace, limit_s: float = 0.0) -> int:
    """Play the seeds; return 1 when one of them failed.

    A seed that takes longer than `limit_s` has failed; 0 for no limit.
    """
    begun, figures, failed = time.monotonic(), Counter[str](), 0
    play_one = partial(_play_within, limit_s, play)
    left = iter(range(given.seed, given.seed + given.seeds))
    with ProcessPoolExecutor(given.parallel, get_context("spawn"), _be_quiet) as pool:
        running = {pool.submit(play_one, seed): seed for seed in islice(left, given.parallel)}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                seed = running.pop(one)
                failed += _failed(target, seed, one)
                figures["seeds"] += 1
                figures += one.result() if one.exception() is None else Counter()
                if time.monotonic() - begun < given.seconds:
                    running.update({pool.submit(play_one, more): more for more in islice(left, 1)})
    seeds = figures.pop("seeds")
    told = "".join(f", {count:,} {what}" for what, count in figures.items())
    seconds = time.monotonic() - begun
    print(f"{target}: {seeds:,} seeds, {failed} failed{told}, {seconds:.0f} s", flush=True)
    return int(failed > 0)


def _play_within(limit_s: float, play: Play, seed: int) -> "Counter[str]":
    """Play a seed. Raises AssertionError after `limit_s`, and again while its cleaning up hangs."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"it did not end within {limit_s:g} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, limit_s, CLEANING_S)
    try:
        return play(seed)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _failed(target: str, seed: int, played: "Future[Counter[str]]") -> bool:
    error = played.exception()
    if error is not None:
        print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        print(f"  again: make {target} SEEDS=1 SEED={seed}", flush=True)
    return error is not None


def _be_quiet() -> None:
    """Silence asyncio about tasks that a simulated kill leaves."""
    logging.disable()
