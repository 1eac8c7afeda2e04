"""Search of what was sent before (Ctrl-R): the messages of this folder first, then those of all
folders.
"""

import os
from collections.abc import Iterator
from contextlib import suppress

from longrein.events.escape import one_line
from longrein.frontends.terminal.choice_list import Row, TypedList
from longrein.frontends.terminal.event_lines import Line, crop, line
from longrein.frontends.terminal.input_completion import ProjectHistory
from longrein.steps.human_text import escape_line

FILES_MAX = 50
"""Other folders whose newest messages are searched."""
ROWS_MAX = 5_000


def sent_messages(history: str) -> list[Row]:
    """Return the messages of the file `history`, newest first, then those of the other files in
    its folder.
    """
    rows: dict[str, Row] = {}
    for path, folder in _files(history):
        for text in ProjectHistory(path).load_history_strings():
            if len(rows) >= ROWS_MAX:
                return list(rows.values())
            if text.strip():
                rows.setdefault(text, Row(text, one_line(text), folder))
    return list(rows.values())


def _files(history: str) -> Iterator[tuple[str, str]]:
    """Yield the files of messages with a word for their folder; '' for this one."""
    if not history:
        return
    yield history, ""
    folder, others = os.path.dirname(history), []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.path != history and entry.is_file(follow_symlinks=False):
                others.append((entry.stat().st_mtime, entry.path))
    for _, path in sorted(others, reverse=True)[:FILES_MAX]:
        yield path, os.path.basename(path)[-40:]


class HistorySearch(TypedList):
    """A list of messages that what is typed narrows: each word must occur."""

    def __init__(self, rows: list[Row], typed: str = "") -> None:
        super().__init__("search what was sent", rows)
        self.type(typed)

    def searched_text(self, row: Row) -> str:
        return row.label

    def draw(self, width: int, height: int) -> list[Line]:
        """The search line, then the list in at most `height` rows."""
        head = line(("bold", f"{self.title}: "), ("you", escape_line(self.query)), ("dim", "▏"))
        if not self.rows:
            none = "nothing that was sent matches" if self.every else "nothing was sent yet"
            return [crop(head, width), crop(line(("dim", f"  {none}; Esc leaves")), width)]
        return [crop(head, width), *super().draw(width, height)[1:]]
