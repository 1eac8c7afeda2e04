"""A question on the terminal, before any screen is drawn."""

import os
import termios
from collections.abc import Mapping
from contextlib import suppress

from longrein.frontends.stdio import show

ANSWER_BYTES_MAX = 4096


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
