"""What should become of the context before the next request: a decision with its reason, or nothing.

A ladder, cheapest rung first. At any size: clear what is probably dead once its rent has paid for the re-written
suffix, or for nothing while the provider's cache is cold. At 80 % of the usable window, if clearing alone will not do:
have a summary prepared beside the work. At 92 %: clear down to half; else swap the summary in; else, when the window
is full and no summary came, the digest that needs no model. Only these functions see window, price and time; what
they decide is appended, and the view obeys the log alone.
"""

import msgspec

from longrein.context.clear_items import clear, squeeze
from longrein.context.report import schema_diagnosis
from longrein.context.state.request import Budget
from longrein.context.state.state import State
from longrein.context.summary.digest import build_digest
from longrein.context.truncation import births, births_gain
from longrein.events import Cleared, Summarized, text_of

PREPARE_SHARE = 0.80
"""Share of the usable window at which a summary is prepared."""
WATERMARK_SHARE = 0.92
"""Share at which the view must shrink."""
GOAL_SHARE = 0.50
"""Share it is brought down to (law 6)."""
TAIL_SHARE_MAX = 0.25
"""Share that may stay verbatim after the span of a summary."""
CLEAR_FROM_TOKENS = 16_000
"""A smaller view is left alone: there is next to nothing to save."""
CLEAR_FROM_SHARE = 0.20
"""The same as a share of the usable window, for small ones."""
ANSWER_SHARE_MIN = 0.10
"""Share of the window that an answer must be left at the very least."""
LAST_RESORT_SHARE_MAX = 0.90
"""What is left of the view, at most, for the last resort to be worth it."""
MILD_SHARE = 0.03
"""Clearing grants what may be needed at least this share of its value before a summary is the better loss."""
PRESSED_TOKENS_MIN = 16_000
"""A smaller view holds no memory worth the loss; a larger one is halved when the process is short of it."""
REARM_SHARE = 0.10
"""Share that must be new before the next crossing counts (law 6)."""
NEW_SHARE_MIN = 0.02
"""Share that must be new before the model's wish for room is another summary."""
MODEL_SOURCE = "Compact"
"""Source of that wish: the tool."""
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
    """Append this: items are shown shorter."""

    event: Cleared


class Summarise(msgspec.Struct, frozen=True):
    """Ask a model for a summary of entries `first` to `last`."""

    first: int
    last: int
    reason: str
    focus: str = ""
    beside: bool = False
    """Whether the conversation goes on meanwhile; the request is then the last one again, plus the instruction."""


class Swap(msgspec.Struct, frozen=True):
    """Put the summary that has come in place of entries `first` to `last`."""

    first: int
    last: int
    reason: str
    prose: str
    asked: int
    """Seq of the request it answers."""


class Digest(msgspec.Struct, frozen=True):
    """Append this: a summary made without a model."""

    event: Summarized


class Full(msgspec.Struct, frozen=True):
    """Nothing can be taken away and the request still does not fit."""

    message: str
    """What fills the window, for the user."""


Decision = Nothing | Clear | Summarise | Swap | Digest | Full


def window_of(state: State, budget: Budget) -> Budget:
    """`budget` with the window that overflow errors, or a count that stopped growing, have taught us, when smaller."""
    return _with_window(named_window(state, budget), state.gauge.scale(state.refused_raw))


def named_window(state: State, budget: Budget) -> Budget:
    """The same by numbers that the provider gave, without what follows from a refused request's size."""
    return _with_window(_with_window(budget, state.window_learned), state.gauge.ceiling)


def _with_window(budget: Budget, tokens: int) -> Budget:
    return msgspec.structs.replace(budget, window_tokens=tokens) if 0 < tokens < budget.window_tokens else budget


