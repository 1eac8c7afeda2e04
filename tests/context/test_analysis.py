"""E10: report of `/compact --dry-run`; its numbers add up."""

import pytest

from longrein_context import Analysis, Budget, analyse, analysis_lines
from longrein_context.analysis import RUNGS
from tests.context.log_builder import LogBuilder
from tests.context.random_session import RandomSession

LONG = "\n".join(f"{n}\tsome line of text {n}" for n in range(1, 120))


def adds_up(analysis: Analysis, view_tokens: int) -> None:
    assert analysis.total_tokens == view_tokens
    assert sum(row.tokens for row in analysis.kinds) == analysis.total_tokens
    assert sum(row.tokens for row in analysis.modules) == analysis.total_tokens
    assert sum(row.tokens for row in analysis.time) == analysis.conversation_tokens
    by_kind = {row.name: row.tokens for row in analysis.kinds}
    assert sum(row.tokens for row in analysis.tools) == by_kind.get("call", 0) + by_kind.get(
        "result", 0
    )
    assert (
        analysis.floor_tokens + sum(row.tokens for row in analysis.rungs) == analysis.total_tokens
    )
    assert all(row.tokens > 0 for row in analysis.rungs)


@pytest.mark.parametrize("seed", range(6))
def test_E10_every_table_adds_up_in_any_session(seed: int) -> None:
    walk = RandomSession(seed, window=(4_000, 20_000, 200_000)[seed % 3]).run(60)
    adds_up(analyse(walk.state, walk.budget), walk.state.view_tokens)


def test_E10_what_could_go_is_told_by_the_cheapest_loss() -> None:
    log = LogBuilder()
    log.user("mend it")
    log.read("/w/a.py", LONG)
    log.read("/w/a.py", LONG + "\nchanged", "b" * 64)
    log.bash("cat b.py", LONG)
    log.bash("cat c.py", LONG)
    log.bash("make", LONG + "\nerror", 2)
    log.call("Write", "Created", file_path="/w/d.py", content=LONG)
    log.says("I looked. " * 400)
    log.user("and now?")
    log.says("more")
    analysis = analyse(log.state, Budget(20_000, 4_000))
    adds_up(analysis, log.state.view_tokens)
    assert {row.name: row.count for row in analysis.rungs} == {
        "superseded: read or run again later": 1,
        "repeated word for word": 1,
        "failed attempts": 1,
        "other results": 2,
        "arguments of calls": 1,
        "answers": 1,
    }
    assert [row.name for row in analysis.rungs] == [name for name in RUNGS if name != "thinking"]
    bash = next(row for row in analysis.tools if row.name == "Bash")
    assert (bash.calls, bash.failed) == (3, 1)
    assert (analysis.files[0].path, analysis.files[0].reads) == ("/w/a.py", 2)


def test_E10_the_report_as_lines() -> None:
    log = LogBuilder()
    log.user("mend it")
    log.read("/w/a.py", LONG)
    log.says("done")
    shown = analysis_lines(analyse(log.state, Budget(20_000, 4_000)))
    titles = [line for line in shown if not line.startswith("  ")]
    assert [title.split(" would take")[0].split(" at least")[0] for title in titles[1:]] == [
        "by kind",
        "by module",
        "by tool: calls, failed, tokens",
        "over time: blocks, tokens",
        "files: reads, changes, tokens",
        "could be freed, cheapest loss first",
        "the next compaction",
        "without a summary",
    ]
    assert any(line.split()[:3] == ["Read", "1", "0"] for line in shown), shown


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_E10_a_short_session_has_a_report_without_empty_rows(answers: int) -> None:
    log = LogBuilder()
    for n in range(answers):
        log.user(f"question {n}")
        log.says("an answer")
    analysis = analyse(log.state, Budget(20_000, 4_000))
    shown = analysis_lines(analysis)
    assert (
        ("the next compaction finds nothing to take" in shown)
        == (analysis.next_count == 0)
        == (answers == 0)
    )
    assert not [line for line in shown if line.split()[-2:] == ["0", "0"]], shown
    spans = [line.split()[:3] for line in shown if " to r" in line]
    assert [span for span in spans if int(span[0][1:]) > int(span[2][1:])] == []
    assert bool(spans) == bool(analysis.conversation_tokens)


@pytest.mark.parametrize("last", [1, 2, 3, 9, 10, 11, 25])
def test_E10_each_block_stands_in_the_part_of_the_log_that_its_row_names(last: int) -> None:
    log = LogBuilder()
    while log.state.seq < last:
        log.user(f"word {log.state.seq}")
    for row in analyse(log.state, Budget(20_000, 4_000)).time:
        first, _, end = row.name.replace("r", "").split()
        inside = [
            item
            for item in log.state.items
            if item.kind != "context" and int(first) <= item.seqs[1] <= int(end)
        ]
        assert len(inside) == row.count, row
