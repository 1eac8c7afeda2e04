"""Table of all windows, prices, wires and policies."""

from pathlib import Path

import pytest

from lab.cells import Cell, Plan, main, measure, sample, table
from lab.policy import sessions_in
from lab.replay.generated import write_sessions

SMALL = [
    "--windows",
    "16k,64k",
    "--prices",
    "anthropic,local",
    "--wires",
    "gemini,openai-chat",
    "--jobs",
    "1",
]
JUDGE = "def cost(session, trace, window, rates):\n    return 1.0, 1.0\n"


def test_the_table_has_a_line_for_each_cell(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, judge = write_sessions(tmp_path / "s", 2), tmp_path / "judge.py"
    judge.write_text(JUDGE)
    arguments = [
        "--sessions",
        str(folder),
        *SMALL,
        "--judge",
        str(judge),
        "--json",
        str(tmp_path / "rows.json"),
    ]
    assert main(arguments) == 0
    text = capfd.readouterr().out
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in text.splitlines()
        if row.startswith("| ")
    ][2:]
    policies = [
        ("gemini", "longrein"),
        ("openai-chat", "longrein"),
        ("-", "keep-all"),
        ("-", "summary-92"),
        ("-", "batch"),
    ]
    assert [(row[0], row[1], *row[2:4]) for row in rows] == [
        (window, prices, *policy)
        for window in ("16k", "64k")
        for prices in ("anthropic", "local")
        for policy in policies
    ]
    assert all((row[-1] != "") == (row[3] == "longrein") for row in rows)
    kept = [row for row in rows if row[3] == "keep-all" and row[0] == "64k"]
    assert [row[5:8] for row in kept] == [["1.000"] * 3] * 2
    assert "largest difference of a session's cost to" in text
    assert (tmp_path / "rows.json").stat().st_size > 1_000


def test_sessions_with_a_large_system_text_are_left_out_or_shortened(tmp_path: Path) -> None:
    path = sessions_in(write_sessions(tmp_path, 1))[0]
    path.write_text(
        path.read_text().replace('"system_tokens_est": 9000', '"system_tokens_est": 12000')
    )
    plan = Plan(("16k",), ("anthropic",), ("gemini",))
    found = measure((path, plan))
    assert (found.rows, found.left_out) == ({}, ["16k"])
    shorter = measure((path, Plan(("16k",), ("anthropic",), ("gemini",), system_share=0.5)))
    assert shorter.left_out == []
    assert Cell("16k", "anthropic", "gemini", "longrein") in shorter.rows
    assert "| 16k | anthropic | gemini | longrein | 1 |" in table([shorter], plan)


def test_a_sample_is_spread_over_the_sizes(tmp_path: Path) -> None:
    files = sessions_in(write_sessions(tmp_path, 6))
    assert sample(files, 3) == [files[4], files[2], files[0]]
    assert sample(files, 0) == files[::-1]