def decide(state: State, budget: Budget, now_us: int = 0, *, pressed: bool = False) -> Decision:
    """The default policy. Called before each request of purpose turn, and when a compaction was asked for.

    `now_us`: the time, microseconds UTC; 0 when it is not known (the cache then counts as warm). `pressed`: the
    process is short of memory, so that the view must shrink now.
    """
    named, budget = named_window(state, budget), window_of(state, budget)
    if state.compact_wanted is not None:
        return _on_request(state, budget, state.compact_wanted)
    overflow, view = has_overflowed(state), _tokens_when_sent(state, budget)
    known = budget
    if overflow and view < budget.window_tokens:  # nobody said how large the window is, only that it is smaller
        budget = msgspec.structs.replace(budget, window_tokens=view)
    usable = budget.usable_tokens
    must = overflow or view > usable
    if pressed and not must and view > PRESSED_TOKENS_MIN and _is_rearmed(state, view):
        tight = msgspec.structs.replace(budget, window_tokens=view, max_output_tokens=0)  # half of what there is
        harder = _shrink(state, tight, view, must=True, reason="memory")
        if not isinstance(harder, Full):
            return harder
    cold = is_cold(state, budget, now_us)
    if state.rewritten_seq > state.asked_seq and view > GOAL_SHARE * usable:
        rest = squeeze(state, budget, round(GOAL_SHARE * usable), "watermark")
        if rest is not None:  # what came after the summary's span; no request lies between, so it is one break
            return Clear(rest)
    if not must and view >= min(CLEAR_FROM_TOKENS, CLEAR_FROM_SHARE * usable):
        paid = clear(state, budget, cold=cold)
        if paid is not None:
            return Clear(paid)
    if not must and view < PREPARE_SHARE * usable:
        return Nothing(f"{view} of {usable} usable tokens")
    if not must and not _is_rearmed(state, usable):
        return Nothing("too little is new since the last compaction")
    if not (must or cold) and view < WATERMARK_SHARE * usable:
        return _prepare(state, budget, view)
    decision = _shrink(state, budget, view, must=must, reason="overflow" if overflow else "watermark")
    return _window_full(state, named, known, view) if isinstance(decision, Full) else decision


def _window_full(state: State, named: Budget, known: Budget, view: int) -> Decision:
    """Nothing can be taken away. Where only a refusal of an earlier turn speaks against the size, it is tried again."""
    if not has_overflowed(state) and view <= named.usable_tokens:
        return Nothing("a request of this size was refused before, but nothing more can be taken away")
    return Full(floor_diagnosis(state, known))


def is_cold(state: State, budget: Budget, now_us: int) -> bool:
    """Whether the provider has surely dropped what it cached: the last request is too long ago, or the prefix is new.

    A resume by itself is not cold.
    """
    if not state.asked_seq:
        return False
    late = now_us - state.asked_at > budget.cache_ttl_s * 1e6 if now_us else False
    return late or state.prefix_seq > state.asked_seq


def _shrink(state: State, budget: Budget, view: int, *, must: bool, reason: str) -> Decision:
    """At the watermark: clear, else swap in, else, when nothing else fits, the digest. Nobody waits for a model."""
    goal = round(GOAL_SHARE * budget.usable_tokens)
    mild = squeeze(state, budget, goal, reason, MILD_SHARE)
    if mild is not None and view - mild.gain_tokens <= goal:
        return Clear(mild)
    swap = ready_swap(state, reason)
    if swap is not None:
        return _widen_swap(state, budget, swap)
    if not must and view < WATERMARK_SHARE * budget.usable_tokens:
        return Nothing("there is room yet")
    if not must:
        return _prepare(state, budget, view)
    cleared = squeeze(state, budget, goal, reason)
    if cleared is not None and view - cleared.gain_tokens <= goal:
        return Clear(cleared)
    first, last = summary_span(state)
    if last < first:
        return Clear(cleared) if cleared is not None else _last_resort(state, budget, view, reason)
    return Digest(build_digest(state, budget, first, last, reason))


def decide_without_money(state: State, budget: Budget, wish: Summarise) -> Digest | Nothing:
    """What is done where the money left does not pay for the summary: at need the digest, which costs nothing."""
    if wish.beside:
        return Nothing("no money is left for a summary")
    return Digest(build_digest(state, window_of(state, budget), wish.first, wish.last, wish.reason))


