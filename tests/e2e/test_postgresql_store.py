"""longrein with its sessions in PostgreSQL: runs, resumes, lists, searches, exports and forks."""

import json
import os
from contextlib import closing

import pytest

from lab.support.postgresql import Server
from longrein.app.run_context import use_store_at
from longrein.store import SessionHistory
from tests.e2e.harness import UNTIL_GO, CliHarness, bash, calls, says
from tests.timeouts import wait_until

PASSWORD = "correct-horse-battery"


@pytest.fixture
def address(postgresql: Server) -> str:
    """Address of an empty store, with a password that the server does not ask for."""
    return postgresql.new_schema().replace("longrein@", f"longrein:{PASSWORD}@")


def test_a_session_in_the_store_is_used_as_any_other(cli: CliHarness, address: str) -> None:
    cli.without_sandbox()
    cli.plays(calls(bash("echo $LONGREIN_STORE; seq 30000")), says("It is done."), says("Again."))
    env = {"LONGREIN_STORE": address}
    ran = cli.run("-p", "count to many", "--allowed-tools", "Bash", env=env)
    assert (ran.code, ran.err, ran.text) == (0, "", "It is done.\n")
    [session] = os.listdir(cli.state / "sessions")
    assert not list(cli.state.rglob("log.sqlite"))
    listed = cli.run("sessions", env=env)
    assert "count to many" in listed.text
    elsewhere = {**env, "LONGREIN_STATE_DIR": str(cli.folder / "other-machine")}
    ran = cli.run("-p", "--resume", session[:8], "and again", env=elsewhere)
    assert (ran.code, ran.text) == (0, "Again.\n")
    use_store_at(str(cli.state), address)
    with closing(SessionHistory(str(cli.state), session)) as history:
        assert [hit.handle for hit in history.search_tree("and again", 9).hits]
        assert [hit.snippet for hit in history.search_tree("29999", 9).hits] == ["29999"]
    exported = cli.run("export", session, "--format", "jsonl", env=elsewhere)
    lines = [json.loads(line) for line in exported.text.splitlines()]
    assert sum(line["event"]["type"] == "UserSpoke" for line in lines) == 2
    assert PASSWORD not in exported.text
    for path in cli.folder.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


def test_a_store_that_is_not_there_is_one_line(cli: CliHarness) -> None:
    pytest.importorskip("psycopg")
    cli.plays(says("never said"))
    address = f"postgresql://longrein:{PASSWORD}@127.0.0.1:1/none"
    ran = cli.run("-p", "hello", env={"LONGREIN_STORE": address})
    assert (ran.code, ran.text) == (1, "")
    assert ran.err.startswith("longrein: the store 127.0.0.1:1/none cannot be used: ")
    assert ran.err.count("\n") == 1
    assert PASSWORD not in ran.err


def test_a_run_whose_session_was_taken_over_ends_with_a_line(
    cli: CliHarness, address: str, postgresql: Server
) -> None:
    cli.without_sandbox()
    cli.plays(calls(bash(f"touch began; {UNTIL_GO}")), says("never said"))
    env = {"LONGREIN_STORE": address}
    running = cli.start("-p", "wait", "--allowed-tools", "Bash", env=env)
    wait_until((cli.project / "began").exists)
    schema = address.rpartition("%3D")[2]
    postgresql.run(f"UPDATE {schema}.roots SET token = token + 1, owner = 'process 7 on moon'")
    cli.go()
    ran = running.end()
    assert (ran.code, ran.text) == (1, "")
    assert ran.err == (
        f"longrein: session {cli.sessions[0]} goes on in process 7 on moon, which has taken it "
        "over while this process was silent; nothing more is written here\n"
    )
