"""A text that fills the screen: sections, scrolling, search. Knows no terminal."""

from collections.abc import Sequence

import msgspec

from longrein.frontends.localization import translate
from longrein.frontends.terminal.drawn_lines import DrawnLines
from longrein.frontends.terminal.event_lines import (
    Line,
    cells,
    crop,
    cut,
    line,
    plain,
)

KEYS_HINT = "↑ ↓ PgUp PgDn move · / search · Tab next part · q back"
NARROW_HINT = "q back · / search"
WIDTH_MIN = 8
"""Columns to which lines are wrapped at least; rows of a narrower window are cropped."""


class Section(msgspec.Struct, frozen=True):
    """A part of a page. Its lines are escaped."""

    heading: Line
    lines: Sequence[Line]
    opens: str = ""
    """Handle that Enter opens, such as the log of a subagent; '' for none."""


class Page(msgspec.Struct, frozen=True):
    """A title and the sections below it."""

    title: str
    """Escaped."""
    sections: Sequence[Section]
    at_end: bool = False
    """True if the page opens with its last section in view."""

    def lines(self) -> list[Line]:
        return [row for section in self.sections for row in (section.heading, *section.lines)]


class PageView:
    """A window on a page: what is visible, and where a search has got to."""

    def __init__(self, page: Page, drawn: set[int] | None = None, before: int = 0) -> None:
        """`drawn`, `before`: of `DrawnLines`."""
        self.page = page
        self.top = 0
        """First visible row."""
        self.typing: str | None = None
        """Text of the search while it is typed; None while none is."""
        self.wanted = ""
        """Text of the last search, in lower case."""
        self.message = ""
        """Result of the last search that found nothing."""
        self._found = -1
        """Line that the last search found; -1 after another move."""
        self.answers: Line = ()
        """Keys that answer a question, shown in the last row in place of the hint."""
        self._lines = page.lines()
        self._text = DrawnLines(self._lines, drawn, before)
        self._width = 0
        self._height = 1
        self._opened = False

    def draw(self, width: int, height: int) -> list[Line]:
        """Exactly `height` rows: title, text, position and keys."""
        self._wrap(max(width, WIDTH_MIN))
        self._height = max(height - 2, 1)
        if not self._opened:
            self._opened = True
            if self.page.at_end and self.page.sections:
                self.top = min(self._text.starts[self._sections()[-1]], self._last_top)
        self.top = min(self.top, self._last_top)
        visible = self._text.rows[self.top : self.top + self._height]
        if width >= WIDTH_MIN:
            self._text.mark(self.top, min(len(visible), height))
        body = [self._marked(row) for row in visible] + [()] * (self._height - len(visible))
        if height < 3:
            return [crop(row, width) for row in body][:height]
        return [crop(row, width) for row in (self._title(width), *body, self._status(width))]

    def _title(self, width: int) -> Line:
        """The title; of a long one both ends, so that the name of a file is visible."""
        title = self.page.title
        if cells(title) > width > 12:
            head, tail = cut(title, width // 3)[0], title
            while cells(head) + 1 + cells(tail) > width:
                tail = tail[1:]
            title = f"{head}…{tail}"
        return line(("bold", title))

    def _wrap(self, width: int) -> None:
        """Wrap the lines anew for another width; the line at the top stays there."""
        if width == self._width:
            return
        line_at_top = self._text.line_at(self.top)
        self._width = width
        self._text.wrap(width)
        self.top = self._text.starts[line_at_top] if self._text.starts else 0

    def _sections(self) -> list[int]:
        """Number of the heading line of each section."""
        found, at = [], 0
        for section in self.page.sections:
            found.append(at)
            at += 1 + len(section.lines)
        return found

    @property
    def _last_top(self) -> int:
        return max(len(self._text.rows) - self._height, 0)

    def _status(self, width: int) -> Line:
        if self.typing is not None:
            return line(("you", "/"), self.typing, ("dim", translate("  Enter finds, Esc leaves")))
        if self.message:
            return line(("warn", translate(self.message)))
        last = min(self.top + self._height, len(self._text.rows))
        where = f"{last}/{len(self._text.rows)}  "
        if self.answers:
            needed = sum(cells(text) for _, text in self.answers)
            if needed > width:  # the page has the labels
                return tuple(span for span in self.answers if span[0])
            return line(("dim", where * (len(where) + needed <= width)), *self.answers)
        opens = translate(" · Enter opens") if self.section.opens else ""
        hint = translate(KEYS_HINT) + opens
        fits = cells(where) + cells(hint) <= width
        return line(("dim", where + (hint if fits else translate(NARROW_HINT))))

    def _marked(self, row: Line) -> Line:
        """`row` with the found text marked."""
        if not self.wanted or self.wanted not in plain(row).lower():
            return row
        spans = []
        for style, text in row:
            rest = text
            while (at := rest.lower().find(self.wanted)) >= 0:
                end = at + len(self.wanted)
                spans += [(style, rest[:at]), ("you", rest[at:end])]
                rest = rest[end:]
            spans.append((style, rest))
        return tuple(spans)

    # --- Moving -----------------------------------------------------------------------------------

    def scroll(self, rows: int = 0, pages: int = 0) -> None:
        self.message, self._found = "", -1
        self.top = min(max(self.top + rows + pages * max(self._height - 1, 1), 0), self._last_top)

    def go(self, *, end: bool) -> None:
        self.message, self._found = "", -1
        self.top = self._last_top if end else 0

    @property
    def section(self) -> Section:
        """The section that the top row belongs to."""
        at = self._text.line_at(self.top)
        number = max((n for n, start in enumerate(self._sections()) if start <= at), default=-1)
        return self.page.sections[number] if number >= 0 else Section((), ())

    def next_section(self, by: int) -> None:
        """Move to the heading of the next (`by` = 1) or the previous (-1) section."""
        self.message, self._found = "", -1
        starts = [self._text.starts[at] for at in self._sections()]
        after = [start for start in starts if start > self.top]
        before = [start for start in starts if start < self.top]
        self.top = min(
            (after or [self._last_top])[0] if by > 0 else (before or [0])[-1], self._last_top
        )

    # --- Searching --------------------------------------------------------------------------------

    def search(self, text: str) -> None:
        """Move to the next line that holds `text`, ignoring case; an empty `text` repeats the
        last search.
        """
        self.typing = None
        self.wanted = text.lower() or self.wanted
        self.find(1)

    def find(self, by: int) -> None:
        """Move to the next (`by` = 1) or the previous (-1) line that holds the text, around the
        ends of the page.
        """
        self.message = ""
        here, count = (
            self._found if self._found >= 0 else self._text.line_at(self.top),
            len(self._lines),
        )
        for step in range(1, count + 1):
            at = (here + by * step) % count
            if self.wanted and self.wanted in plain(self._lines[at]).lower():
                self._found, self.top = at, min(self._text.starts[at], self._last_top)
                return
        self.message = (
            f"not found: {self.wanted}" if self.wanted else "nothing was searched for yet"
        )
