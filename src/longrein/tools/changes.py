"""What changed between two contents of a file, as numbered lines, so that nobody has to read the file again.

    12	unchanged line before
-13	was so
+13	is so now

Long removed blocks are only counted: the model knows them. A change that does not fit is told by its lines alone.
"""

import re
from collections.abc import Iterator, Sequence

from longrein.tools.hunks import Hunk, common, hunks_of

DIFF_CHARS_MAX = 5_000
"""A longer account is not given: reading the file costs no more."""
AROUND_LINES = 3
"""Unchanged lines shown before and after a change, so that an edit finds its place."""
REMOVED_LINES_MAX = 8
"""Of a longer removed block only the number of lines is told."""


def change_of(old: bytes | None, new: bytes) -> tuple[str, str]:
    """(diff, note): the whole change as lines, or '' and in a few words why not. `old` None: it is not known any more.

    A note beside an empty diff may be all there is to say, as when only line ends changed.
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
    diff = "\n".join(_drawn(was, now, hunks))
    return ("", _where(was, now)) if len(diff) > DIFF_CHARS_MAX else (diff, "")


def _text(data: bytes) -> str | None:
    """The text of plain UTF-8; None for all else."""
    if b"\0" in data:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if re.search(r"[\x01-\x08\x0b\x0e-\x1f\x7f]", text) else text


def _lines(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _where(was: Sequence[str], now: Sequence[str]) -> str:
    """The lines of a change that is too long to be shown."""
    first = common(was, now)
    tail = common(was[first:][::-1], now[first:][::-1])
    if len(now) - tail <= first:
        return f"{len(was) - tail - first} lines after line {first} were removed, {len(now)} are left"
    return f"changed in lines {first + 1}-{len(now) - tail} of {len(now)}"


def _drawn(was: Sequence[str], now: Sequence[str], hunks: Sequence[Hunk]) -> Iterator[str]:
    """Each change with what stands around it; ` …` where unchanged lines are left out."""
    last = 0
    for n, (old, old_end, new, new_end) in enumerate(hunks):
        start = max(last, new - AROUND_LINES)
        if start > last or (last == 0 and start > 0):
            yield " …"
        yield from (f" {at + 1}\t{now[at]}" for at in range(start, new))
        yield from _removed(was, old, old_end)
        yield from (f"+{at + 1}\t{now[at]}" for at in range(new, new_end))
        following = hunks[n + 1][2] if n + 1 < len(hunks) else len(now)
        last = min(new_end + AROUND_LINES, following)
        yield from (f" {at + 1}\t{now[at]}" for at in range(new_end, last))
    if last < len(now):
        yield " …"


def _removed(was: Sequence[str], first: int, end: int) -> Iterator[str]:
    if end - first > REMOVED_LINES_MAX:
        yield f"-({end - first} lines removed, {first + 1} to {end} of old)"
        return
    yield from (f"-{at + 1}\t{was[at]}" for at in range(first, end))
