"""Recorded `Bash` commands: the share that only reads, that offered rules can cover, and that
cannot be read.

    python -m lab.commands FOLDER

FOLDER holds recorded sessions (`*.jsonl.gz`, as for `lab.policy`). Folders of the recording
machine do not exist here, so paths are not judged: only programs, options and the parser.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from lab.replay.recording import read_recording
from longrein.permissions import read_command
from longrein.permissions.command_rules import suggest_part_rule


def commands_of(folder: Path) -> list[str]:
    """Return the commands of all recorded `Bash` calls below a folder."""
    found = []
    for path in sorted(folder.rglob("*.jsonl.gz")):
        for item in read_recording(path.name, path.read_bytes()).items:
            if item.kind == "tool_call" and item.name == "Bash":
                arguments = msgspec.json.decode(item.text)
                found.append(str(arguments.get("command", "")))
    return found


def kind_of(text: str) -> str:
    """Return `reads`, `rules`, `no rule` or `not read` for one command."""
    command = read_command(text, "/w", "/home/user")
    if command.script.problem:
        return "not read"
    pending = [
        part
        for part, effect in zip(command.script.parts, command.effects, strict=True)
        if effect.problem
    ]
    if not pending:
        return "reads"
    return "rules" if all(map(suggest_part_rule, pending)) else "no rule"


def main() -> int:
    """Print the table; return 1 if fewer than 90 % are covered."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    commands = commands_of(parser.parse_args().folder)
    kind_of("true")  # loads the parser
    seconds, counts = [], Counter[str]()
    for text in commands:
        began_s = time.perf_counter()
        counts[kind_of(text)] += 1
        seconds.append(time.perf_counter() - began_s)
    seconds.sort()
    total = max(1, len(commands))
    median_ms, most_ms = seconds[total // 2] * 1e3, seconds[-1] * 1e3
    began_s = time.perf_counter()
    kind_of("echo x; " * 125_000)
    large_ms = (time.perf_counter() - began_s) * 1e3
    print(f"a command of 1 MB takes {large_ms:.1f} ms (goal: 200 ms)")
    print(
        f"{len(commands)} commands; a verdict takes {median_ms:.2f} ms (median), {most_ms:.1f} ms "
        "at most"
    )
    for kind, meaning in (
        ("reads", "known programs and options only"),
        ("rules", "covered by at most five offered rules"),
        ("no rule", "no narrow rule is offered"),
        ("not read", "the parser refuses it"),
    ):
        print(f"{counts[kind]:6} {counts[kind] / total:6.1%}  {meaning}")
    covered = (counts["reads"] + counts["rules"]) / total
    print(f"{covered:13.1%}  covered (goal: 90 %)")
    return 0 if covered >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
