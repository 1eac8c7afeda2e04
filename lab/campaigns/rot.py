"""Rot in a session's database at places of its structure: `make rot`.

    python -m lab.campaigns.rot --seeds 1000 --seed 0 --seconds 900

Each seed overwrites one place of a closed session's file: a cell's border, the header or the
pointers of a page, a free page. The session is opened and read. An acknowledged entry that is not
there, and is not told, fails the seed.
"""

import asyncio
import functools
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from lab.campaigns.campaign import arguments, run_campaign
from lab.support.rot import (
    PATTERNS,
    Opening,
    copy_of,
    database,
    is_silent,
    make_session,
    overwrite,
    places,
    read_session,
)

SIZES = (20, 200, 1_500)
"""Entries of the sessions: one page deep, two and three."""


@functools.cache
def _made(size: int) -> tuple[tempfile.TemporaryDirectory[str], Opening]:
    folder = tempfile.TemporaryDirectory(prefix="longrein-rot-")
    asyncio.run(make_session(Path(folder.name) / "state", size, size))
    intact = asyncio.run(
        read_session(copy_of(Path(folder.name) / "state", Path(folder.name) / "0"))
    )
    assert (len(intact.entries), intact.told) == (size, "")
    return folder, intact


def play(seed: int) -> Counter[str]:
    """Overwrite one place, and open."""
    random = Random(seed)
    folder, intact = _made(SIZES[seed % len(SIZES)])
    state = copy_of(Path(folder.name) / "state", Path(folder.name) / f"rotten-{seed}")
    _, of_kind = random.choice(sorted(places(database(state)).items()))
    place, pattern = random.choice(of_kind), random.choice(PATTERNS)
    overwrite(database(state), place, pattern)
    found = asyncio.run(read_session(state))
    lost = len(intact.entries) - len(found.entries)
    assert not is_silent(found, intact), (
        f"{place.kind} at {place.offset} with {pattern[:9]!r}: {lost} entries and "
        f"{len(intact.child) - len(found.child)} of the subagent lost, nothing told"
    )
    return Counter(told=1) if found.told else Counter(harmless=1)


def main(words: Sequence[str]) -> int:
    """Run the campaign; return 1 when a loss was not told."""
    about = "Overwrite places of a session's database, and open it."
    return run_campaign("rot", play, arguments(about, 1_000, 900).parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
