"""`longrein fleet status`: text, and a drawing that is kept up to date on a terminal."""

from tests.e2e.harness import bash, calls, says
from tests.fleet.harness import FleetHarness
from tests.fleet.test_kill import wait_until
from tests.terminal.pseudo_terminal import PseudoTerminal


def waits(fleet: FleetHarness) -> str:
    """Tasks of which the second waits for `fleet.cli.go`."""
    go = f"until [ -e {fleet.cli.project}/go ]; do sleep 0.05; done"
    fleet.plays(slow=[calls(bash(go)), says("Done.")])
    tasks = ({"id": "fast", "check": "false"}, {"id": "slow", "prompt": "slow"}, {"id": "last"})
    return fleet.tasks(*tasks)


def test_the_status_of_a_fleet_is_drawn_until_nobody_runs_it(fleet: FleetHarness) -> None:
    running = fleet.cli.start("fleet", "run", waits(fleet), "--concurrency", "1")
    environ = {**fleet.cli.env, "ARGS": "fleet status tasks --watch"}
    try:
        wait_until(lambda: len(fleet.cli.sessions) == 2)
        with PseudoTerminal("", fleet.cli.project, columns=100, **environ) as screen:
            screen.until("1 check failed, 1 running, 1 waiting")
            screen.until("left")
            screen.until("tokens read, ")
            fleet.cli.go()
            screen.until("1 check failed, 2 done")
            assert screen.wait_exit() == 0
            lines = [line for line in screen.lines() if line.strip()]
        assert len(lines) == 2, "each drawing has taken the place of the last one"
        assert "nobody runs it" in lines[0]
        assert "of them from the cache" in lines[1]
    finally:
        running.end()


def test_without_a_terminal_the_status_is_told_once(fleet: FleetHarness) -> None:
    fleet.fleet("run", fleet.tasks({"id": "one"}, {"id": "two", "check": "false"}))
    done = fleet.fleet("status", "tasks", "--watch")
    assert done.code == 0
    assert "\x1b" not in done.text
    lines = done.text.splitlines()
    assert [line.split("  ")[:2] for line in lines[:1]] == [["one", "done"]]
    assert lines[2].startswith("1 done, 1 check failed; $")
    assert lines[3].endswith("written")
