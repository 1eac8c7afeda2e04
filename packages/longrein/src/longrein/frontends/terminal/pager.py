"""Show a page on the whole screen, in place of the conversation, until the user goes back.

The page is drawn on the terminal's alternate screen, so that the conversation and the scrollback
are unchanged below it. What happens meanwhile is printed afterwards.
"""

from collections.abc import Callable
from functools import partial

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.styles import BaseStyle

from longrein.frontends.terminal.event_lines import Line
from longrein.frontends.terminal.page_view import Page, PageView

_MOVES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("up", "k"), (-1, 0)),
    **dict.fromkeys(("down", "j", "enter"), (1, 0)),
    **dict.fromkeys(("pageup", "b"), (0, -1)),
    **dict.fromkeys(("pagedown", " ", "f"), (0, 1)),
}
"""Key -> rows and screens to move."""


class Pager:
    """A full-screen view of pages. Pages that are opened from a page lie above it."""

    def __init__(
        self,
        view: PageView,
        *,
        answers: Callable[[], Line] = tuple,
        answer: Callable[[str], bool] = lambda _: False,
        open_handle: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`answers`: keys of a question to show; `answer`: handles a key, False when it is none of
        them.

        `open_handle`: called with the handle of the section in view on Enter.
        """
        self._views = [view]
        self._answers = answers
        self._answer = answer
        self._open_handle = open_handle
        self._app: Application[None] | None = None
        self._closed = False

    @property
    def view(self) -> PageView:
        return self._views[-1]

    def push(self, page: Page) -> None:
        self._views.append(PageView(page))
        self.update()

    def back(self) -> None:
        """Go back to the page below, from the last one to the conversation."""
        if len(self._views) > 1:
            self._views.pop()
            self.update()
        else:
            self.close()

    def close(self) -> None:
        self._closed = True
        if self._app is not None and self._app.is_running and not self._app.is_done:
            self._app.exit()

    def update(self) -> None:
        if self._app is not None:
            self._app.invalidate()

    async def run(self, output: Output, style: BaseStyle, *, colour: bool) -> None:
        """Show the page until it is closed. Raises `EOFError` or `OSError` when the terminal is
        gone.
        """
        if self._closed:
            return
        control = FormattedTextControl(self._draw, focusable=True, show_cursor=False)
        self._app = Application(
            Layout(Window(control, wrap_lines=False)),
            key_bindings=self._keys(),
            style=style,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            full_screen=True,
            # its own, as a parser keeps an Esc for the application that has read it
            input=create_input(),
            output=output,
        )
        self._app.ttimeoutlen = 0.05
        self._app.timeoutlen = 0.1
        await self._app.run_async(handle_sigint=False, set_exception_handler=False)

    def _draw(self) -> StyleAndTextTuples:
        assert self._app is not None
        size = self._app.output.get_size()
        self.view.answers = self._answers()
        rows = self.view.draw((size.columns or 80) - 1, size.rows or 24)
        spans: StyleAndTextTuples = []
        for row in rows:
            spans += [
                ("", "\n"),
                *((f"class:{style}" if style else "", text) for style, text in row),
            ]
        return spans[1:]

    # --- Keys -------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        for name in (
            "up",
            "down",
            "pageup",
            "pagedown",
            "home",
            "end",
            "enter",
            "tab",
            "s-tab",
            "backspace",
        ):
            keys.add(name)(partial(self._pressed, name))
        for name in ("escape", "c-c", "c-o", "c-d", "<sigint>"):
            keys.add(name)(partial(self._pressed, "escape"))
        keys.add(Keys.Any)(lambda event: self._pressed(event.data, event))
        keys.add(Keys.BracketedPaste)(lambda event: self._paste(event.data))
        return keys

    def _pressed(self, key: str, _: KeyPressEvent) -> None:
        view = self.view
        if view.typing is not None:
            self._type(view, key)
        elif key == "escape" or (key == "q" and not self._answer(key)):
            self.back()
        elif key == "enter" and view.section.opens:
            self._open_handle(view.section.opens)
        elif not self._answer(key):
            self._move(view, key)

    def _paste(self, text: str) -> None:
        """Text that is pasted counts only as the text of a search."""
        if self.view.typing is not None and text.isprintable():
            self.view.typing += text

    @staticmethod
    def _type(view: PageView, key: str) -> None:
        typed = view.typing or ""
        if key == "enter":
            view.search(typed)
        elif key == "escape":
            view.typing = None
        elif key == "backspace":
            view.typing = typed[:-1]
        elif len(key) == 1 and key.isprintable():
            view.typing = typed + key

    @staticmethod
    def _move(view: PageView, key: str) -> None:
        if key in _MOVES:
            view.scroll(*_MOVES[key])
        elif key in ("home", "g", "end", "G"):
            view.go(end=key in ("end", "G"))
        elif key in ("tab", "s-tab"):
            view.next_section(1 if key == "tab" else -1)
        elif key == "/":
            view.typing, view.message = "", ""
        elif key in ("n", "N"):
            view.find(1 if key == "n" else -1)
