"""Timing of clearing: shorten items when re-reading them has cost as much as rewriting what
follows.

A change makes everything after it a cache write. So clearing waits until the cost of re-reading
unneeded items equals the cost of the break; until then the prefix stays the same bytes. While the
cache is cold a break costs nothing, and a recall costs what it always does: so content goes once
re-reading it has cost as much as the recalls that its loss may cause.
"""

from collections.abc import Mapping

import msgspec

from longrein_context.clearing.line_value import LossPrices, SizeEstimate, ValueModels
from longrein_context.clearing.needs import NeedsMemory
from longrein_context.clearing.rewrite import (
    PlanBuilder,
    RewritePlan,
    can_leave,
    fold_runs,
    has_live_image,
    is_answer_in_use,
    is_folded,
    is_too_small,
    tokens_saved,
    trim,
)
from longrein_context.clearing.text_features import USER, ItemRecord

RECALL_CALL_TOKENS = 80
RECALLED_TOKENS = 1_500
RECALLED_REQUESTS = 20
"""Tokens of a call that recalls, tokens of its result, and requests for which the result is
needed then.
"""
SQUEEZE_FACTORS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0)
"""Factors for losses, tried in order until the view is small enough."""


class TokenRates(msgspec.Struct, frozen=True):
    """Prices of cached input, cache write and output, in units of one uncached input token."""

    read: float = 0.1
    write: float = 1.25
    output: float = 5.0


class PolicySettings(msgspec.Struct, frozen=True):
    """Parameters of the policy. The defaults were chosen on recorded sessions (`lab.fit`)."""

    line: float = 0.5
    """Cost of removing a line that is needed later, in units of a recall: one brings back
    several.
    """
    room: float = 0.00015
    """Least cost of keeping one token while the view is squeezed, in units of a recall: room is
    short then, even where reading is free.
    """
    alpha: float = 1.6
    """Re-reading cost that must have been paid, in units of the cost of the break."""
    horizon_share: float = 0.4
    horizon_min: float = 15.0
    horizon_max: float = 400.0
    """Expected number of further requests: a share of those so far, within limits."""
    reuse_share: float = 0.25
    """Share of the results that a usual session needs again after their first request."""
    reuse_doubt: float = 4.0
    """Results needed again that every session is given, until it has shown its own share."""
    gain_min: float = 20.0
    """Minimum tokens saved by shortening an item."""
    guard_results: int = 2
    """Number of newest results that are kept, with everything after them."""
    young: int = 2
    """Requests after its birth in which an item is not cleared to save money."""
    whole: int = 20
    """Requests after an edit in which its new text is not cut to save money: the next edit needs
    it whole.
    """
    fold_idle: int = 3
    """Idle requests before a pair may go into a history."""


class ClearableKinds(msgspec.Struct, frozen=True):
    """Kinds of content that the provider and model allow to be cleared."""

    kinds: frozenset[str] = frozenset({"result", "call", "text", "thinking"})
    old: frozenset[str] = frozenset()
    """Kinds that may be cleared only from before the user's last message."""
    exchanges: bool = True
    """True if whole exchanges may leave: a reply with its thinking, calls and their results."""


class ClearingPolicy(msgspec.Struct):
    """The policy and its parameters. Stateless."""

    values: ValueModels
    rates: TokenRates = TokenRates()
    settings: PolicySettings = PolicySettings()
    measure: SizeEstimate = SizeEstimate()
    clearable: ClearableKinds = ClearableKinds()
    nonce: str = "000000"
    context_tokens: float = 80_000.0
    """Tokens of the next request, which a recall sends once more."""
    visibility: float = 1.0
    """Factor on the cost of a line that is needed later: see `Budget.visibility`."""

    def price(self, memory: NeedsMemory) -> LossPrices:
        """Return the present prices of losing and keeping."""
        settings = self.settings
        horizon = min(
            settings.horizon_max, max(settings.horizon_min, settings.horizon_share * memory.now)
        )
        recall = self.recall_price()
        return LossPrices(
            settings.line * self.visibility * recall * self._reuse(memory),
            self.rates.read * horizon,
            settings.whole,
        )

    def _reuse(self, memory: NeedsMemory) -> float:
        """Return how often this session needs old results, in units of a usual one; at most 1."""
        settings = self.settings
        usual = settings.reuse_share * len(memory.results)
        doubt = settings.reuse_doubt
        return min(1.0, (memory.reused + doubt) / (usual + doubt))

    def recall_price(self) -> float:
        """Return the price of one recall: a call, the context read again, and a result that
        stays for a while.
        """
        rates = self.rates
        result = RECALLED_TOKENS * (rates.write + RECALLED_REQUESTS * rates.read)
        return RECALL_CALL_TOKENS * rates.output + rates.read * self.context_tokens + result

    def builder(self, memory: NeedsMemory) -> PlanBuilder:
        """Return an empty plan builder at present prices."""
        return PlanBuilder(memory, self.values, self.price(memory), self.measure, self.nonce)


def first_guarded(memory: NeedsMemory, policy: ClearingPolicy, requests: int = 0) -> int:
    """Return the first position that must not change: the newest results, young items and unsent
    items.

    `requests`: number of requests for which a new item is young.
    """
    newest = memory.results[-policy.settings.guard_results :]
    first = min(newest[0] if len(newest) == policy.settings.guard_results else 0, memory.sent)
    while requests and first and memory.items[first - 1].born > memory.now - requests:
        first -= 1
    return first


