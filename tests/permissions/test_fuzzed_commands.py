"""Random command lines against a real Bash: the slice of `lab/campaigns/commands.py` that the suite
runs.
"""

import shutil

import pytest

from lab.campaigns.commands import campaign
from tests.seeds import seeds

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


@pytest.mark.parametrize("seed", seeds(2))
def test_what_bash_runs_stands_in_the_parts(seed: int) -> None:
    assert [(line, error) for line, error, _ in campaign(150, 101 + seed) if error] == []
