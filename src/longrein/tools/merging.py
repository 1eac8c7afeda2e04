"""Two changes of one text become one, by lines, when they touch different places. Pure.

Symmetric: which of the two is called ours makes no difference. Nothing is ever marked inside a text: what cannot be
merged is a conflict, for somebody to decide. Changes of neighbouring lines, without an unchanged one between, are one
too: each was written for lines that the other has altered. Byte order mark and line ends are merged apart from the
lines, so that a file converted by one side is no conflict with a line changed by the other.
"""

from collections.abc import Sequence
from typing import TypeVar

from longrein.tools.encoding import Decoded, Style, decode
from longrein.tools.hunks import hunks_of
from longrein.tools.replace import unix

T = TypeVar("T")
Change = tuple[int, int, tuple[str, ...]]
"""(first and end in the base, 0-based, the lines that stand there instead)."""


def merge(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """`base` with the changes of both; None for a conflict. What is no text merges only when one side is unchanged."""
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    texts = decode(base), decode(ours), decode(theirs)
    if texts[0] is None or texts[1] is None or texts[2] is None:
        return None
    return merge_texts(texts[0], texts[1], texts[2])


def merge_texts(base: Decoded, ours: Decoded, theirs: Decoded) -> bytes | None:
    """The same for files that were decoded."""
    texts = (base, ours, theirs)
    if len({text.style.encoding for text in texts}) > 1:
        return None
    bom = merge_values(*(text.style.bom for text in texts))
    mixed = any(text.style.mixed for text in texts)
    eol = "\n" if mixed else merge_values(*(text.style.eol for text in texts))
    if bom is None or eol is None:
        return None
    lines = merge_lines(*(_lines(text.text if mixed else unix(text.text)) for text in texts))
    if lines is None:
        return None
    text = "".join(lines)
    return Style(base.style.encoding, bom).encode(text if eol == "\n" else text.replace("\n", eol))


def merge_values(base: T, ours: T, theirs: T) -> T | None:
    """The value that was changed; None when both changed it, each in another way."""
    if ours in (base, theirs):
        return theirs
    return ours if theirs == base else None


def merge_lines(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> list[str] | None:
    """Lines with the changes of both sides; None when two of them touch."""
    changes = dict.fromkeys(sorted([*changes_of(base, ours), *changes_of(base, theirs)]))  # the same on both: once
    merged: list[str] = []
    at = -1
    for first, end, lines in changes:
        if first <= at:
            return None
        merged += (*base[max(at, 0) : first], *lines)
        at = end
    return [*merged, *base[max(at, 0) :]]


def changes_of(base: Sequence[str], text: Sequence[str]) -> list[Change]:
    """What one side changed."""
    return [(first, end, tuple(text[new:new_end])) for first, end, new, new_end in hunks_of(base, text)]


def _lines(text: str) -> list[str]:
    """Lines with their ends; the last one may have none."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + [last] * bool(last)
