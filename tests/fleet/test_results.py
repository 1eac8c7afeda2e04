"""Results of fleets as Parquet, and two fleets beside each other."""

import json

import msgspec
import pytest

from longrein_fleet.comparison import (
    FleetComparison,
    as_table,
    compare,
    paired_mean,
    paired_shares,
    t_quantile,
    wilson,
)
from longrein_fleet.fleet_state import TaskResult
from tests.e2e.harness import says
from tests.fleet.harness import FleetHarness


def test_results_as_parquet_have_the_columns_of_the_lines_and_the_trajectory(
    fleet: FleetHarness,
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is missing: make library")
    path = fleet.tasks(
        {"id": "one", "prompt": "write", "check": "true"},
        {"id": "two", "check": "exit 3"},
        {"id": "three", "setup": "exit 4"},
    )
    fleet.fleet("run", path)
    file = fleet.folder / "results.parquet"
    done = fleet.fleet("results", "tasks", "--parquet", str(file))
    assert (done.code, done.text) == (1, ""), "as without the flag: some tasks are not done"
    lines = fleet.results()
    table = parquet.read_table(file)
    assert table.column_names == [*TaskResult.__struct_fields__, "trajectory"]
    assert {str(field.type) for field in table.schema} == {"string", "int64", "double"}
    rows = {row.pop("id"): row for row in table.to_pylist()}
    for name, row in rows.items():
        trajectory = row.pop("trajectory")
        assert {"id": name, **row} == lines[name]
        if name == "three":
            assert trajectory == "", "its agent never started"
            continue
        document = json.loads(trajectory)
        assert document["session_id"] == row["session"]
        assert document["final_metrics"]["total_cost_usd"] == pytest.approx(row["cost_usd"])
    again = fleet.fleet("results", "tasks", "--parquet", str(file))
    assert again.code == 2
    assert "is there already" in again.err


def test_without_pyarrow_a_line_says_what_to_install(fleet: FleetHarness) -> None:
    absent = fleet.folder / "absent/pyarrow"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ImportError('no pyarrow')\n")
    fleet.cli.forks = False
    fleet.fleet("run", fleet.tasks({"id": "one"}))
    fleet.cli.env["PYTHONPATH"] = str(absent.parent)
    done = fleet.fleet("results", "tasks", "--parquet", str(fleet.folder / "x.parquet"))
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "longrein[fleet]" in done.err


def test_two_fleets_are_compared_by_the_tasks_that_both_have_ended(fleet: FleetHarness) -> None:
    tasks = [{"id": f"t{number}", "check": f"test {number} != 1"} for number in range(3)]
    fleet.fleet("run", fleet.tasks(*tasks), "--name", "before")
    fleet.plays(hello=[says("Hello. " * 100)])
    tasks = [{"id": "t0"}, {"id": "t1"}, {"id": "t3"}]
    fleet.fleet("run", fleet.tasks(*tasks), "--name", "after")
    done = fleet.fleet("compare", "before", "after")
    assert done.code == 0, done.err
    rows = {line.split("  ")[0]: line for line in done.text.splitlines()}
    assert "1 of 2, 50.0% [9.5%, 90.5%]" in rows["solved"]
    assert "2 of 2, 100.0% [34.2%, 100.0%]  +50.0% [" in rows["solved"]
    assert "left out: t2, t3" in done.text
    told = json.loads(fleet.fleet("compare", "before", "after", "--json").out)
    read = msgspec.convert(told, FleetComparison)
    assert (read.tasks, read.a.name, read.b.name) == (2, "before", "after")
    assert read.cost_usd.value > 0, "the longer answer costs more"
    assert read.cost_usd.low <= read.cost_usd.value <= read.cost_usd.high
    assert read.a.seconds > 0
    fleet.fleet("run", fleet.tasks({"id": "x"}), "--name", "other")
    done = fleet.fleet("compare", "before", "other")
    assert done.code == 2
    assert "no task of before and other" in done.err


@pytest.mark.parametrize(
    ("done", "count", "low", "high"),
    [  # R. G. Newcombe, Statistics in Medicine 17 (1998), 857-872, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ],
)
def test_wilson_gives_the_published_intervals(
    done: int, count: int, low: float, high: float
) -> None:
    made = wilson(done, count)
    assert made.value == done / count
    assert (round(made.low, 4), round(made.high, 4)) == (low, high)


@pytest.mark.parametrize(("both", "first", "second", "neither", "low", "high"), [
    (36, 12, 2, 0, -0.3404, -0.0569),  # Newcombe (1998), table II, with the sign turned
    (1, 1, 7, 12, 0.0256, 0.5069),  # the data of Bentur et al. (2009)
    (0, 0, 0, 10, -0.2775, 0.2775),  # both never: no correlation is known
])  # fmt: skip
def test_the_difference_of_paired_shares_has_the_published_intervals(
    both: int, first: int, second: int, neither: int, low: float, high: float
) -> None:
    done = [(True, True)] * both + [(True, False)] * first
    done += [(False, True)] * second + [(False, False)] * neither
    made = paired_shares(done)
    assert made.value == pytest.approx((second - first) / len(done))
    assert (round(made.low, 4), round(made.high, 4)) == (low, high)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (30, 2.0423), (1000, 1.9623)],
)
def test_the_quantiles_of_t_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, abs=0.004)


def test_the_t_interval_is_that_of_students_example() -> None:
    """Hours of sleep that ten patients gained by one drug over another: Student (1908)."""
    made = paired_mean([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])
    assert made.value == pytest.approx(1.58)
    assert (made.low, made.high) == pytest.approx((0.7001, 2.4599), abs=0.001)


def test_tasks_that_still_run_are_left_out() -> None:
    def result(name: str, outcome: str) -> TaskResult:
        values = {"id": name, "outcome": outcome, "cause": "", "message": "", "cost_usd": 1.0}
        values |= {"input_tokens": 0, "output_tokens": 0, "patch": "", "check_code": None}
        values |= {"session": "", "attempts": 1, "reward": None, "seconds": 1.0}
        values |= {"cached_tokens": 0}
        return msgspec.convert(values, TaskResult)

    first = [result("a", "done"), result("b", "running")]
    second = [result("a", "failed"), result("b", "done")]
    told = compare(("x", "y"), first, second)
    assert (told.tasks, told.left_out) == (1, ("b",))
    assert told.solved.value == -1
    assert "[-$inf, +$inf]" in as_table(told), "one pair says nothing of the spread"
    assert b'"low":null' in msgspec.json.encode(told)
    assert compare(("x", "y"), first[1:], second) is None
