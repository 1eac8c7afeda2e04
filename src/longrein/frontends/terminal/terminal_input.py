"""Keys of the terminal. What the terminal itself tells, such as its colours and its focus, is
taken out of them.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress

ANSWERS = re.compile(r"\x1b\[([IO])|\x1b\]11;([^\x07\x1b]{0,40})(?:\x07|\x1b\\)")
"""Focus gained and lost; the answer to a question for the background."""
BEGUN = re.compile(r"\x1b\](?:1(?:1(?:;[^\x07\x1b]{0,40}\x1b?)?)?)?$")
"""An answer whose end has not come yet."""


class AnswerFilter:
    """Takes the answers of the terminal out of what it sends."""

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard, self._held = heard, ""

    def feed(self, text: str) -> str:
        """Return `text` without answers. The beginning of an answer is held back until its end
        comes.
        """
        text, self._held = self._held + text, ""
        if "\x1b" not in text:
            return text
        text = ANSWERS.sub(self._take, text)
        if begun := BEGUN.search(text):
            text, self._held = text[: begun.start()], begun[0]
        return text

    def flush(self) -> str:
        """Return what was held back: no answer has come of it."""
        text, self._held = self._held, ""
        return text

    def _take(self, found: "re.Match[str]") -> str:
        self._heard(found[1] or found[2] or "")
        return ""


class TerminalInput(Vt100Input):
    """Input of prompt_toolkit that keeps answers of the terminal from being taken for keys.

    `paused` is a context in which another program has the terminal.
    """

    def __init__(
        self,
        heard: Callable[[str], None],
        pressed: Callable[[], None],
        paused: Callable[[], AbstractContextManager[None]],
    ) -> None:
        super().__init__(sys.stdin)
        self._answers = AnswerFilter(heard)
        self._pressed = pressed
        self._paused = paused
        self._is_lent = False

    def read_keys(self) -> list[KeyPress]:
        text = self._answers.feed(self.stdin_reader.read())
        if text:
            self._pressed()
        self.vt100_parser.feed(text)
        result, self._buffer = self._buffer, []
        return result

    def flush_keys(self) -> list[KeyPress]:
        self.vt100_parser.feed(self._answers.flush())
        return super().flush_keys()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Another view of this program reads the keys meanwhile. The terminal stays in raw mode: in
        cooked mode it would take a Ctrl-D or Ctrl-C between the views for itself.
        """
        self._is_lent = True
        try:
            yield
        finally:
            self._is_lent = False

    @contextmanager
    def _cooked(self) -> Iterator[None]:
        with self._paused(), nullcontext() if self._is_lent else super().cooked_mode():
            yield

    def cooked_mode(self) -> AbstractContextManager[None]:
        return self._cooked()
