"""Fixture: an empty stdin, so that no test waits for the stdin of pytest."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_stdin() -> Iterator[None]:
    kept = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    yield
    os.dup2(kept, 0)
    os.close(kept)
