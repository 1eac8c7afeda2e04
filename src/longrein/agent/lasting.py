"""How long things last in an open session, by the clock that nobody sets.

The time of an entry is wall time: it is for display, and jumps by hours when somebody sets the clock or a laptop wakes
up. No limit may be reached by that, and no agent be taken for hung.
"""

from collections.abc import Callable

from longrein.context import State


class Lasting:
    """Belongs to one session, and hears of each entry as it is appended."""

    def __init__(self, mono_s: Callable[[], float], state: State) -> None:
        """What an earlier longrein worked on the present task is taken from the log; the time in between is none."""
        self._mono_s = mono_s
        self._entry_s = mono_s()
        self._began_at = state.began_at
        self._over_s: float | None = None
        self._began_s = self._entry_s - (max(0, state.at - state.began_at) / 1e6 if state.began_at else 0.0)

    def note(self, state: State) -> None:
        """An entry was appended, which may begin a task."""
        self._entry_s = self._mono_s()
        if state.began_at != self._began_at:
            self._began_at, self._began_s, self._over_s = state.began_at, self._entry_s, None

    @property
    def quiet_s(self) -> float:
        """Seconds since the last entry."""
        return self._mono_s() - self._entry_s

    @property
    def task_s(self) -> float:
        """Seconds from the beginning of the present task until now, or until it was over."""
        return (self._mono_s() if self._over_s is None else self._over_s) - self._began_s

    def stop(self) -> None:
        """The task is over, though its end is told later."""
        self._over_s = self._mono_s()
