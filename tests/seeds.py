"""How many random cases a test plays: a slice in the suite, `SEEDS_TIMES` as many in `make load`."""

import os

TIMES = int(os.environ.get("SEEDS_TIMES", "1"))
"""Also of the examples that Hypothesis draws."""


def seeds(count: int) -> range:
    """Seeds 0, 1, 2 … of a slice of `count`."""
    return range(count * TIMES)
