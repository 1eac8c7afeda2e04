"""Curve of cost against hidden lines."""

from pathlib import Path

import pytest

from lab.replay.generated import write_sessions
from lab.visibility import FACTORS, main


def test_the_curve_has_a_row_for_each_factor_and_plain_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--sessions", str(write_sessions(tmp_path, 1))]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    own = [f"longrein, visibility {factor:g}" for factor in FACTORS]
    assert [row[0] for row in rows] == ["keep-all", "summary-92", "batch", *own]
    assert rows[0][1:] == ["1.000", "0.0%", "0.0%", "0.0"]
