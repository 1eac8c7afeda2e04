"""`Glob`: files by name, through the workspace's search."""

from collections.abc import Mapping
from typing import Any

from longrein.events import ToolError
from longrein.tools.files import said
from longrein.tools.found import hidden_in, searched, shown_paths, whole_text
from longrein.tools.port import Hands, Outcome
from longrein.tools.registry import make_tool
from longrein.workspace import glob, split_glob

PATHS_MAX = 100
"""Files given; more help nobody."""


async def Glob(hands: Hands, pattern: str, path: str = "") -> Outcome:
    """Find files by name, newest first, at most 100; use it, not find or ls -R in Bash. Respects .gitignore.

    pattern: Such as **/*.py (any depth) or src/*.{ts,tsx}.
    """
    if not pattern:
        raise ToolError("[bad-pattern] The pattern is empty; give one such as **/*.py.")
    folder, rest = start_of(pattern, path)
    place = searched(hands, folder)
    if place.kind != "folder":
        raise ToolError(f"[not-a-folder] {said(folder)} is a file; path must be a folder.")
    found = await glob(hands.workspace, rest, place.real, PATHS_MAX, hidden_in(hands, place))
    return Outcome.of(whole_text(shown_paths(hands, found.paths), found, "narrow the pattern"))


def start_of(pattern: str, path: str) -> tuple[str, str]:
    """Folder to search, and the pattern below it: what comes before the first wildcard belongs to the folder."""
    folder, rest = split_glob(pattern)
    if folder.startswith(("/", "~")) or not path:
        return folder or path or ".", rest
    return f"{path.rstrip('/')}/{folder}" if folder else path, rest


def searched_paths(arguments: Mapping[str, Any]) -> tuple[tuple[str, bool], ...]:
    """The folder a call looks into, for permission."""
    folder, _ = start_of(str(arguments.get("pattern", "")), str(arguments.get("path") or ""))
    return ((folder, False),)


GLOB = make_tool(Glob, access="read", together=True, paths=searched_paths)
