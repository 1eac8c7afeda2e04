"""What a call would do to a file, as lines: every character of both sides is there, escaped."""

from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from typing import Any

from longrein.frontends.safe import escape
from longrein.frontends.terminal.lines import Line, line

LINES_MAX = 2_000
"""Texts longer than this are shown as all old, then all new: finding what they share would take seconds."""

FileText = Callable[[str], str | None]


def diff_lines(old: str, new: str) -> list[Line]:
    """`old` turned into `new`, whole: `-` and `+` lines, lines of both unmarked."""
    before, after = old.split("\n"), new.split("\n")
    if len(before) + len(after) > LINES_MAX:
        return [*_marked("-", "del", before), *_marked("+", "add", after)]
    rows: list[Line] = []
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            rows += _marked(" ", "dim", before[i:j])
        else:
            rows += [*_marked("-", "del", before[i:j]), *_marked("+", "add", after[k:m])]
    return rows


def _marked(mark: str, style: str, lines: list[str]) -> Iterator[Line]:
    return (line((style, f"{mark} {escape(text).expandtabs(4)}")) for text in lines)


def change_lines(name: str, arguments: dict[str, Any] | None, file_text: FileText | None) -> list[Line]:
    """The diff of an `Edit` or `Write`; [] for another call or for arguments that are not as expected."""
    old, new = _sides(name, arguments or {}, file_text)
    if not isinstance(old, str) or not isinstance(new, str):
        return []
    if old == "":
        return _made(new)
    return diff_lines(old, new)


def _made(text: str) -> list[Line]:
    """A text that is new. That its last line has no end is said, as users know it from git."""
    *lines, last = text.split("\n")
    rows = list(_marked("+", "add", lines))
    return [*rows, *_marked("+", "add", [last]), line(("dim", "\\ no newline at the end"))] if last else rows


def _sides(name: str, arguments: dict[str, Any], file_text: FileText | None) -> tuple[Any, Any]:
    match name:
        case "Edit":
            return arguments.get("old_string"), arguments.get("new_string")
        case "Write":
            path = arguments.get("file_path")
            known = file_text(path) if file_text is not None and isinstance(path, str) else None
            return known or "", arguments.get("content")
        case _:
            return None, None


def only_changes(rows: list[Line], around: int = 2) -> list[Line]:
    """Without the common lines that are further than `around` from a change."""
    changed = [n for n, row in enumerate(rows) if row[0][0] != "dim"]
    near = {n + d for n in changed for d in range(-around, around + 1)}
    kept: list[Line] = []
    for n, row in enumerate(rows):
        if n in near:
            kept.append(row)
        elif not kept or kept[-1] != GAP:
            kept.append(GAP)
    return kept


GAP: Line = (("dim", "  ⋮"),)
"""Stands for common lines that were left out."""


def counts(rows: list[Line]) -> str:
    """`+12 -3`."""
    added = sum(row[0][0] == "add" for row in rows)
    removed = sum(row[0][0] == "del" for row in rows)
    return f"+{added} -{removed}"
