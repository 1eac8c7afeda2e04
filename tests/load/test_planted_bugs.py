"""A small slice of `make planted`: each bug still has its place, and some are found at once."""

import pytest

from tests.load.planted_bugs import BUGS, find_in_process, planted_source


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_place_of_each_planted_bug_is_there(bug) -> None:  # type: ignore[no-untyped-def]
    compile(planted_source(bug), bug.module, "exec")


@pytest.mark.parametrize("name", ["act before its start is on disk", "end of a task logged twice"])
def test_a_planted_bug_is_found(name: str) -> None:
    (bug,) = (one for one in BUGS if one.name == name)
    _, needed, why = find_in_process(bug, 20, 120)
    assert needed, why
