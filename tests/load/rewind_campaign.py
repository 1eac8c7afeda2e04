"""Rewinds after random commands and edits, many times over: `python -m
tests.load.rewind_campaign 200 50`.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.agent.test_rewind_commands import play_random


async def run(seeds: int, commands: int, first: int = 1_000) -> int:
    """Play `seeds` stories, every second one in a git repository; print what fails; return how
    many did.
    """
    failed = 0
    for seed in range(first, first + seeds):
        with tempfile.TemporaryDirectory() as folder:
            try:
                await play_random(Path(folder), seed, commands, git=seed % 2 == 0)
            except AssertionError as error:
                failed += 1
                print(f"seed {seed}: {error}", flush=True)
        if (seed - first + 1) % 10 == 0:
            print(
                f"{seed - first + 1 - failed} of {seed - first + 1} trees byte-identical",
                flush=True,
            )
    return failed


if __name__ == "__main__":
    sys.exit(bool(asyncio.run(run(*map(int, sys.argv[1:])))))
