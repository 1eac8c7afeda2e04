"""Why `Edit` found nothing, and where the model probably meant. Pure; work is bounded for large files."""

import re

from longrein.tools.encoding import lines_of
from longrein.tools.nearest import likeness
from longrein.tools.text import visible

CANDIDATES_MAX = 20_000
"""Lines that are compared."""


def why_no_match(text: str, old: str) -> str:
    """One or two sentences with a line number to look at."""
    if numbers_removed(old) in text and numbers_removed(old):
        return "It is there without the line numbers of Read: leave out the numbers and tabs."
    lines, wanted = lines_of(text), lines_of(old)
    at = same_but_for_space(lines, wanted)
    if at >= 0:
        last = at + len(wanted)
        return f"Lines {at + 1}-{last} differ from it only in blanks or tabs. Line {at + 1} is {shown(lines[at])}"
    at = most_like(lines, wanted)
    if at < 0:
        return "No line is like it. Read the file again."
    return f"The closest match is at line {at + 1}: {shown(lines[at])}"


def numbers_removed(old: str) -> str:
    """`old` without `12<TAB>` in front of each line, or '' when they are not there."""
    lines = old.split("\n")
    if not all(re.match(r"\s*\d+\t", line) for line in lines if line):
        return ""
    return "\n".join(re.sub(r"^\s*\d+\t", "", line) for line in lines)


def same_but_for_space(lines: list[str], wanted: list[str]) -> int:
    """Where all lines of `wanted` stand when blanks do not count; -1 for nowhere."""
    keys = ["".join(line.split()) for line in wanted]
    if not any(keys):
        return -1
    flat = ["".join(line.split()) for line in lines[:CANDIDATES_MAX]]
    starts = (i for i, line in enumerate(flat) if line == keys[0])
    return next((i for i in starts if flat[i : i + len(keys)] == keys), -1)


def most_like(lines: list[str], wanted: list[str]) -> int:
    """The line most like the longest line of `wanted`, moved back to where its first line would be; -1 for none."""
    if not wanted:
        return -1
    row = max(range(len(wanted)), key=lambda i: len(wanted[i].strip()))
    key = wanted[row].strip()
    words = set(re.findall(r"\w+", key))
    best, best_score = -1, 0.0
    for i, line in enumerate(lines[:CANDIDATES_MAX]):
        score = overlap(words, line)
        if score > best_score:
            best, best_score = i, score
    if best < 0 or (best_score < 0.5 and likeness(lines[best].strip(), key) < 0.5):
        return -1
    return max(best - row, 0)


def overlap(words: set[str], line: str) -> float:
    """Share of words in common."""
    there = set(re.findall(r"\w+", line))
    return len(words & there) / len(words | there) if words and there else 0.0


def shown(line: str) -> str:
    """A line as it can be quoted, tabs and blanks visible."""
    text = visible(line.replace("\t", "\\t"))
    return f"`{text}`" if len(text) <= 160 else f"`{text[:160]}…`"