def _last_resort(state: State, budget: Budget, view: int, reason: str) -> Decision:
    """All that was answered to is gone: a view that leaves room for some answer is sent as it is, else what the model
    has not answered to goes too, as far as that helps."""
    most = budget.window_tokens * (1 - ANSWER_SHARE_MIN)
    if reason != "overflow" and state.view_tokens - births_gain(state, births(state, budget)) <= most:
        return Nothing("this is as small as it gets")
    first, last = _unseen_span(state)
    if last >= first and reason != "memory":  # being short of memory is no reason to hide what nobody has answered to
        made = build_digest(state, budget, first, last, reason)
        gone = sum(item.tokens for item in state.items[state.context_items :] if first <= item.seqs[0] <= last)
        left = view - state.gauge.scale(gone) + state.gauge.tokens_of_text(made.text)
        if left <= min(most, view * LAST_RESORT_SHARE_MAX):
            return Digest(made)
    return Full(floor_diagnosis(state, budget))


def _prepare(state: State, budget: Budget, view: int) -> Decision:
    """Have a summary of what has been sent prepared beside the work, unless clearing alone will do."""
    stale = state.summarising_seq < state.rewritten_seq  # its span was replaced meanwhile: nobody waits for it
    if state.summary is not None or (state.summarising is not None and not stale):
        return Nothing("a summary is on its way")
    first, last = sent_span(state)
    if last < first or not state.sent_items or state.summary_attempts >= SUMMARY_ATTEMPTS_MAX:
        return Nothing("there is no summary to be had now")
    mild = squeeze(state, budget, round(GOAL_SHARE * budget.usable_tokens), "watermark", MILD_SHARE)
    if mild is not None and view - mild.gain_tokens <= GOAL_SHARE * budget.usable_tokens:
        return Nothing("clearing will do")
    return Summarise(first, last, "ahead", beside=True)


def next_compacted(state: State, budget: Budget) -> tuple[str, ...]:
    """Handles that the next compaction would take, were it now."""
    budget = window_of(state, budget)
    cleared = squeeze(state, budget, round(GOAL_SHARE * budget.usable_tokens), "watermark", MILD_SHARE)
    if cleared is not None and state.view_tokens - cleared.gain_tokens <= GOAL_SHARE * budget.usable_tokens:
        return tuple(form.handle for form in cleared.forms)
    first, last = summary_span(state)
    return tuple(item.handle for item in state.items[state.context_items :] if first <= item.seqs[0] <= last)


def ready_swap(state: State, reason: str) -> Swap | None:
    """The summary that has come and still stands."""
    reply, request = state.summary, state.summary_of
    if reply is None or request is None:
        return None
    first, last = (request.first, request.last) if request.last else summary_span(state)
    return Swap(first, last, reason, text_of(reply.parts), reply.asked)


def _widen_swap(state: State, budget: Budget, swap: Swap) -> Swap:
    """`swap`, standing for all that was answered to when what came after its span would fill the window by itself."""
    after = sum(item.tokens for item in state.items[state.context_items :] if item.seqs[0] > swap.last)
    if state.gauge.scale(after) <= TAIL_SHARE_MAX * budget.usable_tokens:
        return swap
    return msgspec.structs.replace(swap, last=max(swap.last, summary_span(state)[1]))


def _on_request(state: State, budget: Budget, focus: str) -> Decision:
    swap = ready_swap(state, "request")
    if swap is not None and (not focus or state.summary_of is None or state.summary_of.focus == focus):
        return swap
    first, last = summary_span(state)
    if last < first:
        return Nothing("there is nothing yet that could be compacted")
    if state.compact_by == MODEL_SOURCE and _is_mostly_summary(state, budget, first, last):
        return Nothing("too little is new since the last compaction")
    fits = _tokens_when_sent(state, budget) <= budget.window_tokens - budget.max_output_tokens // 2
    if state.summary_attempts < SUMMARY_ATTEMPTS_MAX and fits and state.seen_reach > 0:
        return Summarise(first, last, "request", focus)
    return Digest(build_digest(state, budget, first, last, "request"))


def _is_mostly_summary(state: State, budget: Budget, first: int, last: int) -> bool:
    """Whether entries `first` to `last` are a summary and next to nothing else: who asks at each step gets it once."""
    items = [item for item in state.items[state.context_items :] if first <= item.seqs[0] <= last]
    new = [item for item in items if item.kind not in ("summary", "ack")]
    return (
        len(new) < len(items) and state.gauge.scale(sum(i.tokens for i in new)) < NEW_SHARE_MIN * budget.usable_tokens
    )


