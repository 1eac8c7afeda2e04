"""What differs between two lists of lines, as few hunks as there are. Pure, and its work is bounded.

Myers' greedy search for the shortest script, after what both begin and end with. Two texts that differ in more than
`DIFFERENCES_MAX` lines are one hunk: a quadratic search would cost more than anybody learns from it.
"""

from collections.abc import Iterator, Sequence

Hunk = tuple[int, int, int, int]
"""(first and end in the old lines, first and end in the new ones), 0-based. Between two hunks stands an equal line."""
DIFFERENCES_MAX = 600
"""Lines removed plus lines added that are told apart: some 0.1 s in the worst case."""


def hunks_of(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """Every place where `new` is not `old`, in order."""
    head = common(old, new)
    tail = common(old[head:][::-1], new[head:][::-1])
    a, b = old[head : len(old) - tail], new[head : len(new) - tail]
    if not a and not b:
        return []
    return [(head + i, head + j, head + k, head + m) for i, j, k, m in _hunks(a, b)]


def common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return n
    return min(len(one), len(other))


def _hunks(a: Sequence[str], b: Sequence[str]) -> list[Hunk]:
    """Hunks of two lists that begin and end differently."""
    reached = _search(a, b) if a and b else None
    if reached is None:
        return [(0, len(a), 0, len(b))]
    found: list[Hunk] = []
    first, other = 0, 0
    for i, k, size in (*reversed(list(_equal(reached, len(a), len(b)))), (len(a), len(b), 0)):
        if (first, other) != (i, k):
            found.append((first, i, other, k))
        first, other = i + size, k + size
    return found


def _search(a: Sequence[str], b: Sequence[str]) -> list[list[int]] | None:
    """How far each diagonal reached before 0, 1, 2 … differences, until one reaches the end; None for too many.

    A diagonal is (index in `a`) - (index in `b`); -1 is the last of a list, so each list holds negative ones too.
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
    """Where one more difference leads on a diagonal, and from which: a line more or a line less, what comes further."""
    added, removed = reached[diagonal + 1], reached[diagonal - 1] + 1
    if diagonal == -differences or (diagonal != differences and removed <= added):
        return added, diagonal + 1
    return removed, diagonal - 1


def _equal(trace: Sequence[Sequence[int]], x: int, y: int) -> Iterator[tuple[int, int, int]]:
    """Runs of equal lines on the way found, from the end: (first in old, first in new, lines)."""
    for differences in range(len(trace) - 1, -1, -1):
        diagonal = x - y
        start, came_from = _step(trace[differences], diagonal, differences)
        if x > start:
            yield start, start - diagonal, x - start
        x = trace[differences][came_from]
        y = x - came_from
