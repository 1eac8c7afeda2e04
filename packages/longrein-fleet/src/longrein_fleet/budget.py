"""Money limit of a fleet: tasks reserve before they start. Pure."""

from typing import Literal

import msgspec

ROUNDING_USD = 1e-9
"""Sums of floats may miss the cap by less than this."""
Answer = Literal["fits", "wait", "never"]


class FleetBudget(msgspec.Struct):
    """Money that was spent, and money that running tasks may still spend."""

    cap_usd: float | None = None
    """None: no limit."""
    spent_usd: float = 0.0
    reserved: dict[str, float] = {}
    """Task -> its reservation."""
    reserved_usd: float = 0.0
    """Sum of the reservations."""

    def ask(self, usd: float) -> Answer:
        """Return whether a task that may spend `usd` can start now, later or never."""
        if self.cap_usd is None:
            return "fits"
        room = self.cap_usd - self.spent_usd + ROUNDING_USD
        if usd > room:
            return "never"
        return "fits" if usd <= room - self.reserved_usd else "wait"

    def reserve(self, task: str, usd: float) -> None:
        """Reserve `usd` for `task`, in place of what it held."""
        self.reserved_usd += usd - self.reserved.get(task, 0.0)
        self.reserved[task] = usd

    def settle(self, task: str, spent_usd: float) -> None:
        """Note the end of an attempt: its reservation comes back, its cost is spent."""
        self.reserved_usd -= self.reserved.pop(task, 0.0)
        if not self.reserved:
            self.reserved_usd = 0.0  # without what floats have rounded
        self.spent_usd += spent_usd
