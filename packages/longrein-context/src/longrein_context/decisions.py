"""Compaction policy of the default profile: a decision with its reason before each request.

The cheapest measure comes first.

1. At any size: clear items whose re-reading has cost more than rewriting what follows them; for
   free while the provider's cache is cold.
2. At 80 % of the usable window (`Budget.prepare_share`), if clearing is not enough: prepare a
   background summary.
3. At 92 % (`Budget.compact_share`): clear down to half, or else put the prepared summary in.
4. When the window is full and no summary came: a digest, which needs no model.

Only these functions see window, price and time. Their decisions are appended, and the view follows
the log alone.
"""

import msgspec

from longrein_context.context_report import schema_diagnosis
from longrein_context.events import Cleared, Summarized, Text, text_of
from longrein_context.state.request_types import FULL_SHARE_MAX, INSTRUCTION_TOKENS, Budget
from longrein_context.state.state import State
from longrein_context.state.view import span_of
from longrein_context.truncation import births, births_gain

GOAL_SHARE = 0.50  # Share of the usable window that a compaction aims at
# The same where reading is cheap: rewriting is then what costs, and deeper means less often
DEEP_GOAL_SHARE = 0.30
CHEAP_READ = (
    0.05  # Price of cached input up to which reading is cheap, as a share of the input price
)
DEEP_FROM_TOKENS = (
    48_000  # Usable tokens from which a compaction may go that deep; less would leave markers alone
)
FIXED_SHARE_MIN = (
    0.25  # Share of the usable window from which text that never leaves does not count for the goal
)
TAIL_SHARE_MAX = 0.25  # Largest share that stays verbatim after the span of a summary
CLEAR_FROM_TOKENS = (
    16_000  # Smaller views are not cleared to save money: there is next to nothing to save
)
CLEAR_FROM_SHARE = 0.20  # Share of the usable window with the same meaning, for small windows
LAST_RESORT_SHARE_MAX = (
    0.90  # Largest share of the view that may remain for the last resort to be worth it
)
MILD_SHARE = 0.03
"""In mild clearing, content that may be needed keeps at least this share of its value; below
that, a summary loses less.
"""
DIGEST_FROM_WINDOWS = 8
"""A view of so many usable windows, such as that of an import, is digested at once: to weigh each
of its lines takes minutes, and clearing cannot make it that much smaller.
"""
PRESSED_TOKENS_MIN = 16_000  # Larger views are halved when the process is short of memory
NO_GAIN = "a summary would not make the context smaller"
REARM_SHARE = 0.10  # Share that must be new before the next crossing counts
NEW_SHARE_MIN = 0.02  # Share that must be new before the model can request another summary
MODEL_SOURCE = "Compact"  # Source of the model's request: its tool
SUMMARY_ATTEMPTS_MAX = 2  # Requests for one summary, a retry included
FAILED_CROSSINGS_MAX = (
    3  # Number of consecutive crossings that missed the goal, after which `PAUSE_STEPS` apply
)
PAUSE_STEPS = 10  # Steps before the next crossing then


class Nothing(msgspec.Struct, frozen=True):
    """Decision to leave the view as it is."""

    why: str


class Clear(msgspec.Struct, frozen=True):
    """Decision to append `event`: items are shown shorter."""

    event: Cleared


class Summarise(msgspec.Struct, frozen=True):
    """Decision to ask a model for a summary of entries `first` to `last`."""

    first: int
    last: int
    reason: str
    focus: str = ""
    beside: bool = False
    """True if the conversation continues meanwhile. The request is then the last one plus the
    instruction.
    """


class Swap(msgspec.Struct, frozen=True):
    """Decision to replace entries `first` to `last` by the summary that has come."""

    first: int
    last: int
    reason: str
    prose: str
    asked: int  # Entry of the request that it answers


class Digest(msgspec.Struct, frozen=True):
    """Decision to append `event`: a summary made without a model."""

    event: Summarized


class Full(msgspec.Struct, frozen=True):
    """Decision to give up: nothing can be removed and the request still does not fit."""

    message: str  # Diagnosis for the user


Decision = Nothing | Clear | Summarise | Swap | Digest | Full


