"""Text of a patch: reading it, and applying its hunks to the text of a file. Pure.

The format: OpenAI, "GPT-4.1 prompting guide", section "Generating and applying file diffs".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from longrein.tools.file_access import one_line
from longrein.tools.find_replace import (
    LINE_END,
    Replacement,
    explain_no_match,
    find_replacements,
    line_end_pattern,
)
from longrein.tools.loose_match import find_loose_matches
from longrein.workspace import ResolvedPath
from longrein_context.events import ToolError

BEGIN, END = "*** Begin Patch", "*** End Patch"
HEADING = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
MOVE, END_OF_FILE = "*** Move to: ", "*** End of File"
LINE_RANGE = re.compile(r"-\d+(,\d+)? \+\d+(,\d+)?( @@.*)?")
"""Line numbers of a unified diff after `@@`; they are ignored."""
LINE_START = r"(?<![^\r\n])(?!(?<=\r)\n)"
"""Start of a line, as a regular expression."""


class Hunk(msgspec.Struct, frozen=True):
    """Replacement of neighbouring lines."""

    anchor: str
    """Line that stands above them, such as the head of a function; '' for none."""
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool
    """True if the old lines are the last of the file."""


class FilePatch(msgspec.Struct, frozen=True):
    """Change of one file."""

    kind: Literal["Add", "Update", "Delete"]
    path: str
    hunks: tuple[Hunk, ...] = ()
    """One with all lines for a new file."""
    moved_to: str = ""


# --- The format -----------------------------------------------------------------------------------


def parse_patch(text: str) -> list[FilePatch]:
    """Read a patch. Raises `ToolError` with the line that does not fit."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    heads = [at for at, line in enumerate(lines) if line.strip() == BEGIN]
    ends = [at for at, line in enumerate(lines) if line.strip() == END]
    if not heads or not ends or ends[-1] < heads[0]:
        raise _bad_patch(f"a patch stands between the lines {BEGIN} and {END}")
    sections: list[tuple[re.Match[str], list[str]]] = []
    for line in lines[heads[0] + 1 : ends[-1]]:
        if heading := HEADING.fullmatch(line.rstrip()):  # a blank begins a line of the file
            sections.append((heading, []))
        elif sections:
            sections[-1][1].append(line)
        elif line.strip():
            raise _bad_patch(f"{line[:80]!r} stands above the first '*** Update File: PATH'")
    patches = [_file_patch(heading[1], heading[2].strip(), rows) for heading, rows in sections]
    paths = [path for patch in patches for path in (patch.path, patch.moved_to) if path]
    if not patches or len(set(paths)) < len(paths):
        raise _bad_patch("it names no file" if not patches else "it names a file twice")
    return patches


def patches_of(arguments: Mapping[str, Any] | None) -> list[FilePatch]:
    """Return the changes of files that a call makes; [] for a text that is no patch, which makes
    none.
    """
    text = (arguments or {}).get("input")
    try:
        return parse_patch(text) if isinstance(text, str) else []
    except ToolError:
        return []


def _file_patch(kind: str, path: str, rows: list[str]) -> FilePatch:
    if kind == "Delete":
        return FilePatch("Delete", path)
    while rows and not rows[-1]:
        rows.pop()
    if kind == "Add":
        for row in rows:
            if row and not row.startswith("+"):
                raise _bad_patch(f"{row[:80]!r}: each line of a new file begins with +")
        return FilePatch("Add", path, (Hunk("", (), tuple(row[1:] for row in rows), False),))
    moved_to = ""
    if rows and rows[0].startswith(MOVE):
        moved_to = rows.pop(0).removeprefix(MOVE).strip()
    hunks = tuple(_hunks(rows))
    if not hunks and not moved_to:
        raise _bad_patch(f"there is no change below '*** Update File: {path[:80]}'")
    return FilePatch("Update", path, hunks, moved_to)


