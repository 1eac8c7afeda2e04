"""A small slice of `python -m lab.campaigns.mcp`."""

from pathlib import Path

import pytest


def test_a_server_killed_during_calls_harms_no_session(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    from lab.campaigns.mcp import campaign

    assert not campaign(tmp_path, 4)
