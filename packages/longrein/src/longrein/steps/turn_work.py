"""Time, requests and money of a turn, from its steps. Pure."""

from longrein.steps.human_text import counted, elapsed, joined, money, tokens
from longrein.steps.steps import (
    PromptStep,
    QuestionStep,
    RequestStep,
    Step,
    SubagentStep,
)

SHOWN_S_MIN = 5.0
"""Seconds of the shortest turn that is told: who has watched a shorter one learns nothing by it."""


def round_tokens(count: int) -> str:
    """A token count without a fraction from a thousand on: `950`, `31k`, `1.2M`."""
    return f"{count / 1_000:.0f}k" if 1_000 <= count < 999_500 else tokens(count)


class TurnWork:
    """Sum of the present turn."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._began_us = 0
        self._waited_us = self._asked_us = 0
        """Time in which it waited for the user, and since when it does."""
        self._questions: set[str] = set()
        """Calls that wait for the user."""
        self._requests = self._context_tokens = 0
        self._usd = 0.0
        self._is_guess = False

    def add(self, step: Step) -> None:
        """Add a step of the session itself; a message begins a turn, unless one is open."""
        if isinstance(step, PromptStep) and not self._began_us:
            self._began_us = step.at
        self._usd += step.usd
        match step:
            case QuestionStep(answer=None):
                self._asked_us = self._asked_us if self._questions else step.at
                self._questions.add(step.id)
            case QuestionStep() if step.id in self._questions:
                self._questions.discard(step.id)
                self._waited_us += 0 if self._questions else step.at - self._asked_us
            case RequestStep(reply=reply) if reply:
                self._requests += 1
                self._context_tokens = reply.usage.context_tokens or self._context_tokens
                self._is_guess |= bool(reply.estimated)
            case RequestStep(failure=failure) if failure and failure.assumed_usd:
                self._is_guess = True
            case SubagentStep(ended=end) if end:
                self._requests += end.steps

    def end(self, at_us: int) -> str:
        """Return `Worked for 24 s · 5 requests, context 31k · $0.04`, without what is not known,
        and begin anew; '' for a turn of a moment.

        The time is that in which longrein ran and did not wait for the user. Requests are those of
        subagents, too; the context is that of the last one.
        """
        seconds = (at_us - self._began_us - self._waited_us) / 1e6 if self._began_us else 0.0
        context = f", context {round_tokens(self._context_tokens)}" if self._context_tokens else ""
        at_most = "at most " if self._is_guess else ""
        facts = joined(
            f"Worked for {elapsed(seconds)}",
            f"{counted(self._requests, 'request')}{context}" if context else "",
            f"{at_most}{money(self._usd)}" if self._usd else "",
            by=" · ",
        )
        self._reset()
        return facts if seconds >= SHOWN_S_MIN else ""
