"""What the model is shown of a change: the lines that differ, numbered, with a little around them. Pure."""

from longrein.tools.encoding import lines_of
from longrein.tools.replace import Site, line_at
from longrein.tools.text import visible

AROUND = 2
"""Unchanged lines shown before and after a change."""
LINES_SHOWN_MAX = 16
"""Removed, and added, lines shown of one change."""
CHARS_SHOWN_MAX = 200
"""Characters shown of a line."""


def shown_change(text: str, site: Site, shift: int = 0) -> str:
    """One changed place of `text`: number, `-` `+` or blank, tab, line. `shift`: lines that changes above it added."""
    if "\n" not in text and "\r" in text:
        text, site = text.replace("\r", "\n"), Site(site.start, site.end, site.new.replace("\r", "\n"))
    start = text.rfind("\n", 0, site.start) + 1
    stop = line_end(text, max(site.end - 1, site.start))
    new = text[start : site.start] + site.new + text[site.end : stop]
    if new and not new.endswith(("\n", "\r")) and stop < len(text):
        tail = line_end(text, stop)
        new, stop = new + text[stop:tail], tail
    removed, added = lines_of(text[start:stop]), lines_of(new)
    above, below = lines_above(text, start), lines_below(text, stop)
    first = line_at(text, start) + shift
    same = common(removed, added)
    ending = common(removed[same:][::-1], added[same:][::-1])
    above, first = [*above, *removed[:same]][-AROUND:], first + same
    below = [*removed[len(removed) - ending :], *below][:AROUND]
    removed, added = removed[same : len(removed) - ending], added[same : len(added) - ending]
    rows = numbered(above, first - len(above), " ") + shortened(numbered(removed, first, "-"))
    rows += shortened(numbered(added, first, "+")) + numbered(below, first + len(added), " ")
    return "\n".join(rows)


def neighbours(text: str, sites: list[Site]) -> list[list[Site]]:
    """`sites` in groups, such that no group's changes stand among the unchanged lines shown around another."""
    groups: list[list[Site]] = []
    for site in sites:
        if groups and text.count("\n", groups[-1][-1].end, site.start) <= AROUND + 1:
            groups[-1].append(site)
        else:
            groups.append([site])
    return groups


def line_end(text: str, at: int) -> int:
    """Index after the line end at or after `at`."""
    return text.find("\n", at) + 1 or len(text)


def lines_above(text: str, start: int) -> list[str]:
    """The last lines before a line's start."""
    at = start
    for _ in range(AROUND):
        at = text.rfind("\n", 0, max(at - 1, 0)) + 1
    return lines_of(text[at:start])


def lines_below(text: str, stop: int) -> list[str]:
    """The first lines from a line's start."""
    at = stop
    for _ in range(AROUND):
        at = line_end(text, at)
    return lines_of(text[stop:at])


def common(one: list[str], other: list[str]) -> int:
    """How many lines are the same from the beginning."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def numbered(lines: list[str], first: int, sign: str) -> list[str]:
    """Rows of one kind."""
    return [f"{number}{sign}\t{short(line)}".rstrip() for number, line in enumerate(lines, first)]


def short(line: str) -> str:
    """A line as it can be shown."""
    line = visible(line.rstrip("\r"))
    return line if len(line) <= CHARS_SHOWN_MAX else line[:CHARS_SHOWN_MAX] + "…"


def shortened(rows: list[str]) -> list[str]:
    """Not more rows than a confirmation should have."""
    if len(rows) <= LINES_SHOWN_MAX:
        return rows
    return [*rows[: LINES_SHOWN_MAX - 2], f"… {len(rows) - LINES_SHOWN_MAX + 1} more such lines", rows[-1]]
