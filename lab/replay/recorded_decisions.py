"""Replay of a session as it was: the forms, summaries, rewinds and undone compactions of its own
log, priced like the replay of any other policy.
"""

from collections.abc import Iterable, Sequence

from lab.replay.plain_policies import SUMMARY_TOKENS, Change, PlainReplay
from lab.replay.recording import (
    NumberedSteps,
    Places,
    count_tokens,
    placed_handles,
)
from longrein.steps import BreakStep, CompactionStep, RequestStep, Step
from longrein_context.events import Cleared, Form, Restored, Rewound, Summarized

OWN = "longrein"
"""Name of the row in tables."""
Decision = Cleared | Summarized | Restored | Rewound | tuple[Form, ...]
"""What changed the view before a request; a tuple of forms is given to items at their birth."""


class OwnDecisions:
    """A policy for `PlainReplay` that repeats what the log decided."""

    def __init__(self, steps: NumberedSteps, places: Places | None = None) -> None:
        """`places`: those of the recording; without them `steps` are all steps."""
        self._places = placed_handles(steps) if places is None else places
        self._before: dict[int, list[tuple[int, Decision]]] = {}
        """Request -> decisions before it, each with its entry."""
        self._history: list[tuple[int, Decision]] = []
        """Decisions that no rewind took back."""
        self._given: dict[int, str | None] = {}
        """Position of an item -> its text in the next request; None for none."""
        self._shown: dict[int, str | None] = {}
        """The same of the items that were changed before."""
        for request, step in steps:
            decision = _decision(step)
            if decision is not None:
                self._before.setdefault(request, []).append((step.seq, decision))

    @property
    def rewinds(self) -> dict[int, Sequence[int]]:
        """Request -> positions of the items that a rewind before it took away."""
        found: dict[int, Sequence[int]] = {}
        for request, decisions in self._before.items():
            gone = [
                place
                for at, decision in decisions
                if isinstance(decision, Rewound)
                for place, seq in self._places.values()
                if decision.to < seq < at
            ]
            if gone:
                found[request] = gone
        return found

    def __call__(self, replay: PlainReplay, change: Change) -> None:
        for seq, decision in self._before.get(change.t, ()):
            if isinstance(decision, Rewound):
                self._history = [one for one in self._history if one[0] <= decision.to]
            else:
                self._history.append((seq, decision))
            if isinstance(decision, Restored | Rewound):
                self._show_again(replay, change)
            else:
                self._apply(change, decision)
                change.asked_tokens += SUMMARY_TOKENS * _is_prose(decision)
        for place, text in self._given.items():
            if self._shown.get(place, "") != text and place not in replay.rewound:
                replay.hide(change, place, text)
        self._shown |= self._given
        self._given.clear()
        if change.summary is not None:
            text = change.summary
            replay.summary_tokens = count_tokens("assistant_text", text) if text else 0

    def _show_again(self, replay: PlainReplay, change: Change) -> None:
        """Show all items as the decisions that still count have left them."""
        undone = [one.undone for _, one in self._history if isinstance(one, Restored)]
        for place in self._shown | self._given:
            self._given[place] = replay.recording.items[place].text
        change.summary = ""
        for seq, decision in self._history:
            if seq not in undone:
                self._apply(change, decision)

    def _apply(self, change: Change, decision: Decision) -> None:
        forms: Iterable[Form] = ()
        match decision:
            case Summarized(first=first, last=last):
                for place, seq in self._places.values():
                    if first <= seq <= last:
                        self._given[place] = None
                change.summary, change.reason = decision.text, decision.reason
            case Cleared():
                forms, change.reason = decision.forms, decision.reason
            case tuple():
                forms = decision
        for form in forms:
            if form.handle in self._places:
                text = None if form.form == "folded" else form.text
                self._given[self._places[form.handle][0]] = text


def _is_prose(decision: Decision) -> bool:
    """Return True for a summary that a model wrote."""
    return isinstance(decision, Summarized) and bool(decision.prose)


def _decision(step: Step) -> Decision | None:
    match step:
        case RequestStep(asked=asked, reply=None, failure=None) if asked and asked.births:
            return asked.births
        case CompactionStep():
            return step.cleared or step.summarized or step.restored
        case BreakStep(rewound=rewound):
            return rewound
        case _:
            return None
