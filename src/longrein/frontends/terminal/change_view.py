"""The change that an approval covers: a diff with line numbers and three lines of context. Pure;
escapes its texts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from longrein.frontends.human_text import escape
from longrein.frontends.terminal.event_lines import (
    GAP,
    FileText,
    Line,
    change_lines,
    diff_lines,
    line,
)

AROUND = 3
"""Unchanged lines shown before and after a change."""
TEXT_BYTES_MAX = 1_000_000
"""A file this large may have been read in part, so that its lines cannot be numbered."""


def change_view(
    tool: str, arguments: dict[str, Any] | None, file_text: FileText | None
) -> list[Line]:
    """Every changed line of an `Edit` or `Write` with its number, and of an `apply_patch` without;
    [] for other calls and malformed arguments.

    Where the file's text is unknown, or `Edit` would refuse, the two texts of the call are
    compared, without numbers.
    """
    path = (arguments or {}).get("file_path")
    known = file_text(path) if file_text is not None and isinstance(path, str) else None
    match tool, arguments:
        case "Edit", {"old_string": str(old), "new_string": str(new)}:
            if not old:
                return _new_file(new)
            after = (
                _edited(known, old, new, every=(arguments or {}).get("replace_all") is True)
                if known
                else None
            )
            return (
                diff_lines(old, new)
                if known is None or after is None
                else numbered_diff(known, after)
            )
        case "Write", {"content": str(new)}:
            return numbered_diff(known, new) if known else _new_file(new)
        case _:
            return change_lines(tool, arguments, file_text)


def _edited(text: str, old: str, new: str, *, every: bool) -> str | None:
    """The file's text after an `Edit`; None where the tool would refuse or the text may be cut."""
    from longrein.tools.find_replace import apply_replacements, find_replacements
    from longrein.tools.loose_match import find_loose_matches

    if len(text.encode("utf-8", "replace")) >= TEXT_BYTES_MAX:
        return None
    eol = "\r\n" if "\r\n" in text else "\n"
    found = find_replacements(text, old, new, eol)
    if not found:
        loose = find_loose_matches(text, old, new, eol)
        return apply_replacements(text, [loose[0].replacement]) if len(loose) == 1 else None
    return apply_replacements(text, found) if every or len(found) == 1 else None


def numbered_diff(old: str, new: str) -> list[Line]:
    """The changes between two texts. A removed line has its old number, all others have their
    new one.
    """
    from longrein.tools.diff import hunks_of

    before, after = _lines(old, new)
    width = len(str(max(len(before), len(after))))
    hunks, rows, shown = hunks_of(before, after), list[Line](), 0
    for at, (first, last, added, added_end) in enumerate(hunks):
        start = max(first - AROUND, shown)
        rows += [GAP] if start > shown else []
        rows += _numbered(" ", "dim", before[start:first], added - (first - start), width)
        rows += _numbered("-", "del", before[first:last], first, width)
        rows += _numbered("+", "add", after[added:added_end], added, width)
        shown = min(last + AROUND, hunks[at + 1][0] if at + 1 < len(hunks) else len(before))
        rows += _numbered(" ", "dim", before[last:shown], added_end, width)
    return [*rows, GAP] if shown < len(before) else rows


def _lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines of two texts. Equal line ends, and a final one that both have, are no part of
    them.
    """
    if all(text.count("\r\n") == text.count("\n") > 0 for text in (old, new)):
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if old.endswith("\n") and new.endswith("\n"):
        old, new = old[:-1], new[:-1]
    return old.split("\n"), new.split("\n")


def _numbered(mark: str, style: str, lines: Sequence[str], at: int, width: int) -> Iterator[Line]:
    """Lines of a text; `at` is the 0-based number of the first."""
    for number, text in enumerate(lines, at + 1):
        yield line((style, f"{number:>{width}} {mark} {escape(text).expandtabs(4)}"))


def _new_file(text: str) -> list[Line]:
    """Lines of a new file; a missing final newline is noted as in git."""
    *lines, last = text.split("\n")
    whole = [*lines, last] if last else lines
    rows = [*_numbered("+", "add", whole, 0, len(str(len(whole))))]
    return [*rows, line(("dim", "\\ no newline at the end"))] if last else rows
