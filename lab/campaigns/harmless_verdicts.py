"""Verdicts on 500 harmless commands, chosen before anyone looked at their verdicts.

    python -m lab.campaigns.harmless_verdicts

Builds, tests, searches and reading git, with `Read(.env)` denied, judged by a session in a
repository whose history holds no `.env`. In `default` a command that says that it changes files
asks as the file tools do; the goal counts the mode in which they do not ask, `acceptEdits`: none
denied and at most five asked. Prints what is asked or denied there.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.agent.test_denied_files import git, judged, new_project
from tests.agent.test_what_is_asked import opened

COMMANDS = Path(__file__).with_name("harmless_commands.txt")
"""A command a line; `@_` is a line break."""
ASKED_MAX = 5
MODES = ("acceptEdits", "default")
PLACES = ("sandbox", "landlock", "no sandbox")


async def outcomes(mode: str, where: str) -> dict[str, str]:
    """Return `runs`, `asks` or `refused` for each command."""
    lines = [line.replace("@_", "\n") for line in COMMANDS.read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        harness = new_project(Path(folder))
        (harness.tree / "src").mkdir()
        (harness.tree / "src/app.py").write_text("x = 1\n")
        git(harness.tree, "init", "-q", "-b", "main")
        git(harness.tree, "add", "src", "a.txt")
        git(harness.tree, "commit", "-qm", "one")
        async with opened(harness, mode, where, deny=("Read(.env)",)) as session:
            return dict(zip(lines, await judged(session, *lines), strict=True))


def main() -> int:
    """Print the figures; return 1 if the goal is missed in the sandbox."""
    missed = False
    for where in PLACES:
        for mode in MODES:
            found = asyncio.run(outcomes(mode, where))
            kinds = Counter(found.values())
            print(
                f"{where}, {mode}: {len(found)} commands, "
                f"{kinds['asks']} asked, {kinds['refused']} denied"
            )
            if (where, mode) == (PLACES[0], MODES[0]):
                missed = kinds["refused"] > 0 or kinds["asks"] > ASKED_MAX
                print(*(f"    {how}: {line}" for line, how in found.items() if how != "runs"))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
