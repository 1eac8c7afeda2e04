"""Rendering of the state as a request. The items of the view are passed on as they are, so each
is encoded once.
"""

import msgspec

from longrein_context.decisions import Summarise, has_overflowed, window_of
from longrein_context.events import PrefixSet, Text, text_of
from longrein_context.seed_policy import OPENING, context_summary
from longrein_context.state.request_types import Budget, Item, Request
from longrein_context.state.state import FRAMEWORK_PROFILE, State
from longrein_context.state.token_estimate import ITEM_TOKENS, estimate_part, estimate_text

OUTPUT_TOKENS_MIN = 1_000  # A money limit does not lower the output limit below this
OUTPUT_TOKENS_LEAST = 64  # A small window does not lower the output limit below this
ESTIMATE_ERROR_SHARE = 0.04
"""Share of the view that is left free beside the output limit.

Some providers refuse a request whose input and output limit exceed the window by one token.
"""


def render(
    state: State, budget: Budget, usd_left: float | None = None, tokens_left: int | None = None
) -> Request:
    """Render the next request of purpose turn.

    Needs a `PrefixSet` and no open call. `usd_left` and `tokens_left` lower the output limit.
    """
    request = Request(
        session=state.session,
        prefix=_prefix(state),
        prefix_seq=state.prefix_seq,
        items=tuple(state.items),
        marks=marks(state),
        max_output_tokens=output_limit(state, budget, usd_left, tokens_left),
        route=state.route,
    )
    return _framed(request, state) if state.profile == FRAMEWORK_PROFILE else request


def _framed(request: Request, state: State) -> Request:
    """Move the text for earlier turns to the end of the system prompt (profile
    `seed-framework`). In the first turn it holds the user's message alone.
    """
    items, at = request.items, state.context_items
    told = text_of((items[at].part,)) if at < len(items) and items[at].kind == "summary" else ""
    is_first = not told.startswith(OPENING)
    told = context_summary(state.said) if is_first else told
    prefix = msgspec.structs.replace(request.prefix, system=f"{request.prefix.system}\n\n{told}")
    if is_first:
        return msgspec.structs.replace(request, prefix=prefix, prefix_seq=state.words[-1].seq)
    marks = tuple(sorted({mark - (mark >= at) for mark in request.marks} - {-1}))
    rest = (*items[:at], *items[at + 1 :])
    return msgspec.structs.replace(
        request, prefix=prefix, prefix_seq=items[at].key[0], items=rest, marks=marks
    )


def _prefix(state: State) -> PrefixSet:
    if state.prefix is None:
        raise AssertionError("a request needs a PrefixSet before it")
    return state.prefix


def marks(state: State) -> tuple[int, ...]:
    """Return the cache marks: end of static context or summary, end of the last request, end of
    this one.
    """
    fixed = state.context_items - 1
    following = state.items[state.context_items : state.context_items + 2]
    fixed += sum(item.kind in ("summary", "ack") for item in following)
    tail = len(state.items) - 1
    return tuple(sorted({at for at in (fixed, state.sent_items - 1, tail) if at >= 0}))


def output_limit(
    state: State,
    budget: Budget,
    usd_left: float | None,
    tokens_left: int | None = None,
    more_tokens: int = 0,
) -> int:
    """Return the output limit by the model, the window, and the money and tokens left.

    `more_tokens`: input beside the view.
    """
    budget = window_of(state, budget)
    sent = (state.view_tokens + more_tokens) * (1 + ESTIMATE_ERROR_SHARE)
    room = budget.window_tokens - round(sent)
    if has_overflowed(state):
        room //= 1 + state.failures
    limit = min(budget.max_output_tokens, max(OUTPUT_TOKENS_LEAST, room))
    if usd_left is not None and budget.price is not None and budget.price.output > 0:
        affordable = int((usd_left - input_usd(state, budget)) * 1e6 / budget.price.output)
        limit = min(limit, max(OUTPUT_TOKENS_MIN, affordable))
    if tokens_left is not None:
        limit = min(limit, max(OUTPUT_TOKENS_MIN, tokens_left - state.view_tokens))
    return limit


def input_usd(state: State, budget: Budget) -> float:
    """Return the price of the next request's input if nothing is cached."""
    if budget.price is None:
        return 0.0
    dearest = max(budget.price.input, budget.price.cache_write)
    return state.view_tokens * dearest / 1e6


def reserve_usd(state: State, budget: Budget, max_output_tokens: int) -> float:
    """Return the largest cost of a request, which `Asked` reserves."""
    if budget.price is None:
        return 0.0
    return input_usd(state, budget) + max_output_tokens * budget.price.output / 1e6


def request_tokens(state: State, request: Request) -> int:
    """Estimate the input tokens of `request`, its prefix by the view's gauge."""
    fixed = (
        state.gauge.raw - sum([item.tokens for item in state.items]) if request.prefix.system else 0
    )
    items = sum([item.tokens or estimate_part(item.part) for item in request.items])
    return state.gauge.scale(max(0, fixed) + items)


def render_summary(state: State, budget: Budget, wish: Summarise) -> Request:
    """Render a summary request: the live request, or in the background the last one, plus one
    instruction.

    So the summariser reads the provider's cache.
    """
    from longrein_context.summary.prompt import records_tokens, summary_instruction
    from longrein_context.summary.summary_text import records_for_summariser

    live = render(state, budget)
    carried = live.items[: state.sent_items] if wish.beside else live.items
    budget = window_of(state, budget)
    records = records_for_summariser(state, records_tokens(budget, state.view_tokens))
    text = summary_instruction(wish.focus, budget, records)
    tokens = estimate_text(text) + ITEM_TOKENS
    ask = Item(
        (state.seq, 0, -1), "reminder", (state.seq, state.seq), "", Text(text), "full", tokens
    )
    tail = tuple(at for at in live.marks if at < len(carried))
    limit = output_limit(state, budget, None, more_tokens=state.gauge.scale(tokens))
    return msgspec.structs.replace(
        live, items=(*carried, ask), marks=tail, purpose="summary", max_output_tokens=limit
    )
