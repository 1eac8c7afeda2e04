"""Set-up of the tests of the store: where sessions are; a closed log has let go of its files."""

from pathlib import Path

import pytest

from lab.support.postgresql import keep_in
from tests.timeouts import HANG_S


@pytest.fixture(autouse=True)
def logs_close_wholly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `close` wait until the database is closed: longrein itself waits some milliseconds.

    SQLite removes files as it closes, and a process that is forked meanwhile inherits its locks.
    """
    monkeypatch.setattr("longrein.store.log.SessionLog.close_wait_s", HANG_S)


@pytest.fixture(autouse=True)
def store(request: pytest.FixtureRequest) -> str:
    """Address of the store of the test's folder: '' for files, the default. See `both_stores`."""
    if getattr(request, "param", "files") == "files":
        return ""
    state: Path = request.getfixturevalue("tmp_path")
    return keep_in(state, request.getfixturevalue("postgresql"))
