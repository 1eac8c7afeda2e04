"""A small slice of `make planted`: each bug still has its place, and some are found at once."""

import pytest

from lab.campaigns.planted_bugs import BUGS, find_in_process


@pytest.mark.parametrize("name", ["act before its start is on disk", "end of a task logged twice"])
def test_a_planted_bug_is_found(name: str) -> None:
    (bug,) = (one for one in BUGS if one.name == name)
    _, needed, why = find_in_process(bug, 20, 120)
    assert needed, why
