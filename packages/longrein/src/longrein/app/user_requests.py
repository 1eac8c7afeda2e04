"""Messages by which the user changes an open session, checked in one way for every frontend."""

from collections.abc import Iterable

from longrein.agent.messages import Pin, SetMode, Unpin
from longrein.options import MODES
from longrein.steps.human_text import escape_line
from longrein_context import State
from longrein_context.events import AnyPart, Text, UsageError
from longrein_context.events.escape import whole_number


def without_blanks(parts: Iterable[AnyPart]) -> tuple[AnyPart, ...]:
    """Return a message without its blank texts, which providers refuse in every request."""
    return tuple(part for part in parts if not isinstance(part, Text) or part.text.strip())


def mode_message(mode: object) -> SetMode:
    """Return the message that changes the permission mode. Raises `UsageError` for an unknown
    one.
    """
    if mode not in MODES:
        known = ", ".join(MODES)
        raise UsageError(f"there is no mode {escape_line(str(mode))}; it is one of {known}")
    return SetMode(str(mode))


def pin_message(state: State, text: str) -> Pin:
    """Return the message that pins a constraint. Raises `UsageError` for one that is pinned."""
    if text in state.pins:
        raise UsageError(f"it is pinned already: {escape_line(text)}")
    return Pin(text)


def unpin_message(state: State, number: str) -> tuple[Unpin, str]:
    """Return the message that removes the pin of this number, from 1, and its text. Raises
    `UsageError` where there is none.
    """
    if not number.isdecimal():
        raise UsageError("say which: /unpin NUMBER")
    at = whole_number(number)
    if not 0 < at <= len(state.pins):
        raise UsageError(f"there is no pin {number[:20]}; pins: {len(state.pins)}")
    return Unpin(at), state.pins[at - 1]
