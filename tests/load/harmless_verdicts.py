"""Verdicts on 500 harmless commands, chosen before anyone looked at their verdicts.

    python -m tests.load.harmless_verdicts

Builds, tests, searches and reading git, in the mode `default`, in the sandbox, with `Read(.env)`
denied. Prints what is asked or denied; the goal is none denied and at most five asked.
"""

import sys
from collections import Counter
from pathlib import Path

import msgspec

from longrein.permissions import Rules, Verdict, judge
from tests.load.commands import make_call

COMMANDS = Path(__file__).with_name("harmless_commands.txt")
"""A command a line; `@_` is a line break."""
ASKED_MAX = 5


def verdicts(*, confined: bool) -> dict[str, Verdict]:
    """Return the verdict on each command."""
    rules = Rules(deny=("Read(.env)",), base="/w", home="/home/x")
    found = {}
    for line in COMMANDS.read_text().splitlines():
        call = make_call(line.replace("@_", "\n"), "/w", "/home/x")
        call = msgspec.structs.replace(call, confined=confined)
        found[line] = judge(call, rules, "default", "/w")
    return found


def main() -> int:
    """Print the figures; return 1 if the goal is missed in the sandbox."""
    confined = verdicts(confined=True)
    for line, verdict in confined.items():
        if verdict.kind != "allow":
            print(f"{verdict.kind}: {line}\n    {verdict.reason}")
    for where, found in (("sandbox", confined), ("no sandbox", verdicts(confined=False))):
        kinds = Counter(verdict.kind for verdict in found.values())
        print(f"{where}: {len(found)} commands, {kinds['ask']} asked, {kinds['deny']} denied")
    kinds = Counter(verdict.kind for verdict in confined.values())
    return int(kinds["deny"] > 0 or kinds["ask"] > ASKED_MAX)


if __name__ == "__main__":
    sys.exit(main())
