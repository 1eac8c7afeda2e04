"""Table of all measures of the context engine: `python -m lab.context [NAME …]`, or `make
measures`.

Takes some minutes; with names (`fuzz`, `soak`, …) only those. The table is kept in `lab/out`
for the docs.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lab.context import cached, estimates, fuzz, memory, needles, pins, soak, speed, stall
from lab.context.table import Row, as_markdown, write_rows

PROGRAMS: Mapping[str, Callable[[], list[Row]]] = {
    "estimates": estimates.measure,
    "fuzz": fuzz.measure,
    "needles": needles.measure,
    "pins": pins.measure,
    "soak": soak.measure,
    "stall": stall.measure,
    "cached": cached.measure,
    "speed": speed.measure,
    "memory": memory.measure,
}
"""In the order of the table."""
OUT = Path(__file__).parents[1] / "out" / "context.json"


def main(names: Sequence[str]) -> int:
    """Run the programs named, all without a name; 1 when a measure was missed."""
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        print(f"there is no measure {unknown[0]}; there are {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in names or PROGRAMS:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows += PROGRAMS[name]()
    if not names:
        write_rows(rows, OUT)
    print(as_markdown(rows))
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
