"""A reader of compacted requests takes nothing for something else."""

from pathlib import Path

import pytest

from lab.reader import (
    RULES,
    misplaced,
    read_session,
)
from lab.replay.generated import write_sessions
from longrein.models import CLEARS

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
