"""A reader of compacted requests takes nothing for something else."""

from pathlib import Path

import pytest
from benchmarks.reader import misplaced, read_session, reading_of
from benchmarks.replay.generated import write_sessions

from longrein.models import CLEARS

SOURCE = "def a():\n    return 1\n\n\ndef b():\n    return 2"


@pytest.mark.parametrize("wire", CLEARS)
def test_no_line_stands_under_a_foreign_label_and_every_question_is_answered(
    tmp_path: Path, wire: str
) -> None:
    sessions = sorted(write_sessions(tmp_path, count=4).iterdir())
    readers = [read_session(path, wire, 40_000) for path in sessions[2:]]
    for reader in readers:
        assert reader.faults == []
        counts = reader.counts
        assert counts["shortened texts"] > 0
        for asked, answered in (
            ("last test, build and lint commands", "their outcome is visible"),
            ("questions: which file does this text belong to", "answered: the file"),
            ("questions: did the tests pass", "answered: the tests"),
        ):
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
