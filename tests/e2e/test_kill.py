"""`kill -9` at any instant, and on: see `kill_campaign`."""

from pathlib import Path

import pytest

from .kill_campaign import Campaign


@pytest.mark.parametrize("seed", range(12))
def test_R030_a_killed_session_goes_on_and_loses_nothing(seed: int, tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed)
    try:
        campaign.run()
    finally:
        campaign.stage.clean_up()
