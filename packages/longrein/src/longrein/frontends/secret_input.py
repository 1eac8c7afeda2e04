"""Input of a person without a screen: a secret without an echo, the answer to a question."""

import os
import sys
import termios
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from longrein.frontends.stdio import show
from longrein_context.events import UsageError

SECRET_BYTES_MAX = 65_536


class SecretQuestion(msgspec.Struct, frozen=True):
    """A question for a secret."""

    text: str
    keep: Callable[[str], str]
    """Takes the secret, returns the line to show. Raises `LongreinError`."""


def read_secret(question: str, fd: int = 0) -> str:
    """Return the next line of `fd`, without its end; on a terminal it is asked for and not echoed.

    Raises `UsageError` where nothing comes.
    """
    if not os.isatty(fd):
        return _line(fd)
    before = termios.tcgetattr(fd)
    silent = [*before]
    silent[0] |= termios.ICRNL
    silent[3] = (silent[3] | termios.ICANON) & ~termios.ECHO
    show(question)
    termios.tcsetattr(fd, termios.TCSAFLUSH, silent)
    try:
        return _line(fd)
    finally:
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
        show("\n")


def _line(fd: int) -> str:
    data = b""
    while b"\n" not in data and len(data) <= SECRET_BYTES_MAX and (more := os.read(fd, 4_096)):
        data += more
    if not data.strip():
        raise UsageError("no key was entered, nothing is changed")
    return data.partition(b"\n")[0].decode("utf-8", "replace")


def is_terminal() -> bool:
    """Return True if a person can be asked: stdin and stdout are terminals."""
    return sys.stdin is not None and os.isatty(0) and os.isatty(1)


ANSWER_BYTES_MAX = 4096
YES_NO = {"y": "yes", "yes": "yes", "n": "no", "no": "no"}
"""What may be typed to a question of yes or no -> what it stands for."""


def ask(question: str, answers: Mapping[str, str]) -> str:
    """Ask until one of `answers` is typed, in any case; return what stands for it, '' at the end of
    the input.

    What was typed before the question does not answer it.
    """
    with suppress(termios.error):
        termios.tcflush(0, termios.TCIFLUSH)
    while True:
        show(question)
        line = os.read(0, ANSWER_BYTES_MAX)
        answer = answers.get(line.decode("utf-8", "replace").strip().lower(), "")
        if answer or not line:
            return answer


def is_confirmed(question: str) -> bool:
    """Return True if a person was asked and said yes; without a terminal nobody is asked."""
    return is_terminal() and ask(question, YES_NO) == "yes"