def window_of(state: State, budget: Budget) -> Budget:
    """Return `budget` with the window learned from overflow errors or stalled counts, if it is
    smaller.
    """
    return _with_window(named_window(state, budget), state.gauge.scale(state.refused_raw))


def named_window(state: State, budget: Budget) -> Budget:
    """Return `budget` with the window from figures of the provider, without the size of refused
    requests.
    """
    budget = _with_window(_with_window(budget, state.window_learned), state.gauge.ceiling)
    reserve = budget.window_tokens - budget.usable_tokens
    return _with_window(budget, state.input_learned + reserve) if state.input_learned else budget


def _with_window(budget: Budget, tokens: int) -> Budget:
    return (
        msgspec.structs.replace(budget, window_tokens=tokens)
        if 0 < tokens < budget.window_tokens
        else budget
    )


def decide(state: State, budget: Budget, now_us: int = 0, *, pressed: bool = False) -> Decision:
    """Decide what to do with the context before a request of purpose turn, or on a compaction
    request.

    `now_us`: time in microseconds UTC; 0 if unknown (the cache then counts as warm). `pressed`: the
    process is short of memory, so the view must shrink now.
    """
    named, budget = named_window(state, budget), window_of(state, budget)
    if state.compact_wanted is not None:
        return _on_request(state, budget, state.compact_wanted)
    view = _tokens_when_sent(state, budget)
    overflow = has_overflowed(state) and not _answer_was_too_long(state, budget, view)
    known = budget
    if overflow and view < budget.window_tokens:  # the window is smaller than known
        budget = msgspec.structs.replace(budget, window_tokens=view)
    usable = budget.usable_tokens
    must = overflow or view > usable
    if pressed and not must and view > PRESSED_TOKENS_MIN and _is_rearmed(state, view):
        tight = msgspec.structs.replace(
            budget, window_tokens=view, max_output_tokens=0
        )  # half of the present view
        harder = _shrink(state, tight, view, must=True, reason="memory")
        if not isinstance(harder, Full):
            return harder
    cold = is_cold(state, budget, now_us)
    if state.rewritten_seq > state.asked_seq and view > (goal := goal_tokens(state, budget)):
        from longrein_context.clear_items import squeeze

        rest = squeeze(state, budget, goal, "watermark")
        if rest is not None:  # no request since the summary, so it is one break
            return Clear(rest)
    if not must and view >= min(CLEAR_FROM_TOKENS, CLEAR_FROM_SHARE * usable):
        from longrein_context.clear_items import clear

        paid = clear(state, budget, cold=cold)
        if paid is not None:
            return Clear(paid)
    if not must and view < budget.prepare_share * usable:
        return Nothing(f"{view} of {usable} usable tokens")
    if not must and not _is_rearmed(state, usable):
        return Nothing("too little is new since the last compaction")
    if not (must or cold) and view < budget.compact_share * usable:
        return _prepare(state, budget, view)
    decision = _shrink(
        state, budget, view, must=must, reason="overflow" if overflow else "watermark"
    )
    return _window_full(state, named, known, view) if isinstance(decision, Full) else decision


def goal_tokens(state: State, budget: Budget) -> int:
    """Return the size that a compaction aims at: what never leaves, and a share of the room
    beside it.
    """
    fixed = state.fixed_tokens
    usable = budget.usable_tokens
    room = usable if fixed <= FIXED_SHARE_MIN * usable else max(0, usable - fixed)
    is_deep = budget.read_share <= CHEAP_READ and room >= DEEP_FROM_TOKENS
    return round(usable - (1 - (DEEP_GOAL_SHARE if is_deep else GOAL_SHARE)) * room)


def _mild_clearing(state: State, budget: Budget, view: int, reason: str) -> Cleared | None:
    """Return the clearing that alone reaches the goal and spares what may be needed; None if
    there is none.
    """
    from longrein_context.clear_items import squeeze

    goal = goal_tokens(state, budget)
    found = squeeze(state, budget, goal, reason, MILD_SHARE)
    return found if found is not None and view - found.gain_tokens <= goal else None


