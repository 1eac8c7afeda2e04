"""Measures of background work that need a quiet machine: `python -m lab.concurrency`.

`make bench` runs it after the comparison with the floor; `make load` has the campaigns (kills,
storms, many writers).
"""

import asyncio
import sys

from lab.concurrency import agents, interrupt, latency


def main() -> int:
    """Print the table; 1 when a measure was missed that is judged here."""
    asyncio.run(latency.main())
    rows = [*agents.measure(), *interrupt.measure()]
    for what, got, reach, met in rows:
        print(f"| {what} | {got} | {reach} {'met' if met else 'MISSED'} |")
    return 0 if all(met for *_, met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
