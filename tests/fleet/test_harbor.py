"""Folders of Harbor tasks as fleets, read by the installed package."""

import os
from pathlib import Path

import pytest

from longrein_fleet.harbor_check import LOGS, prepare_tests, read_reward
from tests.e2e.harness import call, calls, needs_sandbox, says
from tests.fleet.harness import FleetHarness

HARBOR = Path(__file__).parents[2] / ".venv/harbor/bin"
needs_harbor = pytest.mark.skipif(
    not (HARBOR / "harbor").exists(), reason="Harbor is not installed: make .venv/harbor"
)
TEST_SH = """#!/bin/bash
cp /tests/wanted.txt /logs/verifier/wanted.txt
if cmp -s b.txt /tests/wanted.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def with_harbor(fleet: FleetHarness) -> None:
    """Put the command `harbor` on the search path."""
    fleet.cli.env["PATH"] = f"{fleet.cli.env['PATH']}:{HARBOR}"


def harbor_task(folder: Path, toml: str = "", **files: str) -> Path:
    """Write a Harbor task whose tests want the file that the scripted model writes."""
    texts = {
        "task.toml": f'schema_version = "1.4"\n{toml}',
        "instruction.md": "<!-- canary: 1 -->\nwrite a file\n",
        "environment/a.txt": "old\n",
        "tests/test.sh": TEST_SH,
        "tests/wanted.txt": "new\n",
        **files,
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@needs_harbor
def test_a_folder_of_harbor_tasks_is_a_fleet_whose_rewards_decide(fleet: FleetHarness) -> None:
    with_harbor(fleet)
    folder = fleet.folder / "suite"
    toml = """
        [task]
        name = "org/good"
        [agent]
        timeout_sec = 900.0
        network_mode = "public"
        [verifier]
        timeout_sec = 60
        environment_mode = "shared"
        [verifier.env]
        [environment]
        memory = "2G"
        gpus = 0
        allow_internet = true
        mcp_servers = []
    """
    harbor_task(folder / "good", toml)
    harbor_task(folder / "bad", **{"tests/wanted.txt": "another\n"})
    part = 'echo \'{"reward": 0.25, "style": 1}\' > /logs/verifier/reward.json; exit 3\n'
    harbor_task(folder / "part", **{"tests/test.sh": part})
    harbor_task(folder / "mute", **{"tests/test.sh": "echo nothing\n"})
    done = fleet.fleet("run", f"{folder}/", "--max-budget-usd", "4")
    assert done.code == 1, done.err
    results = fleet.results("suite")
    told = {name: (one["cause"], one["reward"]) for name, one in results.items()}
    assert told == {
        "good": ("done", 1.0),
        "bad": ("check failed", 0.0),
        "part": ("check failed", 0.25),
        "mute": ("check failed", None),
    }
    assert "exit code 3" in results["part"]["message"]
    assert "no reward.txt" in results["mute"]["message"]
    state = fleet.state("suite")
    task = state.tasks["good"].task
    assert task.prompt == "write a file\n", "the canary is no part of the instruction"
    assert (task.limits.seconds, task.limits.check_seconds, task.limits.usd) == (900, 60, 1)
    left = fleet.cli.state / "fleets/suite/tasks/good/1/harbor"
    assert os.listdir(left) == [LOGS], "no later attempt can read the tests"
    assert (left / LOGS / "verifier/wanted.txt").read_text() == "new\n"


@needs_harbor
def test_one_harbor_task_is_a_fleet_too(fleet: FleetHarness) -> None:
    with_harbor(fleet)
    done = fleet.fleet("run", str(harbor_task(fleet.folder / "alone")))
    assert done.code == 0, done.err
    assert fleet.causes("alone") == {"alone": "done"}


@needs_harbor
def test_what_a_fleet_cannot_do_is_told_for_each_task_before_anything_starts(
    fleet: FleetHarness,
) -> None:
    with_harbor(fleet)
    folder = fleet.folder / "suite"
    harbor_task(folder / "fine")
    harbor_task(folder / "image", '[environment]\ndocker_image = "ubuntu:24.04"\n')
    harbor_task(folder / "built", **{"environment/Dockerfile": "FROM ubuntu\n"})
    harbor_task(folder / "wrong", '[agent]\ntimeout_sec = "soon"\n')
    harbor_task(folder / "broken", "[agent\n")
    harbor_task(folder / "more", '[environment.env]\nKEY = "x"\n[environment]\ngpus = 2\n')
    harbor_task(folder / "odd name")
    (harbor_task(folder / "empty") / "tests/test.sh").unlink()
    done = fleet.fleet("run", str(folder))
    assert done.code == 2
    told = {
        "image: it needs a container (ubuntu:24.04): `harbor run",
        "built: it needs a container (Dockerfile): `harbor run",
        "wrong: 1 validation error for TaskConfig agent.timeout_sec",
        "broken: ",
        "more: a fleet does not know environment.env of task.toml",
        "more: a fleet does not know environment.gpus of task.toml",
        "odd name: the id 'odd name' is no name",
        "empty: ",
    }
    lines = done.err.splitlines()
    for start in told:
        assert any(f"{folder}: {start}" in line for line in lines), (start, lines)
    assert "fine: " not in done.err
    assert "nothing was started" in lines[-1]
    assert fleet.cli.sessions == []


@needs_harbor
def test_a_folder_without_a_harbor_task_says_so(fleet: FleetHarness) -> None:
    with_harbor(fleet)
    done = fleet.fleet("run", str(fleet.plain))
    assert done.code == 2
    assert "task.toml" in done.err


def test_without_harbor_a_line_says_what_to_install(fleet: FleetHarness) -> None:
    fleet.cli.env["PATH"] = "/usr/bin:/bin"
    done = fleet.fleet("run", str(fleet.plain))
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "uv tool install harbor" in done.err


def test_tests_of_harbors_form_can_stand_in_a_file_of_tasks(fleet: FleetHarness) -> None:
    harbor_task(fleet.folder / "one")
    fleet.plays(hello=[says("Hello.")])
    path = fleet.tasks(
        {"id": "good", "prompt": "write", "tests": "one/tests"}, {"id": "bad", "tests": "one/tests"}
    )
    assert fleet.fleet("run", path).code == 1
    assert fleet.causes() == {"good": "done", "bad": "check failed"}
    both = fleet.tasks(
        {"id": "both", "tests": "one/tests", "check": "true"}, {"id": "none", "tests": "plain"}
    )
    told = fleet.fleet("run", both, "--name", "other").err
    assert "line 1: check and tests are both given" in told
    assert "line 2: there is no " in told


def test_an_attempt_that_ends_at_a_limit_is_tested_all_the_same(fleet: FleetHarness) -> None:
    harbor_task(fleet.folder / "one")
    limits = {"turns": 1}
    path = fleet.tasks(
        {"id": "solved", "prompt": "write", "tests": "one/tests", "limits": limits},
        {"id": "late", "prompt": "read", "tests": "one/tests", "limits": limits},
    )
    fleet.plays(read=[calls(call("Read", file_path="a.txt")), says("x")])
    assert fleet.fleet("run", path).code == 1
    results = fleet.results()
    assert (results["solved"]["cause"], results["solved"]["reward"]) == ("done", 1)
    assert (results["late"]["cause"], results["late"]["reward"]) == ("limit", 0)
    assert "turns" in results["late"]["message"]


def test_tests_that_are_gone_later_cost_the_task_no_more_than_its_check(
    fleet: FleetHarness,
) -> None:
    harbor_task(fleet.folder / "one")
    setup = f"rm -r {fleet.folder}/one/tests"
    path = fleet.tasks({"id": "one", "prompt": "write", "tests": "one/tests", "setup": setup})
    assert fleet.fleet("run", path).code == 1
    result = fleet.results()["one"]
    assert result["cause"] == "check failed"
    assert "cannot be copied" in result["message"]
    assert result["cost_usd"] > 0


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "link above"])
def test_a_reward_that_is_no_plain_file_is_not_read(tmp_path: Path, kind: str) -> None:
    verifier = tmp_path / LOGS / "verifier"
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "reward.txt").write_text("1")
    if kind == "link above":
        verifier.parent.mkdir()
        verifier.symlink_to(secret)
    else:
        verifier.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(verifier / "reward.txt")
    if kind == "link":
        (verifier / "reward.txt").symlink_to(secret / "reward.txt")
    if kind == "folder":
        (verifier / "reward.txt").mkdir()
    assert read_reward(str(tmp_path)) == (None, "reward.txt is no plain file")


@needs_sandbox
def test_tests_run_in_the_sandbox(fleet: FleetHarness) -> None:
    del fleet.cli.env["LONGREIN_SANDBOX_MODE"]
    outside = fleet.folder / "outside.txt"
    harbor_task(fleet.folder / "one", **{"tests/test.sh": f"touch {outside}\n{TEST_SH}"})
    path = fleet.tasks({"id": "one", "prompt": "write", "tests": "one/tests"})
    done = fleet.fleet("run", path)
    assert done.code == 0, fleet.results()
    assert not outside.exists()


@pytest.mark.parametrize(("files", "reward", "words"), [
    ({"reward.txt": " 1\n"}, 1.0, ""),
    ({"reward.txt": "0", "reward.json": '{"reward": 1}'}, 1.0, ""),
    ({"reward.json": '{"a": 1, "b": 0.5}'}, 0.5, ""),
    ({"reward.json": "0.75"}, 0.75, ""),
    ({}, None, "wrote no reward.txt"),
    ({"reward.txt": ""}, None, "holds no reward"),
    ({"reward.txt": "nan"}, None, "no finite reward"),
    ({"reward.json": '{"reward": "1"}'}, None, "holds no reward"),
    ({"reward.json": "{}"}, None, "holds no reward"),
    ({"reward.json": '{"reward": 1e309}'}, None, "holds no reward"),
    ({"reward.json": "[", "reward.txt": "1"}, None, "holds no reward"),
])  # fmt: skip
def test_rewards_are_read_as_harbor_reads_them(
    tmp_path: Path, files: dict[str, str], reward: float | None, words: str
) -> None:
    verifier = tmp_path / LOGS / "verifier"
    verifier.mkdir(parents=True)
    for name, text in files.items():
        (verifier / name).write_text(text)
    read, problem = read_reward(str(tmp_path))
    assert read == reward
    assert words in problem
    assert bool(words) == bool(problem)


@pytest.mark.parametrize(("text", "wanted"), [
    ("cat /tests/a >/logs/verifier/b", "cat ROOT/tests/a >ROOT/logs/verifier/b"),
    ('Path("/logs") / "/tests"', 'Path("ROOT/logs") / "ROOT/tests"'),
    ("cd /tests; ls /tests.old /app/tests ./tests", None),
    ("https://a.example/tests/1 $HOME/tests ${A}/logs ~/logs", None),
    ("a\0/tests/b", None),
])  # fmt: skip
def test_the_paths_of_the_container_are_replaced_in_the_tests(
    tmp_path: Path, text: str, wanted: str | None
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "test.sh").write_text(text)
    root = tmp_path / "attempt"
    prepare_tests(str(source), str(root))
    if wanted is None:
        wanted = text.replace("cd /tests;", "cd ROOT/tests;")
    made = (root / "tests/test.sh").read_text()
    assert made == wanted.replace("ROOT", str(root))
