"""Budgets of a tree of subagents: what is left, what a subagent costs, and what each may spend.

All of it is a function of the logs. A running subagent's grant counts as spent by its parent, so it
is never given twice; the unused rest comes back with `SubagentEnded`. Refusals come before the
start. A parent reserves the price of one request that carries all reports, so that it can always
answer.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from longrein.agent.dependencies import UNBOUND, RemainingBudget
from longrein.settings_schema import Limits
from longrein_context import OUTPUT_TOKENS_MIN, Budget, State
from longrein_context.events import Grant

REPORT_TOKENS_MAX = 8_000
"""Tokens of one report in its parent's view."""
REPORTS_TOKENS_MAX = 12_000
"""Tokens of all reports of one call: a result shows no more than a page of them."""
TURNS_DEFAULT = 100
"""Requests of a subagent whose type names no limit."""
TURNS_EXPECTED = 6
"""Requests assumed for the price of a subagent."""
STEP_TOKENS = 2_000
"""Tokens that one step is assumed to add to the view."""
ANSWER_TOKENS = 500
"""Output assumed for one request."""
OUTPUT_KEPT_TOKENS = 2_000
"""Output of the request that a parent reserves for itself."""
SECONDS_KEPT = 30.0
"""Time that a parent reserves for its answer, or a tenth of what is left where that is less."""
LEAST_USD = 1e-9
"""A money limit of almost nothing; 0 would mean no limit."""


class Spent(msgspec.Struct, frozen=True):
    """Use of a session and its subagents; requests in flight count with their reserve."""

    usd: float = 0.0
    tokens: int = 0
    spawned: int = 0
    """Subagents started."""

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.usd - other.usd, self.tokens - other.tokens, self.spawned - other.spawned)


class RunOption(msgspec.Struct, frozen=True):
    """A way to run a job."""

    form: str
    """`empty` or `fork`."""
    budget: Budget
    """Prices and window of its model."""
    fresh_tokens: int
    """Uncached input of the first request: all of it for `empty`, the task for `fork`."""
    cached_tokens: int = 0
    """Cached input of the first request: of a fork, its parent's request."""


class SpawnRequest(msgspec.Struct, frozen=True):
    """Request to run a job."""

    offers: tuple[RunOption, ...]
    """The requested way first, then alternatives, the best first."""
    turns: int = 0
    """Limit of requests; 0 for the default."""
    depth: int = 0
    """Levels of subagents below it that its type allows."""
    again: bool = False
    """True if a finished subagent is asked again, which counts as no further one."""


class Granted(msgspec.Struct, frozen=True):
    """The job may run."""

    grant: Grant
    offer: RunOption
    note: str = ""
    """Differences from the request and their reason, for the model."""


# --- Used and remaining ---------------------------------------------------------------------------


def spent(state: State, tree: Mapping[str, State]) -> Spent:
    """Return the use of a session and its subagents.

    A running subagent counts with its grant, or with its use when that is more. `tree`: known
    states by session.
    """
    usd = state.spent_usd
    tokens = state.spent_tokens
    spawned = state.spawned
    if state.asked is not None:
        tokens += state.asked.estimate_tokens
    for session, child in state.children.items():
        below = tree.get(session) if child.ended is None else None
        if below is None:
            continue
        held, used = child.started.grant or Grant(), spent_on_task(below, tree)
        usd += max(0.0, used.usd - held.usd)
        tokens += max(0, used.tokens - held.tokens)
        spawned += max(0, used.spawned - held.spawns)
    return Spent(usd, tokens, spawned)


def spent_on_task(state: State, tree: Mapping[str, State]) -> Spent:
    """Return the use since the present task began, as `SubagentEnded` reports it."""
    began = state.began
    return spent(state, tree) - Spent(began.usd, began.usage.total_tokens, began.spawned)


def remaining_budget(
    state: State,
    limits: Limits,
    task_s: float,
    tree: Mapping[str, State],
    above: RemainingBudget = UNBOUND,
) -> RemainingBudget:
    """Return the budget left to a session and its subagents; negative when a request cost more than
    estimated.

    `limits` as `limits_under` gives them; `task_s`: seconds since its task began; `above`: budget
    left to its parents, which counts here only when it is negative.
    """
    used = spent(state, tree)
    seconds = limits.seconds_max - task_s if limits.seconds_max else UNBOUND.seconds
    return RemainingBudget(
        _left(limits.usd_max, used.usd, above.usd),
        _left(limits.tokens_max, used.tokens, above.tokens),
        min(above.seconds, seconds),
        _left(limits.spawns_max, used.spawned, above.spawns),
        limits.depth_max,
    )


