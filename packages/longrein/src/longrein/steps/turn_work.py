"""Time, tokens and money of a turn, from its steps. Pure."""

from longrein.steps.human_text import elapsed, joined, money, tokens
from longrein.steps.steps import PromptStep, RequestStep, Step, SubagentStep

SHOWN_S_MIN = 5.0
"""Seconds of the shortest turn that is told: who has watched a shorter one learns nothing by it."""


def round_tokens(count: int) -> str:
    """A token count without a fraction from a thousand on: `950`, `31k`, `1.2M`."""
    return f"{count / 1_000:.0f}k" if 1_000 <= count < 999_500 else tokens(count)


class TurnWork:
    """Sum of the present turn."""

    def __init__(self) -> None:
        self._began_us = 0
        self._tokens = 0
        self._usd = 0.0

    def add(self, step: Step) -> None:
        """Add a step of the session itself; a message begins a turn, unless one is open."""
        if isinstance(step, PromptStep) and not self._began_us:
            self._began_us = step.at
        self._usd += step.usd
        paid = None
        match step:
            case RequestStep(reply=reply) if reply:
                paid = reply.usage
            case SubagentStep(ended=end) if end:
                paid = end.usage
        if paid is not None:
            self._tokens += paid.total_tokens

    def end(self, at_us: int) -> str:
        """Return `Worked for 24 s · 31k tokens · $0.04`, without what is not known, and begin
        anew; '' for a turn of a moment.

        Tokens are all that the turn's requests have read and written, those of subagents included.
        """
        seconds = (at_us - self._began_us) / 1e6 if self._began_us else 0.0
        facts = joined(
            f"Worked for {elapsed(seconds)}",
            f"{round_tokens(self._tokens)} tokens" if self._tokens else "",
            money(self._usd) if self._usd else "",
            by=" · ",
        )
        self._began_us, self._tokens, self._usd = 0, 0, 0.0
        return facts if seconds >= SHOWN_S_MIN else ""
