"""Drawing on the terminal: finished lines go into the scrollback once, a few rows below them are
redrawn.

The scrollback is never drawn again, so a redraw costs the same in a session of any length.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout import (
    BufferControl,
    CompletionsMenu,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor, TabsProcessor
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import BaseStyle, DynamicStyle, Style

from longrein.frontends.terminal.custom_status_line import LINK_END, holds_link
from longrein.frontends.terminal.event_lines import STYLES, Line, cells, crop, line, plain

INPUT_ROWS_MAX = 10
SYNC_ON, SYNC_OFF = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronised output: terminals that know it draw all between at once; others ignore it."""


@lru_cache(maxsize=8)
def _style(words: tuple[tuple[str, str], ...]) -> Style:
    """Return the style of prompt_toolkit for a theme: (style word, its style)."""
    known = dict(words)
    you, dim = known["you"], known["dim"]
    return Style.from_dict(
        {
            **known,
            "completion-menu": "bg:default default",
            "completion-menu.completion": "bg:default default",
            "completion-menu.completion.current": f"bg:default {you} noreverse",
            "completion-menu.meta.completion": f"bg:default {dim}",
            "completion-menu.meta.completion.current": f"bg:default {dim}",
            "scrollbar.background": "bg:default",
            "scrollbar.button": "bg:ansibrightblack",
        }
    )


STYLE = DynamicStyle(
    lambda: _style(tuple((word, style) for word, (_, style) in STYLES.items() if style))
)
"""Style of the theme in use."""


class ScreenContent(msgspec.Struct, frozen=True):
    """Functions that give the content of the screen."""

    prompt: Callable[[], str]
    hint: Callable[[], str]
    """Placeholder of the empty input."""
    panel_lines: Callable[[int, int], Sequence[Line]]
    """(width, room) -> at most `room` rows above the input."""
    footer: Callable[[int], Line]
    status: Callable[[int, int], list[StyleAndTextTuples]] = lambda _width, _rows: []
    """(width, rows of the screen) -> rows of the status line above the footer."""
    panel_drawn: Callable[[int], None] = lambda _rows: None
    """Called after each drawing with the number of rows above the input that are visible."""


class _App(Application[None]):
    """Application that handles the wrapped rows of a terminal that was made narrower."""

    def _on_resize(self) -> None:
        if (
            self._running_in_terminal
        ):  # a page has the screen; what is below it is drawn anew afterwards
            return
        extra = _wrapped_rows(self)
        if extra:
            self.output.cursor_up(extra)
        super()._on_resize()


