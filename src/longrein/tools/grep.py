"""`Grep`: lines and files by content, through the workspace's search."""

from typing import Literal

from longrein.events import ToolError
from longrein.tools.found import hidden_in, searched, shown_lines, shown_paths, whole_text
from longrein.tools.port import Hands, Outcome
from longrein.tools.registry import make_tool
from longrein.workspace import Found, Query, grep

LIMITS = {"content": 250, "files_with_matches": 100, "count": 100}
"""Most lines or files given without `head_limit`."""
MODES: dict[str, Literal["content", "files", "count"]] = {
    "content": "content",
    "files_with_matches": "files",
    "count": "count",
}
OutputMode = Literal["content", "files_with_matches", "count"]


async def Grep(  # noqa: PLR0913, PLR0917 - the arguments are those that models know
    hands: Hands,
    pattern: str,
    path: str = "",
    glob: str = "",
    output_mode: OutputMode = "files_with_matches",
    ignore_case: bool = False,
    context: int = 0,
    multiline: bool = False,
    head_limit: int = 0,
) -> Outcome:
    """Search file contents by regular expression (ripgrep's dialect); use it, not grep or rg in Bash. Respects
    .gitignore. Start with file names (default, newest first), then content for a few: `12:` is a match, `11-` context.

    glob: Only files such as *.py or src/**/*.ts.
    head_limit: Default 250 lines or 100 files.
    """
    if not pattern:
        raise ToolError("[bad-pattern] The pattern is empty; to list files use Glob.")
    if context < 0 or head_limit < 0:
        raise ToolError("[bad-range] -C and head_limit must not be negative.")
    place = searched(hands, path)
    query = Query(
        place.real,
        pattern,
        glob,
        MODES[output_mode],
        ignore_case,
        multiline,
        context,
        context,
        head_limit or LIMITS[output_mode],
    )
    found = await grep(hands.workspace, query, hidden_in(hands, place))
    return Outcome.of(whole_text(rows_of(hands, found), found, "narrow the search, or raise head_limit"))


def rows_of(hands: Hands, found: Found) -> list[str]:
    """The result's lines in whichever mode."""
    if found.lines:
        return shown_lines(hands, found.lines)
    if found.counts:
        paths = shown_paths(hands, tuple(path for path, _ in found.counts))
        return [f"{path}: {count}" for path, (_, count) in zip(paths, found.counts, strict=True)]
    return shown_paths(hands, found.paths)


GREP = make_tool(
    Grep,
    access="read",
    together=True,
    paths=lambda arguments: ((str(arguments.get("path") or "."), False),),
    names={"ignore_case": "-i", "context": "-C"},
)
