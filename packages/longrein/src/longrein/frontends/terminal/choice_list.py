"""Lists with one marked row: the answers to a question, and sessions, prompts, models, which
typing narrows.
"""

from collections.abc import Callable, Sequence

import msgspec

from longrein.frontends.localization import translate
from longrein.frontends.terminal.event_lines import Line, cells, crop, line, wrap
from longrein.steps.human_text import escape_line
from longrein_context.events.escape import whole_number


class Row(msgspec.Struct, frozen=True):
    """A row of the list. Its texts are escaped when drawn."""

    value: str
    label: str
    note: str = ""
    """Dim text after the label."""
    group: str = ""
    """Heading above the first row of a group."""
    is_present: bool = False
    """True for what is in force now."""
    short: str = ""
    """Label on a small window; '' where `label` is short."""
    widens: bool = False
    """True if the answer allows more than this call, so that it needs two acts."""


PREVIEW_ROWS_MAX = 8
LIST_ROWS_MIN = 3
"""Rows of the list that what stands below it never takes."""
LIST_SHARE = 4
"""The text about how long the choice holds takes at most this part of the rows: a quarter."""
NOTE_ROWS_MAX = 4
"""Rows of a note that does not fit beside its label."""
HINTS = (
    "; type to search, ↑ ↓ move, Enter chooses, Esc leaves",
    "; type, ↑ ↓, Enter, Esc",
    "",
)
"""What the keys do, the longest text that fits is shown."""


WORDS = {"yes": "y", "ok": "y", "ja": "y", "是": "y", "no": "n", "nein": "n", "否": "n"}
"""Words that answer a question -> the value of the row that they name."""


