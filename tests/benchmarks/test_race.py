"""The race of context policies: its provider and scripts, and a small slice in every loop."""

import pytest

pytest.importorskip("deepagents", reason="needs `make library`")
pytest.importorskip("pydantic_ai", reason="needs `make library`")
pytest.importorskip("agents", reason="needs `make library`")

from lab.race.contest import (
    DEVELOPING,
    HELD_BACK,
    LOOPS,
    jobs,
    quick_settings,
    run_one,
    settings,
)
from lab.race.report import race_table, trace
from lab.race.sessions import NEEDS, Setting, flatten, write_script

QUICK = quick_settings(DEVELOPING)


@pytest.mark.parametrize("needs", NEEDS)
def test_a_script_needs_only_lines_that_were_read_before(needs: str) -> None:
    script = write_script(Setting(3, needs, 32_000, 60, 1.5, "plain", "range", "anthropic"))
    assert script.turns == write_script(script.setting).turns, "a seed gives the same script"
    read = {"PLAN.md"}  # listed by the user, or read first
    for step in flatten(script.turns):
        assert {need.path for need in step.needs} <= read
        read |= {call.path for call in step.calls if call.tool == "read_file"}


def test_developing_and_reported_sessions_share_no_seed() -> None:
    developing, reported = (
        {one.seed for one in settings(first, 20)} for first in (DEVELOPING, HELD_BACK)
    )
    assert not developing & reported
    assert len(developing) == 240


@pytest.mark.parametrize("loop", LOOPS)
def test_every_policy_ends_its_sessions(loop: str) -> None:
    runs = [run_one(job) for job in jobs(QUICK[1:2], [loop])]
    assert [run.error for run in runs if run.error] == []
    for run in runs:
        assert all(0 <= one.cached <= one.prompt for one in run.requests)
        assert run.tally.lost == 0, run.policy
        assert run.count("refused") == 0 or run.policy != "longrein"
    keep_all = runs[0]
    assert keep_all.count("refused"), "the session does not fit"
    assert {run.tally.needed for run in runs} == {keep_all.tally.needed}, (
        "every policy meets the same needs"
    )
    assert f"| {loop} | longrein |" in race_table(runs)
    assert "request  step" in trace(keep_all)
