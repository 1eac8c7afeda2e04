"""Long sessions on a real disk that read, run, write and answer: `make soak`.

    python -m lab.campaigns.soak --seeds 8 --seed 0 --seconds 900

Each seed is a session of 500 requests at a 32k window (`lab.context.soak` runs 2,000).
It must go on to its end, stay in its window by the provider's count, find a line of its first file
again, and not grow in memory.
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median

from lab.campaigns.campaign import arguments, run_campaign
from lab.context.soak import RSS_GROWTH_MIB_MAX, SECRET, soak

REQUESTS = 500
STEPS = (2, 3, 6, 12, 40)
"""Requests of one prompt, of which a seed draws one number."""


def play(seed: int) -> Counter[str]:
    """Work through one session."""
    steps = Random(seed).choice(STEPS)
    with tempfile.TemporaryDirectory(prefix="longrein-soak-") as folder:
        os.environ["HOME"] = folder
        worker = asyncio.run(soak(Path(folder), REQUESTS, steps, seed))
    assert not worker.stopped, worker.stopped
    assert max(worker.views) <= worker.budget.usable_tokens, max(worker.views)
    assert SECRET in worker.recalled, "the first file is not found again"
    growth_mib = median(worker.rss[-2:]) - median(worker.rss[2:4])
    assert growth_mib <= RSS_GROWTH_MIB_MAX, f"memory grew by {growth_mib:.1f} MiB"
    return Counter(requests=worker.requests)


def main(words: Sequence[str]) -> int:
    """Run the campaign; return 1 when a session failed."""
    about = "Work for hundreds of requests in one session at a small window."
    return run_campaign("soak", play, arguments(about, 8, 900).parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
