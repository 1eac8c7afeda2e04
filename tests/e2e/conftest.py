"""A stage for each test, empty of processes when the test is over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .house import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Where the command runs; a process that outlives its test fails it."""
    stage = Stage(tmp_path)
    try:
        yield stage
        assert stage.wait_survivors() == []
    finally:
        stage.clean_up()