def _window_full(state: State, named: Budget, known: Budget, view: int) -> Decision:
    """Diagnose a full window. A size that only an earlier turn's refusal speaks against is tried
    again.
    """
    if not has_overflowed(state) and view <= named.usable_tokens:
        return Nothing(
            "a request of this size was refused before, but nothing more can be taken away"
        )
    return Full(floor_diagnosis(state, known))


def is_cold(state: State, budget: Budget, now_us: int) -> bool:
    """True if the provider's cache has surely expired: last request too old, or a new prefix.

    A resume by itself is not cold.
    """
    if not state.asked_seq:
        return False
    late = now_us - state.asked_at > budget.cache_ttl_s * 1e6 if now_us else False
    return late or state.prefix_seq > state.asked_seq


def _shrink(state: State, budget: Budget, view: int, *, must: bool, reason: str) -> Decision:
    """Shrink the view at the watermark: clear, else swap, else digest. Nothing waits for a
    model.
    """
    from longrein_context.clear_items import squeeze

    digest = None
    if view > DIGEST_FROM_WINDOWS * budget.usable_tokens:
        digest = useful_digest(state, budget, summary_span(state), reason)
    if digest is not None:
        return digest
    goal, mild = goal_tokens(state, budget), _mild_clearing(state, budget, view, reason)
    if mild is not None:
        return Clear(mild)
    swap = _useful_swap(state, budget, reason)
    if swap is not None:
        return swap
    if not must and view < budget.compact_share * budget.usable_tokens:
        return Nothing("there is room yet")
    if not must:
        return _prepare(state, budget, view)
    cleared = squeeze(state, budget, goal, reason)
    if cleared is not None and view - cleared.gain_tokens <= goal:
        return Clear(cleared)
    digest = useful_digest(state, budget, summary_span(state), reason)
    if digest is not None:
        return digest
    return Clear(cleared) if cleared is not None else _last_resort(state, budget, view, reason)


def useful_digest(
    state: State, budget: Budget, span: tuple[int, int], reason: str
) -> Digest | None:
    """Return the digest of a span; None if the span is empty or its digest is of no use."""
    from longrein_context.summary.summary_text import build_digest

    if span[1] < span[0]:
        return None
    made = build_digest(state, budget, *span, reason)
    return Digest(made) if is_useful(state, budget, made) else None


def is_useful(state: State, budget: Budget, event: Summarized) -> bool:
    """Return True if the view is smaller with the text of `event` than with its span.

    What was asked for may also be larger while the view stays as small as a compaction would make
    it.
    """
    items = state.conversation
    gone = sum(item.tokens for item in items if event.first <= item.seqs[0] <= event.last)
    reply = state.gauge.tokens_of(Text(event.reply)) if event.reply else 0
    more = state.gauge.tokens_of(Text(event.text)) + reply - state.gauge.scale(gone)
    wanted = event.reason == "request" and state.view_tokens + more <= goal_tokens(state, budget)
    return more < 0 or wanted


def _useful_swap(state: State, budget: Budget, reason: str) -> Swap | None:
    """Return the swap for a summary that has come and is of use."""
    from longrein_context.summary.summary_text import build_summary

    ready = ready_swap(state, reason)
    if ready is None:
        return None
    swap = _widen_swap(state, budget, ready)
    span = (swap.first, swap.last)
    made = build_summary(state, budget, span, reason, swap.prose, (swap.asked,))
    return swap if is_useful(state, budget, made) else None


def decide_without_money(state: State, budget: Budget, wish: Summarise) -> Digest | Nothing:
    """Decide when the money left does not pay for the summary: a digest if needed, which is
    free.
    """
    if wish.beside:
        return Nothing("no money is left for a summary")
    span = (wish.first, wish.last)
    return useful_digest(state, window_of(state, budget), span, wish.reason) or Nothing(NO_GAIN)


def _last_resort(state: State, budget: Budget, view: int, reason: str) -> Decision:
    """Decide when everything the model has replied to is gone already.

    A view that leaves room for an answer is sent as it is. Otherwise entries without a reply go
    too, as far as that helps.
    """
    from longrein_context.summary.summary_text import build_digest

    most = _largest_view(budget)
    if (
        reason != "overflow"
        and state.view_tokens - births_gain(state, births(state, budget)) <= most
    ):
        return Nothing("this is as small as it gets")
    first, last = _unseen_span(state)
    if last >= first and reason != "memory":  # low memory is no reason to hide unanswered entries
        made = build_digest(state, budget, first, last, reason)
        gone = sum(item.tokens for item in state.conversation if first <= item.seqs[0] <= last)
        left = view - state.gauge.scale(gone) + state.gauge.tokens_of_text(made.text)
        if left <= min(most, view * LAST_RESORT_SHARE_MAX):
            return Digest(made)
    return Full(floor_diagnosis(state, budget))


