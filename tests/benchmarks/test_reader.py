"""A reader of compacted requests takes nothing for something else."""

from pathlib import Path

import pytest
from benchmarks.reader import (
    RULES,
    check_in,
    has_failed,
    misplaced,
    page_of,
    read_session,
    reading_of,
    says_failed,
)
from benchmarks.replay.generated import write_sessions

from longrein.context import Budget
from longrein.context.summary.summary_text import build_digest
from longrein.events import ToolCall
from longrein.models import CLEARS
from tests.context.log_builder import LogBuilder

SOURCE = "def a():\n    return 1\n\n\ndef b():\n    return 2"


@pytest.mark.parametrize("wire", CLEARS)
@pytest.mark.parametrize("window", [40_000, 16_000])
def test_no_line_stands_under_a_foreign_label_and_every_question_is_answered(
    tmp_path: Path, wire: str, window: int
) -> None:
    sessions = sorted(write_sessions(tmp_path, count=4).iterdir())
    readers = [read_session(path, wire, window) for path in sessions[2:]]
    for reader in readers:
        assert reader.faults == []
        counts = reader.counts
        assert counts["shortened texts"] > 0 or window < 40_000, "there it is digests"
        for asked, answered in RULES:
            assert counts[asked] == counts[answered], asked


@pytest.mark.parametrize(
    ("kept", "faults"),
    [
        ("def a():\n    return 1\n⋮ 4 lines, r7", 0),
        ("⋮ 4 lines, r7\ndef b():\n    return 2", 0),
        ("def a():\n    return 1", 1),
        ("⋮ 4 lines, r8\ndef b():\n    return 2", 1),
        ("⋮ 3 lines, r7\ndef b():\n    return 2", 2),
        ("⋮ 4 lines, r7\ndef a():\n    return 1", 2),
        ("def c():\n⋮ 5 lines, r7", 1),
    ],
    ids=[
        *("its begin", "its end", "looks complete", "a gap of another item"),
        *("a wrong gap", "out of order", "of another text"),
    ],
)
def test_the_reader_sees_what_is_misplaced(kept: str, faults: int) -> None:
    assert len(misplaced(kept.split("\n"), SOURCE, "r7")) == faults


def test_a_history_is_taken_apart_by_its_labels() -> None:
    text = (
        '[longrein:n0 cleared: ok, 9 lines; Recall("r3") brings all]\n⋮ 8 lines, r3\nlast\n'
        "[longrein:n0 history: 2 calls after r3, shortened; Recall brings each whole]\n"
        "r6 Edit:\nsrc/a.py\n→ ok, + b\n  new_string (r5.1):\nb\n⋮ 2 lines, r5.1\n"
        "r8.1 you wrote: Now the tests.\nr9 Bash:\nmake test\n→ failed, 3 lines: 1 failed"
    )
    reading = reading_of(text, "n0")
    assert (reading.is_cut, reading.kept) == (True, ["⋮ 8 lines, r3", "last"])
    assert [(one.handle, one.about, one.outcome, one.sections) for one in reading.history] == [
        ("r6", ["src/a.py"], "ok, + b", {"new_string": ["b", "⋮ 2 lines, r5.1"]}),
        ("r9", ["make test"], "failed, 3 lines: 1 failed", {}),
    ]


@pytest.mark.parametrize(
    ("seen", "fails"),
    [
        ("failed, 9 lines: 1 failed, 8 passed: FAILED a", True),
        ("ok, 9 lines: 0 failed, 12 passed", False),
        ("FAILED, exit code 1", True),
        ('exit code 0: "12 passed"', False),
    ],
)
def test_an_outcome_says_whether_the_tests_passed(seen: str, fails: bool) -> None:
    assert says_failed(seen) == fails


@pytest.mark.parametrize(
    ("command", "check"),
    [
        ("cd src && make test 2>&1 | tail -3", "make test"),
        ("git commit -m \"$(cat <<'EOF'\nmake tests pass\nEOF\n)\"", ""),
        ("git commit -m 'two lines\nrun tests'", ""),
        ("# the tests\npytest -q", "pytest -q"),
        ("gh pr checks", ""),
    ],
)
def test_a_check_is_named_without_what_it_is_piped_into(command: str, check: str) -> None:
    assert check_in(ToolCall("c1", "Bash", {"command": command})) == check


def test_only_counts_and_failures_say_how_a_run_ended() -> None:
    assert has_failed("pytest", "1 failed, 2 passed in 0.1s", is_failure=False) is True
    assert has_failed("pytest", "cut off", is_failure=False) is None
    assert has_failed("pytest", "cut off", is_failure=True) is True


def test_the_records_of_a_digest_are_read() -> None:
    log = LogBuilder()
    log.user("mend it")
    log.edit("/w/src/a.py")
    ran = log.bash("make test", "3 failed, 9 passed in 0.1s", 1)
    log.write(build_digest(log.state, Budget(20_000, 1_000), 3, log.seq, "overflow"))
    page = page_of(log.state, {})
    assert says_failed(page.outcomes[f"r{ran}"])
    assert page.changed_files == {"src/a.py"}