def _left(most: float, used: float, above: float) -> float:
    return most - used + min(0, above) if most else above


def without_reserve(remaining: RemainingBudget, kept: Spent) -> RemainingBudget:
    """Return `remaining` minus the reserve."""
    kept_s = min(SECONDS_KEPT, remaining.seconds / 10) if kept.usd or kept.tokens else 0.0
    return msgspec.structs.replace(
        remaining,
        usd=remaining.usd - kept.usd,
        tokens=remaining.tokens - kept.tokens,
        seconds=remaining.seconds - kept_s,
    )


def answer_reserve(state: State, budget: Budget, more: int = 0) -> Spent:
    """Return the highest price of one request that carries the reports of all running subagents and
    `more`.

    Zero when there are none. `budget`: of the session's own model.
    """
    reports = Counter(
        child.started.call for child in state.children.values() if child.ended is None
    )
    told = [*reports.values(), *([more] if more else [])]
    if not told:
        return Spent()
    view = state.view_tokens + sum(
        min(count * REPORT_TOKENS_MAX, REPORTS_TOKENS_MAX) for count in told
    )
    view = min(view, budget.window_tokens)
    output = max(OUTPUT_TOKENS_MIN, min(OUTPUT_KEPT_TOKENS, budget.max_output_tokens))
    price = budget.price
    usd = (
        (view * max(price.input, price.cache_write) + output * price.output) / 1e6
        if price is not None
        else 0.0
    )
    return Spent(usd, view + output)


def limits_under(limits: Limits, grant: Grant | None, state: State) -> Limits:
    """Return the limits of a session that works under `grant`, counted from the start of its
    present task.
    """
    if grant is None:
        return limits
    began = state.began
    return msgspec.structs.replace(
        limits,
        usd_max=began.usd + grant.usd if grant.usd else 0.0,
        tokens_max=began.usage.total_tokens + grant.tokens if grant.tokens else 0,
        turns_max=grant.turns,
        seconds_max=grant.seconds,
        spawns_max=began.spawned + grant.spawns if grant.spawns else 0,
        depth_max=grant.depth,
    )


def limits_within(limits: Limits, state: State, remaining: RemainingBudget) -> Limits:
    """Return the limits of this session's next request, when no more than `remaining` is left."""
    if remaining.usd == UNBOUND.usd and remaining.tokens == UNBOUND.tokens:
        return limits
    usd, tokens = limits.usd_max, limits.tokens_max
    if remaining.usd != UNBOUND.usd:
        usd = max(LEAST_USD, min(usd or UNBOUND.usd, state.spent_usd + remaining.usd))
    if remaining.tokens != UNBOUND.tokens:
        tokens = max(1, int(min(tokens or UNBOUND.tokens, state.spent_tokens + remaining.tokens)))
    return msgspec.structs.replace(limits, usd_max=usd, tokens_max=tokens)


# --- Price of a subagent --------------------------------------------------------------------------


def quote(offer: RunOption, turns: int = TURNS_EXPECTED) -> Spent:
    """Estimate what a subagent uses in `turns` requests: its growing context, and each answer."""
    price = offer.budget.price
    usd = 0.0
    tokens = 0
    known = offer.cached_tokens
    new = offer.fresh_tokens
    for _ in range(max(1, turns)):
        tokens += known + new + ANSWER_TOKENS
        if price is not None:
            write = max(price.input, price.cache_write)
            usd += (known * price.read_usd + new * write + ANSWER_TOKENS * price.output) / 1e6
        known, new = known + new, STEP_TOKENS
    return Spent(usd, tokens)


# --- Sharing --------------------------------------------------------------------------------------