class ChoiceList:
    """Rows of which one is marked, at first the present choice. Each list of longrein is one: the
    answers to a question, the options of a question of the model, and lists to choose from, on the
    screen and in the plain terminal.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.at = next((n for n, row in enumerate(rows) if row.is_present), 0)

    @property
    def marked(self) -> Row | None:
        return self.rows[self.at] if self.rows else None

    @property
    def chosen(self) -> str:
        return self.rows[self.at].value if self.rows else ""

    def move(self, by: int) -> None:
        self.at = max(min(self.at + by, len(self.rows) - 1), 0)

    def mark(self, row: Row) -> None:
        self.at = self.rows.index(row)

    def by_key(self, text: str) -> Row | None:
        """Return the row that one key names: the digit of its place, or its letter."""
        number = whole_number(text)
        if 0 < number <= len(self.rows):
            return self.rows[number - 1]
        return next((row for row in self.rows if row.value.lower() == text.lower()), None)

    def by_line(self, text: str) -> Row | None:
        """Return the row that a typed line names: the marked one for an empty line, else by its
        key, a word such as `yes`, or the first letters of its label, which no other has.
        """
        text = text.strip().lower()
        if not text:
            return self.marked
        if found := self.by_key(text) or self.by_key(WORDS.get(text, text)):
            return found
        begun = [
            row
            for row in self.rows
            if translate(row.label).lower().startswith(text) or row.label.lower().startswith(text)
        ]
        return begun[0] if len(begun) == 1 else None

    def answers_text(self) -> str:
        """Say what can be answered: `y yes, n no`."""
        return ", ".join(
            f"{escape_line(row.value)} {escape_line(translate(row.short or row.label))}"
            for row in self.rows
        )


class Chooser(ChoiceList):
    """A list to choose from. Typing narrows it to the rows that hold all words of `query`."""

    def __init__(
        self,
        title: str,
        rows: Sequence[Row],
        lasts: str = "",
        want: Callable[[str], None] | None = None,
    ) -> None:
        """`lasts` says how long the choice holds. `want` is called with the value of the marked
        row when its preview is not known yet.
        """
        super().__init__(rows)
        self.title = title
        self.every = rows
        self.query = ""
        self.lasts = lasts
        self.previews: dict[str, Sequence[str]] = {}
        self.keeps = False
        """True if a choice can be kept for new sessions."""
        self._want = want

    def type(self, text: str) -> None:
        self.search(self.query + text)

    def erase(self) -> None:
        self.search(self.query[:-1])

    def search(self, query: str) -> None:
        """Show the rows that hold all words of `query`; mark the row whose number it is where no
        row holds it.
        """
        self.query, self.at = query, 0
        words = query.lower().split()
        self.rows = [
            row
            for row in self.every
            if all(word in self.searched_text(row).lower() for word in words)
        ]
        number = whole_number(query)
        if not self.rows and 0 < number <= len(self.every):
            self.rows, self.at = self.every, number - 1

    def searched_text(self, row: Row) -> str:
        """Text of a row that the filter searches, in English and in the user's language."""
        shown = f"{translate(row.label)} {translate(row.note)}"
        return f"{row.label} {row.note} {row.value} {row.group} {shown}"

    def draw(self, width: int, height: int) -> list[Line]:
        """The list in at most `height` rows: title with the query, rows under their headings, what
        is known of the marked row, how long the choice holds, keys.
        """
        title = escape_line(translate(self.title))
        head = line(("bold", title), ("you", f"  {escape_line(self.query)}▏"))
        if not self.rows:
            hint = line(("dim", translate("nothing fits; Backspace, or Esc leaves")))
            return [crop(row, width) for row in (head, hint)][: max(height, 1)]
        if self._want is not None and self.chosen not in self.previews:
            self._want(self.chosen)
        room = max(height - 2, 1)
        lasts = wrap(line(("dim", translate(self.lasts))), width) if self.lasts else []
        lasts = lasts[: room // LIST_SHARE]
        room -= len(lasts)
        least = min(len(self.rows), LIST_ROWS_MIN, max(room // 2, 1))
        below = self._below(width)[: max(min(PREVIEW_ROWS_MAX, room - least), 0)]
        shown = self._shown(room - len(below))
        rows = [head, *shown, *below, *lasts, line(("dim", self._hint(width)))]
        return [crop(row, width) for row in rows]

    def _below(self, width: int) -> list[Line]:
        """The note of the marked row, where it does not fit beside the label, and the preview."""
        row = self.rows[self.at]
        bar = ("dim", "  │ ")
        rows = []
        if sum(cells(text) for _, text in self._row(self.at)) > width:
            note = line(("dim", escape_line(translate(row.note))))
            rows = [line(bar, *part) for part in wrap(note, max(width - 4, 8))[:NOTE_ROWS_MAX]]
        preview = self.previews.get(row.value, ())
        return [*rows, *(line(bar, ("dim", escape_line(text))) for text in preview)]

    def _hint(self, width: int) -> str:
        where = translate(f"{self.at + 1} of {len(self.rows)}")
        texts = (where + translate(hint) for hint in HINTS)
        return next((text for text in texts if cells(text) <= width), where)

    def _shown(self, room: int) -> list[Line]:
        """The rows around the marked one, with the headings that fit."""
        lines: list[tuple[int, Line]] = []
        group = self.rows[0].group
        for n, row in enumerate(self.rows):
            if row.group != group:
                group = row.group
                heading = f"  ── {escape_line(translate(group))} ──"
                lines.append((-1, line(("dim", heading))))
            lines.append((n, self._row(n)))
        at = next(i for i, (n, _) in enumerate(lines) if n == self.at)
        top = min(max(at - room // 2, 0), max(len(lines) - room, 0))
        return [drawn for _, drawn in lines[top : top + room]]

    def _row(self, n: int) -> Line:
        row, marked = self.rows[n], n == self.at
        return line(
            ("you", "› ") if marked else "  ",
            ("bold" if marked else "", escape_line(translate(row.label))),
            ("ok", f"  {translate('(now)')}" if row.is_present else ""),
            ("dim", f"  {escape_line(translate(row.note))}" if row.note else ""),
        )