def _prepare(state: State, budget: Budget, view: int) -> Decision:
    """Request a background summary of what has been sent, unless clearing alone is enough."""
    stale = state.summarising_seq < state.rewritten_seq  # its span was replaced meanwhile
    if state.summary is not None or (state.summarising is not None and not stale):
        return Nothing("a summary is on its way")
    first, last = sent_span(state)
    if last < first or not state.sent_items or state.summary_attempts >= SUMMARY_ATTEMPTS_MAX:
        return Nothing("there is no summary to be had now")
    if state.view_tokens + INSTRUCTION_TOKENS > budget.usable_tokens:
        return Nothing("a request for a summary does not fit")
    if _mild_clearing(state, budget, view, "watermark") is not None:
        return Nothing("clearing will do")
    return Summarise(first, last, "ahead", beside=True)


def next_compacted(state: State, budget: Budget) -> tuple[str, ...]:
    """Return the handles that a compaction would remove now."""
    budget = window_of(state, budget)
    cleared = _mild_clearing(state, budget, state.view_tokens, "watermark")
    if cleared is not None:
        return tuple(form.handle for form in cleared.forms)
    first, last = summary_span(state)
    return tuple(item.handle for item in state.conversation if first <= item.seqs[0] <= last)


def ready_swap(state: State, reason: str) -> Swap | None:
    """Return the swap for a summary that has come and is still valid."""
    reply, request = state.summary, state.summary_of
    if reply is None or request is None:
        return None
    first, last = (request.first, request.last) if request.last else summary_span(state)
    return Swap(first, last, reason, text_of(reply.parts), reply.asked)


def _widen_swap(state: State, budget: Budget, swap: Swap) -> Swap:
    """Extend `swap` over everything replied to if the rest alone would fill the window."""
    after = sum(item.tokens for item in state.conversation if item.seqs[0] > swap.last)
    if state.gauge.scale(after) <= TAIL_SHARE_MAX * budget.usable_tokens:
        return swap
    return msgspec.structs.replace(swap, last=max(swap.last, summary_span(state)[1]))


def _on_request(state: State, budget: Budget, focus: str) -> Decision:
    ready = ready_swap(state, "request")
    if ready is not None and (
        not focus or state.summary_of is None or state.summary_of.focus == focus
    ):
        span = (ready.first, ready.last)
        span = (ready.first, ready.last)
        swap = _useful_swap(state, budget, "request")
        return swap or useful_digest(state, budget, span, "request") or Nothing(NO_GAIN)
    first, last = summary_span(state)
    if last < first:
        return Nothing("there is nothing yet that could be compacted")
    if state.compact_by == MODEL_SOURCE and _is_mostly_summary(state, budget, first, last):
        return Nothing("too little is new since the last compaction")
    most = (budget.window_tokens + budget.usable_tokens) // 2
    fits = _tokens_when_sent(state, budget) <= most
    if state.summary_attempts < SUMMARY_ATTEMPTS_MAX and fits and state.seen_reach > 0:
        return Summarise(first, last, "request", focus)
    return useful_digest(state, budget, (first, last), "request") or Nothing(NO_GAIN)


def _is_mostly_summary(state: State, budget: Budget, first: int, last: int) -> bool:
    """True if entries `first` to `last` are a summary and little else; limits the model's
    repeated requests.
    """
    items = [item for item in state.conversation if first <= item.seqs[0] <= last]
    new = [item.tokens for item in items if item.kind not in ("summary", "ack")]
    return (
        len(new) < len(items) and state.gauge.scale(sum(new)) < NEW_SHARE_MIN * budget.usable_tokens
    )


