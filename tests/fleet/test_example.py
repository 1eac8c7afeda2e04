"""The example, the page and the use from Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from longrein_fleet import FLEET
from longrein_fleet.fleet_command import ACTIONS
from longrein_fleet.fleet_tasks import Task
from tests.e2e.harness import call, calls, says
from tests.fleet.harness import PRICE, FleetHarness
from tests.timeouts import HANG_S

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples/fleet/tasks.jsonl"
PAGE = (ROOT / "docs/fleet.md").read_text(encoding="utf-8")


def plays_the_example(fleet: FleetHarness) -> None:
    greeting = "import sys\n\nprint('Hello ' + sys.argv[1])\n"
    edits = [calls(call("Read", file_path="greeting.py")), calls(write("greeting.py", greeting))]
    branches = [
        {"when": "Change greeting", "turns": [*edits, says("Done.")]},
        {"when": "Write a README", "turns": [calls(write("README.md", "# Hi\n")), says("Done.")]},
    ]
    fleet.cli.plays(price=PRICE, branches=branches)


def write(path: str, content: str) -> dict[str, object]:
    return call("Write", file_path=path, content=content)


def test_the_example_runs(fleet: FleetHarness) -> None:
    plays_the_example(fleet)
    done = fleet.fleet("run", str(EXAMPLE), "--max-budget-usd", "1")
    assert done.code == 0, done.err
    assert fleet.causes() == {"greeting": "done", "readme": "done"}


def test_the_python_of_the_page_runs(fleet: FleetHarness) -> None:
    plays_the_example(fleet)
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=fleet.cli.env,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"^(\w+) done 0\.\d+$", done.stdout, re.M)) == ["greeting", "readme"]


def test_python_can_give_tasks_without_a_file(fleet: FleetHarness) -> None:
    code = (
        "import asyncio, sys\nfrom longrein_fleet import Task, run\nasync def main():\n "
        "   async for result in run([Task('one', 'hello', sys.argv[1])]):\n        "
        "print(result.outcome)\nasyncio.run(main())"
    )
    command = [sys.executable, "-c", code, str(fleet.plain)]
    done = subprocess.run(
        command, env=fleet.cli.env, capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout == "done\n"
    assert not os.path.exists(fleet.plain / "b.txt")


def test_the_manifest_has_what_kuberay_requires() -> None:
    job = yaml.safe_load((ROOT / "examples/fleet/kuberay.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    words = job["spec"]["entrypoint"].split()
    assert words[:3] == ["longrein", "fleet", "run"]
    known = {name for flag in FLEET.flags for name in flag.names}
    assert {word for word in words if word.startswith("--")} <= known
    cluster = job["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["groupName"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    for group in (cluster["headGroupSpec"], workers):
        assert isinstance(group["rayStartParams"], dict)
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert {"name", "image", "resources", "envFrom"} <= container.keys()
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_the_page_names_every_key_and_every_action() -> None:
    for key in Task.__struct_fields__:
        assert f"`{key}`" in PAGE, key
    for action in ACTIONS:
        assert f"fleet {action}" in PAGE, action
    assert len(PAGE.splitlines()) <= 80
