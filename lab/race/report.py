"""Tables of the race: cost, needed lines not visible, refused requests and cache hits, by loop
and policy.
"""

from collections.abc import Callable, Iterable, Sequence

from lab.race.contest import Run
from lab.race.sessions import NEEDS

KEEP_ALL = "keep all"


def finished(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of the sessions that all policies of a loop have played."""
    arms: dict[str, set[str]] = {}
    played: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        arms.setdefault(run.loop, set()).add(run.policy)
        played.setdefault((run.loop, run.setting.name), set()).add(run.policy)
    return [run for run in runs if played[run.loop, run.setting.name] == arms[run.loop]]


def race_table(runs: Sequence[Run]) -> str:
    """Return the table by loop, policy and kind of needs. Costs are relative to keeping all in
    the same loop.
    """
    base = _keep_all(runs)
    columns = (
        "cost",
        *NEEDS,
        "worst session",
        "lines not visible",
        "repairs",
        "refused",
        "cache hit",
    )
    lines = ["| loop | policy | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns)]
    for loop, policy in _arms(runs):
        mine = [run for run in runs if (run.loop, run.policy) == (loop, policy)]
        kinds = [[run for run in mine if run.setting.needs == needs] for needs in NEEDS]
        cells = (
            f"{_cost(mine, base):.2f}",
            *(f"{_cost(kind, base):.2f}" if kind else "" for kind in kinds),
            f"{max(run.cost() / base[run.loop, run.setting.name] for run in mine):.2f}",
            f"{_missed(mine):.0%}",
            f"{sum(run.count('repair') for run in mine)}",
            f"{sum(run.count('refused') for run in mine)}",
            f"{_hit(mine):.3f}",
        )
        lines.append("| " + " | ".join([loop, policy, *cells]) + " |")
    return "\n".join(lines)


def split_table(runs: Sequence[Run], title: str, key: Callable[[Run], object]) -> str:
    """Return costs by loop and policy, one column for each value of `key`."""
    base = _keep_all(runs)
    values = list(dict.fromkeys(key(run) for run in sorted(runs, key=lambda run: run.setting.seed)))
    values.sort(key=lambda value: (isinstance(value, str), value))
    lines = [
        f"| loop | policy | {title} " + " | ".join(map(str, values)) + " |",
        "|---|---|" + "---|" * len(values),
    ]
    for loop, policy in _arms(runs):
        mine = [run for run in runs if (run.loop, run.policy) == (loop, policy)]
        parts = [[run for run in mine if key(run) == value] for value in values]
        cells = [f"{_cost(part, base):.3f}, {_missed(part):.1%}" if part else "" for part in parts]
        lines.append("| " + " | ".join([loop, policy, *cells]) + " |")
    return "\n".join(lines)


def trace(run: Run) -> str:
    """Return each request of a run: tokens, and what broke the cache."""
    lines = [
        f"{run.loop}, {run.policy}: {run.setting.name}",
        " request  step kind     prompt  cached output  changed",
    ]
    for n, one in enumerate(run.requests):
        lines.append(
            f"{n:8} {one.step:5} {one.kind:8}{one.prompt:7} {one.cached:7} {one.output:6}  "
            f"{one.changed}".rstrip()
        )
    lines += [f"not visible at {miss}" for miss in run.tally.misses]
    return "\n".join(lines)


def _arms(runs: Iterable[Run]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((run.loop, run.policy) for run in runs))


def _keep_all(runs: Iterable[Run]) -> dict[tuple[str, str], float]:
    return {(run.loop, run.setting.name): run.cost() for run in runs if run.policy == KEEP_ALL}


def _cost(runs: Sequence[Run], base: dict[tuple[str, str], float]) -> float:
    """Return the sum of the costs over that of keeping all."""
    return sum(run.cost() for run in runs) / sum(base[run.loop, run.setting.name] for run in runs)


def _missed(runs: Sequence[Run]) -> float:
    return sum(run.tally.missed for run in runs) / max(1, sum(run.tally.needed for run in runs))


def _hit(runs: Sequence[Run]) -> float:
    asked = [one for run in runs for one in run.requests if one.kind != "refused"]
    return sum(one.cached for one in asked) / max(1, sum(one.prompt for one in asked))
