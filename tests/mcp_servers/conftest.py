"""Fixtures of the tests with MCP servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import CliHarness


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[CliHarness]:
    """A person with a home and a project; nothing of theirs may survive the test."""
    made = CliHarness(tmp_path)
    yield made
    left = made.wait_survivors()
    made.clean_up()
    assert not left
