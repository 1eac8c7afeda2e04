"""A clock that a test sets, for the time that a screen goes by."""

from collections.abc import Callable
from pathlib import Path

START_S = 1_000.0


def held_clock(file: Path) -> Callable[[], float]:
    """Return a clock that reads its seconds from `file`: they stand still until a test sets it."""
    return lambda: float(file.read_text()) if file.exists() else START_S


def set_clock(file: Path, later_s: float) -> None:
    """Set the clock to `later_s` seconds after its start, at once for who reads it."""
    made = file.with_suffix(".new")
    made.write_text(str(START_S + later_s))
    made.replace(file)
