"""A session of which single entries were damaged on the disk goes on: with a request that a
provider takes, and everything else in its place.
"""

import contextlib
import sqlite3

import pytest

from longrein.testing.loopback import Call, Turn
from tests.e2e.harness import BYPASS, CliHarness, Provider

KEPT = 1 << 40
"""Key of the root's entry 0."""


WIRES = ("anthropic", "openai-chat", "openai-responses", "gemini")


@pytest.mark.parametrize("number", range(len(WIRES)))
def test_any_entry_of_a_session_may_be_lost(cli: CliHarness, number: int) -> None:
    """Each wire loses every fourth entry, one after the other."""
    (cli.project / "a.txt").write_text("one\n")
    read = Call("Read", {"file_path": "a.txt"})
    run = Call("Bash", {"command": "echo two"})
    turns = [Turn(text="I look.", calls=(read, run)), Turn(text="There are two.")]
    with Provider(*turns, *[Turn(text="I go on.")] * 60) as provider:
        cli.config.write_text('model = "served/one"\n' + provider.settings(WIRES[number]))
        assert cli.run("-p", "count", BYPASS).told() == (0, "There are two.\n", "")
        size = len(cli.entries())
        path = cli.session_folder() / "log.sqlite"
        for seq in range(2 + number, size, len(WIRES)):
            with contextlib.closing(sqlite3.connect(path)) as database, database:
                database.execute("UPDATE entries SET crc = crc + 1 WHERE key = ?", (KEPT + seq,))
            code, out, err = cli.run("-p", "-c", "go on", BYPASS).told()
            assert (code, out) == (0, "I go on.\n"), (seq, err)
            assert f"lost in between: entry {seq}\n" in err
        assert provider.refused == []
        assert "count" in provider.requests[2].body.decode()
