"""Fleets on Ray: a cluster of two nodes of which one dies, and a Ray that the fleet starts."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lab.support.postgresql import Server
from longrein import __version__
from longrein.app.run_context import use_store_at
from longrein_context.events import Opened
from longrein_fleet.executor import Attempt
from longrein_fleet.fleet_tasks import Task
from longrein_fleet.ray_worker import Done, Work, run_work
from tests.e2e.harness import RunningCommand, Turn, bash, calls, fails, says
from tests.fleet.harness import FleetHarness
from tests.fleet.ray_cluster import NODE_STATES, STATE, RayCluster, needs_ray
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


@needs_ray
def test_nodes_that_share_a_store_alone_hand_over_the_work_tree(
    fleet: FleetHarness, postgresql: Server
) -> None:
    """Each node has a state folder of its own, and none sees the folder of the task."""
    fleet.cli.forks = False
    address = postgresql.new_schema()
    shared = f"SELECT body FROM {address.rpartition('%3D')[2]}.shared"
    states = fleet.cli.folder / "nodes"
    go = f"echo wait >> acts.log; until [ -e {fleet.cli.project}/go ]; do sleep 0.05; done"
    act = (
        "echo first >> acts.log; echo new > a.txt; chmod 711 a.txt; ln -s a.txt link; "
        "mkdir -p sub/dir; printf 'a\\0b' > sub/dir/bytes; rm gone.txt; git -c user.name=a -c "
        "user.email=a@b add a.txt"
    )
    fleet.plays(slow=[calls(bash(act)), calls(bash(go)), says("Done.")])
    repository = fleet.repository()
    (repository / "gone.txt").write_text("to be removed\n")
    fleet.git(repository, "add", "-A")
    fleet.git(repository, "commit", "-q", "-m", "third")
    tests = fleet.folder / "tests"
    tests.mkdir()
    tree = "test -x a.txt && test -L link && test ! -e gone.txt && cmp sub/dir/bytes built.bin"
    (tests / "test.sh").write_text(f"{tree} && echo 1 > /logs/verifier/reward.txt\n")
    task = {
        "id": "one",
        "prompt": "slow",
        "folder": "repo",
        "setup": "printf 'a\\0b' > built.bin; echo $RANDOM > random.txt",
        "tests": "tests",
    }

    def works() -> list[list[str]]:
        found = states.glob("*/fleets/tasks/nodes/*/tasks/one/1/work/acts.log")
        return sorted(path.read_text().split() for path in found)

    cluster = RayCluster({**fleet.cli.env, NODE_STATES: str(states)}, nodes=1, cpus=1)
    try:
        where = ("--engine", "ray", "--address", cluster.address, "--store", address)
        where += ("--requests-per-minute", "600")
        running = fleet.cli.start("fleet", "run", fleet.tasks(task), *where)
        wait_until(lambda: works() == [["first", "wait"]])
        ((rates,),) = postgresql.run(shared)
        assert (rates[:36], b"free_s" in rates) == (b'{"limits":{"requests_per_minute":600', True)
        repository.rename(fleet.folder / "elsewhere")
        tests.rename(fleet.folder / "tests-elsewhere")
        cluster.kill_node()
        wait_until(lambda: len(works()) == 2 or running.process.poll() is not None)
        fleet.cli.go()
        ended = running.end()
        assert ended.code == 0, ended.err
    finally:
        cluster.close()
    assert postgresql.run(shared) == []
    words = fleet.fleet("results", "tasks", "--store", address).out
    one = json.loads(words)
    assert (one["cause"], one["reward"]) == ("done", 1.0)
    assert "old mode 100644\nnew mode 100755" in one["patch"]
    assert "+++ b/sub/dir/bytes" not in one["patch"], "a binary file"
    for name in ("acts.log", "link", "sub/dir/bytes", "gone.txt"):
        assert f" b/{name}\n" in one["patch"]
    assert "random.txt" not in one["patch"], "what setup made is no change of the agent"
    attempt = fleet.cli.state / "fleets/tasks/tasks/one/1"
    told = sorted(path.name for path in attempt.iterdir())
    assert told == ["changes.patch", "check.log", "output.jsonl", "setup.log"]


@needs_ray
def test_tasks_run_on_nodes_with_their_labels_and_gpus(
    fleet: FleetHarness, postgresql: Server
) -> None:
    fleet.cli.forks = False
    address = postgresql.new_schema()
    states = fleet.cli.folder / "nodes"
    cluster = RayCluster({**fleet.cli.env, NODE_STATES: str(states)}, nodes=3, cpus=1)
    try:
        where = ("--engine", "ray", "--address", cluster.address, "--store", address)
        tasks = fleet.tasks(*({"id": f"t{number}"} for number in range(3)))
        done = fleet.fleet("run", tasks, *where, "--label", "number=1", "--concurrency", "3")
        assert done.code == 0, done.err
    finally:
        cluster.close()
    use_store_at(str(fleet.cli.state), address)
    lines = fleet.fleet("results", "tasks", "--store", address).out.splitlines()
    for session in (json.loads(line)["session"] for line in lines):
        opened = fleet.cli.entries(session)[0].event
        assert isinstance(opened, Opened)
        assert opened.cwd.startswith(f"{states}/1/")
    none = fleet.fleet("run", tasks, "--name", "none", "--engine", "ray", "--gpus", "1")
    assert (none.code, none.err.count("\n")) == (1, 1)
    assert "0 GPUs, and a task needs 1" in none.err


def sources_of(fleet: FleetHarness) -> bytes:
    """The sources of a task in a repository, as Ray brings them to a node."""
    subprocess.run(["cp", "-a", fleet.repository(), fleet.folder / "work"], check=True)
    subprocess.run(["tar", "-C", fleet.folder, "-cf", fleet.folder / "tar", "work"], check=True)
    return (fleet.folder / "tar").read_bytes()


def run_on(
    fleet: FleetHarness, node: str, work: Work, sources: bytes, monkeypatch: pytest.MonkeyPatch
) -> Done:
    """Run an attempt as a node with a state folder of its own."""
    for name, value in {**fleet.cli.env, STATE: str(fleet.folder / node)}.items():
        monkeypatch.setenv(name, value)
    return msgspec.json.decode(run_work(msgspec.json.encode(work), sources), type=Done)


def test_a_node_judges_what_the_agent_has_done_on_one_that_died(
    fleet: FleetHarness, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second node finds a session that has ended; the answer of the first one was lost."""
    sources = sources_of(fleet)
    setup, check = "date +%N > stamp.txt", "test -x made.sh && test -L link && echo 1"
    act = "echo new > a.txt; echo x > made.sh; chmod +x made.sh; ln -s a.txt link"
    fleet.plays(act=[calls(bash(act)), says("Done.")])
    task = Task("one", "act", "/not/there", setup=setup, check=check)
    attempt = Attempt(task, 1, "11111111-1111-4111-8111-111111111111")
    address = postgresql.new_schema()
    done = []
    for node in ("a", "b"):
        work = Work(attempt, "", "fleet", address)
        done.append(run_on(fleet, node, work, sources, monkeypatch))
        left = fleet.folder / node / "fleets/fleet"
        assert not [path for path in left.rglob("*") if path.is_file()], "nothing stays on a node"
        fleet.plays(act=[])  # the model is not asked again
    first, second = done
    assert (first.end.cause, first.end.check_code) == ("done", 0), first.end
    assert second.end == first.end
    assert second.files["changes.patch"] == first.files["changes.patch"]
    assert b"stamp.txt" not in first.files["changes.patch"]
    assert first.files["changes.patch"].count(b"diff --git") == 3


