"""Shared rate limit of all agents that use the same provider.

When a provider tells one agent to wait, all wait. Afterwards their requests are spaced by a gap
that doubles with each refusal and halves with each answer, so that they do not all come back at
once. Each agent decides from its own log how often it retries.
"""

from longrein.events import AskFailed, Replied

HOLD_MAX_S = 60.0
"""Longest wait because of another agent's refusal."""
HOLD_S = 1.0
"""Wait when the provider names none."""
GAP_MIN_S, GAP_MAX_S = 0.05, 2.0
"""Limits of the gap between two requests after a refusal."""


class _Provider:
    def __init__(self) -> None:
        self.free_s = 0.0
        """Monotonic time of the next free request slot."""
        self.held_s = 0.0
        """Monotonic time until which the provider refuses."""
        self.gap_s = 0.0
        self.refusal: AskFailed | None = None
        """The latest refusal."""


class RateLimit:
    """Request slots by provider, shared by a tree of agents."""

    def __init__(self) -> None:
        self._providers: dict[str, _Provider] = {}

    def take_turn(self, provider: str, now_s: float) -> tuple[float, AskFailed | None]:
        """Reserve the next slot; return seconds until then, and the refusal that delayed it.

        `now_s`: monotonic time.
        """
        known = self._providers.get(provider)
        if known is None:
            return 0.0, None
        at = max(now_s, known.free_s)
        known.free_s = at + known.gap_s
        return at - now_s, known.refusal

    def heard(self, provider: str, outcome: Replied | AskFailed, now_s: float) -> None:
        """Register the outcome of a request."""
        known = self._providers.get(provider)
        if isinstance(outcome, AskFailed) and outcome.kind in ("rate", "overload"):
            known = self._providers.setdefault(provider, _Provider())
            known.refusal, told = outcome, outcome.retry_after_s
            known.held_s = max(known.held_s, now_s + min(HOLD_MAX_S, told if told >= 0 else HOLD_S))
            known.free_s = max(known.free_s, known.held_s)
            known.gap_s = min(GAP_MAX_S, max(GAP_MIN_S, known.gap_s * 2))
        elif known is not None and isinstance(outcome, Replied) and now_s >= known.held_s:
            known.gap_s /= 2
            if known.gap_s < GAP_MIN_S:
                del self._providers[provider]
