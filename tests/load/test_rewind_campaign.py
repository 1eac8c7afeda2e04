"""A small slice of `make rewind`."""

from pathlib import Path

import pytest

from tests.seeds import seeds
from tests.support.rewind_story import RewindStory, Step, Turn


@pytest.mark.parametrize("seed", seeds(2))
def test_nothing_of_the_users_changes_unnamed_and_the_agents_is_undone(
    tmp_path: Path, seed: int
) -> None:
    assert RewindStory(tmp_path, seed, 3).play() == ""


def test_a_command_whose_shell_complains_after_a_kill_still_ends(tmp_path: Path) -> None:
    story = RewindStory(tmp_path, 1, 0)
    cut = Step("echo 1 > made; echo 1 > sub", is_cut=True)  # `sub` is a folder
    story.turns = [Turn([]), Turn([cut]), Turn([Step("echo 2 > made")])]
    assert story.play() == ""
    assert story.kills
