"""A small slice of `make rewind`."""

from pathlib import Path

import pytest

from tests.seeds import seeds
from tests.support.rewind_story import RewindStory


@pytest.mark.parametrize("seed", seeds(2))
def test_nothing_of_the_users_changes_unnamed_and_the_agents_is_undone(
    tmp_path: Path, seed: int
) -> None:
    assert RewindStory(tmp_path, seed, 3).play() == ""
