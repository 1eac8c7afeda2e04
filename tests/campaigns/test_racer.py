"""A small slice of `python -m lab.campaigns.racer`: nothing leaves the root while folders and links
are swapped.
"""

from pathlib import Path

import pytest

from lab.campaigns.racer import campaign
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(1))
def test_racer_nothing_is_read_or_written_outside(tmp_path: Path, seed: int) -> None:
    allowed, _, _, escapes = campaign(tmp_path, 100, seed)
    assert allowed >= 100
    assert escapes == []
