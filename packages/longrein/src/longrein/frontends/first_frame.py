"""The row that takes keys while longrein is still being imported: raw mode, and what was typed.

`__main__` opens it before anything else is imported, so this module needs the standard library
only. The screen takes it over; every other way removes it: `close`. Without a terminal, and for
commands that open no screen, nothing happens.
"""

import os
import re
import select
import signal
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

HINT = "starting; type ahead"
NO_SCREEN = (
    "-p",
    "--print",
    "-h",
    "--help",
    "-v",
    "--version",
    "--plain",
    "--output-format",
    "--input-format",
)
"""Flags with which no screen opens."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REMOVED = b"\r\x1b[K\x1b[J\x1b[?2004l"
"""Removes the row. The row is emptied first: tmux moves what `J` clears into its scrollback."""
_PASTE = r"(\x1b\[200~.*?(?:\x1b\[201~|$))"
_SEQUENCE = r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?"


class _Frame:
    before: list[Any] | None = None
    """Attributes of the terminal before raw mode; None while no frame is open."""
    typed = b""


_frame = _Frame()


def opens_screen(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return True if `argv` surely opens the screen: a lone word may be a command, and is none
    of a flag's values.
    """
    if environ.get("TERM", "dumb") in ("dumb", ""):
        return False
    for before, word in zip(("", *argv), argv, strict=False):
        if word in NO_SCREEN or word.partition("=")[0] in NO_SCREEN:
            return False
        if not word.startswith("-") and " " not in word and not before.startswith("-"):
            return False
    encoding = (sys.stdout.encoding or "") if sys.stdout is not None else ""
    return encoding.lower().replace("-", "") == "utf8"


def open_frame(argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Enter raw mode and draw the row, where `argv` opens the screen and a person sits at the
    terminal.
    """
    if not opens_screen(argv, environ):
        return
    try:
        if not (os.isatty(0) and os.isatty(1)) or os.tcgetpgrp(0) != os.getpgrp():
            return
        before = termios.tcgetattr(0)
        for number in SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, stop)
        _frame.before = before
        termios.tcsetattr(0, termios.TCSANOW, raw(before))
        # The kernel has made line breaks of the Enters until now.
        _frame.typed = re.sub(rb"\n+", b"\r", _pending())
        os.write(1, b"\x1b[?2004h")
        draw()
    except (termios.error, OSError):
        close()


def raw(before: Sequence[Any]) -> list[Any]:
    """Return the attributes `before` in raw mode. Signals of keys stay, since nothing else
    handles Ctrl-C yet.
    """
    changed = list(before)
    changed[0] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
    changed[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    changed[6] = [*before[6]]
    changed[6][termios.VMIN] = 1
    return changed


def stop(number: int, _frame: FrameType | None = None) -> None:
    """End by a signal, with the terminal restored."""
    close()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _pending() -> bytes:
    data = b""
    while select.select([0], [], [], 0)[0] and (more := os.read(0, 65_536)):
        data += more
    return data


def poll() -> None:
    """Take the keys that were typed meanwhile and show them."""
    if _frame.before is None:
        return
    with suppress(OSError):  # the terminal is gone
        if more := _pending():
            _frame.typed += more
            draw()


def draw() -> None:
    """Draw the row: what was typed, else a hint."""
    text = re.sub(_SEQUENCE, "", _frame.typed.decode("utf-8", "replace"))
    shown = "".join(char if char.isprintable() else "⏎" for char in text)
    room = os.get_terminal_size(1).columns - 4
    row = shown[-(room // 2) :] if shown else f"\x1b[2m{HINT[: max(room, 0)]}\x1b[22m\x1b[3G"
    os.write(1, f"\r\x1b[K› {row}".encode())


def _remove() -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is stop:
            signal.signal(number, signal.SIG_DFL)
    with suppress(OSError):
        os.write(1, REMOVED)


def close() -> None:
    """Remove the row and leave raw mode. What was typed is dropped, as before a question."""
    before = _frame.before
    _frame.before = None
    _frame.typed = b""
    if before is not None:
        _remove()
        with suppress(termios.error, OSError):
            termios.tcsetattr(0, termios.TCSANOW, before)


def take_over() -> tuple[list[Any] | None, bytes]:
    """Remove the row for the screen; return the attributes of the terminal before, and what was
    typed.

    Raw mode stays. Without a frame: (None, what the kernel has, each Enter a line break).
    """
    if _frame.before is None:
        return None, b""
    poll()
    before = _frame.before
    typed = _frame.typed
    _frame.before = None
    _frame.typed = b""
    _remove()
    return before, typed


def keys_of(typed: str, *, as_text: bool) -> str:
    """Return the keys for the input: an Enter on an empty input is left out; with `as_text` none
    is one.
    """
    if as_text:
        return typed.replace("\r", "\n")
    return re.sub(
        _PASTE + r"|\r+", lambda found: found[1] or "\r", typed.lstrip("\r"), flags=re.DOTALL
    )
