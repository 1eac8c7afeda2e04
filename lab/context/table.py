"""Table of measures: figure reached, goal, and whether it was met."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """Measured figure and its goal."""

    measure: str
    got: str
    reach: str
    met: bool
    note: str = ""  # Details of the figure: sample size, or the failures


def as_markdown(rows: Iterable[Row]) -> str:
    """Format the rows as a Markdown table."""
    lines = ["| measure | reached | reach | |", "|---|---|---|---|"]
    for row in rows:
        note = f" ({row.note})" if row.note else ""
        lines.append(
            f"| {row.measure} | {row.got}{note} | {row.reach} | "
            f"{'met' if row.met else '**missed**'} |"
        )
    return "\n".join(lines)


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write the rows to the file that the table of the docs is made from."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n",
        encoding="utf-8",
    )


def print_table(rows: list[Row]) -> int:
    """Print the table of one program; return its exit code."""
    print(as_markdown(rows))
    return 0 if all(row.met for row in rows) else 1
