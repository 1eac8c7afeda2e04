"""Fixtures of the agent's tests."""

from pathlib import Path

import pytest

from tests.agent.disk_harness import DiskHarness


@pytest.fixture
def harness(tmp_path: Path) -> DiskHarness:
    """A session of real parts in a temporary folder."""
    return DiskHarness(tmp_path)