def _hunks(rows: list[str]) -> Iterator[Hunk]:
    """Split the rows of an update at its `@@` lines."""
    anchor = ""
    old = list[str]()
    new = list[str]()
    at_end = False
    for row in [*rows, "@@"]:
        if row.startswith("@@"):
            if old or new:
                yield Hunk(anchor, tuple(old), tuple(new), at_end)
                old = []
                new = []
                at_end = False
            anchor = row[2:].strip()
            anchor = "" if LINE_RANGE.fullmatch(anchor) else anchor
        elif row.rstrip() == END_OF_FILE:
            at_end = True
        elif row[:1] in ("+", "-", " ", ""):
            if not row.startswith("+"):
                old.append(row[1:])
            if not row.startswith("-"):
                new.append(row[1:])
        else:
            raise _bad_patch(f"{row[:80]!r} begins with none of ' ', '-', '+' and '@@'")


def _bad_patch(problem: str) -> ToolError:
    return ToolError(f"[bad-patch] {one_line(problem)}. Nothing was changed.")


# --- Application ----------------------------------------------------------------------------------


def apply_hunks(place: ResolvedPath, text: str, hunks: tuple[Hunk, ...], eol: str) -> str:
    """Return `text` with `hunks`, each below the one before. Raises `ToolError` for lines that are
    not there, or stand at several places where no anchor says which.
    """
    done = 0
    for hunk in hunks:
        start = _below_anchor(place, text, hunk.anchor, done)
        text, done = _replaced(place, text, hunk, start, eol)
    return text


def _below_anchor(place: ResolvedPath, text: str, anchor: str, start: int) -> int:
    """Return the index of the line after the first one that reads `anchor`, or contains it."""
    if not anchor:
        return start
    at, containing = start, -1
    for line in re.findall(f"[^\r\n]*{LINE_END}|[^\r\n]+", text[start:]):
        at += len(line)
        if line.strip() == anchor:
            return at
        if containing < 0 and anchor in line:
            containing = at
    if containing < 0:
        raise ToolError(
            f"[no-match] No line below the hunk before reads {anchor[:120]!r} in "
            f"{one_line(place.path)}; nothing was changed."
        )
    return containing


def _replaced(place: ResolvedPath, text: str, hunk: Hunk, start: int, eol: str) -> tuple[str, int]:
    """Return the text with one hunk in place, and the index after its new lines."""
    if not hunk.old:
        return _inserted(text, hunk, start, eol)
    below, places = text[start:], list[Replacement]()
    for end in ("\n", ""):
        old = "\n".join(hunk.old) + end
        new = "\n".join(hunk.new) + (end if hunk.new else "")
        last = "" if end and not hunk.at_end else r"\Z"
        found = re.finditer(f"{LINE_START}(?={line_end_pattern(old).pattern}{last})", below)
        places = [_at(below, one.start(), old, new, eol) for one in found if old]
        if places:
            break
    if not places:
        old, new = "\n".join(hunk.old), "\n".join(hunk.new)
        loose = find_loose_matches(below, old, new, eol)
        if len(loose) != 1:
            raise _no_place(place, text, old, several=bool(loose))
        places = [loose[0].replacement]
    elif len(places) > 1 and not hunk.anchor:
        raise _no_place(place, text, "\n".join(hunk.old), several=True)
    chosen = places[0]
    head = text[:start] + below[: chosen.start] + chosen.new
    return head + below[chosen.end :], len(head)


def _at(text: str, start: int, old: str, new: str, eol: str) -> Replacement:
    """Return the replacement of `old`, which stands at `start`."""
    (one,) = find_replacements(text[start : start + 2 * len(old)], old, new, eol)[:1]
    return Replacement(start, start + one.end, one.new)


def _inserted(text: str, hunk: Hunk, start: int, eol: str) -> tuple[str, int]:
    """Insert lines below the anchor, or at the end of the file where there is none."""
    at = start if hunk.anchor and not hunk.at_end else len(text)
    head = text[:at]
    if head and head[-1] not in "\r\n":
        head += eol
    head += "".join(line + eol for line in hunk.new)
    return head + text[at:], len(head)


def _no_place(place: ResolvedPath, text: str, old: str, *, several: bool) -> ToolError:
    where = one_line(place.path)
    if several:
        return ToolError(
            f"[not-unique] These lines stand at several places of {where}; nothing was changed. "
            f"Take in more lines, or name what they stand in with @@: {old[:200]!r}"
        )
    return ToolError(
        f"[no-match] Lines of the patch are not in {where}; nothing was changed. "
        f"{explain_no_match(text, old)}"
    )