def _wrapped_rows(app: Application[None]) -> int:
    """Additional rows above the cursor that wrapping at the new width has made."""
    screen, width = app.renderer.last_rendered_screen, app.output.get_size().columns
    if screen is None or width <= 0:
        return 0
    extra = 0
    for row in range(screen.get_cursor_position(app.layout.current_window).y):
        drawn = screen.data_buffer[row]
        used = max((x for x, char in drawn.items() if char.char != " "), default=-1) + 1
        extra += max(-(-used // width) - 1, 0)
    return extra


class TerminalOutput(Vt100_Output):
    """Output whose erased rows do not get into the scrollback of tmux.

    tmux moves rows there when they are erased from the first cell of the screen on, which is where
    the redrawn rows begin in a small window. So the first cell is overwritten instead.
    """

    def erase_down(self) -> None:
        self.write_raw(" \x1b[J\b")


class Screen:
    """The redrawn rows at the bottom, and output to the scrollback."""

    def __init__(
        self,
        content: ScreenContent,
        buffer: Buffer,
        keys: KeyBindings,
        panel_keys: KeyBindings,
        output: Output,
        *,
        colour: bool,
        keys_from: Input | None = None,
        vim: bool = False,
    ) -> None:
        self._content, self._buffer = content, buffer
        self._panel = Window(
            FormattedTextControl(
                self._draw_above, focusable=True, key_bindings=panel_keys, show_cursor=False
            ),
            dont_extend_height=True,
            height=lambda: Dimension(preferred=len(self._drawn), max=len(self._drawn), min=0),
        )
        self._input = self._input_window()
        menu = CompletionsMenu(max_height=8, scroll_offset=1)
        footer = Window(FormattedTextControl(self._draw_below), height=1, dont_extend_height=True)
        self._status: list[StyleAndTextTuples] = []
        status = ConditionalContainer(
            Window(
                FormattedTextControl(self._draw_status),
                height=lambda: len(self._status),
                dont_extend_height=True,
            ),
            Condition(lambda: bool(self._status)),
        )
        self.app: Application[None] = _App(
            Layout(
                HSplit([self._panel, self._input, menu, status, footer]),
                focused_element=self._input,
            ),
            key_bindings=keys,
            style=STYLE,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            before_render=self._before_render,
            after_render=self._after_render,
            output=output,
            input=keys_from,
            erase_when_done=True,
            editing_mode=EditingMode.VI if vim else EditingMode.EMACS,
        )
        self.app.ttimeoutlen = 0.05
        self.app.timeoutlen = 0.1
        self._drawn: Sequence[Line] = ()
        self._cleared = False
        """True while the rows are cleared and not drawn again yet."""

    def _input_window(self) -> Window:
        """Return the rows in which the user writes, with a hint while they are empty."""
        placeholder = ConditionalProcessor(
            AfterInput(self._hint, style="class:dim"), Condition(lambda: not self._buffer.text)
        )
        return Window(
            BufferControl(
                self._buffer,
                input_processors=[placeholder, TabsProcessor(tabstop=4, char1=" ", char2=" ")],
                include_default_input_processors=True,
            ),
            height=Dimension(min=1, max=INPUT_ROWS_MAX),
            dont_extend_height=True,
            wrap_lines=True,
            get_line_prefix=self._line_prefix,
        )

    @property
    def style(self) -> BaseStyle:
        return self.app.style or STYLE

    @property
    def size(self) -> Size:
        """Columns and rows; a reported 0 counts as 80×24."""
        size = self.app.output.get_size()
        return Size(rows=size.rows or 24, columns=size.columns or 80)

    def write(self, rows: Sequence[str]) -> None:
        self.app.output.write_raw("".join(f"{row}\r\n" for row in rows))

    def commit(self, rows: Sequence[str]) -> None:
        """Write ANSI lines into the scrollback above the redrawn rows, and redraw those."""
        if not self.app.is_running:
            return
        self._clear()
        self.write(rows)
        self.app._redraw()

    def redraw(self) -> None:
        self.app.invalidate()

    @property
    def is_lent(self) -> bool:
        """True while another program, such as an editor, has the terminal."""
        return self.app._running_in_terminal

    @property
    def vim_mode(self) -> str:
        """`INSERT`, `NORMAL` …; '' without the keys of vim."""
        if self.app.editing_mode != EditingMode.VI:
            return ""
        mode = self.app.vi_state.input_mode
        return "NORMAL" if mode == InputMode.NAVIGATION else mode.name.partition("_")[0]

    def reset_vim_mode(self) -> None:
        self.app.vi_state.reset()

    @property
    def panel_has_focus(self) -> bool:
        return self.app.layout.current_window is self._panel

    def focus(self, *, panel: bool) -> None:
        if panel != self.panel_has_focus:
            self.app.layout.focus(self._panel if panel else self._input)

    def _before_render(self, app: Application[None]) -> None:
        """Compute the rows once for each redraw; clear the old ones when there are fewer now."""
        size = self.size
        before, self._status = self._status, self._content.status(size.columns - 1, size.rows)
        links = before != self._status and any(map(holds_link, [*before, *self._status]))
        room = max(
            size.rows - self._input_rows(size) - 3 - len(self._status),
            1,
        )
        self._drawn = [
            crop(row, size.columns - 1) for row in self._content.panel_lines(size.columns - 1, room)
        ][-room:]
        last = app.renderer.last_rendered_screen
        if last is None or not app.is_running:
            return
        wanted = app.layout.container.preferred_height(size.columns, size.rows).preferred
        if wanted < last.height or links:  # a link is whole only if all of its row is drawn
            self._clear()

    def _input_rows(self, size: Size) -> int:
        """Rows of the input, those of wrapped lines included."""
        if not self._buffer.text:
            return 1
        return self._input.preferred_height(size.columns, size.rows).preferred

    def _clear(self) -> None:
        """Clear the redrawn rows inside synchronised output."""
        self._cleared = True
        self.app.output.write_raw(SYNC_ON)
        self.app.renderer.erase(leave_alternate_screen=False)

    def _after_render(self, app: Application[None]) -> None:
        if self._cleared:
            self._cleared = False
            app.output.write_raw(SYNC_OFF)
            app.output.flush()
        drawn = app.renderer.last_rendered_screen
        place = drawn.visible_windows_to_write_positions.get(self._panel) if drawn else None
        self._content.panel_drawn(place.height if place else 0)

    def _hint(self) -> str:
        """The placeholder of the empty input, in one row."""
        room = self.size.columns - 1 - cells(self._content.prompt())
        return plain(crop(line(self._content.hint()), room))

    def _draw_above(self) -> StyleAndTextTuples:
        drawn = [span for row in self._drawn for span in [("", "\n"), *_fragments(row)]]
        return drawn[1:]

    def _draw_below(self) -> StyleAndTextTuples:
        ends = [LINK_END] if any(map(holds_link, self._status)) else []
        return [*ends, *_fragments(self._content.footer(self.size.columns - 1))]

    def _draw_status(self) -> StyleAndTextTuples:
        return [span for row in self._status for span in [("", "\n"), *row]][1:]

    def _line_prefix(self, number: int, wraps: int) -> StyleAndTextTuples:
        prompt = self._content.prompt()
        return [("class:you", prompt if number == 0 and wraps == 0 else " " * cells(prompt))]


def _fragments(row: Line) -> StyleAndTextTuples:
    return [(f"class:{style}" if style else "", text) for style, text in row]
