"""Sessions and session trees in virtual time over a disk that can tear: `make simulate`.

    python -m lab.campaigns.simulation --seeds 200 --seed 0 --seconds 600

Each seed is one session and one tree of subagents and tasks; see `lab.support.simulate`,
`simulate_tree` and `torn_disk`.
"""

import sys
from collections import Counter
from collections.abc import Sequence

from lab.campaigns.campaign import arguments, run_campaign
from lab.support import simulate, simulate_tree


def play(seed: int) -> Counter[str]:
    """Play both simulations of a seed."""
    figures: Counter[str] = Counter()
    for one in (simulate.simulate(seed), simulate_tree.simulate(seed)):
        sessions = ["", *one.disk.children()]
        figures["crashes"] += one.disk.crashes
        figures["torn files"] += one.disk.torn
        figures["entries"] += sum(len(one.disk.entries(session)) for session in sessions)
    return figures


def main(words: Sequence[str]) -> int:
    """Run the campaign; return 1 when a seed failed."""
    about = "Play random sessions in virtual time over a disk that can tear."
    return run_campaign("simulate", play, arguments(about, 200, 600).parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
