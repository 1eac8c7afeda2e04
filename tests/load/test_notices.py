"""Stale, lost and doubled notices: a session whose longrein and supervisor are killed again and again."""

from pathlib import Path

import pytest

from tests.load.notices import scenario


@pytest.mark.parametrize(("seed", "supervisor"), [(53, True)])
def test_each_end_is_told_once_through_kills(tmp_path: Path, seed: int, supervisor: bool) -> None:
    kills, states, found = scenario(tmp_path, seed, supervisor=supervisor)
    assert found == []
    assert kills >= 1
    assert sum(states.values()) > 9
