"""The change that an approval covers: a diff with line numbers and three lines of context. Pure."""

from typing import Any

from longrein.frontends.terminal.event_lines import (
    FileText,
    Line,
    change_lines,
    diff_lines,
    new_file_lines,
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
                return new_file_lines(new, numbered=True)
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
            return numbered_diff(known, new) if known else new_file_lines(new, numbered=True)
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
    """The changes between two texts, with numbers and three lines of context."""
    return diff_lines(*_plain_ends(old, new), around=AROUND)


def _plain_ends(old: str, new: str) -> tuple[str, str]:
    """Two texts without the line ends, and the final one, that both have."""
    if all(text.count("\r\n") == text.count("\n") > 0 for text in (old, new)):
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if old.endswith("\n") and new.endswith("\n"):
        old, new = old[:-1], new[:-1]
    return old, new
