"""Set-up of the tests of the store: a closed log has let go of its files."""

import pytest

from tests.timeouts import HANG_S


@pytest.fixture(autouse=True)
def logs_close_wholly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `close` wait until the database is closed: longrein itself waits some milliseconds.

    SQLite removes files as it closes, and a process that is forked meanwhile inherits its locks.
    """
    monkeypatch.setattr("longrein.store.log.CLOSE_WAIT_S", HANG_S)