def _tokens_when_sent(state: State, budget: Budget) -> int:
    """Return the tokens of the view with the birth forms of new results; these are computed only
    if it matters.
    """
    view = state.view_tokens
    if view < budget.prepare_share * budget.usable_tokens:
        return view
    return view - births_gain(state, births(state, budget, roomy=True))


def has_overflowed(state: State) -> bool:
    """True if the last request did not fit and nothing was removed since."""
    return (
        state.failure is not None
        and state.failure.kind == "overflow"
        and state.settled_seq < state.asked_seq
    )


def _answer_was_too_long(state: State, budget: Budget, view: int) -> bool:
    """True if the refused request may fit with less room for its answer: the provider has named a
    window that has room beside the view. Tried once.
    """
    named = state.failure is not None and state.failure.limit_tokens > 0
    return named and state.failures == 1 and view <= _largest_view(budget)


def _largest_view(budget: Budget) -> float:
    return budget.window_tokens * FULL_SHARE_MAX


def _is_rearmed(state: State, usable: int) -> bool:
    if not state.settled:
        return True
    new = state.gauge.scale(state.gauge.raw - state.settled[-1].raw)
    missed = [s for s in state.settled if state.gauge.scale(s.raw) > (1 + GOAL_SHARE) / 2 * usable]
    if len(missed) >= FAILED_CROSSINGS_MAX and state.asks - state.settled[-1].asks < PAUSE_STEPS:
        return False
    return new >= REARM_SHARE * usable


def floor_diagnosis(state: State, budget: Budget) -> str:
    """Return one line that says what fills the window and what to do."""
    said = state.conversation
    largest = max(said, key=lambda item: item.tokens, default=None)
    conversation = state.gauge.scale(sum(item.tokens for item in said))
    fixed = max(0, state.view_tokens - conversation)
    biggest = ""
    if largest is not None:
        biggest = f", largest block {state.gauge.scale(largest.tokens)} ({largest.handle})"
    window = budget.window_tokens
    room = f"window {window}"
    if state.view_tokens < window:
        room = f"which leaves {window - state.view_tokens} of the window {window} for the answer"
        if has_overflowed(state) or state.refused_raw:
            room = f"refused although the window is known as {window}"
    servers = schema_diagnosis(state.prefix, window) if state.prefix else ""
    advice = "use a model with a larger window or start a new session"
    if fixed > budget.usable_tokens // 2:
        advice = "use a model with a larger window, or fewer tools (--tools) and instructions"
    return (
        f"the request does not fit: {state.view_tokens} tokens, {room} "
        f"(system text, tools and instructions {fixed}, conversation {conversation}{biggest}); "
        + (f"{servers}; " if servers else "")
        + advice
    )


def summary_span(state: State) -> tuple[int, int]:
    """Return the entries that a summary may replace: all that the model has replied to. Empty if
    last < first.

    Cuts only before a reply or a user message, so that calls stay with their results.
    """
    items = state.conversation
    told = (
        (n, item.seqs[0])
        for n, item in enumerate(items)
        if item.kind in ("user", "reminder", "result")
    )
    cut = next((n for n, seq in told if seq == 0 or seq > state.seen_reach), len(items))
    if cut < len(items) and items[cut].kind == "result":
        replied = max((item.seqs[0] for item in items[:cut] if item.mine), default=0)
        cut = next((n for n, item in enumerate(items) if item.seqs[0] == replied), cut)
    return span_of(items[:cut])


def _unseen_span(state: State) -> tuple[int, int]:
    """Return the entries that a digest may replace when nothing else fits. Empty if last < first.

    What follows the user's newest message is excluded until it is sent, since it has birth forms.
    A single call or result may be larger than the window, and a summary larger than the window that
    a provider turns out to have.
    """
    items = state.conversation
    newest = max((item.seqs[0] for item in items if item.kind == "user"), default=0)
    while items and not (
        items[-1].kind == "result"
        or items[-1].mine
        or items[-1].seqs[1] <= state.sent_reach
        or items[-1].seqs[1] < newest
    ):
        items.pop()
    return (items[0].seqs[0], max(item.seqs[1] for item in items)) if items else (1, 0)


def sent_span(state: State) -> tuple[int, int]:
    """Return the entries of the last request, which a background summary can replace."""
    return span_of(state.items[state.context_items : state.sent_items])
