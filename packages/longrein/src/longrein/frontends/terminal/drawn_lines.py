"""Which lines of a text the user has had on the screen. Knows no terminal.

The rule of approvals: a yes covers a line only if each of its rows was drawn, in the panel of the
question or on its page, in a window of whatever size.
"""

from bisect import bisect_right
from collections.abc import Sequence

from longrein.frontends.terminal.event_lines import Line, wrap


class DrawnLines:
    """A text that is wrapped to windows of any size, and the lines of which all rows were drawn."""

    def __init__(
        self, lines: Sequence[Line], drawn: set[int] | None = None, before: int = 0
    ) -> None:
        """`drawn`: a set that several views of one text share; it counts lines from the one that
        follows the first `before`.
        """
        self._lines = lines
        self._before = before
        self.drawn = set[int]() if drawn is None else drawn
        """Numbers of the lines that were drawn whole."""
        self.rows: Sequence[Line] = ()
        """All rows at the present width."""
        self.starts: list[int] = []
        """First row of each line."""
        self._width = 0
        self._rows_drawn: set[int] = set()
        """Drawn rows at the present width."""

    def wrap(self, width: int) -> None:
        """Wrap the lines to `width`. Of a line that was drawn in part, all rows count anew."""
        if width == self._width:
            return
        self._width = width
        self._rows_drawn.clear()
        rows: list[Line] = []
        self.starts = []
        for of in self._lines:
            self.starts.append(len(rows))
            rows += wrap(of, width)
        self.rows = rows

    def line_at(self, row: int) -> int:
        """Number of the line that is drawn in `row`."""
        return max(bisect_right(self.starts, row) - 1, 0)

    def mark(self, first: int, count: int) -> None:
        """Count rows as drawn, from `first` on."""
        last = min(first + count, len(self.rows))
        self._rows_drawn.update(range(first, last))
        for at in range(self.line_at(first), self.line_at(last - 1) + 1 if last > first else 0):
            end = self.starts[at + 1] if at + 1 < len(self.starts) else len(self.rows)
            if self._rows_drawn.issuperset(range(self.starts[at], end)):
                self.drawn.add(at - self._before)
