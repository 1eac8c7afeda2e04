"""When to clear: what is probably dead pays rent; when the rent of a suffix has paid for writing it anew, it goes.

Whatever is changed makes everything after it a cache write. So clearing waits until what could have been saved equals
what the break costs; the prefix stays byte for byte until then. When the cache is cold a break costs nothing.
"""

import msgspec

from longrein.context.clearing.features import THINKING, USER, Held
from longrein.context.clearing.line_value import Measure, Price, Values
from longrein.context.clearing.needs import Worth
from longrein.context.clearing.rewrite import Desk, Plan, fold_runs, is_small, saved, trim

IMAGE_IDLE = 8
"""Requests without need after which a picture counts as dead: nobody can see in the log what is needed of it."""
SQUEEZE_FACTORS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0)
"""Under pressure what a loss costs counts less and less."""


class Rates(msgspec.Struct, frozen=True):
    """Prices of cached input, cache write and output; one uncached input token is 1."""

    read: float = 0.1
    write: float = 1.25
    output: float = 5.0


class Knobs(msgspec.Struct, frozen=True):
    """What can be turned. The defaults were chosen on recorded sessions (`benchmarks/fit.py`)."""

    line: float = 2800.0
    word: float = 2500.0
    alpha: float = 1.6
    """Rent that must have been paid, in units of what the break costs."""
    losses_rate: float = 0.08
    """Wrong clearings in a request, usually."""
    losses_prior: float = 2.0
    losses_power: float = 1.0
    horizon_share: float = 0.4
    horizon_min: float = 15.0
    horizon_max: float = 400.0
    """Requests that are expected to follow: a share of those so far, within limits."""
    gain_min: float = 20.0
    """An item whose ideal form saves less is left alone."""
    guard_results: int = 2
    """Newest results that stay, with everything after them."""
    fold_idle: int = 3
    """Requests without need before a pair may go into a ledger."""


class Tolerates(msgspec.Struct, frozen=True):
    """What a provider or model lets be cleared."""

    kinds: tuple[str, ...] = ("result", "call", "text", "thinking")
    turn_thinking: bool = True
    """Whether thinking since the user last spoke may go."""


class Rental(msgspec.Struct):
    """The policy with its settings; keeps nothing of a session."""

    values: Values
    rates: Rates = Rates()
    knobs: Knobs = Knobs()
    measure: Measure = Measure()
    tolerates: Tolerates = Tolerates()
    nonce: str = "000000"

    def price(self, worth: Worth) -> Price:
        """Losses and rents as they stand now."""
        knobs = self.knobs
        horizon = min(knobs.horizon_max, max(knobs.horizon_min, knobs.horizon_share * worth.now))
        return Price(knobs.line, knobs.word, self.rates.read, horizon).times(self.caution(worth))

    def caution(self, worth: Worth) -> float:
        """How much dearer losses are in this session: more is missed than usual, or less."""
        knobs = self.knobs
        ratio = (worth.losses + knobs.losses_prior) / (knobs.losses_rate * worth.now + knobs.losses_prior)
        return float(min(4.0, max(1.0, ratio)) ** knobs.losses_power)

    def desk(self, worth: Worth) -> Desk:
        """A place to work at."""
        return Desk(worth, self.values, self.price(worth), self.measure, self.nonce)


def guard_of(worth: Worth, rental: Rental) -> int:
    """First place that may not be touched: the newest results and what was never sent."""
    newest = worth.results[-rental.knobs.guard_results :]
    first = newest[0] if len(newest) == rental.knobs.guard_results else 0
    return min(first, worth.sent)


def may_clear(worth: Worth, rental: Rental, held: Held) -> bool:
    """Whether an item is of a kind that may be cleared, and not gone yet."""
    if held.cls == USER or held.form == "gone" or held.piece.kind not in rental.tolerates.kinds:
        return False
    if (held.piece.kind == "call" and held.arguments is None) or held.piece.handle in worth.kept:
        return False
    if held.piece.images and worth.now - held.last < IMAGE_IDLE:
        return False
    return held.cls != THINKING or rental.tolerates.turn_thinking or held.n < worth.last_user


