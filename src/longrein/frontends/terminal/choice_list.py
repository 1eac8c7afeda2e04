"""A list to choose one row from: sessions, prompts, models."""

from collections.abc import Sequence

import msgspec

from longrein.frontends.localization import translate
from longrein.frontends.terminal.event_lines import Line, crop, line
from longrein.steps.human_text import escape_line


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
        self.title = title
        self.rows = rows
        self.at = 0

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
            crop(row, width)
            for row in [
                line(("bold", translate(self.title))),
                *shown,
                line(("dim", translate(hint))),
            ]
        ]

    def _row(self, n: int) -> Line:
        row, marked = self.rows[n], n == self.at
        label = ("bold" if marked else "", escape_line(row.label))
        return line(
            ("you", "› ") if marked else "  ",
            label,
            ("dim", f"  {escape_line(translate(row.note))}" if row.note else ""),
        )


class TypedList(Chooser):
    """A list that typing narrows to the rows that hold all words of `query`."""

    def __init__(self, title: str, rows: Sequence[Row]) -> None:
        super().__init__(title, rows)
        self.every, self.query = rows, ""

    @property
    def chosen(self) -> str:
        return self.rows[self.at].value if self.rows else ""

    def move(self, by: int) -> None:
        self.at = max(min(self.at + by, len(self.rows) - 1), 0)

    def type(self, text: str) -> None:
        self.search(self.query + text)

    def erase(self) -> None:
        self.search(self.query[:-1])

    def search(self, query: str) -> None:
        """Show the rows that hold all words of `query`."""
        self.query, self.at = query, 0
        words = query.lower().split()
        self.rows = [
            row
            for row in self.every
            if all(word in self.searched_text(row).lower() for word in words)
        ]

    def searched_text(self, row: Row) -> str:
        """Text of a row in which the words are looked for."""
        return f"{row.label} {row.note} {row.value} {row.group}"
