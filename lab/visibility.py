"""Curve of cost against lines that are missing when needed, for the setting `visibility`.

    python -m lab.visibility --sessions DIR [--sample N] [--only REGEX] [--window N]
                                    [--weights FILE]

`with recalls`: cost with that of bringing lost content back, over keeping everything. `hidden`:
share of later uses of what only tool results held, of lines and of all, that the view did not show.
`recalls`: steps of 100 that a recall interrupts.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from lab.cells import sample
from lab.policy import read, sessions_in
from lab.replay import PLAIN, PRICES, Row, find_uses, total
from lab.simulate import budget_of, play
from longrein.config.clearing_weights import read_weights
from longrein_context.clearing.weights import TABLES

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
HEAD = "| policy | with recalls | lines hidden | all hidden | recalls |\n|---|---:|---:|---:|---:|"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--only", default="", help="regular expression: only these sessions")
    parser.add_argument("--window", type=int, default=200_000)
    parser.add_argument("--weights", default="", help="file of `lab.fit`")
    args = parser.parse_args(argv)
    budget, rates = budget_of("anthropic", args.window), PRICES["anthropic"]
    tables = read_weights(args.weights).tables if args.weights else TABLES
    found: dict[str, list[Row]] = {}
    files = [file for file in sessions_in(args.sessions) if re.search(args.only, file.name)]
    for session in map(read, sample(files, args.sample)):
        uses = find_uses(session)
        for policy in ("keep-all", *PLAIN):
            found.setdefault(policy, []).append(play(policy, session, uses, budget, rates))
        for factor in FACTORS:
            row = play("default", session, uses, replace(budget, visibility=factor), rates, tables)
            found.setdefault(f"longrein, visibility {factor:g}", []).append(row)
    print(HEAD, *(_line(policy, total(rows)) for policy, rows in found.items()), sep="\n")
    return 0


def _line(policy: str, row: Row) -> str:
    lines, uses = row.line_kept / max(1, row.line_uses), row.tool_kept / max(1, row.tool_uses)
    cost, recalls = row.with_recalls / row.keep_all, 100 * row.recalls / row.requests
    return f"| {policy} | {cost:.3f} | {1 - lines:.1%} | {1 - uses:.1%} | {recalls:.1f} |"


if __name__ == "__main__":
    sys.exit(main())
