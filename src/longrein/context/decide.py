"""What should become of the context before the next request: a decision with its reason, or nothing.

The default policy is plain. Below 80 % of the usable window nothing changes. Then, in one break, the oldest results
that the model has seen become placeholders with handles until 50 % is reached; where that does not do, the model
summarises; where that fails twice, a digest is made without a model. Only these functions see window, price and time;
what they decide is appended, and the view obeys the log alone.
"""

import msgspec

from longrein.context.digest import digest
from longrein.context.forms import births, clearable
from longrein.context.request import Budget
from longrein.context.state import State
from longrein.context.tokens import ITEM_TOKENS, estimate_text
from longrein.events import Cleared, Summarized

WATERMARK = 0.80
"""Share of the usable window at which something happens."""
GOAL = 0.50
"""Share it is brought down to (law 6)."""
REARM = 0.10
"""Share that must be new before the next crossing counts (law 6)."""
SUMMARY_ATTEMPTS_MAX = 2
"""Requests for one summary, a retry included (law 6)."""
FAILED_CROSSINGS_MAX = 3
"""After so many crossings in a row that missed the goal …"""
PAUSE_STEPS = 10
"""… so many steps pass before the next one (law 6)."""


class Nothing(msgspec.Struct, frozen=True):
    """Leave all as it is."""

    why: str


class Clear(msgspec.Struct, frozen=True):
    """Append this: results become placeholders."""

    event: Cleared


class Summarise(msgspec.Struct, frozen=True):
    """Ask the model for a summary of entries `first` to `last`."""

    first: int
    last: int
    reason: str
    focus: str = ""


class Digest(msgspec.Struct, frozen=True):
    """Append this: a summary made without a model."""

    event: Summarized


class Full(msgspec.Struct, frozen=True):
    """Nothing can be taken away and the request still does not fit."""

    message: str
    """What fills the window, for the user."""


Decision = Nothing | Clear | Summarise | Digest | Full


def window_of(state: State, budget: Budget) -> Budget:
    """`budget` with the window that an overflow error has taught us, when that is smaller."""
    if 0 < state.window_learned < budget.window_tokens:
        return msgspec.structs.replace(budget, window_tokens=state.window_learned)
    return budget


def decide(state: State, budget: Budget) -> Decision:
    """The default policy. Called before each request of purpose turn, and when a compaction was asked for."""
    budget = window_of(state, budget)
    usable = budget.usable_tokens
    overflow = overflowed(state)
    view = _tokens_when_sent(state, budget)
    if state.compact_wanted is not None:
        return _summarise(state, budget, view, "request", state.compact_wanted)
    must = overflow or view > usable
    if not must and view < WATERMARK * usable:
        return Nothing(f"{view} of {usable} usable tokens")
    if not must and not _armed(state, usable):
        return Nothing("too little is new since the last compaction")
    cleared = _clear(state, view - GOAL * usable)
    if cleared is not None:
        return cleared
    return _summarise(state, budget, view, "overflow" if overflow else "watermark", "")


def _tokens_when_sent(state: State, budget: Budget) -> int:
    """Tokens of the view once new results have got their birth forms; those are looked at only when it matters."""
    view = state.view_tokens
    if view < WATERMARK * budget.usable_tokens:
        return view
    forms = births(state, budget)
    gain = sum(state.items[state.index[form.handle]].tokens - estimate_text(form.text) - ITEM_TOKENS for form in forms)
    return view - state.gauge.scale(gain)


def overflowed(state: State) -> bool:
    """Whether the last request did not fit and nothing was taken away since."""
    return state.failure is not None and state.failure.kind == "overflow" and state.settled_seq < state.asked_seq


def _armed(state: State, usable: int) -> bool:
    if not state.settled:
        return True
    new = state.gauge.scale(state.gauge.raw - state.settled[-1].raw)
    missed = [s for s in state.settled if state.gauge.scale(s.raw) > GOAL * usable]
    if len(missed) >= FAILED_CROSSINGS_MAX and state.asks - state.settled[-1].asks < PAUSE_STEPS:
        return False
    return new >= REARM * usable


def _clear(state: State, excess_tokens: float) -> Clear | None:
    forms, gain_raw, excess_raw = [], 0, excess_tokens / state.gauge.ratio
    for at in range(state.context_items, len(state.items)):
        if gain_raw >= excess_raw:
            break
        found = clearable(state, at)
        if found is not None:
            forms.append(found.form)
            gain_raw += found.gain_raw
    if not forms or gain_raw < excess_raw:
        return None
    return Clear(Cleared(tuple(forms), "watermark", state.gauge.scale(gain_raw)))


def _summarise(state: State, budget: Budget, view: int, reason: str, focus: str) -> Decision:
    first, last = span(state)
    if last < first:
        return _stuck(state, budget, view)
    fits = view <= budget.window_tokens - budget.max_output_tokens // 2
    seen_something = state.seen_reach > 0
    if state.summary_attempts < SUMMARY_ATTEMPTS_MAX and fits and seen_something and reason != "overflow":
        return Summarise(first, last, reason, focus)
    return Digest(digest(state, budget, first, last, reason))


def _stuck(state: State, budget: Budget, view: int) -> Decision:
    if state.compact_wanted is not None or view <= budget.usable_tokens:
        return Nothing("there is nothing yet that could be compacted")
    return Full(floor_diagnosis(state, budget))


def floor_diagnosis(state: State, budget: Budget) -> str:
    """One line that says what fills the window."""
    conversation = sum(item.tokens for item in state.items)
    fixed = state.gauge.scale(state.gauge.raw - conversation)
    largest = max(state.items, key=lambda item: item.tokens, default=None)
    biggest = f", largest block {state.gauge.scale(largest.tokens)} ({largest.handle})" if largest else ""
    return (
        f"the request does not fit: {state.view_tokens} tokens, window {budget.window_tokens} "
        f"(system text and tools {fixed}, conversation {state.gauge.scale(conversation)}{biggest}); "
        "use a model with a larger window or start a new session"
    )


def span(state: State) -> tuple[int, int]:
    """Entries that a summary may stand for: all but what the model has not answered to. Empty when last < first.

    Cuts only before a reply or a message of the user, so that no call is parted from its result (law 3).
    """
    items = state.items[state.context_items :]
    cut = next((n for n, item in enumerate(items) if _unseen(state, item.kind, item.seqs[0])), len(items))
    if cut < len(items) and items[cut].kind == "result":
        replied = max((item.seqs[0] for item in items[:cut] if item.mine), default=0)
        cut = next(n for n, item in enumerate(items) if item.seqs[0] == replied)
    covered = items[:cut]
    if not covered or (len(covered) <= 2 and covered[0].kind == "summary"):
        return 1, 0
    return min(item.seqs[0] for item in covered), max(item.seqs[1] for item in covered)


def _unseen(state: State, kind: str, seq: int) -> bool:
    return kind in ("user", "reminder", "result") and (seq == 0 or seq > state.seen_reach)
