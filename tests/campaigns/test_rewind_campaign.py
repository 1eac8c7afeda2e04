"""A small slice of `make rewind`."""

from pathlib import Path

import pytest

from lab.support.rewind_story import Record, RewindStory, Step, Turn, changed_at_rest
from tests.seeds import seeds


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


def test_what_the_user_takes_back_before_a_killed_rewind_goes_on_is_no_change() -> None:
    made, other = {"a": ("file", 0o644, b"mine")}, {"b": ("file", 0o644, b"of the rewind")}
    records = [
        Record("end", 1),
        Record("user", 0, made, frozenset({"a"})),
        Record("end", 2),
        Record("user", 0, made, frozenset({"a"})),
    ]
    assert changed_at_rest(records[:2], made) == changed_at_rest(records, made) == {"a"}
    assert changed_at_rest(records, other) == set(), "a command has removed it since"
    gone = [Record("end", 1, made), Record("user", 0, {}, frozenset({"a"}))]
    assert changed_at_rest(gone, {}) == {"a"}, "the user has removed it"
    back = Record("between", 0, other, frozenset({"a"}))
    assert changed_at_rest([*records[2:], back], made) == set()
    assert changed_at_rest([*records, back], made) == {"a"}, "it was kept in the earlier rest"
