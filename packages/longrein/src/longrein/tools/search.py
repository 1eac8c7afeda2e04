"""`Grep` and `Glob` tools: find files by content and by name, through the workspace's search."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from longrein.tools.file_access import existing_file, next_call, one_line, resolve_path
from longrein.tools.registry import make_tool
from longrein.tools.text_encoding import clean_text, visible
from longrein.tools.tool_port import Outcome, ToolContext
from longrein.workspace import ResolvedPath, split_glob
from longrein_context.events import ToolError, marker

if TYPE_CHECKING:
    from longrein.workspace.file_search import Line, SearchResult


# --- Search results as text -----------------------------------------------------------------------


LINE_CHARS_MAX = 500
"""Maximum length of a line, so that a match in minified code does not fill the page."""
TEXT_BYTES_MAX = 30_000
"""Maximum size of one result."""
SKIPPED_SHOWN_MAX = 5
"""Files that a note about skipped files names."""


def resolve_search_root(context: ToolContext, path: str, name: str, pattern: str) -> ResolvedPath:
    """Resolve the folder or file that `name` is to search. Raises `ToolError` otherwise, with what
    is there.
    """
    place = resolve_path(context, path or ".")
    if place.kind == "folder":
        return place
    return existing_file(context, path, (name, {"pattern": pattern}))


def hidden_filter(context: ToolContext, place: ResolvedPath) -> Callable[[str], bool] | None:
    """Return a test whether a real path below `place` is forbidden by a rule; None when no rule
    is.
    """
    hidden = context.files.hidden
    folder = place.path.rstrip("/")
    start = len(place.real.rstrip("/"))
    return None if hidden is None else lambda real: hidden(folder + real[start:], real)


def shown_paths(context: ToolContext, paths: tuple[str, ...]) -> list[str]:
    """Return paths relative to the current folder if they are inside it."""
    base = context.workspace.resolve(context.cwd, "/").real.rstrip("/") + "/"
    return [one_line(path.removeprefix(base)) for path in paths]


def shown_lines(context: ToolContext, lines: "tuple[Line, ...]") -> list[str]:
    """Return rows `number:line` for matches, `number-line` for context, below each file's path;
    `--` for gaps.
    """
    gaps = not all(line.match for line in lines)  # without context no gap is marked
    rows: list[str] = []
    path, number = "", 0
    for line in lines:
        if line.path != path:
            rows += (
                ["", *shown_paths(context, (line.path,))]
                if rows
                else shown_paths(context, (line.path,))
            )
        elif line.number > number + 1 and gaps:
            rows.append("--")
        path, number = line.path, line.number
        rows.append(f"{number}{':' if line.match else '-'}{shown_text(context, line)}")
    return rows


def shown_text(context: ToolContext, line: "Line") -> str:
    """Return a line with control characters visible; of a long one `LINE_CHARS_MAX` characters
    around its first match.
    """
    text, chars = line.text, line.chars or len(line.text)
    if chars <= LINE_CHARS_MAX:
        return visible(text)
    begin = min(max(0, line.at - LINE_CHARS_MAX // 4), max(0, len(text) - LINE_CHARS_MAX))
    shown = text[begin : begin + LINE_CHARS_MAX]
    first = line.left_out + begin
    how = f"characters {first + 1:,}-{first + len(shown):,} of a line of {chars:,}"
    before = marker(context.nonce, "cut", f"{first:,} characters") if first else ""
    return before + visible(shown) + marker(context.nonce, "cut", how)


def skipped_note(context: ToolContext, found: "SearchResult") -> str:
    """Name files that were not searched, the first few of them."""
    paths = shown_paths(context, tuple(path for path, _ in found.skipped[:SKIPPED_SHOWN_MAX]))
    reasons = [clean_text(reason) for _, reason in found.skipped]
    named = [f"{path} ({reason})" for path, reason in zip(paths, reasons, strict=False)]
    if more := len(found.skipped) - len(named):
        named.append(f"{more:,} more")
    return f"\n[not searched: {', '.join(named)}]" if named else ""


def result_text(context: ToolContext, rows: list[str], found: "SearchResult", narrow: str) -> str:
    """Join rows and notes up to `TEXT_BYTES_MAX`. Raises `ToolError` for a failed search."""
    if found.error:
        raise ToolError(
            f"[bad-pattern] {' '.join(clean_text(found.error).split())}. Correct the "
            "pattern, or put a \\ before each sign that is meant as it stands"
        )
    size, more = 0, found.more
    for i, row in enumerate(rows):
        size += len(row.encode("utf-8", "replace")) + 1
        if size > TEXT_BYTES_MAX:
            rows, more = rows[:i], True
            break
    is_whole = not found.partial and not found.skipped
    nothing = "Nothing found." if is_whole else "Nothing found in what was searched."
    text = "\n".join(rows) or nothing
    if more:
        text += f"\n[there is more: {narrow}]"
    if found.partial:
        why = {"time": "the time limit was reached", "size": "there was too much output"}.get(
            found.partial
        )
        text += (
            f"\n[not everything was searched: {why}; narrow path or pattern]"
            if why
            else "\n[lines of files that changed during the search are left out; search again]"
        )
    return text + skipped_note(context, found)


# --- `Grep`: files and lines by content -----------------------------------------------------------


FILES_MAX = 100
"""Maximum number of files without `head_limit`."""
MODES: dict[str, Literal["content", "files", "count"]] = {
    "content": "content",
    "files_with_matches": "files",
    "count": "count",
}
OutputMode = Literal["content", "files_with_matches", "count"]


async def Grep(  # noqa: PLR0913, PLR0917 - the arguments are those that models know
    tool_context: ToolContext,
    pattern: str,
    path: str = "",
    glob: str = "",
    output_mode: OutputMode = "files_with_matches",
    ignore_case: bool = False,
    context: int = 0,
    multiline: bool = False,
    head_limit: int = 0,
    before: int | None = None,
    after: int | None = None,
    offset: int = 0,
    only_matching: bool = False,
) -> Outcome:
    """Search file contents by regular expression. Respects .gitignore. Start with file names (the
    default), then output_mode content for a few: `12:` is a match, `11-` context.

    glob: Only files such as *.py or **/*.ts.
    """
    from longrein.workspace.file_search import Query, grep

    if not pattern:
        raise ToolError("[bad-pattern] The pattern is empty; to list files use Glob.")
    if min(context, before or 0, after or 0, head_limit, offset) < 0:
        raise ToolError("[bad-range] -C and head_limit must not be negative.")
    place = resolve_search_root(tool_context, path, "Grep", pattern)
    above, below = [context if one is None else one for one in (before, after)]
    query = Query(
        place.real,
        pattern,
        glob,
        MODES[output_mode],
        ignore_case,
        multiline,
        above,
        below,
        head_limit
        or (tool_context.options.search_lines_max if output_mode == "content" else FILES_MAX),
        offset,
        only_matching,
    )
    found = await grep(tool_context.workspace, query, hidden_filter(tool_context, place))
    return Outcome.of(
        result_text(
            tool_context,
            result_rows(tool_context, found),
            found,
            "narrow the search, or raise head_limit",
        )
    )


def result_rows(context: ToolContext, found: "SearchResult") -> list[str]:
    """Return the rows of a result in any output mode."""
    if found.lines:
        return shown_lines(context, found.lines)
    if found.counts:
        paths = shown_paths(context, tuple(path for path, _ in found.counts))
        return [f"{path}: {count}" for path, (_, count) in zip(paths, found.counts, strict=True)]
    return shown_paths(context, found.paths)


GREP = make_tool(
    Grep,
    access="read",
    together=True,
    paths=lambda arguments: ((str(arguments.get("path") or "."), False),),
    names={
        "ignore_case": "-i",
        "context": "-C",
        "before": "-B",
        "after": "-A",
        "only_matching": "-o",
    },
    unlisted_arguments=("before", "after", "only_matching", "offset", "multiline"),
    rule_name="Read",
    aliases=("grep_search", "search_file_content", "search_files", "ripgrep", "rg"),
    kind="search",
    quiet=True,
    key_argument="path",
)


# --- `Glob`: files by name ------------------------------------------------------------------------


PATHS_MAX = 100
"""Maximum number of files in a result."""


async def Glob(context: ToolContext, pattern: str, path: str = "") -> Outcome:
    """Find files by name, newest first, at most 100. Respects .gitignore.

    pattern: Such as **/*.py (any depth) or *.{ts,tsx}.
    """
    from longrein.workspace.file_search import glob

    if not pattern:
        raise ToolError("[bad-pattern] The pattern is empty; give one such as **/*.py.")
    folder, rest = split_folder(pattern, path)
    place = resolve_search_root(context, folder, "Glob", rest)
    if place.kind != "folder":
        raise ToolError(
            f"[not-a-folder] {one_line(folder)} is a file; path must be a folder."
            f"{next_call(context, 'Read', file_path=folder)}"
        )
    found = await glob(
        context.workspace, rest, place.real, PATHS_MAX, hidden_filter(context, place)
    )
    rows = shown_paths(context, found.paths)
    return Outcome.of(result_text(context, rows, found, "narrow the pattern"))


def split_folder(pattern: str, path: str) -> tuple[str, str]:
    """Return the folder to search and the pattern below it. The part before the first wildcard
    is the folder.
    """
    folder, rest = split_glob(pattern)
    if folder.startswith(("/", "~")) or not path:
        return folder or path or ".", rest
    return f"{path.rstrip('/')}/{folder}" if folder else path, rest


def searched_paths(arguments: Mapping[str, Any]) -> tuple[tuple[str, bool], ...]:
    """Return the folder that a call searches, for permission."""
    folder, _ = split_folder(str(arguments.get("pattern", "")), str(arguments.get("path") or ""))
    return ((folder, False),)


GLOB = make_tool(
    Glob,
    access="read",
    together=True,
    paths=searched_paths,
    rule_name="Read",
    aliases=("list", "ls", "list_directory", "list_dir", "list_files", "find_files", "file_search"),
    kind="search",
    quiet=True,
    key_argument="path",
)
