"""Text of a patch: reading it, and applying its hunks to the text of a file. Pure.

The format: OpenAI, "GPT-4.1 prompting guide", section "Generating and applying file diffs".
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

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
LINE = re.compile(f"[^\r\n]*{LINE_END}|[^\r\n]+")
LINE_START = r"(?<![^\r\n])(?!(?<=\r)\n)"
"""Start of a line, as a regular expression."""


class Hunk(msgspec.Struct, frozen=True):
    """Replacement of neighbouring lines."""

    anchors: tuple[str, ...]
    """Lines that stand above them, each below the one before: heads of a class and a function."""
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
        return FilePatch("Add", path, (Hunk((), (), tuple(row[1:] for row in rows), False),))
    moved_to = ""
    if rows and rows[0].startswith(MOVE):
        moved_to = rows.pop(0).removeprefix(MOVE).strip()
    hunks = tuple(_hunks(rows))
    if not hunks and not moved_to:
        raise _bad_patch(f"there is no change below '*** Update File: {path[:80]}'")
    return FilePatch("Update", path, hunks, moved_to)


def _hunks(rows: list[str]) -> Iterator[Hunk]:
    """Split the rows of an update at its `@@` lines."""
    anchors = list[str]()
    old = list[str]()
    new = list[str]()
    at_end = False
    for row in [*rows, "@@"]:
        if row.startswith("@@"):
            if old or new:
                yield Hunk(tuple(anchors), tuple(old), tuple(new), at_end)
                anchors = []
                old = []
                new = []
                at_end = False
            anchor = row[2:].strip()
            if anchor and not LINE_RANGE.fullmatch(anchor):
                anchors.append(anchor)
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
    return ToolError(f"[bad-patch] {one_line(problem)}. Nothing was changed; correct the patch.")


# --- Application ----------------------------------------------------------------------------------


class Block(NamedTuple):
    """Place of the lines below an anchor, as indices of the text."""

    start: int
    """After the anchor."""
    end: int
    """Of the lines that are indented deeper than the anchor."""


def apply_hunks(place: ResolvedPath, text: str, hunks: tuple[Hunk, ...], eol: str) -> str:
    """Return `text` with `hunks`, each below the one before. Raises `ToolError` for lines that are
    not there, or stand at several places of which the anchors name none.
    """
    done = 0
    for hunk in hunks:
        blocks = _blocks(place, text, hunk.anchors, done)
        change = _change(place, text, hunk, blocks, eol)
        head = text[: change.start] + change.new
        text, done = head + text[change.end :], len(head)
    return text


def _blocks(place: ResolvedPath, text: str, anchors: Iterable[str], start: int) -> Sequence[Block]:
    """Return the block of each line that the last anchor may mean, from `start` on.

    Each anchor is sought in the blocks of the one before; below them where its line is no deeper.
    """
    blocks: Sequence[Block] = [Block(start, len(text))]
    for anchor in anchors:
        below = [Block(blocks[0].start, len(text))]
        blocks = _blocks_of(text, anchor, blocks) or _blocks_of(text, anchor, below)
        if not blocks:
            raise ToolError(
                f"[no-match] No line below the hunk before reads {anchor[:120]!r} in "
                f"{one_line(place.path)}; nothing was changed. Take a line as the file has it."
            )
    return blocks


def _blocks_of(text: str, anchor: str, around: Sequence[Block]) -> Sequence[Block]:
    """Return the blocks below the lines that read `anchor`, else below those that contain it."""
    equal, containing = list[Block](), list[Block]()
    for outer in around:
        for line in LINE.finditer(text, outer.start, outer.end):
            if anchor in line[0]:
                found = equal if line[0].strip() == anchor else containing
                found.append(Block(line.end(), _block_end(text, line[0], line.end())))
    return equal or containing


def _block_end(text: str, head: str, start: int) -> int:
    end = start
    for line in LINE.finditer(text, start):
        if line[0].strip():
            if _indentation(line[0]) <= _indentation(head):
                break
            end = line.end()
    return end


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _change(
    place: ResolvedPath, text: str, hunk: Hunk, blocks: Sequence[Block], eol: str
) -> Replacement:
    """Return the change of the text that a hunk makes. Raises `ToolError`."""
    if not hunk.old:
        if len(blocks) > 1 and not hunk.at_end:
            raise _no_place(place, text, hunk.anchors[-1], several=True)
        return _insertion(text, hunk, blocks[0].start, eol)
    start = blocks[0].start
    places = _places(text, hunk, start, eol)
    inside = [one for one in places if any(b.start <= one.start < b.end for b in blocks)]
    chosen = inside or places
    if len(chosen) != 1:
        raise _no_place(place, text, "\n".join(hunk.old), several=bool(chosen))
    return chosen[0]


def _places(text: str, hunk: Hunk, start: int, eol: str) -> list[Replacement]:
    """Return a replacement for each place of the old lines from `start` on."""
    found = list[Replacement]()
    for end in ("\n", ""):
        if not end and found and text.endswith(("\r", "\n")):
            break  # the last line has an end as the others
        old = "\n".join(hunk.old) + end
        new = "\n".join(hunk.new) + (end if hunk.new else "")
        last = "" if end and not hunk.at_end else r"\Z"
        lines = re.compile(f"{LINE_START}(?={line_end_pattern(old).pattern}{last})")
        found += [
            _at(text, one.start(), old, new, eol) for one in lines.finditer(text, start) if old
        ]
    if found:
        return found
    loose = find_loose_matches(text[start:], "\n".join(hunk.old), "\n".join(hunk.new), eol)
    return [
        Replacement(start + one.replacement.start, start + one.replacement.end, one.replacement.new)
        for one in loose
    ]


def _at(text: str, start: int, old: str, new: str, eol: str) -> Replacement:
    """Return the replacement of `old`, which stands at `start`."""
    (one,) = find_replacements(text[start : start + 2 * len(old)], old, new, eol)[:1]
    return Replacement(start, start + one.end, one.new)


def _insertion(text: str, hunk: Hunk, start: int, eol: str) -> Replacement:
    """Insert lines below the anchor, or at the end of the file where there is none."""
    at = start if hunk.anchors and not hunk.at_end else len(text)
    before = eol if at and text[at - 1] not in "\r\n" else ""
    return Replacement(at, at, before + "".join(line + eol for line in hunk.new))


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
