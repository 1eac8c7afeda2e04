"""One pace for all agents that ask the same provider: what it tells one of them to wait, all of them wait.

After that they come one after the other, with a gap that grows with each refusal and shrinks with each answer, so that
they do not all come back in the same instant. Each agent still decides from its own log how often it tries.
"""

from typing import Protocol

from longrein.events import AskFailed, Replied

HOLD_MAX_S = 60.0
"""Longest wait on account of another agent; whoever meets a longer one is told so by the provider itself."""
HOLD_S = 1.0
"""Where the provider does not say how long."""
GAP_MIN_S, GAP_MAX_S = 0.05, 2.0
"""Between two requests after a refusal."""


class Clock(Protocol):
    """The part of a clock that is needed."""

    def mono_s(self) -> float:
        """Seconds since some moment."""
        ...


class _Provider:
    def __init__(self) -> None:
        self.free_s = 0.0
        """When the next request may be made, in monotonic seconds."""
        self.held_s = 0.0
        """Until when it wants to be left alone."""
        self.gap_s = 0.0
        self.refusal: AskFailed | None = None
        """The last one."""


class RateLimit:
    """Shared by a whole tree of agents."""

    def __init__(self) -> None:
        self._providers: dict[str, _Provider] = {}

    def take_turn(self, provider: str, clock: Clock) -> tuple[float, AskFailed | None]:
        """Take the next free moment: how many seconds away it is, and the refusal that made it later than now."""
        known = self._providers.get(provider)
        if known is None:
            return 0.0, None
        now = clock.mono_s()
        at = max(now, known.free_s)
        known.free_s = at + known.gap_s
        return at - now, known.refusal

    def heard(self, provider: str, outcome: Replied | AskFailed, clock: Clock) -> None:
        """What came of a request."""
        known = self._providers.get(provider)
        if isinstance(outcome, AskFailed) and outcome.kind in ("rate", "overload"):
            known = self._providers.setdefault(provider, _Provider())
            known.refusal, told = outcome, outcome.retry_after_s
            known.held_s = max(known.held_s, clock.mono_s() + min(HOLD_MAX_S, told if told >= 0 else HOLD_S))
            known.free_s = max(known.free_s, known.held_s)
            known.gap_s = min(GAP_MAX_S, max(GAP_MIN_S, known.gap_s * 2))
        elif known is not None and isinstance(outcome, Replied) and clock.mono_s() >= known.held_s:
            known.gap_s /= 2
            if known.gap_s < GAP_MIN_S:
                del self._providers[provider]
