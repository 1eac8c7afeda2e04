"""A fleet whose sessions are in PostgreSQL."""

from lab.support.postgresql import Server
from longrein.app.run_context import use_store_at
from longrein.store import list_sessions
from tests.fleet.harness import FleetHarness

PASSWORD = "correct-horse-battery"


def test_attempts_keep_their_sessions_in_the_store(fleet: FleetHarness, postgresql: Server) -> None:
    address = postgresql.new_schema().replace("longrein@", f"longrein:{PASSWORD}@")
    tasks = fleet.tasks({"id": "a"}, {"id": "b", "prompt": "write"})
    ran = fleet.fleet("run", tasks, "--store", address)
    assert ran.code == 0, ran.err
    assert fleet.causes() == {"a": "done", "b": "done"}
    assert all(one["cost_usd"] > 0 for one in fleet.results().values())
    sessions = {one["session"] for one in fleet.results().values()}
    use_store_at(str(fleet.cli.state), address)
    assert {one.session for one in list_sessions(str(fleet.cli.state))} == sessions
    assert not list(fleet.cli.state.rglob("log.sqlite"))
    for path in fleet.cli.folder.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path
    forgotten = fleet.fleet("resume", "tasks")
    assert forgotten.code == 2
    assert "the sessions of the fleet tasks are in the store 127.0.0.1" in forgotten.err
    assert PASSWORD not in forgotten.err
    assert fleet.fleet("resume", "tasks", "--store", address).code == 0
