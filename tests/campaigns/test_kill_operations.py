"""A small slice of `make kill`: one kill in each operation but commands, which `test_kill` has."""

from pathlib import Path

import pytest

from lab.campaigns.kill_operations import OPERATIONS


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "command"])
def test_a_kill_in_an_operation_loses_nothing(tmp_path: Path, name: str) -> None:
    OPERATIONS[name](tmp_path, 1)