def refresh(worth: Worth, rental: Rental, guard: int) -> None:
    """Look again at the items about which something has changed; what each would save now."""
    desk = rental.desk(worth)
    later: dict[int, None] = {}
    for n in worth.dirty:
        held = worth.items[n]
        if n >= guard:
            later[n] = None
        elif may_clear(worth, rental, held):
            held.gain = 0.0 if is_small(desk, held, rental.knobs.gain_min) else saved(desk, held)
            if held.gain > rental.knobs.gain_min:
                worth.paying[n] = None
            else:
                worth.paying.pop(n, None)
    worth.dirty = later


def decide(worth: Worth, rental: Rental, *, cold: bool = False) -> Plan | None:
    """What to change before the request that is about to be made; None when it does not pay."""
    guard = guard_of(worth, rental)
    refresh(worth, rental, guard)
    cut = 0 if cold and worth.paying else _cut(worth, rental)
    if cut < 0:
        return None
    desk = rental.desk(worth)
    flush(
        desk,
        rental,
        [n for n in sorted(worth.paying) if _place(worth.items[n]) >= cut and may_clear(worth, rental, worth.items[n])],
        cut,
        guard,
    )
    return desk.plan()


def _place(held: Held) -> int:
    return held.host if held.host >= 0 else held.n


def _cut(worth: Worth, rental: Rental) -> int:
    """Oldest place from which on the rent that was paid covers the break; -1 when there is none."""
    rates, items = rental.rates, worth.items
    saved: dict[int, float] = {}
    paid: dict[int, float] = {}
    for n in worth.paying:
        held = items[n]
        at = _place(held)
        saved[at] = saved.get(at, 0.0) + held.gain
        idle = worth.now - max(held.born, held.last, held.cleared_at)
        paid[at] = paid.get(at, 0.0) + rates.read * held.gain * idle
    if not paid:
        return -1
    cut, rent, after = -1, 0.0, 0.0
    oldest = min(paid)
    per_token = rental.knobs.alpha * (rates.write - rates.read)
    for n in range(worth.sent - 1, oldest - 1, -1):
        held = items[n]
        if held.host < 0 or held.host == n:
            after += held.tokens
            for m in held.members:
                after += items[m].tokens
        if n in paid:
            after -= saved[n]
            rent += paid[n]
            if rent >= per_token * after:
                cut = n
    return cut


def flush(desk: Desk, rental: Rental, chosen: list[int], cut: int, guard: int) -> None:
    """The chosen items take their ideal form, oldest first, so that the newest copy stays; then runs are folded."""
    for n in chosen:
        trim(desk, desk.worth.items[n], rental.knobs.gain_min / 2)
    if "call" in rental.tolerates.kinds and "result" in rental.tolerates.kinds:
        fold_runs(desk, cut, guard, rental.knobs.fold_idle)


def squeeze(worth: Worth, rental: Rental, excess: float, least: float = 0.0) -> Plan | None:
    """Make the view smaller by `excess` tokens, or by as much as can be, valuing losses less and less.

    `least`: the smallest share of its value that a line is still granted.
    """
    guard = guard_of(worth, rental)
    target = view_tokens(worth) - excess
    desk = rental.desk(worth)
    for factor in [factor for factor in SQUEEZE_FACTORS if factor >= least]:
        desk.price = rental.price(worth).times(factor)
        flush(desk, rental, [n for n in range(guard) if may_clear(worth, rental, worth.items[n])], 0, guard)
        if view_tokens(worth) <= target:
            break
    return desk.plan()


def view_tokens(worth: Worth) -> float:
    """Tokens of everything that is shown."""
    return sum(held.tokens for held in worth.items)
