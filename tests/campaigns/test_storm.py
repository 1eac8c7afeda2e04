"""A small slice of `python -m lab.campaigns.storm`: a few subagents and tasks over the installed
command.
"""

from collections.abc import Sequence
from pathlib import Path

from lab.campaigns.storm import Row, bomb, notices, storm


def check(rows: Sequence[Row]) -> None:
    assert all(row.fine or row.timed for row in rows), "\n".join(map(str, rows))


def test_B8_each_end_is_told_once_and_the_parent_goes_on(tmp_path: Path) -> None:
    check(storm(tmp_path, agents=3, tasks=6, most_s=0.4))


def test_R070_a_recursion_bomb_stays_within_its_caps_and_the_user_gets_an_answer(
    tmp_path: Path,
) -> None:
    check(bomb(tmp_path))


def test_telling_of_an_end_costs_the_same_however_many_there_were() -> None:
    check(notices(1_500, batch=100))
