"""The budget of statements, and what `make test` leaves out."""

import doctest
from pathlib import Path
from subprocess import run

import pytest

from lab import budget
from tests import costs


@pytest.mark.parametrize("module", [budget, costs], ids=lambda one: one.__name__)
def test_the_examples_of_its_docstrings_hold(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.failed == 0 < result.attempted


def test_costs_are_read_as_written(tmp_path: Path) -> None:
    found = {"tests/a.py::test_b": (0.125, 3), "tests/a.py::test_a": (2.0, 1)}
    costs.write_costs(found, tmp_path / "costs.tsv")
    assert costs.read_costs(tmp_path / "costs.tsv") == found
    assert costs.read_costs(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("now", "files", "reason", "is_wrong"),
    [
        (9, ["budget.toml"], "", True),
        (9, ["budget.toml"], "The old parser is gone.", False),
        (9, ["budget.toml", "more.py"], "The old parser is gone.", True),
        (3, ["budget.toml", "more.py"], "", False),
    ],
)
def test_a_budget_is_raised_in_a_commit_of_its_own_that_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    now: int,
    files: list[str],
    reason: str,
    is_wrong: bool,
) -> None:
    monkeypatch.setattr(budget, "ROOT", tmp_path)

    def commit(size: int, files: list[str], reason: str) -> None:
        for name in files:
            (tmp_path / name).write_text(f"[statements]\nagent = {size}\n")
        run(["git", "add", "-A"], cwd=tmp_path, check=True)
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        message = ["-m", "agent: change", *(["-m", reason] if reason else [])]
        run(["git", *author, "commit", "-q", *message], cwd=tmp_path, check=True)

    run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(5, ["budget.toml", "first"], "")
    commit(now, files, reason)
    assert bool(budget.wrongly_raised("HEAD~1")) == is_wrong


def test_what_grew_most_is_named() -> None:
    now = {
        f"packages/longrein/src/longrein/agent/{name}.py": size
        for name, size in zip("abcdefg", range(7), strict=True)
    }
    before = {"packages/longrein/src/longrein/agent/g.py": 6}
    lines = budget.grown("agent", now, before)
    assert [line.split()[0][-5:-1] for line in lines] == ["f.py", "e.py", "d.py", "c.py", "b.py"]
