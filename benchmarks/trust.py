"""Trust measures in one table: each row is a program that prints its figure and fails when the goal is missed.

    python -m benchmarks.trust [--sessions FOLDER] [--only WORD]

`--sessions` is a folder of recorded sessions for the rows that read real commands; they are left out without it.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROWS = (
    ("recorded commands that rules or the table cover", "benchmarks.commands", True),
    ("questions in recorded sessions", "benchmarks.questions", True),
    ("fuzzed shell commands against bash", "tests.load.commands", False),
    ("writes and reads outside under a racer", "tests.load.racer", False),
    ("escapes from bubblewrap", "tests.load.escapes", False),
    ("escapes from Landlock", "tests.load.escapes landlock", False),
    ("payloads in the channel of the harness", "tests.load.injection", False),
    ("canary secrets on any surface", "tests.load.canaries", False),
)
"""(Measure, module to run, True if it reads recorded sessions)."""


def run_row(module: str, arguments: list[str]) -> tuple[bool, str]:
    """Run one program; return (goal reached, its last lines)."""
    command = [sys.executable, "-m", *module.split(), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = (done.stdout.strip() or done.stderr.strip()[-400:]).splitlines()
    return done.returncode == 0, "\n".join(text[-6:])


def main() -> int:
    """Run the rows and print the table; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=Path)
    parser.add_argument("--only", default="", help="run the rows that hold this word")
    options = parser.parse_args()
    missed = 0
    for measure, module, needs_sessions in ROWS:
        if options.only not in measure or (needs_sessions and options.sessions is None):
            continue
        began_s = time.monotonic()
        reached, text = run_row(module, [str(options.sessions)] if needs_sessions else [])
        missed += not reached
        print(f"{'ok    ' if reached else 'MISSED'}  {measure} ({time.monotonic() - began_s:.0f} s)", flush=True)
        for row in text.splitlines():
            print(f"            {row}", flush=True)
    print(f"{missed} goals missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
