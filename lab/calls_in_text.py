"""Texts of recorded sessions that would be read as calls, though they are none.

    python -m lab.calls_in_text SESSIONS

Each text of an assistant in a session file of `lab.replay` is looked at as if its model had never
called a tool. Printed is each that would be carried out or asked about, and their numbers.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from longrein.agent import builtin_kinds
from longrein.tools import agent_tool, builtin_tools, read_text_calls


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each session with each text of its assistant."""
    for path in sorted(folder.rglob("*.jsonl*")):
        content = path.read_bytes()
        lines = gzip.decompress(content) if path.suffix == ".gz" else content
        for row in map(json.loads, lines.splitlines()):
            if row.get("kind") == "assistant_text":
                yield path.name, row.get("text") or ""


def main() -> None:
    """Print what would be read as a call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sessions", type=Path)
    tools = {tool.spec.name: tool for tool in (*builtin_tools(), agent_tool(builtin_kinds()))}
    count = carried_out = asked = 0
    for name, text in texts(parser.parse_args().sessions):
        calls, _, fits = read_text_calls(text, tools)
        count += 1
        carried_out += fits
        asked += bool(calls) and not fits
        if calls:
            print(f"{name}: {'carried out' if fits else 'asked about'}: {text[-200:]!r}")
    print(f"of {count} texts {carried_out} would be carried out, {asked} asked about")


if __name__ == "__main__":
    main()
