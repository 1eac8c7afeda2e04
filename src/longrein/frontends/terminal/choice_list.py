"""A list to choose one row from: sessions, prompts, models."""

from collections.abc import Sequence

import msgspec

from longrein.frontends.terminal.event_lines import Line, crop, line
from longrein.frontends.text_format import escape_line
from longrein.frontends.translation import translate


class Row(msgspec.Struct, frozen=True):
    """A row of the list. Its texts are escaped when drawn."""

    value: str
    label: str
    note: str = ""
    """Dim text after the label."""
    group: str = ""
    """Heading above the first row of a group, in lists that can be searched."""


class Chooser:
    """A list with one row marked."""

    def __init__(self, title: str, rows: Sequence[Row]) -> None:
        self.title, self.rows, self.at = title, rows, 0

    @property
    def chosen(self) -> str:
        return self.rows[self.at].value

    def move(self, by: int) -> None:
        self.at = min(max(self.at + by, 0), len(self.rows) - 1)

    def draw(self, width: int, height: int) -> list[Line]:
        """The list in at most `height` rows; the marked one is among them."""
        room = max(height - 2, 1)
        top = min(max(self.at - room // 2, 0), max(len(self.rows) - room, 0))
        shown = [self._row(n) for n in range(top, min(top + room, len(self.rows)))]
        hint = f"{self.at + 1} of {len(self.rows)}; ↑ ↓ move, Enter chooses, Esc leaves"
        return [
            crop(row, width) for row in [line(("bold", translate(self.title))), *shown, line(("dim", translate(hint)))]
        ]

    def _row(self, n: int) -> Line:
        row, marked = self.rows[n], n == self.at
        label = ("bold" if marked else "", escape_line(row.label))
        return line(
            ("you", "› ") if marked else "  ",
            label,
            ("dim", f"  {escape_line(translate(row.note))}" if row.note else ""),
        )
