"""Policy benchmark: traces are complete and aligned, use no later entries, and are reproducible."""

import json
from pathlib import Path

import msgspec
import pytest

from lab.policy import main, read, sessions_in, trace_lines
from lab.replay.generated import write_sessions
from lab.simulate import budget_of


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


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
