"""CPU time of the test functions: what `make test` leaves out, and which function became dearer.

`make test-all` writes `costs.tsv` (function, CPU seconds a case, cases), `make test` reads it. A
function that is not in the file runs whole.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lab.support.forked import forked_cpu_s

FILE = Path(__file__).with_name("costs.tsv")
FUNCTION_S = 0.25
"""CPU seconds that the rows of one function may take in `make test`."""
CASE_S = 0.5
"""CPU seconds of a case above which a function waits for `make test-all`."""
DEARER = 2.0
"""Factor above its cost in the file from which a function is reported."""
SHOWN = 10
"""Functions of a list in the summary."""
CPU_S = "cpu_s"
"""Name of the property of a report that holds the CPU seconds of a case."""


def function_of(nodeid: str) -> str:
    """Return the name of the test function of a case: its id without the row."""
    return nodeid.partition("[")[0]


def rows_that_fit(cost_s: float, cases: int) -> list[int]:
    """Return which of `cases` rows, of `cost_s` CPU seconds each, `make test` runs: an even spread.

    >>> rows_that_fit(0.01, 4), rows_that_fit(0.1, 9), rows_that_fit(0.4, 9), rows_that_fit(0.6, 9)
    ([0, 1, 2, 3], [0, 4], [0], [])
    """
    if cost_s > CASE_S:
        return []
    kept = min(cases, max(1, int(FUNCTION_S / cost_s))) if cost_s else cases
    return [row * cases // kept for row in range(kept)]


def read_costs(file: Path = FILE) -> dict[str, tuple[float, int]]:
    """Return (CPU seconds a case, cases) of each function; empty without the file."""
    if not file.exists():
        return {}
    rows = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
    return {function: (float(cost_s), int(cases)) for function, cost_s, cases in rows}


def write_costs(costs: Mapping[str, tuple[float, int]], file: Path = FILE) -> None:
    """Write the file anew."""
    rows = (f"{name}\t{cost_s:.3f}\t{cases}\n" for name, (cost_s, cases) in sorted(costs.items()))
    file.write_text("".join(rows), encoding="utf-8")


def cpu_s() -> float:
    """Return the CPU seconds of this process, and of the processes that have ended below it."""
    return sum(os.times()[:4]) + forked_cpu_s()


class TestCosts:
    """Plugin of pytest: measures every case, and leaves the dear rows out with `--sample`."""

    __test__ = False

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._known = read_costs()
        self._found: set[str] = set()
        self._costs: dict[str, list[float]] = defaultdict(list)
        self._before_s = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep of each function the rows that fit."""
        if not self._config.getoption("--sample"):
            return
        functions: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            functions[function_of(item.nodeid)].append(item)
        kept: set[pytest.Item] = set()
        for function, rows in functions.items():
            cost_s, _ = self._known.get(function, (0.0, 0))
            kept.update(rows[number] for number in rows_that_fit(cost_s, len(rows)))
        self._config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        """Note the CPU time before a case."""
        self._before_s = cpu_s()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Put the CPU time of a case into its last report."""
        if call.when == "teardown":
            item.user_properties.append((CPU_S, cpu_s() - self._before_s))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the CPU time from the last report of a case that was not skipped."""
        self._found.add(function_of(report.nodeid))
        cost_s = dict(report.user_properties).get(CPU_S)
        if report.when == "call" and not report.skipped:
            self._costs[function_of(report.nodeid)].append(0.0)
        elif cost_s is not None and self._costs.get(function_of(report.nodeid)):
            self._costs[function_of(report.nodeid)][-1] = cost_s

    def pytest_sessionfinish(self) -> None:
        """Write the file after a run of all cases; what was skipped keeps its cost."""
        if self._config.getoption("--write-costs") and not hasattr(self._config, "workerinput"):
            kept = {name: known for name, known in self._known.items() if name in self._found}
            write_costs(kept | {name: _mean(costs) for name, costs in self._costs.items()})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the dearest functions, and those that became dearer."""
        total = {name: sum(costs) for name, costs in self._costs.items()}
        say = terminalreporter.write_line
        say(f"{sum(total.values()):.0f} CPU seconds in {len(total)} functions, the dearest:")
        for name in _largest(total):
            say(f"  {total[name]:6.2f} s {len(self._costs[name]):4} cases  {name}")
        more = {name: _mean(costs)[0] for name, costs in self._costs.items() if name in self._known}
        grown = {
            name: cost_s - self._known[name][0]
            for name, cost_s in more.items()
            if cost_s > DEARER * self._known[name][0] + 0.1
        }
        if grown:
            say(f"dearer than in {FILE.name}, CPU seconds a case:")
        for name in _largest(grown):
            say(f"  {self._known[name][0]:6.2f} → {more[name]:.2f} s  {name}")


def _mean(costs: Sequence[float]) -> tuple[float, int]:
    return sum(costs) / len(costs), len(costs)


def _largest(costs: Mapping[str, float]) -> list[str]:
    return sorted(costs, key=costs.__getitem__, reverse=True)[:SHOWN]
