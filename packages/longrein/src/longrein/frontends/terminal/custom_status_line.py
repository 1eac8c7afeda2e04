"""Status line: rows below the input that a command of the user prints from data about the
session.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples

from longrein.agent import SessionUpdate
from longrein.frontends.terminal.event_lines import cells
from longrein.frontends.terminal.view_model import ViewModel
from longrein.settings_schema import TerminalOptions
from longrein.steps import CallStep, Projection, RequestStep, Step
from longrein.steps.human_text import escape
from longrein_context.events import Entry, LongreinError

DEBOUNCE_S = 0.3
ROWS_MAX = 5
ROOM_SHARE = 6
"""The status line gets at most one row of so many of the screen."""
CHARS_MAX = 4_000
TOKENS = re.compile(
    r"(\x1b\[[\d;:]*m)"
    r"|\x1b\]8;[^;\x07\x1b]*;([^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b\[[\d;?]*[ -/]*[@-~]"
    r"|\x1b.?"
)
"""Colours, links; other sequences are left out."""
LINK_END = ("[ZeroWidthEscape]", "\x1b]8;;\x1b\\")
"""Ends a link. It is written before the first character of each later row, as a row may end
inside of a link.
"""


class SessionTotals:
    """Sums over the entries of a session that its state does not hold."""

    def __init__(self) -> None:
        self.first_us = 0
        """Time of the first entry, microseconds UTC."""
        self.api_us = 0
        """Time that requests took."""
        self.lines_added = self.lines_removed = 0
        self._projection = Projection()

    def observe(self, heard: SessionUpdate, view: ViewModel) -> None:
        """Add an update, before `view` applies it."""
        if isinstance(heard, Entry):
            for step in self._projection.read(heard):
                self._add(step, view)

    def _add(self, step: Step, view: ViewModel) -> None:
        self.first_us = self.first_us or step.at
        match step:
            case RequestStep(asked_at=asked_at):
                self.api_us += step.at - asked_at
            case CallStep(ended=end, id=call) if end and end.status == "ok" and call in view.calls:
                styles = [row[0][0] for row in view.calls[call].change if row]
                self.lines_added += styles.count("add")
                self.lines_removed += styles.count("del")

    def data(self, name: str, wall_us: int) -> dict[str, Any]:
        """The part of the data that the terminal knows."""
        cost = {
            "total_duration_ms": max(wall_us - self.first_us, 0) // 1_000 if self.first_us else 0,
            "total_api_duration_ms": self.api_us // 1_000,
            "total_lines_added": self.lines_added,
            "total_lines_removed": self.lines_removed,
        }
        return {"cost": cost, **({"session_name": name} if name else {})}


StatusCommand = Callable[[Mapping[str, Any]], Awaitable[str]]
"""Data about the session -> what the user's command for the status line prints. Raises
`LongreinError`.
"""


class StatusLine:
    """Runs the command when the session has news, at most every `DEBOUNCE_S` seconds, and keeps
    what it printed.
    """

    def __init__(
        self,
        command: StatusCommand | None,
        options: TerminalOptions,
        data: Callable[[], Mapping[str, Any]],
        changed: Callable[[], None],
        notice: Callable[[str], None],
    ) -> None:
        self._command = command
        self._options = options
        self._data = data
        self._changed, self._notice = changed, notice
        self._key: object = None
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._has_failed = False
        self.text = ""

    def update(self, key: object) -> None:
        """Plan a run if `key`, which stands for what the command is told, is new."""
        if self._command is not None and key != self._key:
            self._key = key
            if (
                self._timer is None
                or self._timer.when() - asyncio.get_running_loop().time() > DEBOUNCE_S
            ):
                self._plan(DEBOUNCE_S)

    def close(self) -> None:
        """End what runs."""
        self._command = None
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None:
            self._running.cancel()

    def _plan(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._start)

    def _start(self) -> None:
        self._timer = None
        if self._running is not None:
            self._running.cancel()
        if self._command is not None:
            self._running = asyncio.get_running_loop().create_task(
                self._run(self._command(self._data()))
            )

    async def _run(self, printed: Awaitable[str]) -> None:
        try:
            text = (await printed)[:CHARS_MAX]
        except LongreinError as error:
            text = ""
            if not self._has_failed:
                self._has_failed = True
                self._notice(str(error))
        if text != self.text:
            self.text = text
            self._changed()
        if self._options.status_line_refresh_s > 0 and self._timer is None:
            self._plan(max(self._options.status_line_refresh_s, DEBOUNCE_S))

    def rows(self, width: int, screen_rows: int) -> list[StyleAndTextTuples]:
        """Output of the command, cropped to `width` columns and a share of the screen."""
        if not self.text.strip():
            return []
        pad = " " * min(max(self._options.status_line_padding, 0), width // 2)
        most = min(ROWS_MAX, max(screen_rows // ROOM_SHARE, 1))
        lines = self.text.rstrip().replace("\r\n", "\n").split("\n")[:most]
        shown = [_cropped([("", pad), *styled(row)], width) for row in lines]
        return [[LINK_END, *row] for row in shown] if any(map(holds_link, shown)) else shown


def styled(text: str) -> StyleAndTextTuples:
    """Return a line with its colours and OSC 8 links; everything else that is no text is escaped
    or left out.
    """
    marked, at = "", 0
    for found in TOKENS.finditer(text):
        marked += escape(text[at : found.start()].expandtabs(4))
        at = found.end()
        if found[1]:
            marked += found[1].replace(":", ";")
        elif found[2] is not None:
            url = found[2] if found[2].isprintable() else ""
            marked += f"\x01\x1b]8;;{url}\x1b\\\x02"
    marked += escape(text[at:].expandtabs(4))
    return list(
        ANSI(marked.replace("\x02\x01", "")).__pt_formatted_text__()
    )  # of two links the later one counts


def _cropped(spans: Sequence[Any], width: int) -> StyleAndTextTuples:
    """Cut to `width` columns."""
    shown: StyleAndTextTuples = []
    left = width
    for style, text, *_ in spans:
        if style == LINK_END[0]:
            shown.append((style, text))
        elif (used := cells(text)) <= left:
            shown.append((style, text))
            left -= used
        else:
            break
    return shown


def holds_link(row: StyleAndTextTuples) -> bool:
    """Return whether a row holds a link."""
    return any(span[0] == LINK_END[0] for span in row)
