"""Number of random cases per test: a slice in the suite, `SEEDS_TIMES` as many in `make load`."""

import os

TIMES = int(os.environ.get("SEEDS_TIMES", "1"))
"""Factor of random cases, also for the examples of Hypothesis."""


def seeds(count: int) -> range:
    """Return the seeds 0, 1, 2 … of a slice of `count`, times the factor."""
    return range(count * TIMES)
