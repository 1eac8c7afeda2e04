"""Line diffs of a file's contents, as shown to the model, and three-way merges. Pure.

`change_of` shows a whole change, `shown_change` the place of one edit, `merge` joins two changes of
one text. The first two give numbered lines, so that the model need not read the file again:

    12	unchanged line before
-13	was so
+13	is so now

Long removed blocks are only counted. Of a change that is too long only the line numbers are given.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from longrein.tools.find_replace import Replacement, line_number, with_lf
from longrein.tools.text_encoding import Decoded, Style, decode, lines_of, visible
from longrein_context.events.escape import shortened

# --- Hunks: the shortest line diff ----------------------------------------------------------------
#
# Common lines at both ends are skipped, then Myers' greedy search finds the shortest script. Texts
# that differ in more than `DIFFERENCES_MAX` lines are one hunk, which bounds the quadratic search.


Hunk = tuple[int, int, int, int]
"""(start and end in the old lines, start and end in the new lines), 0-based. Equal lines
separate two hunks.
"""
DIFFERENCES_MAX = 600
"""Maximum of removed plus added lines in a search: about 0.1 s in the worst case."""


def hunks_of(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """Return the hunks in which `new` differs from `old`, in order."""
    head = common_prefix(old, new)
    tail = common_prefix(old[head:][::-1], new[head:][::-1])
    a, b = old[head : len(old) - tail], new[head : len(new) - tail]
    if not a and not b:
        return []
    return [(head + i, head + j, head + k, head + m) for i, j, k, m in _hunks_between(a, b)]


def common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common beginning."""
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return n
    return min(len(one), len(other))


def _hunks_between(a: Sequence[str], b: Sequence[str]) -> list[Hunk]:
    """Return the hunks of two lists whose first and last lines differ."""
    reached = _search(a, b) if a and b else None
    if reached is None:
        return [(0, len(a), 0, len(b))]
    found: list[Hunk] = []
    first, other = 0, 0
    for i, k, size in (*reversed(list(_equal_runs(reached, len(a), len(b)))), (len(a), len(b), 0)):
        if (first, other) != (i, k):
            found.append((first, i, other, k))
        first, other = i + size, k + size
    return found


def _search(a: Sequence[str], b: Sequence[str]) -> list[list[int]] | None:
    """Return how far each diagonal reached before 0, 1, 2 … differences; None for too many
    differences.

    A diagonal is (index in `a`) - (index in `b`). Negative diagonals use the negative indices of
    each list.
    """
    in_a, in_b = set(a), set(b)
    most = min(len(a) + len(b), DIFFERENCES_MAX)
    if sum(line not in in_b for line in a) + sum(line not in in_a for line in b) > most:
        return None
    reached = [0] * (2 * most + 3)
    trace: list[list[int]] = []
    for differences in range(most + 1):
        trace.append(reached)
        reached = reached.copy()
        for diagonal in range(-differences, differences + 1, 2):
            x, _ = _step(trace[-1], diagonal, differences)
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            reached[diagonal] = x
            if x >= len(a) and y >= len(b):
                return trace
    return None


def _step(reached: Sequence[int], diagonal: int, differences: int) -> tuple[int, int]:
    """Return the furthest index on a diagonal after one more difference, and the diagonal it
    comes from.
    """
    added, removed = reached[diagonal + 1], reached[diagonal - 1] + 1
    if diagonal == -differences or (diagonal != differences and removed <= added):
        return added, diagonal + 1
    return removed, diagonal - 1


def _equal_runs(trace: Sequence[Sequence[int]], x: int, y: int) -> Iterator[tuple[int, int, int]]:
    """Yield runs of equal lines on the path found, last first: (start in old, start in new,
    lines).
    """
    for differences in range(len(trace) - 1, -1, -1):
        diagonal = x - y
        start, came_from = _step(trace[differences], diagonal, differences)
        if x > start:
            yield start, start - diagonal, x - start
        x = trace[differences][came_from]
        y = x - came_from


# --- A whole change, as numbered lines ------------------------------------------------------------


DIFF_CHARS_MAX = 5_000
"""Maximum length of a diff; beyond it, reading the file costs no more."""
DIFF_CONTEXT_LINES = 3
"""Unchanged lines shown before and after a change."""
REMOVED_LINES_MAX = 8
"""Maximum length of a removed block that is shown; a longer one is only counted."""


