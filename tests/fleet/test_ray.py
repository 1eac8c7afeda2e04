"""Fleets on Ray: a cluster of two nodes of which one dies, and a Ray that the fleet starts."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from longrein import __version__
from longrein.extensions.fleet.executor import Attempt
from longrein.extensions.fleet.fleet_state import TaskEnded
from longrein.extensions.fleet.fleet_tasks import Task
from longrein.extensions.fleet.ray_worker import Work, run_work
from tests.e2e.harness import RunningCommand, bash, calls, says
from tests.fleet.harness import FleetHarness
from tests.fleet.ray_cluster import RayCluster, needs_ray
from tests.timeouts import wait_until

TASKS = 2


@pytest.fixture
def cluster(fleet: FleetHarness) -> Iterator[RayCluster]:
    """A cluster of two nodes of one CPU in the environment of the fleet."""
    cluster = RayCluster(fleet.cli.env, nodes=2, cpus=1)
    yield cluster
    cluster.close()


def acts(fleet: FleetHarness, name: str) -> list[list[str]]:
    """What the commands of each task have written."""
    folder = Path(fleet.cli.state / "fleets" / name / "tasks")
    return [path.read_text().split() for path in folder.glob("*/1/work/acts.log")]


def start(fleet: FleetHarness, cluster: RayCluster, name: str) -> RunningCommand:
    """Start a fleet of tasks that do a step and then wait for `fleet.cli.go`."""
    go = f"echo wait >> acts.log; until [ -e {fleet.cli.project}/go ]; do sleep 0.05; done"
    fleet.plays(slow=[calls(bash("echo first >> acts.log")), calls(bash(go)), says("Done.")])
    tasks = fleet.tasks(*({"id": f"t{number}", "prompt": "slow"} for number in range(TASKS)))
    where = ("--engine", "ray", "--address", cluster.address, "--concurrency", str(TASKS))
    running = fleet.cli.start("fleet", "run", tasks, "--name", name, *where)
    wait_until(lambda: acts(fleet, name) == [["first", "wait"]] * TASKS)
    return running


def check_cut(fleet: FleetHarness, name: str, cut: int) -> None:
    """All tasks are done in one session each, and the model was told of `cut` steps."""
    results = fleet.results(name)
    assert [one["cause"] for one in results.values()] == ["done"] * TASKS
    assert acts(fleet, name) == [["first", "wait"]] * TASKS, "no step ran twice"
    sessions = [one["session"] for one in results.values()]
    told = [status for one in sessions for status, _ in fleet.cli.results(one)]
    assert told.count("interrupted") == cut


@needs_ray
def test_tasks_that_a_dead_node_or_fleet_leaves_go_on_elsewhere_in_their_sessions(
    fleet: FleetHarness, cluster: RayCluster
) -> None:
    fleet.cli.forks = False
    running = start(fleet, cluster, "node")
    cluster.kill_node()
    fleet.cli.go()
    ended = running.end()
    assert ended.code == 0, ended.err
    check_cut(fleet, "node", 1)
    (fleet.cli.project / "go").unlink()
    for name, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGTERM)):
        running = start(fleet, cluster, name)
        running.send(number)
        assert running.end().code in (-signal.SIGKILL, 128 + signal.SIGTERM)
        wait_until(lambda: not fleet.cli.running("--session-id"))
    fleet.cli.go()
    for name in ("killed", "stopped"):
        done = fleet.fleet("resume", name)
        assert done.code == 0, done.err
        check_cut(fleet, name, TASKS)
    assert len(fleet.cli.sessions) == 3 * TASKS


def test_a_node_that_cannot_work_says_why_and_its_task_is_not_counted(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(fleet.cli.home))
    attempt = Attempt(Task("one", "hello", str(fleet.plain)), 1, "session")
    for version, state_dir, words in (
        ("0.0.0", str(fleet.plain), "install the same version on all nodes"),
        (__version__, "/not/there", "/not/there is not a folder"),
    ):
        work = Work(attempt, state_dir, str(fleet.folder), "", version)
        end = msgspec.json.decode(run_work(msgspec.json.encode(work)), type=TaskEnded)
        assert (end.id, end.cause) == ("one", "node")
        assert words in end.message
        assert os.uname().nodename in end.message


@needs_ray
def test_a_fleet_starts_a_ray_of_its_own_and_ends_it(fleet: FleetHarness) -> None:
    fleet.cli.forks = False
    done = fleet.fleet("run", fleet.tasks({"id": "one"}, {"id": "two"}), "--engine", "ray")
    assert done.code == 0, done.err
    assert done.err.count("\n") == 3, "Ray says nothing"
    assert fleet.cli.wait_survivors() == []


def test_an_engine_that_cannot_be_used_is_one_line(fleet: FleetHarness) -> None:
    done = fleet.fleet("run", fleet.tasks({"id": "one"}), "--address", "127.0.0.1:1")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--engine ray" in done.err
