"""Watch a session that another process has open: its lines as they come, and nothing to type."""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from longrein.frontends.localization import translate
from longrein.frontends.loop_streams import signal_handlers
from longrein.frontends.terminal.event_lines import Line, ansi, crop, fit, line, plain
from longrein.frontends.terminal.live_area import state_word
from longrein.frontends.terminal.markdown import MarkdownPainter
from longrein.frontends.terminal.markdown_blocks import Block
from longrein.frontends.terminal.plain import PlainOutput
from longrein.frontends.terminal.view_model import REPLAYED_MAX, Piece, ViewModel
from longrein.steps.human_text import escape, escape_line
from longrein.store import Reader
from longrein_context.events import Entry, PermissionAsked, TurnEnded, UserSpoke

POLL_S = 0.3
"""Pause between two looks at the log."""
REPLAYED_PROMPTS = 3
"""Prompts whose lines are shown at the start."""
WATCHING = "watching, read-only; Ctrl-C ends"


class Watcher:
    """Prints the lines of a stored session; on a terminal with one live row below them."""

    def __init__(self, fd: int = 1, *, colour: bool = True) -> None:
        self._fd, self._colour = fd, colour
        self.out = PlainOutput(fd, "utf-8")
        self._is_tty = os.isatty(fd)
        self._painter = MarkdownPainter(colour=colour and self._is_tty)
        self._drawn = ""
        self.view = ViewModel()
        self.view.draws_live_rows = False
        self.seq = 0
        """Last entry that was taken."""

    def replay(self, reader: Reader) -> None:
        """Take what is in the log, and print its last prompts with what followed."""
        last = reader.tail()[0]
        groups: deque[list[Piece]] = deque([[]], maxlen=REPLAYED_PROMPTS)
        for entry in reader.entries(max(0, last - REPLAYED_MAX)):
            pieces = self._take(entry)
            if isinstance(entry.event, UserSpoke):
                groups.append([])
            groups[-1].extend(pieces)
        groups[-1].extend(self.view.go_live(busy=self.view.busy, now_s=0.0))
        self.print([piece for group in groups for piece in group])

    def look(self, reader: Reader) -> bool:
        """Print what came since the last look; return whether there was anything."""
        before = self.seq
        for entry in reader.entries(self.seq):
            self.print(self._take(entry))
        return self.seq > before

    def _take(self, entry: Entry) -> Sequence[Piece]:
        self.seq = entry.seq
        pieces = self.view.apply(entry, 0.0)
        if isinstance(entry.event, PermissionAsked) and self.view.live:
            asked = entry.event
            text = f"  {escape_line(asked.name)} {escape_line(asked.shown[:200])}"
            return [*pieces, line(("warn", translate("asks there:")), text)]
        if isinstance(entry.event, TurnEnded) and entry.event.reason == "done" and self.view.live:
            return [*pieces, line(("dim", translate("── turn ended ──")))]
        return pieces

    def print(self, pieces: Sequence[Piece]) -> None:
        """Print finished lines above the live row."""
        rows = [row for piece in pieces for row in self._paint(piece)]
        if rows:
            self.out.put(self._erase() + "".join(f"{row}\n" for row in rows))

    def draw(self) -> None:
        """Draw the live row: what the session does, and that it is only watched."""
        if not self._is_tty:
            return
        row = crop(line(state_word(self.view), ("dim", f" · {translate(WATCHING)}")), self._width)
        text = ansi(row, colour=self._colour)
        if text != self._drawn:
            self.out.put(f"\r\x1b[K{text}")
            self._drawn = text

    def finish(self) -> None:
        """Remove the live row."""
        self.out.put(self._erase())

    def _erase(self) -> str:
        drawn, self._drawn = self._drawn, ""
        return "\r\x1b[K" if drawn else ""

    @property
    def _width(self) -> int:
        with suppress(OSError):
            return max(os.get_terminal_size(self._fd).columns - 1, 10)
        return 79

    def _paint(self, piece: Piece) -> Sequence[str]:
        if not self._is_tty:
            return [escape(piece.text) if isinstance(piece, Block) else plain(piece).rstrip()]
        if isinstance(piece, Block):
            return self._painter.paint(piece, self._width)
        return [ansi(row, colour=self._colour) for row in fit(piece, self._width)]


async def watch(
    reader: Reader,
    head: Line,
    is_open: Callable[[], bool],
    *,
    colour: bool = True,
    poll_s: float = POLL_S,
) -> str:
    """Show the session of `reader` until its process closes it or the user leaves.

    Returns the line about the end. Raises what reading raises.
    """
    watcher = Watcher(sys.stdout.fileno(), colour=colour)
    stopped = asyncio.Event()
    with signal_handlers(
        dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), stopped.set)
    ):
        was_open = is_open()
        watcher.print([head])
        watcher.replay(reader)
        if not was_open:
            return translate("no process has it open")
        while not stopped.is_set() and not watcher.out.closed:
            open_now = is_open()  # before the look, so that the last entries are shown
            news = watcher.look(reader)
            if not open_now and not news:
                watcher.finish()
                return translate("it was closed there")
            watcher.draw()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), poll_s)
    watcher.finish()
    return ""
