"""The race of context policies: its provider and scripts, and a small slice in every loop."""

import pytest

pytest.importorskip("deepagents", reason="needs `make library`")
pytest.importorskip("pydantic_ai", reason="needs `make library`")
pytest.importorskip("agents", reason="needs `make library`")

from benchmarks.race.contest import (
    DEVELOPING,
    HELD_BACK,
    LOOPS,
    Run,
    jobs,
    quick_settings,
    run_one,
    settings,
)
from benchmarks.race.model import Block, ScriptedModel, Tally
from benchmarks.race.provider import Request
from benchmarks.race.report import race_table, trace
from benchmarks.race.sessions import NEEDS, Setting, flatten, write_script
from benchmarks.race.tokens import count_tokens
from benchmarks.race.workspace import Workspace

QUICK = quick_settings(DEVELOPING)
SMALL = Setting(5, "edits", 32_000, 40, 1.0, "plain", "range", "anthropic")


def check_tokens(text: str, count: int) -> None:
    assert count_tokens(text) == count, text


def test_tokens_are_counted_by_rules_of_their_own() -> None:
    check_tokens("", 0)
    check_tokens("def run", 2)
    check_tokens("a_long_identifier", 5 + 1)
    check_tokens("x = 12345", 4)
    check_tokens("\n" * 40, 2)


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


def test_a_hidden_line_is_read_again_and_a_visible_one_is_not() -> None:
    script = write_script(SMALL)
    workspace = Workspace(script)
    model = ScriptedModel(script, workspace)
    model.at = next(n for n, step in enumerate(model.steps) if step.needs)
    need = model.steps[model.at].needs[0]
    answer, kind = model.answer([Block("tool", "nothing of it")], frozenset())
    assert (kind, answer.calls[0][0], answer.calls[0][1]["path"]) == (
        "repair",
        "read_file",
        need.path,
    )
    shown = Block("tool", workspace.run(*answer.calls[0]))
    answer, kind = model.answer([shown], frozenset())
    assert (kind, model.tally.missed, model.tally.lost) == ("step", len(need.lines), 0)


def test_a_placeholder_with_a_handle_is_recalled_where_that_is_offered() -> None:
    model = ScriptedModel(script := write_script(SMALL), Workspace(script))
    model.at = next(n for n, step in enumerate(model.steps) if step.needs)
    path = model.steps[model.at].needs[0].path
    asked = Block("assistant", "", (("call_1", "read_file", {"path": path}),))
    cleared = Block("tool", '[cleared: 80 lines, Recall("r12")]', (), "call_1")
    answer, _ = model.answer([asked, cleared], frozenset({"read_file", "Recall"}))
    assert answer.calls[0][0] == "Recall"
    assert answer.calls[0][1]["handle"] == "r12"


def test_a_refused_request_costs_nothing() -> None:
    asked = (Request("step", 100, 40, 10, 0), Request("refused", 900, 0, 0, 1))
    run = Run("raw", "keep all", SMALL, asked, Tally(), 0.0)
    assert run.cost() == 40 * 0.1 + 60 * 1.25 + 10 * 5


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
