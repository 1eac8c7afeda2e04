"""Comparison of two fleets that ran the same tasks, with 95 % confidence intervals. Pure."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import msgspec

from longrein.frontends.reports.session_lists import table
from longrein.steps.human_text import money
from longrein_fleet.fleet_state import TaskResult

Z = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


class Interval(msgspec.Struct, frozen=True):
    """An estimate with the limits of its 95 % confidence interval, which are infinite (null in
    JSON) where one pair is all there is.
    """

    value: float
    low: float
    high: float


class Side(msgspec.Struct, frozen=True):
    """Figures of a compared fleet, on the tasks that both have ended."""

    name: str
    done: int
    solved: Interval
    """Share of the tasks that are done."""
    cost_usd: float
    """Mean of all attempts of a task."""
    seconds: float
    """Mean of a task's last attempt."""


class FleetComparison(msgspec.Struct, frozen=True):
    """Two fleets. The differences are those of `b` less `a`, means over the tasks."""

    tasks: int
    left_out: tuple[str, ...]
    """Tasks that are not in both fleets, or that one of them has not ended."""
    a: Side
    b: Side
    solved: Interval
    cost_usd: Interval
    seconds: Interval


def compare(
    names: tuple[str, str], first: Sequence[TaskResult], second: Sequence[TaskResult]
) -> FleetComparison | None:
    """Compare the results of two fleets by the ids of their tasks; None if they share none."""
    ended_a, ended_b = _ended(first), _ended(second)
    pairs = [(one, ended_b[name]) for name, one in ended_a.items() if name in ended_b]
    if not pairs:
        return None
    every = {one.id for one in (*first, *second)}
    return FleetComparison(
        len(pairs),
        tuple(sorted(every - {one.id for one, _ in pairs})),
        _side(names[0], [one for one, _ in pairs]),
        _side(names[1], [other for _, other in pairs]),
        paired_shares([(_is_done(one), _is_done(other)) for one, other in pairs]),
        paired_mean([other.cost_usd - one.cost_usd for one, other in pairs]),
        paired_mean([other.seconds - one.seconds for one, other in pairs]),
    )


def _ended(results: Sequence[TaskResult]) -> dict[str, TaskResult]:
    return {one.id: one for one in results if one.outcome in ("done", "failed")}


def _is_done(result: TaskResult) -> bool:
    return result.outcome == "done"


def _side(name: str, results: Sequence[TaskResult]) -> Side:
    done = sum(map(_is_done, results))
    cost_usd = fmean(one.cost_usd for one in results)
    seconds = fmean(one.seconds for one in results)
    return Side(name, done, wilson(done, len(results)), cost_usd, seconds)


def wilson(done: int, count: int) -> Interval:
    """Return the share of `done` with the Wilson score interval.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of
    the American Statistical Association 22 (1927), 209-212: the shares from which the observed one
    is at most `Z` standard errors away, each with its own standard error.
    """
    share = done / count
    scale = 1 + Z**2 / count
    middle = (share + Z**2 / (2 * count)) / scale
    half = Z / scale * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


def paired_shares(done: Sequence[tuple[bool, bool]]) -> Interval:
    """Return the share done by the second less that done by the first, with Newcombe's interval.

    R. G. Newcombe, "Improved confidence intervals for the difference between binomial proportions
    based on paired data", Statistics in Medicine 17 (1998), 2635-2650, method 10: the Wilson limits
    of the two shares, combined by their correlation, which is corrected for continuity.
    """
    count = len(done)
    first, second = sum(one for one, _ in done), sum(other for _, other in done)
    both = sum(one and other for one, other in done)
    neither = count - first - second + both
    a, b = wilson(first, count), wilson(second, count)
    excess: float = both * neither - (first - both) * (second - both)
    if excess > 0:
        excess = max(0.0, excess - count / 2)
    spread = math.sqrt(first * (count - first) * second * (count - second))
    correlation = excess / spread if spread else 0.0
    value = b.value - a.value
    below = _combined(b.value - b.low, a.high - a.value, correlation)
    above = _combined(b.high - b.value, a.value - a.low, correlation)
    return Interval(value, value - below, value + above)


def _combined(one: float, other: float, correlation: float) -> float:
    return math.sqrt(max(0.0, one**2 - 2 * correlation * one * other + other**2))


def paired_mean(differences: Sequence[float]) -> Interval:
    """Return the mean of paired differences with Student's t interval.

    Student, "The probable error of a mean", Biometrika 6 (1908), 1-25: the mean and its standard
    error, times the 97.5 % quantile of t with one degree of freedom less than there are pairs. One
    pair has no interval: its limits are infinite.
    """
    mean, count = fmean(differences), len(differences)
    if count == 1:
        return Interval(mean, -math.inf, math.inf)
    half = t_quantile(count - 1) * stdev(differences) / math.sqrt(count)
    return Interval(mean, mean - half, mean + half)


def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t.

    M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions" (1964), 26.7.5: right to
    .004 from three degrees of freedom on. The first two have closed forms.
    """
    if freedom == 1:
        return 12.706204736174698
    if freedom == 2:
        return 4.302652729749464
    terms = (
        Z,
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
        (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / 92_160,
    )
    return math.fsum(term / float(freedom**power) for power, term in enumerate(terms))


def as_table(told: FleetComparison) -> str:
    """Return the comparison as lines of text."""
    a, b = told.a, told.b
    rows = (
        ("", a.name, b.name, "difference"),
        (
            "solved",
            f"{a.done} of {told.tasks}, {_share(a.solved)}",
            f"{b.done} of {told.tasks}, {_share(b.solved)}",
            _difference(told.solved, lambda value: f"{abs(value):.1%}"),
        ),
        (
            "cost a task",
            money(a.cost_usd),
            money(b.cost_usd),
            _difference(told.cost_usd, lambda value: money(abs(value))),
        ),
        (
            "time a task",
            f"{a.seconds:.1f} s",
            f"{b.seconds:.1f} s",
            _difference(told.seconds, lambda value: f"{abs(value):.1f} s"),
        ),
    )
    text = table(rows).decode()
    text += f"{told.tasks} tasks that both have ended; in brackets: 95 % confidence\n"
    if told.left_out:
        text += f"left out: {', '.join(told.left_out)}\n"
    return text


def _share(interval: Interval) -> str:
    return f"{interval.value:.1%} [{interval.low:.1%}, {interval.high:.1%}]"


def _difference(interval: Interval, shown: Callable[[float], str]) -> str:
    low, high = (_signed(value, shown) for value in (interval.low, interval.high))
    return f"{_signed(interval.value, shown)} [{low}, {high}]"


def _signed(value: float, shown: Callable[[float], str]) -> str:
    return f"{'-' if value < 0 else '+'}{shown(value)}"
