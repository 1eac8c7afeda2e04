"""Styled lines: what is drawn before any terminal library has seen it. Widths are terminal cells."""

from collections.abc import Iterable, Sequence
from unicodedata import category, east_asian_width

Span = tuple[str, str]
"""(style word, text). The text is escaped already and holds no newline."""
Line = tuple[Span, ...]

ONE: Span = ("one", "")
"""A line that begins with it is cropped to the width, never wrapped: one line a call."""

SGR = {
    "": "",
    "one": "",
    "dim": "2",
    "bold": "1",
    "you": "1;36",
    "name": "1",
    "ok": "32",
    "bad": "31",
    "warn": "33",
    "run": "36",
    "add": "32",
    "del": "31",
    "where": "36;2",
}
"""Style word -> ANSI attributes: the sixteen colours only, so that the user's own theme holds."""


def line(*spans: Span | str) -> Line:
    """A line of spans; a bare string has no style."""
    return tuple(("", span) if isinstance(span, str) else span for span in spans)


def plain(of: Line) -> str:
    """The text alone."""
    return "".join(text for _, text in of)


def ansi(of: Line, *, colour: bool = True) -> str:
    """The text with its attributes."""
    if not colour:
        return plain(of)
    return "".join(f"\x1b[{SGR[style]}m{text}\x1b[0m" if SGR[style] and text else text for style, text in of)


def cells(text: str) -> int:
    """Columns that `text` takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if char < "\u0300":
        return 1
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def crop(of: Line, width: int) -> Line:
    """`of` in at most `width` columns, with `…` where it was cut."""
    if sum(cells(text) for _, text in of) <= width:
        return of
    kept: list[Span] = []
    left = max(width - 1, 0)
    for style, text in of:
        part, rest = cut(text, left)
        kept.append((style, part))
        left -= cells(part)
        if rest:
            break
    return (*kept, ("dim", "…")) if width > 0 else ()


def cut(text: str, width: int) -> tuple[str, str]:
    """`text` in two: as much as fits into `width` columns, and the rest."""
    if text.isascii():
        return text[:width], text[width:]
    used = 0
    for at, char in enumerate(text):
        used += _cells(char)
        if used > width:
            return text[:at], text[at:]
    return text, ""


def wrap(of: Line, width: int, indent: str = "") -> list[Line]:
    """`of` broken to rows of `width` columns, at blanks where it can be; later rows begin with `indent`."""
    width = max(width, len(indent) + 4)
    rows: list[Line] = []
    row: list[Span] = []
    left = width
    for style, text in of:
        rest = text
        while cells(rest) > left:
            part, rest = _break(rest, left, fresh=not row or left == width - len(indent))
            row.append((style, part))
            rows.append(tuple(row))
            row, left = ([("", indent)] if indent else []), width - len(indent)
        row.append((style, rest))
        left -= cells(rest)
    return [*rows, tuple(row)]


def _break(text: str, width: int, *, fresh: bool) -> tuple[str, str]:
    """A first row of at most `width` columns and what follows it."""
    part, rest = cut(text, width)
    if fresh and not part:  # one wide character in a very narrow place
        return text[:1], text[1:]
    blank = part.rfind(" ")
    if rest.startswith(" "):
        return part, rest[1:]
    if blank > 0 and len(part) - blank < 40:
        return part[:blank], part[blank + 1 :] + rest
    return part, rest


def wrap_text(text: str, width: int, style: str = "") -> list[Line]:
    """Escaped text of several lines, each wrapped."""
    return [row for part in text.expandtabs(4).split("\n") for row in wrap(((style, part),), width)]


def fold(lines: Sequence[Line], most: int) -> list[Line]:
    """At most `most` lines: where there are more, the first ones and how many were left out."""
    if len(lines) <= most:
        return list(lines)
    shown = max(most - 1, 1)
    return [*lines[:shown], line(("dim", f"… {len(lines) - shown} more lines"))]


def fit(of: Line, width: int) -> list[Line]:
    """`of` as rows of at most `width` columns: cropped where it begins with `ONE`, else wrapped."""
    return [crop(of, width)] if ONE in of[:2] else wrap(of, width)


def indented(lines: Iterable[Line], by: str = "  ") -> list[Line]:
    """Each line moved to the right."""
    return [(("", by), *of) for of in lines]