def change_of(old: bytes | None, new: bytes) -> tuple[str, str]:
    """Return (diff, note): the whole change as lines, or '' and a note that describes it in a few
    words.

    `old` is None when the old content was not kept.
    """
    texts = _text(old or b""), _text(new)
    if old is None:
        return "", "its old content was not kept"
    if texts[0] is None or texts[1] is None:
        return "", f"its content is not plain text, now {len(new)} bytes"
    was, now = _lines(texts[0]), _lines(texts[1])
    if was == now:
        return "", "only its line ends changed"
    hunks = hunks_of(was, now)
    diff = "\n".join(_diff_rows(was, now, hunks))
    return ("", _changed_lines(was, now)) if len(diff) > DIFF_CHARS_MAX else (diff, "")


def _text(data: bytes) -> str | None:
    """Decode text without control characters and invalid bytes; None for other content."""
    found = decode(data)
    odd = r"[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]"
    return None if found is None or re.search(odd, found.text) else found.text


def _lines(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _changed_lines(was: Sequence[str], now: Sequence[str]) -> str:
    """Describe which lines changed, for a change that is too long to show."""
    first = common_prefix(was, now)
    tail = common_prefix(was[first:][::-1], now[first:][::-1])
    if len(now) - tail <= first:
        return (
            f"{len(was) - tail - first} lines after line {first} were removed, {len(now)} are left"
        )
    return f"changed in lines {first + 1}-{len(now) - tail} of {len(now)}"


def _diff_rows(was: Sequence[str], now: Sequence[str], hunks: Sequence[Hunk]) -> Iterator[str]:
    """Yield the rows of a diff: each hunk with its context; ` …` for omitted unchanged lines."""
    last = 0
    for n, (old, old_end, new, new_end) in enumerate(hunks):
        start = max(last, new - DIFF_CONTEXT_LINES)
        if start > last or (last == 0 and start > 0):
            yield " …"
        yield from (f" {at + 1}\t{now[at]}" for at in range(start, new))
        yield from _removed_rows(was, old, old_end)
        yield from (f"+{at + 1}\t{now[at]}" for at in range(new, new_end))
        following = hunks[n + 1][2] if n + 1 < len(hunks) else len(now)
        last = min(new_end + DIFF_CONTEXT_LINES, following)
        yield from (f" {at + 1}\t{now[at]}" for at in range(new_end, last))
    if last < len(now):
        yield " …"


def _removed_rows(was: Sequence[str], first: int, end: int) -> Iterator[str]:
    if end - first > REMOVED_LINES_MAX:
        yield f"-({end - first} lines removed, {first + 1} to {end} of old)"
        return
    yield from (f"-{at + 1}\t{was[at]}" for at in range(first, end))


# --- The place of one edit, for its confirmation --------------------------------------------------


CONTEXT_LINES = 2
"""Unchanged lines shown before and after a change."""
LINES_SHOWN_MAX = 16
"""Removed lines, and added lines, shown for one change."""
CHARS_SHOWN_MAX = 200
"""Characters shown of a line."""


def shown_change(text: str, replacement: Replacement, shift: int = 0) -> str:
    """Return the rows of one change of `text`: number, `-`, `+` or blank, tab, line.

    `shift`: number of lines that earlier changes added above.
    """
    if "\n" not in text and "\r" in text:
        text, replacement = (
            text.replace("\r", "\n"),
            Replacement(replacement.start, replacement.end, replacement.new.replace("\r", "\n")),
        )
    start = text.rfind("\n", 0, replacement.start) + 1
    stop = line_end(text, max(replacement.end - 1, replacement.start))
    new = text[start : replacement.start] + replacement.new + text[replacement.end : stop]
    if new and not new.endswith(("\n", "\r")) and stop < len(text):
        tail = line_end(text, stop)
        new, stop = new + text[stop:tail], tail
    removed, added = lines_of(text[start:stop]), lines_of(new)
    above, below = lines_above(text, start), lines_below(text, stop)
    first = line_number(text, start) + shift
    same = common_prefix(removed, added)
    ending = common_prefix(removed[same:][::-1], added[same:][::-1])
    above, first = [*above, *removed[:same]][-CONTEXT_LINES:], first + same
    below = [*removed[len(removed) - ending :], *below][:CONTEXT_LINES]
    removed, added = removed[same : len(removed) - ending], added[same : len(added) - ending]
    rows = numbered_rows(above, first - len(above), " ") + cap_rows(
        numbered_rows(removed, first, "-")
    )
    rows += cap_rows(numbered_rows(added, first, "+")) + numbered_rows(
        below, first + len(added), " "
    )
    return "\n".join(rows)


def group_nearby(text: str, replacements: list[Replacement]) -> list[list[Replacement]]:
    """Group replacements so that no replacement lies in the context lines of another group."""
    groups: list[list[Replacement]] = []
    for replacement in replacements:
        if groups and text.count("\n", groups[-1][-1].end, replacement.start) <= CONTEXT_LINES + 1:
            groups[-1].append(replacement)
        else:
            groups.append([replacement])
    return groups


def line_end(text: str, at: int) -> int:
    """Return the index after the next line end."""
    return text.find("\n", at) + 1 or len(text)


def lines_above(text: str, start: int) -> list[str]:
    """Return the context lines before a line's start."""
    at = start
    for _ in range(CONTEXT_LINES):
        at = text.rfind("\n", 0, max(at - 1, 0)) + 1
    return lines_of(text[at:start])


def lines_below(text: str, stop: int) -> list[str]:
    """Return the context lines from a line's start on."""
    at = stop
    for _ in range(CONTEXT_LINES):
        at = line_end(text, at)
    return lines_of(text[stop:at])


def numbered_rows(lines: list[str], first: int, sign: str) -> list[str]:
    """Return rows with line numbers and `sign`."""
    return [
        f"{number}{sign}\t{cut_line(line)}".rstrip() for number, line in enumerate(lines, first)
    ]


def cut_line(line: str) -> str:
    """Return a line fit to be shown, at most `CHARS_SHOWN_MAX` characters."""
    return shortened(visible(line.rstrip("\r")), CHARS_SHOWN_MAX)


def cap_rows(rows: list[str]) -> list[str]:
    """Limit rows to `LINES_SHOWN_MAX`."""
    if len(rows) <= LINES_SHOWN_MAX:
        return rows
    return [
        *rows[: LINES_SHOWN_MAX - 2],
        f"… {len(rows) - LINES_SHOWN_MAX + 1} more such lines",
        rows[-1],
    ]


# --- Three-way merge by lines ---------------------------------------------------------------------
#
# Symmetric in ours and theirs. A conflict gives None; conflict markers are never written. Changes
# of adjacent lines, without an unchanged line between, conflict. Byte order mark and line ends are
# merged separately from the lines, so that converting a file does not conflict with changing a
# line.


T = TypeVar("T")
Change = tuple[int, int, tuple[str, ...]]
"""(start and end in the base, 0-based, replacement lines)."""


def merge(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Merge two changes of `base`; None for a conflict. Binary content merges only when one side
    is unchanged.
    """
    if (whole := merge_values(base, ours, theirs)) is not None:
        return whole
    texts = decode(base), decode(ours), decode(theirs)
    if texts[0] is None or texts[1] is None or texts[2] is None:
        return None
    return merge_texts(texts[0], texts[1], texts[2])


def merge_texts(base: Decoded, ours: Decoded, theirs: Decoded) -> bytes | None:
    """Merge decoded files; None for a conflict."""
    texts = (base, ours, theirs)
    if len({text.style.encoding for text in texts}) > 1:
        return None
    bom = merge_values(*(text.style.bom for text in texts))
    mixed = any(text.style.mixed for text in texts)
    eol = "\n" if mixed else merge_values(*(text.style.eol for text in texts))
    if bom is None or eol is None:
        return None
    lines = merge_lines(
        *(_merged_lines(text.text if mixed else with_lf(text.text)) for text in texts)
    )
    if lines is None:
        return None
    text = "".join(lines)
    return Style(base.style.encoding, bom).encode(text if eol == "\n" else text.replace("\n", eol))


def merge_values(base: T, ours: T, theirs: T) -> T | None:
    """Return the changed value; None when both sides changed it differently."""
    if ours in (base, theirs):
        return theirs
    return ours if theirs == base else None


def merge_lines(
    base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> list[str] | None:
    """Merge the changes of both sides; None when two of them touch."""
    changes = dict.fromkeys(
        sorted([*changes_of(base, ours), *changes_of(base, theirs)])
    )  # the same on both: once
    merged: list[str] = []
    at = -1
    for first, end, lines in changes:
        if first <= at:
            return None
        merged += (*base[max(at, 0) : first], *lines)
        at = end
    return [*merged, *base[max(at, 0) :]]


def changes_of(base: Sequence[str], text: Sequence[str]) -> list[Change]:
    """Return the changes from `base` to `text`."""
    return [
        (first, end, tuple(text[new:new_end])) for first, end, new, new_end in hunks_of(base, text)
    ]


def _merged_lines(text: str) -> list[str]:
    """Split into lines that keep their line ends."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + [last] * bool(last)
