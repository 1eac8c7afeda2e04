"""Policy benchmark: traces are complete and aligned, use no later entries, and are reproducible."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from benchmarks.policy import main, read, sessions_in, trace_lines
from benchmarks.replay.generated import write_sessions

from longrein.extensions.lab.simulate import budget_of

ROOT = Path(__file__).parents[2]


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_says_that_it_uses_a_generated_set(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.policy",
            "--traces",
            str(tmp_path / "t"),
            "--only",
            "00",
            "--jobs",
            "1",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert "no --sessions: using a small generated set" in done.stdout
    assert "1 traces" in done.stdout


@pytest.mark.parametrize("policy", ["default", "keep-all", "seed", "summary-92", "batch"])
def test_traces_are_whole_and_aligned(tmp_path: Path, policy: str) -> None:
    path = sessions_in(write_sessions(tmp_path / "s", 2))[1]
    arguments = [
        "--sessions",
        str(path),
        "--traces",
        str(tmp_path / "t"),
        "--policy",
        policy,
        "--window",
        "60000",
    ]
    assert main([*arguments, "--jobs", "1"]) == 0
    session = read(path)
    head, *middle, end = rows(tmp_path / "t" / policy / f"{session.name}.jsonl")
    assert head == {
        "session": session.name,
        "policy": policy,
        "prices": "anthropic",
        "window": 60000,
    }
    assert end == {"end": True, "requests": session.requests, "items": len(session.items)}
    assert [row["t"] for row in middle] == sorted({row["t"] for row in middle})
    assert bool(middle) == (policy != "keep-all")
    for row in middle:
        show = row["show"]
        assert isinstance(show, dict)
        for n, text in show.items():
            item = session.items[int(n)]
            assert item.request + item.output <= row["t"], "it has not come yet"
            assert item.kind != "user" or policy in ("seed", "summary-92", "batch")
            if text is not None and item.kind == "tool_call":
                assert list(json.loads(text)) == list(json.loads(item.text))


def test_the_policy_sees_no_future(tmp_path: Path) -> None:
    session, budget = (
        read(sessions_in(write_sessions(tmp_path, 3))[2]),
        budget_of("anthropic", 200_000),
    )
    whole = list(trace_lines(session, "default", budget))
    half = session.requests // 2
    early = msgspec.structs.replace(
        session, items=tuple(item for item in session.items if item.request < half), requests=half
    )
    assert whole
    assert list(trace_lines(early, "default", budget)) == [row for row in whole if row["t"] < half]


def test_the_generated_set_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = write_sessions(tmp_path / "a", 2), write_sessions(tmp_path / "b", 2)
    assert [p.read_text() for p in sorted(first.iterdir())] == [
        p.read_text() for p in sorted(second.iterdir())
    ]
