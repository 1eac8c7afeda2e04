"""Exact text search and replacement for `Edit`, with any line ends, and hints for text that is
not found. Pure.
"""

import re
from collections.abc import Iterator

import msgspec

from longrein.tools.arguments import similarity
from longrein.tools.text_encoding import lines_of, visible

LINE_END = "(?>\r\n|\n|\r)"
"""Any line end; atomic, so that CRLF never counts as two."""


class Replacement(msgspec.Struct, frozen=True):
    """Replacement of one range of a text."""

    start: int
    """Index of the first character."""
    end: int
    """Index after the last character."""
    new: str
    """New text, with the line ends of the place."""


def find_replacements(text: str, old: str, new: str, eol: str) -> list[Replacement]:
    """Find all matches of `old`, left to right, without overlaps. `old` must not be empty.

    Line ends of `old` match any line end. `new` gets the line end of the place, else `eol`.
    """
    if "\r" not in text:
        if "\r" in old and old not in text:
            old, new = with_lf(old), with_lf(new)
        return [Replacement(at, at + len(old), new) for at in find_all(text, old, len(old))]
    replacements, ends = list[Replacement](), re.compile(LINE_END)
    for match in line_end_pattern(old).finditer(text):
        end = ends.search(text, match.start())
        replacements.append(
            Replacement(*match.span(), with_lf(new).replace("\n", end.group() if end else eol))
        )
    return replacements


def line_end_pattern(old: str) -> re.Pattern[str]:
    """Compile `old` so that each of its line ends matches any line end."""
    return re.compile(LINE_END.join(map(re.escape, with_lf(old).split("\n"))))


def with_lf(text: str) -> str:
    """Return `text` with LF for every line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def find_all(text: str, part: str, step: int) -> Iterator[int]:
    """Yield the starts of `part`, each at least `step` characters after the one before."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + step)


def overlaps_itself(text: str, old: str, replacement: Replacement) -> bool:
    """Return True if `old` also matches inside its only match, shifted by some characters (`aa`
    in `aaa`).
    """
    if "\r" not in text:
        return text.find(text[replacement.start : replacement.end], replacement.start + 1) >= 0
    again = line_end_pattern(old).search(text, replacement.start + 1)
    return again is not None and not (
        text[again.start() - 1] == "\r" and text[again.start()] == "\n"
    )


def apply_replacements(text: str, replacements: list[Replacement]) -> str:
    """Return `text` with all replacements applied."""
    pieces: list[str] = []
    at = 0
    for replacement in replacements:
        pieces += (text[at : replacement.start], replacement.new)
        at = replacement.end
    return "".join(pieces) + text[at:]


def line_number(text: str, at: int) -> int:
    """Return the 1-based line of an index, as `Read` counts."""
    return text.count("\n" if "\n" in text else "\r", 0, at) + 1


# --- Hints for text that is not found -------------------------------------------------------------


CANDIDATES_MAX = 20_000
"""Lines that are compared, to bound the work for large files."""


def explain_no_match(text: str, old: str) -> str:
    """Explain in one or two sentences why `old` is not found, with a line to look at."""
    if without_line_numbers(old) in text and without_line_numbers(old):
        return "It is there without the line numbers of Read: leave out the numbers and tabs."
    lines, wanted = lines_of(text), lines_of(old)
    at = find_ignoring_blanks(lines, wanted)
    if at >= 0:
        last = at + len(wanted)
        return (
            f"Lines {at + 1}-{last} differ from it only in blanks or tabs. Line {at + 1} is "
            f"{quoted_line(lines[at])}"
        )
    at = closest_line(lines, wanted)
    if at < 0:
        return "No line is like it. Read the file again."
    return f"The closest match is at line {at + 1}: {quoted_line(lines[at])}"


def without_line_numbers(old: str) -> str:
    """Return `old` without `12<TAB>` before each line; '' when not every line has it."""
    lines = old.split("\n")
    if not all(re.match(r"\s*\d+\t", line) for line in lines if line):
        return ""
    return "\n".join(re.sub(r"^\s*\d+\t", "", line) for line in lines)


def find_ignoring_blanks(lines: list[str], wanted: list[str]) -> int:
    """Return the first line of a match that ignores blanks; -1 for none."""
    keys = ["".join(line.split()) for line in wanted]
    if not any(keys):
        return -1
    flat = ["".join(line.split()) for line in lines[:CANDIDATES_MAX]]
    starts = (i for i, line in enumerate(flat) if line == keys[0])
    return next((i for i in starts if flat[i : i + len(keys)] == keys), -1)


def closest_line(lines: list[str], wanted: list[str]) -> int:
    """Return the line where `wanted` would begin, by the line most similar to its longest line;
    -1 for none.
    """
    if not wanted:
        return -1
    row = max(range(len(wanted)), key=lambda i: len(wanted[i].strip()))
    key = wanted[row].strip()
    words = set(re.findall(r"\w+", key))
    best, best_score = -1, 0.0
    for i, line in enumerate(lines[:CANDIDATES_MAX]):
        there = set(re.findall(r"\w+", line))
        score = len(words & there) / len(words | there) if words and there else 0.0
        if score > best_score:
            best, best_score = i, score
    if best < 0 or (best_score < 0.5 and similarity(lines[best].strip(), key) < 0.5):
        return -1
    return max(best - row, 0)


def quoted_line(line: str) -> str:
    """Quote a line with visible tabs, at most 160 characters."""
    text = visible(line.replace("\t", "\\t"))
    return f"`{text}`" if len(text) <= 160 else f"`{text[:160]}…`"
