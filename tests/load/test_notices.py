"""Notices are neither stale, lost nor doubled when longrein and its supervisor are killed repeatedly."""

from pathlib import Path

import pytest

from tests.load.notices import run_seed


@pytest.mark.parametrize(("seed", "supervisor"), [(53, True)])
def test_each_end_is_told_once_through_kills(tmp_path: Path, seed: int, supervisor: bool) -> None:
    kills, states, found = run_seed(tmp_path, seed, supervisor=supervisor)
    assert found == []
    assert kills >= 1
    assert sum(states.values()) > 9
