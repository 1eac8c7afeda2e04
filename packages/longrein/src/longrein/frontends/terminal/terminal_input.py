"""Keys of the terminal. What the terminal itself tells, such as its colours and its focus, is
taken out of them. Keys that plain terminals cannot tell, such as Shift-Enter, are asked of the
terminal and read as keys that are known.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from prompt_toolkit.application import Application
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
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


# --- Keyboard protocols ---------------------------------------------------------------------------
#
# Terminals with the kitty keyboard protocol answer a question; only then the protocol is turned on.
# xterm's `modifyOtherKeys` is turned on without a question: terminals that do not know it ignore
# it. Both are turned off when the screen closes, also after an error, and while another program has
# the terminal.


QUERY = "\x1b[?u"
PUSH, POP = "\x1b[>1u", "\x1b[<u"
OTHER_KEYS_ON, OTHER_KEYS_OFF = "\x1b[>4;1m", "\x1b[>4m"

_ANSWER = re.compile(r"\x1b\[\?(\d*)u")
_KEY = re.compile(
    r"\x1b\[(\d{1,9})(?::\d*){0,2}(?:;(\d{0,9})(?::(\d{1,9}))?)?(?:;[\d:]*)?u"
    r"|\x1b\[27;(\d{1,9});(\d{1,9})~"
)
_LOCKED = re.compile(r"\x1b\[([1-9]\d?);(\d{2,3})([A-HPQS~])")
_PART = re.compile(r"\x1b(?:\[[?<>]?[\d;:]*)?\Z")

SHIFT = 1
ALT = 2
CTRL = 4
LOCKS = 64 + 128
RELEASED = "3"
_PLAIN = {9: "\t", 13: "\r", 27: "\x1b", 32: " ", 127: "\x7f", 57414: "\r"}


def legacy_keys(data: str) -> str:
    """Return `data` with keys of both protocols as plain terminals send them. Shift-Enter
    becomes Alt-Enter.
    """
    return _LOCKED.sub(_without_locks, _KEY.sub(_legacy_key, data)) if "\x1b[" in data else data


def _legacy_key(match: "re.Match[str]") -> str:
    code = int(match[1] or match[5])
    modifiers = (int(match[2] or match[4] or 1) - 1) & ~LOCKS
    if match[3] == RELEASED or code > 0x10FFFF:
        return ""
    shift = bool(modifiers & SHIFT)
    alt = bool(modifiers & ALT)
    ctrl = bool(modifiers & CTRL)
    if code == 13 and (shift or alt) and not ctrl:
        return "\x1b\r"
    if code == 13 and ctrl:
        return "\n"
    if code == 9 and shift:
        return "\x1b[Z"
    char = _PLAIN.get(code) or ("" if 57344 <= code <= 63743 else chr(code))
    if ctrl:
        char = _with_ctrl(char)
    elif shift and char.isalpha():
        char = char.upper()
    return ("\x1b" if alt and char else "") + char


def _with_ctrl(char: str) -> str:
    """Return the control character of a key; the key itself where there is none."""
    if char in (" ", "@"):
        return "\0"
    if char == "\x7f":
        return "\x17"  # Ctrl-Backspace deletes a word, as most editors have it
    if char.isascii() and (char.isalpha() or char in "[\\]^_"):
        return chr(ord(char.upper()) & 0x1F)
    return {"/": "\x1f", "?": "\x7f"}.get(char, char)


def _without_locks(match: "re.Match[str]") -> str:
    """Return an arrow or function key without the state of Caps Lock and Num Lock."""
    modifiers = (int(match[2]) - 1) & ~LOCKS
    if modifiers:
        return f"\x1b[{match[1]};{modifiers + 1}{match[3]}"
    return f"\x1b[{match[1]}~" if match[3] == "~" else f"\x1b[{match[3]}"


class KeyParser(Vt100Parser):
    """Parser that also reads keys of both protocols, and the terminal's answer to `QUERY`."""

    def __init__(
        self, feed_key_callback: Callable[[KeyPress], None], answered: Callable[[], None]
    ) -> None:
        super().__init__(feed_key_callback)
        self._answered, self._part = answered, ""

    def feed(self, data: str) -> None:
        if self._in_bracketed_paste:
            super().feed(data)
            return
        data = self._part + data
        part = _PART.search(data)
        self._part = part[0] if part else ""
        data = data[: len(data) - len(self._part)]
        if _ANSWER.search(data):
            data = _ANSWER.sub("", data)
            self._answered()
        super().feed(legacy_keys(data))

    def flush(self) -> None:
        part, self._part = self._part, ""
        if part:
            super().feed(part)
        super().flush()


class KeyProtocol:
    """The keyboard protocols of one terminal, from `begin` to `end`."""

    def __init__(self, app: Application[None]) -> None:
        self._app = app
        self._on = self._known = False

    def begin(self) -> None:
        """Read the keys of both protocols from now on, and ask the terminal which it knows."""
        source = self._app.input
        if isinstance(source, Vt100Input):
            source.vt100_parser = KeyParser(source.vt100_parser.feed_key_callback, self._answer)
            self._on = True
            self._write(OTHER_KEYS_ON + QUERY)

    def end(self) -> None:
        """Turn both protocols off; does nothing the second time."""
        if self._on:
            self._on = False
            self._write((POP if self._known else "") + OTHER_KEYS_OFF)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Turn both protocols off while another program has the terminal."""
        was_on = self._on
        self.end()
        try:
            yield
        finally:
            if was_on:
                self._on = True
                self._write(OTHER_KEYS_ON + (PUSH if self._known else ""))

    def _answer(self) -> None:
        if self._on and not self._known:
            self._known = True
            self._write(PUSH)

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone
            self._app.output.write_raw(text)
            self._app.output.flush()