def is_clearable(memory: NeedsMemory, policy: ClearingPolicy, record: ItemRecord) -> bool:
    """Return whether an item may be cleared."""
    if record.cls == USER or record.form == "gone":
        return False
    if is_folded(record):  # its lines stand in a result
        return not memory.must_stay(record)
    kind, clearable = record.piece.kind, policy.clearable
    if kind not in clearable.kinds and not (kind in clearable.old and record.n < memory.last_user):
        return False
    if kind == "call" and (record.arguments is None or not clearable.exchanges):
        return False
    if memory.must_stay(record) or is_answer_in_use(memory, record):
        return False
    return not has_live_image(memory, record)


def refresh_gains(memory: NeedsMemory, policy: ClearingPolicy, guard: int) -> None:
    """Update the gain of the items that changed since the last call."""
    builder = policy.builder(memory)
    later: dict[int, None] = {}
    for n in memory.dirty:
        record = memory.items[n]
        if n >= guard:
            later[n] = None
        elif is_clearable(memory, policy, record):
            record.gain = _gain(builder, policy, record)
            if record.gain > policy.settings.gain_min:
                memory.paying[n] = None
            else:
                memory.paying.pop(n, None)
    memory.dirty = later


def _gain(builder: PlanBuilder, policy: ClearingPolicy, record: ItemRecord) -> float:
    settings = policy.settings
    if is_too_small(builder, record, settings.gain_min):
        return 0.0
    stays = record.piece.kind == "call" and not is_folded(record)
    if stays and not can_leave(builder, record, settings.fold_idle):
        return 0.0
    return tokens_saved(builder, record)


def plan_clearing(
    memory: NeedsMemory, policy: ClearingPolicy, *, cold: bool = False
) -> RewritePlan | None:
    """Return the changes before the next request; None when clearing does not pay."""
    guard = first_guarded(memory, policy, policy.settings.young)
    if not cold and _cut_point(memory, policy, _most_gains(memory, policy, guard)) < 0:
        return None
    refresh_gains(memory, policy, guard)
    gains = {n: memory.items[n].gain for n in memory.paying}
    cut = 0 if cold and gains else _cut_point(memory, policy, gains)
    if cut < 0:
        return None
    builder = policy.builder(memory)
    if cold:
        builder.set_price(msgspec.structs.replace(builder.price, read=policy.rates.read))
    apply_forms(
        builder,
        policy,
        [
            n
            for n in sorted(memory.paying)
            if _place(memory.items[n]) >= cut and is_clearable(memory, policy, memory.items[n])
        ],
        cut,
        guard,
    )
    return builder.plan()


def _place(record: ItemRecord) -> int:
    return record.host if record.host >= 0 else record.n


def _most_gains(memory: NeedsMemory, policy: ClearingPolicy, guard: int) -> dict[int, float]:
    """Return the most that each item may save. An item that was not valued since it changed may
    go whole: reading its lines is the dearest part of a decision, and most of them change nothing.
    """
    items = memory.items
    known = {n: items[n].gain for n in memory.paying}
    changed = (n for n in memory.dirty if n < guard and is_clearable(memory, policy, items[n]))
    return known | {n: items[n].tokens for n in changed}


def _cut_point(memory: NeedsMemory, policy: ClearingPolicy, gains: Mapping[int, float]) -> int:
    """Return the oldest position at which the paid cost covers the break; -1 when there is none.

    Greater gains never move it from a position to none. `gains`: tokens saved by item.
    """
    rates, items = policy.rates, memory.items
    tokens_saved: dict[int, float] = {}
    paid: dict[int, float] = {}
    for n, gain in gains.items():
        record = items[n]
        at = _place(record)
        tokens_saved[at] = tokens_saved.get(at, 0.0) + gain
        paid[at] = paid.get(at, 0.0) + rates.read * gain * memory.idle_requests(record)
    if not paid:
        return -1
    cut = -1
    rent = 0.0
    after = 0.0
    oldest = min(paid)
    per_token = policy.settings.alpha * (rates.write - rates.read)
    for n in range(memory.sent - 1, oldest - 1, -1):
        record = items[n]
        if record.host < 0 or record.host == n:
            after += record.tokens
            for m in record.members:
                after += items[m].tokens
        if n in paid:
            after -= tokens_saved[n]
            rent += paid[n]
            if rent >= per_token * after:
                cut = n
    return cut


def apply_forms(
    builder: PlanBuilder, policy: ClearingPolicy, chosen: list[int], cut: int, guard: int
) -> None:
    """Give the chosen items their ideal forms, oldest first so that the newest copy stays; then
    fold runs.
    """
    for n in chosen:
        trim(builder, builder.memory.items[n], policy.settings.gain_min / 2)
    if policy.clearable.exchanges:
        fold_runs(builder, cut, guard, policy.settings.fold_idle)


def plan_shrinking(
    memory: NeedsMemory, policy: ClearingPolicy, excess: float, least: float = 0.0
) -> RewritePlan | None:
    """Return a plan that saves `excess` tokens, or as many as possible, valuing losses less and
    less.

    `least`: smallest factor for the value of a line.
    """
    guard = first_guarded(memory, policy)
    target = view_tokens(memory) - excess
    builder = policy.builder(memory)
    price = policy.price(memory)
    price = msgspec.structs.replace(
        price, keep=max(price.keep, policy.settings.room * policy.recall_price()), whole=0
    )
    for factor in [factor for factor in SQUEEZE_FACTORS if factor >= least]:
        builder.set_price(price.times(factor))
        apply_forms(
            builder,
            policy,
            [n for n in range(guard) if is_clearable(memory, policy, memory.items[n])],
            0,
            guard,
        )
        if view_tokens(memory) <= target:
            break
    return builder.plan()


def view_tokens(memory: NeedsMemory) -> float:
    """Return the tokens of all shown texts."""
    return sum(record.tokens for record in memory.items)
