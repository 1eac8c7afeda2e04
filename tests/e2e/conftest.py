"""The `cli` fixture: a fresh CLI harness for each test, which must leave no process behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import CliHarness


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[CliHarness]:
    """A harness in a temporary folder; a process that outlives its test fails it."""
    cli = CliHarness(tmp_path)
    try:
        yield cli
        assert cli.wait_survivors() == []
    finally:
        cli.clean_up()
