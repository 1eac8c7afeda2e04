"""Trust measures in one table: each row is a program that prints its figure and fails when its
reach is missed.

    python -m lab.trust [SESSIONS] [--only WORD] [--lines COUNT]

SESSIONS is a folder of recorded sessions for the rows that read real commands; without it they are
not measured. `--lines 50000` runs the whole campaign of fuzzed commands (half an hour) instead of a
slice.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec


class Row(msgspec.Struct, frozen=True):
    """Measure, with the benchmark module that gives its figure."""

    measure: str
    reach: str
    module: str
    """Module to run, with its arguments."""
    figure: str
    """Pattern of the figure in the output; its groups are shown."""
    needs_sessions: bool = False


ROWS = (
    Row(
        "recorded commands covered by the table or offered rules",
        ">= 90 %",
        "lab.commands",
        r"([\d.]+%)  covered \(goal",
        True,
    ),
    Row(
        "questions in a recorded session, default and auto with sandbox",
        "<= 5 and <= 1",
        "lab.questions",
        r"(?s)default  sandbox +median +(\d+).*auto +sandbox +median +(\d+)",
        True,
    ),
    Row(
        "fuzzed commands misread, against bash",
        "0",
        "lab.campaigns.commands {lines} 1",
        r"([\d,]+) fuzzed.*: (\d+) errors",
    ),
    Row(
        "writes and reads outside under a racer",
        "0 of 10,000",
        "lab.campaigns.racer",
        r"(\d+ of [\d,]+)",
    ),
    Row("escapes from bubblewrap", "0", "lab.campaigns.escapes", r"(\d+ of \d+)"),
    Row("escapes from Landlock", "0", "lab.campaigns.escapes landlock", r"(\d+ of \d+)"),
    Row(
        "leaks of a denied file, bubblewrap",
        "0",
        "lab.campaigns.denied_reads bubblewrap",
        r"(\d+ of \d+)",
    ),
    Row(
        "leaks of a denied file, Landlock",
        "0",
        "lab.campaigns.denied_reads landlock",
        r"(\d+ of \d+)",
    ),
    Row(
        "leaks of a denied file unasked, no sandbox",
        "0",
        "lab.campaigns.denied_reads none",
        r"(\d+ of \d+)",
    ),
    Row(
        "payloads in the channel of the harness",
        "0",
        "lab.campaigns.injection",
        r"(\d+) in the harness",
    ),
    Row("canary secrets on any surface", "0", "lab.campaigns.canaries", r"(\d+) found"),
)
LINES = "5000"
"""Fuzzed lines of a run that asks for no number."""
FORM = "{:<66}{:<16}{:<20}{}"


def run_row(row: Row, arguments: list[str]) -> tuple[bool, str, str]:
    """Run one program; return (reach met, figure, last lines of its output)."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout.strip() or done.stderr.strip()[-800:]
    found = re.search(row.figure, text)
    return done.returncode == 0, ", ".join(found.groups()) if found else "none printed", text


def main() -> int:
    """Run the rows and print the table; return 1 if a measure is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sessions", type=Path, nargs="?")
    parser.add_argument("--only", default="", help="run the rows that hold this word")
    parser.add_argument(
        "--lines", default=LINES, help=f"fuzzed commands, {LINES} by default; the campaign is 50000"
    )
    options = parser.parse_args()
    missed, texts = 0, []
    print(FORM.format("measure", "reach", "figure", "verdict"))
    for row in [row for row in ROWS if options.only in row.measure]:
        if row.needs_sessions and options.sessions is None:
            print(
                FORM.format(row.measure, row.reach, "-", "not measured: name a folder of sessions"),
                flush=True,
            )
            continue
        began_s = time.monotonic()
        arguments = [
            *row.module.format(lines=options.lines).split(),
            *([str(options.sessions)] * row.needs_sessions),
        ]
        met, figure, text = run_row(row, arguments)
        missed += not met
        verdict = f"{'met' if met else 'MISSED'} ({time.monotonic() - began_s:.0f} s)"
        print(FORM.format(row.measure, row.reach, figure, verdict), flush=True)
        if not met:
            texts.append(f"\n{row.measure}: python -m {' '.join(arguments)}\n{text}")
    print(*texts, f"{missed} measures missed", sep="\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
