"""One measure, one line: what was reached, what is to be reached, and whether it was."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One measured figure."""

    measure: str
    got: str
    reach: str
    met: bool
    note: str = ""
    """What to know beside the figure: how much was tried, or what broke."""


def shown(rows: Iterable[Row]) -> str:
    """The rows as a table of Markdown."""
    lines = ["| measure | reached | reach | |", "|---|---|---|---|"]
    for row in rows:
        note = f" ({row.note})" if row.note else ""
        lines.append(f"| {row.measure} | {row.got}{note} | {row.reach} | {'met' if row.met else '**missed**'} |")
    return "\n".join(lines)


def kept(rows: Iterable[Row], path: Path) -> None:
    """Write the rows where the docs' table is made from."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def told(rows: list[Row]) -> int:
    """Print the table of one program; gives its exit code."""
    print(shown(rows))
    return 0 if all(row.met for row in rows) else 1