def test_no_tree_is_lost_or_taken_for_another_one(
    fleet: FleetHarness, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two fleets of one name, on nodes that are left and come back."""
    sources, address = sources_of(fleet), postgresql.new_schema()
    task = Task("one", "act", "/not/there", check="test -L link")
    one, two = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

    def step(word: str) -> Turn:
        return calls(bash(f"ln -sf a.txt link; echo {word} >> acts.log"))

    def check(node: str, session: str, turns: list[Turn], cause: str, *words: str) -> None:
        fleet.plays(act=turns)
        attempt = Attempt(task, 1, session)
        done = run_on(fleet, node, Work(attempt, "", "fleet", address), sources, monkeypatch)
        assert done.end.cause == cause, done.end
        patch = done.files.get("changes.patch", b"").decode()
        acts = patch.partition("+++ b/acts.log\n")[2].partition("\ndiff")[0].splitlines()
        assert acts[1:] == [f"+{word}" for word in words]

    key, broken = fails(401, "invalid x-api-key", times=99), fails(400, "broken", times=99)
    check("a", one, [step("first"), key], "key")
    # the folder of a session that goes on later is not that of another one
    check("a", two, [step("other"), broken], "agent failed", "other")
    # its fleet was killed before it noted the end, so the node has no folder of it any more
    check("a", two, [says(""), step("more"), says("Done.")], "done", "other", "more")
    check("b", one, [says(""), step("second"), says("Done.")], "done", "first", "second")
    # the end was lost with the node b, and the node a has the folder of an earlier time
    check("a", one, [], "done", "first", "second")


def test_a_node_that_cannot_work_says_why_and_its_task_is_not_counted(
    fleet: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(fleet.cli.home))
    attempt = Attempt(Task("one", "hello", str(fleet.plain)), 1, "session")
    for version, state_dir, words in (
        ("0.0.0", str(fleet.plain), "install the same version on all nodes"),
        (__version__, "/not/there", "/not/there is not a folder"),
    ):
        work = Work(attempt, state_dir, "fleet", "", version=version)
        end = msgspec.json.decode(run_work(msgspec.json.encode(work)), type=Done).end
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
    assert "--address needs --engine ray" in done.err
    done = fleet.fleet("run", fleet.tasks({"id": "one"}), "--engine", "ray", "--label", "zone")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--label zone: write it as KEY=VALUE" in done.err
