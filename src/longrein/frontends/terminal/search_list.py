"""A list that typing narrows, with headings and a preview of the marked row: the sessions of
`/resume`.
"""

from collections.abc import Awaitable, Callable, Sequence

from longrein.events import LongreinError
from longrein.frontends.terminal.choice_list import Row, TypedList
from longrein.frontends.terminal.command_types import Choices
from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.event_lines import Line, crop, line
from longrein.steps.human_text import escape_line

PREVIEW_ROWS_MAX = 8
LIST_ROWS_MIN = 3
"""Rows of the list that a preview never takes."""


class SearchList(TypedList):
    """A list of rows that typing narrows, with a preview of the marked row."""

    def __init__(self, title: str, rows: Sequence[Row], want: Callable[[str], None]) -> None:
        """`want` is called with the value of the marked row when its preview is not known yet."""
        super().__init__(title, rows)
        self.previews: dict[str, Sequence[str]] = {}
        self._want = want

    def draw(self, width: int, height: int) -> list[Line]:
        """The list in at most `height` rows: title with the query, rows under their headings,
        preview, hint.
        """
        head = line(("bold", self.title), ("you", f"  {escape_line(self.query)}▏"))
        if not self.rows:
            hint = line(("dim", "nothing fits; Backspace, or Esc leaves"))
            return [crop(row, width) for row in (head, hint)][: max(height, 1)]
        if self.chosen not in self.previews:
            self._want(self.chosen)
        room = max(height - 2, 1)
        below = list(self.previews.get(self.chosen, ()))[
            : max(min(PREVIEW_ROWS_MAX, room - LIST_ROWS_MIN), 0)
        ]
        preview = [line(("dim", f"  │ {escape_line(text)}")) for text in below]
        shown = self._shown(room - len(preview))
        hint = line(
            (
                "dim",
                (
                    f"{self.at + 1} of {len(self.rows)}; type to search, ↑ ↓ move, Enter chooses, "
                    "Esc "
                    "leaves"
                ),
            )
        )
        return [crop(row, width) for row in [head, *shown, *preview, hint]]

    def _shown(self, room: int) -> list[Line]:
        """The rows around the marked one, with the headings that fit."""
        lines: list[tuple[int, Line]] = []
        group = self.rows[0].group
        for n, row in enumerate(self.rows):
            if row.group != group:
                group = row.group
                lines.append((-1, line(("dim", f"  ── {escape_line(group)} ──"))))
            lines.append((n, self._row(n)))
        at = next(i for i, (n, _) in enumerate(lines) if n == self.at)
        top = min(max(at - room // 2, 0), max(len(lines) - room, 0))
        return [drawn for _, drawn in lines[top : top + room]]


def make_searchable(conversation: Conversation, choices: Choices) -> None:
    """Replace the list that is open by one that can be searched, if `choices` asks for it."""
    if not choices.search or conversation.chooser is None:
        return
    wanted: set[str] = set()

    def want(value: str) -> None:
        if choices.preview is not None and value not in wanted:
            wanted.add(value)
            conversation.spawn(_load(conversation, found, value, choices.preview))

    found = conversation.chooser = SearchList(choices.title, choices.rows, want)
    conversation.redraw()


async def _load(
    conversation: Conversation,
    found: SearchList,
    value: str,
    preview: Callable[[str], Awaitable[Sequence[str]]],
) -> None:
    try:
        found.previews[value] = await preview(value)
    except LongreinError as error:
        found.previews[value] = (str(error),)
    conversation.request_redraw()