def _tokens_when_sent(state: State, budget: Budget) -> int:
    """Tokens of the view once new results have got their birth forms; those are looked at only when it matters."""
    view = state.view_tokens
    if view < PREPARE_SHARE * budget.usable_tokens:
        return view
    return view - births_gain(state, births(state, budget, roomy=True))


def has_overflowed(state: State) -> bool:
    """Whether the last request did not fit and nothing was taken away since."""
    return state.failure is not None and state.failure.kind == "overflow" and state.settled_seq < state.asked_seq


def _is_rearmed(state: State, usable: int) -> bool:
    if not state.settled:
        return True
    new = state.gauge.scale(state.gauge.raw - state.settled[-1].raw)
    missed = [s for s in state.settled if state.gauge.scale(s.raw) > GOAL_SHARE * usable]
    if len(missed) >= FAILED_CROSSINGS_MAX and state.asks - state.settled[-1].asks < PAUSE_STEPS:
        return False
    return new >= REARM_SHARE * usable


def floor_diagnosis(state: State, budget: Budget) -> str:
    """One line that says what fills the window."""
    conversation = sum(item.tokens for item in state.items)
    fixed = state.gauge.scale(state.gauge.raw - conversation)
    largest = max(state.items, key=lambda item: item.tokens, default=None)
    biggest = f", largest block {state.gauge.scale(largest.tokens)} ({largest.handle})" if largest else ""
    servers = schema_diagnosis(state.prefix, budget.window_tokens) if state.prefix else ""
    window = f"window {budget.window_tokens}"
    if state.view_tokens < budget.window_tokens:
        window = f"refused although the window is known as {budget.window_tokens}"
    return (
        f"the request does not fit: {state.view_tokens} tokens, {window} "
        f"(system text and tools {fixed}, conversation {state.gauge.scale(conversation)}{biggest}); "
        + (f"{servers}; " if servers else "")
        + "use a model with a larger window or start a new session"
    )


def summary_span(state: State) -> tuple[int, int]:
    """Entries that a summary may stand for: all but what the model has not answered to. Empty when last < first.

    Cuts only before a reply or a message of the user, so that no call is parted from its result (law 3).
    """
    items = state.items[state.context_items :]
    cut = next((n for n, item in enumerate(items) if _is_unseen(state, item.kind, item.seqs[0])), len(items))
    if cut < len(items) and items[cut].kind == "result":
        replied = max((item.seqs[0] for item in items[:cut] if item.mine), default=0)
        cut = next((n for n, item in enumerate(items) if item.seqs[0] == replied), cut)
    covered = items[:cut]
    if not covered or (len(covered) <= 2 and covered[0].kind == "summary"):
        return 1, 0
    return min(item.seqs[0] for item in covered), max(item.seqs[1] for item in covered)


def _unseen_span(state: State) -> tuple[int, int]:
    """Entries that a digest may stand for when nothing else fits: all but words that are not sent yet, which have birth
    forms. One call, or its result, may be larger than the window; a summary, than the one a provider turns out to
    have. Empty when there is nothing."""
    items = state.items[state.context_items :]
    going = [
        n for n, item in enumerate(items) if item.kind == "result" or item.mine or item.seqs[1] <= state.sent_reach
    ]
    if not going:
        return 1, 0
    return items[0].seqs[0], max(item.seqs[1] for item in items[: going[-1] + 1])


def _is_unseen(state: State, kind: str, seq: int) -> bool:
    return kind in ("user", "reminder", "result") and (seq == 0 or seq > state.seen_reach)


def sent_span(state: State) -> tuple[int, int]:
    """Entries that the last request carried: what a summary prepared beside the work can stand for."""
    items = state.items[state.context_items : state.sent_items]
    if not items or (len(items) <= 2 and items[0].kind == "summary"):
        return 1, 0
    return min(item.seqs[0] for item in items), max(item.seqs[1] for item in items)
