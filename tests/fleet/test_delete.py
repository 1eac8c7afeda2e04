"""`longrein fleet delete`: what goes is shown, and nothing else goes."""

from contextlib import suppress

import pytest

from longrein_fleet.fleet_log import holder_of
from tests.e2e.harness import says
from tests.fleet.harness import FleetHarness
from tests.fleet.test_kill import wait_until


def test_a_fleet_goes_with_its_sessions_once_it_is_confirmed(fleet: FleetHarness) -> None:
    other = fleet.fleet("run", fleet.tasks({"id": "one"}), "--name", "other")
    assert other.code == 0
    stay = fleet.cli.sessions
    path = fleet.tasks({"id": "one", "check": "false"}, {"id": "two", "setup": "exit 1"})
    fleet.fleet("run", path, "--attempts", "2")
    folder = fleet.cli.state / "fleets/tasks"
    before = fleet.cli.sessions
    assert len(before) == len(stay) + 2, "one for each attempt that had an agent"
    shown = fleet.fleet("delete", "tasks")
    assert shown.code == 0
    assert str(folder) in shown.text
    assert "2 sessions of its tasks" in shown.text
    assert "--yes" in shown.err
    assert (folder.exists(), fleet.cli.sessions) == (True, before)
    done = fleet.fleet("delete", "tasks", "--yes")
    assert done.code == 0, done.err
    assert (folder.exists(), fleet.cli.sessions) == (False, stay)
    assert fleet.fleet("status", "tasks").code == 2
    assert fleet.causes("other") == {"one": "done"}


def test_sessions_can_be_kept(fleet: FleetHarness) -> None:
    fleet.fleet("run", fleet.tasks({"id": "one"}))
    before = fleet.cli.sessions
    done = fleet.fleet("delete", "tasks", "--keep-sessions", "--yes")
    assert done.code == 0, done.err
    assert "sessions of its tasks" not in done.text
    assert not (fleet.cli.state / "fleets/tasks").exists()
    assert fleet.cli.sessions == before


@pytest.mark.parametrize("words", [("nobody",), ("../x",), ()])
def test_a_fleet_that_is_not_there_cannot_go(fleet: FleetHarness, words: tuple[str, ...]) -> None:
    assert fleet.fleet("delete", *words, "--yes").code == 2


def test_a_fleet_that_runs_is_refused(fleet: FleetHarness) -> None:
    fleet.plays(hello=[says("Never.", delay_s=600)])
    running = fleet.cli.start("fleet", "run", fleet.tasks({"id": "one"}))
    folder = str(fleet.cli.state / "fleets/tasks")
    try:
        wait_until(lambda: bool(holder_of(folder) and fleet.cli.sessions))
        done = fleet.fleet("delete", "tasks", "--yes")
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert "longrein fleet stop tasks" in done.err
        assert fleet.state().running
    finally:
        with suppress(ProcessLookupError):
            running.send(15)
        running.end()