def share_budget(
    remaining: RemainingBudget, requests: Sequence[SpawnRequest], *, rivals: int = 0
) -> tuple[Granted | str, ...]:
    """Share `remaining`, reserve already deducted, among `requests`; return the grant of each, or
    why it is refused.

    Fair shares: unserved requests, `rivals` (jobs of other calls of the same reply) and the parent
    count alike. A job gets at least its price while there is enough. Unlimited stays unlimited. The
    sum never exceeds `remaining`.
    """
    given: list[Granted | str] = []
    for at, request in enumerate(requests):
        sharers = len(requests) - at + rivals + 1
        one = _serve(remaining, request, sharers)
        given.append(one)
        if isinstance(one, Granted):
            remaining = _without(remaining, one.grant, again=request.again)
    return tuple(given)


def _serve(remaining: RemainingBudget, request: SpawnRequest, sharers: int) -> Granted | str:
    why = _closed(remaining, again=request.again)
    if why:
        return why
    turns = request.turns or TURNS_DEFAULT
    prices = [quote(offer, min(turns, TURNS_EXPECTED)) for offer in request.offers]
    for at, (offer, price) in enumerate(zip(request.offers, prices, strict=True)):
        if price.usd <= remaining.usd and price.tokens <= remaining.tokens:
            return Granted(
                _grant(remaining, price, turns, request, sharers),
                offer,
                _note(remaining, request, prices, at),
            )
    return (
        f"it is expected to cost {_price(prices[-1], remaining)}, and no more than "
        f"{_rest(remaining)} can be granted; "
        "do it yourself or with fewer subagents, or answer with what you have"
    )


def _closed(remaining: RemainingBudget, *, again: bool) -> str:
    """Return why nothing may be started; '' when something may."""
    if remaining.depth <= 0 and not again:
        return "no subagents may be started at this depth; do it yourself"
    if remaining.spawns < 1 and not again:
        return (
            "no more subagents may be started in this session; do it yourself, or ask a "
            "finished one again"
        )
    if remaining.seconds <= 0:
        return "no time is left for a subagent; answer with what you have"
    return ""


def _grant(
    remaining: RemainingBudget, price: Spent, turns: int, request: SpawnRequest, sharers: int
) -> Grant:
    below = min(request.depth, remaining.depth - 1)
    spawns = (
        0
        if remaining.spawns == UNBOUND.spawns
        else int((remaining.spawns - (not request.again)) // sharers)
    )
    if remaining.spawns != UNBOUND.spawns and not spawns:
        below = 0
    return Grant(
        usd=0.0 if remaining.usd == UNBOUND.usd else max(price.usd, remaining.usd / sharers),
        tokens=0
        if remaining.tokens == UNBOUND.tokens
        else max(price.tokens, int(remaining.tokens // sharers)),
        turns=turns,
        spawns=spawns if below > 0 else 0,
        depth=max(0, below),
        seconds=0.0 if remaining.seconds == UNBOUND.seconds else remaining.seconds,
    )


def _without(remaining: RemainingBudget, grant: Grant, *, again: bool) -> RemainingBudget:
    spawns = remaining.spawns - grant.spawns - (not again)
    return RemainingBudget(
        remaining.usd - grant.usd,
        remaining.tokens - grant.tokens,
        remaining.seconds,
        spawns,
        remaining.depth,
    )


# --- Texts ----------------------------------------------------------------------------------------


def _note(
    remaining: RemainingBudget, request: SpawnRequest, prices: Sequence[Spent], at: int
) -> str:
    """Describe how option `at` differs from the requested one, and why."""
    if not at:
        return ""
    form, wanted = request.offers[at].form, request.offers[0].form
    cost, rest = _price(prices[0], remaining), _rest(remaining)
    return f"{form} instead of {wanted}: as asked for it would cost {cost}, {rest} can be granted"


def _price(price: Spent, remaining: RemainingBudget) -> str:
    return _in_limited_units(price.usd, price.tokens, remaining, "about ")


def _rest(remaining: RemainingBudget) -> str:
    return _in_limited_units(remaining.usd, remaining.tokens, remaining)


def _in_limited_units(
    usd: float, tokens: float, remaining: RemainingBudget, about: str = ""
) -> str:
    money = [f"{about}${max(0.0, usd):.4f}"] if remaining.usd != UNBOUND.usd else []
    counted = [f"{about}{max(0, int(tokens))} tokens"] if remaining.tokens != UNBOUND.tokens else []
    return " and ".join(money + counted)
