"""What a search found, as text: paths from the current folder, lines under their file, what was left out."""

from collections.abc import Callable

from longrein.events import ToolError, marker
from longrein.tools.files import existing, find, said
from longrein.tools.port import Hands
from longrein.tools.text import clean_text, visible
from longrein.workspace import Found, Line, Place

LINE_CHARS_MAX = 500
"""Longest line of a result; a match in minified code would fill the page."""
TEXT_BYTES_MAX = 30_000
"""Text of one result."""


def searched(hands: Hands, path: str) -> Place:
    """The folder or file to search. Refuses what is neither, with the nearest name."""
    place = find(hands, path or ".")
    return place if place.kind == "folder" else existing(hands, path)


def hidden_in(hands: Hands, place: Place) -> Callable[[str], bool] | None:
    """Which of the files found below `place`, by real path, nobody may read; None for none."""
    hidden, folder, start = hands.hidden, place.path.rstrip("/"), len(place.real.rstrip("/"))
    return None if hidden is None else lambda real: hidden(folder + real[start:], real)


def shown_paths(hands: Hands, paths: tuple[str, ...]) -> list[str]:
    """Paths relative to the current folder where they lie in it."""
    base = hands.workspace.look(hands.cwd, "/").real.rstrip("/") + "/"
    return [said(path.removeprefix(base)) for path in paths]


def shown_lines(hands: Hands, lines: tuple[Line, ...]) -> list[str]:
    """`number:line` for matches and `number-line` for context under each file's path; `--` where lines are left out."""
    rows: list[str] = []
    path, number = "", 0
    for line in lines:
        if line.path != path:
            rows += ["", *shown_paths(hands, (line.path,))] if rows else shown_paths(hands, (line.path,))
        elif line.number > number + 1 and not all_match(lines):
            rows.append("--")
        path, number = line.path, line.number
        rows.append(f"{number}{':' if line.match else '-'}{shown_text(hands, line.text)}")
    return rows


def all_match(lines: tuple[Line, ...]) -> bool:
    """Whether no context was asked for; then gaps go without saying."""
    return lines[0].match and lines[-1].match and all(line.match for line in lines)


def shown_text(hands: Hands, text: str) -> str:
    """A line that a wire can carry, not longer than a result should show."""
    if len(text) <= LINE_CHARS_MAX:
        return visible(text)
    cut = marker(hands.nonce, "cut", f"line of {len(text):,} characters")
    return visible(text[:LINE_CHARS_MAX]) + cut


def whole_text(rows: list[str], found: Found, narrow: str) -> str:
    """Rows and notes; not more than one result may hold. Raises ToolError for a search that could not be done."""
    if found.error:
        raise ToolError(f"[bad-pattern] {' '.join(clean_text(found.error).split())}")
    size, more = 0, found.more
    for i, row in enumerate(rows):
        size += len(row.encode("utf-8", "replace")) + 1
        if size > TEXT_BYTES_MAX:
            rows, more = rows[:i], True
            break
    text = "\n".join(rows) or "Nothing found."
    if more:
        text += f"\n[there is more: {narrow}]"
    if found.partial:
        why = {"time": "the time limit was reached"}.get(found.partial, "there was too much output")
        text += f"\n[not everything was searched: {why}; narrow path or pattern]"
    return text
