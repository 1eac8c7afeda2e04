"""What changed between two contents of a file, as numbered lines, so that nobody has to read the file again.

    12	unchanged line before
-13	was so
+13	is so now

Long removed blocks are only counted: the model knows them. A change that does not fit is told by its lines alone.
"""

import re
from collections.abc import Iterator, Sequence

DIFF_CHARS_MAX = 5_000
"""A longer account is not given: reading the file costs no more."""
DIFF_LINES_MAX = 3_000
"""Differing lines, first to last, that are compared at all: comparing is quadratic in the worst case."""
AROUND_LINES = 3
"""Unchanged lines shown before and after a change, so that an edit finds its place."""
REMOVED_LINES_MAX = 8
"""Of a longer removed block only the number of lines is told."""

Op = tuple[str, int, int, int, int]
"""(tag, first and end in the old lines, first and end in the new ones), as `difflib` gives them, 0-based."""


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
    head = _common(was, now)
    tail = _common(was[head:][::-1], now[head:][::-1])
    where = _where(head, len(now) - tail, len(was) - tail, len(now))
    if max(len(was), len(now)) - head - tail > DIFF_LINES_MAX:
        return "", where
    diff = _shown(was, now, head, tail)
    return ("", where) if len(diff) > DIFF_CHARS_MAX else (diff, "")


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


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many lines both begin with."""
    for n, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return n
    return min(len(a), len(b))


def _where(first: int, end: int, old_end: int, lines: int) -> str:
    if end <= first:
        return f"{old_end - first} lines after line {first} were removed, {lines} are left"
    return f"changed in lines {first + 1}-{end} of {lines}"


def _shown(was: Sequence[str], now: Sequence[str], head: int, tail: int) -> str:
    from difflib import SequenceMatcher

    a, b = was[head : len(was) - tail], now[head : len(now) - tail]
    ops = [
        (tag, i + head, j + head, k + head, m + head)
        for tag, i, j, k, m in SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    ]
    return "\n".join(_drawn(was, now, ops))


def _drawn(was: Sequence[str], now: Sequence[str], ops: Sequence[Op]) -> Iterator[str]:
    """Each change with what stands around it; ` …` where unchanged lines are left out."""
    last = 0
    for n, (tag, old, old_end, new, new_end) in enumerate(ops):
        if tag == "equal":
            continue
        start = max(last, new - AROUND_LINES)
        if start > last or (last == 0 and start > 0):
            yield " …"
        yield from (f" {at + 1}\t{now[at]}" for at in range(start, new))
        yield from _removed(was, old, old_end)
        yield from (f"+{at + 1}\t{now[at]}" for at in range(new, new_end))
        following = ops[n + 1][4] if n + 1 < len(ops) else len(now)
        last = min(new_end + AROUND_LINES, following if n + 2 < len(ops) else len(now))
        yield from (f" {at + 1}\t{now[at]}" for at in range(new_end, last))
    if last < len(now):
        yield " …"


def _removed(was: Sequence[str], first: int, end: int) -> Iterator[str]:
    if end - first > REMOVED_LINES_MAX:
        yield f"-({end - first} lines removed, {first + 1} to {end} of old)"
        return
    yield from (f"-{at + 1}\t{was[at]}" for at in range(first, end))
