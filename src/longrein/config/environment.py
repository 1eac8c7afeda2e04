"""What the model is told of where it is: once, at the start, so it holds nothing that changes."""

import sys
from collections.abc import Sequence

PLATFORM = {"linux": "Linux", "darwin": "macOS"}.get(sys.platform, sys.platform)
"""Where this runs."""


def describe_environment(
    *, cwd: str, day: str, roots: Sequence[str] = (), branch: str = "", platform: str = PLATFORM, shell: str = "bash"
) -> str:
    """Text for the static context. Pure: all is given as values, `day` as `2026-11-21`, `branch` '' where unknown."""
    lines = [f"Current folder: {cwd}"]
    others = [root for root in roots if root != cwd]
    if others:
        lines.append(f"Further folders of the session: {', '.join(others)}")
    if branch:
        lines.append(f"Git branch at the start: {branch}")
    lines.append(f"Platform: {platform}")
    if shell:
        lines.append(f"Shell of Bash: {shell}")
    lines.append(f"Day the session started: {day}")
    return "Environment:\n" + "\n".join(lines)
