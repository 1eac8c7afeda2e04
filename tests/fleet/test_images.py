"""Tasks whose commands see an image: a root file system of their own."""

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.support.images import make_image
from tests.e2e.harness import bash, calls, fails, needs_bubblewrap, says
from tests.fleet.harness import FleetHarness

Named = Callable[[FleetHarness, Path], str]

ENGINE = """#!/bin/sh
case $1 in
create) test "$2 $3" = "debian:12 true" && echo made-1 ;;
export) test "$2" = made-1 && exec tar -C {image} -c . ;;
rm) echo "$2" >> {removed} ;;
esac
"""
"""A container engine of one image."""


@pytest.fixture
def image(fleet: FleetHarness) -> Path:
    """An image beside the tasks, for a fleet with the sandbox and an ordinary search path."""
    del fleet.cli.env["LONGREIN_SANDBOX_MODE"]
    engines = fleet.folder / "engines"
    engines.mkdir()
    fleet.cli.env["PATH"] = f"{engines}:{fleet.cli.env['PATH']}"
    return make_image(fleet.folder / "image")


def as_folder(_fleet: FleetHarness, image: Path) -> str:
    return image.name


def as_tar(fleet: FleetHarness, image: Path) -> str:
    subprocess.run(["tar", "-C", image, "-cf", fleet.folder / "image.tar", "."], check=True)
    return "image.tar"


def of_an_engine(fleet: FleetHarness, image: Path) -> str:
    engine = fleet.folder / "engines/podman"
    removed = shlex.quote(str(fleet.folder / "removed"))
    engine.write_text(ENGINE.format(image=shlex.quote(str(image)), removed=removed))
    engine.chmod(0o755)
    return "debian:12"


@needs_bubblewrap
@pytest.mark.parametrize("named", [as_folder, as_tar, of_an_engine])
def test_the_commands_of_a_task_see_and_change_the_image_alone(
    fleet: FleetHarness, image: Path, named: Named
) -> None:
    outside = fleet.folder / "outside.txt"
    outside.write_text("of this machine\n")
    seen = f"cat /etc/image-release {outside} > seen.txt; touch /etc/agent"
    fleet.plays(hello=[calls(bash(seen)), says("Done.")])
    task = {
        "id": "one",
        "image": named(fleet, image),
        "setup": "touch /etc/setup && cat a.txt",
        "check": "cat /etc/setup /etc/agent seen.txt && ! cat /etc/hostname",
    }
    done = fleet.fleet("run", fleet.tasks(task))
    one = fleet.results()["one"]
    assert (done.code, one["cause"], one["check_code"]) == (0, "done", 0), (done.err, one)
    assert "+only here" in one["patch"]
    assert "of this machine" not in one["patch"]
    assert sorted(os.listdir(image / "etc")) == ["image-release"], "the task has a copy"
    assert not Path("/etc/agent").exists()
    attempt = fleet.cli.state / "fleets/tasks/tasks/one/1"
    assert sorted(os.listdir(attempt / "work")) == ["a.txt", "seen.txt"]
    assert not (attempt / "image").exists(), "the results need none"
    removed = fleet.folder / "removed"
    assert (removed.read_text() if named is of_an_engine else "made-1\n") == "made-1\n"


@needs_bubblewrap
def test_a_task_goes_on_in_the_image_as_it_left_it(fleet: FleetHarness, image: Path) -> None:
    act = calls(bash("echo act >> /etc/acts"))
    fleet.plays(hello=[act, fails(402, "insufficient_quota", times=99)])
    path = fleet.tasks({"id": "one", "image": image.name, "check": "cat /etc/acts"})
    assert fleet.fleet("run", path).code == 75
    fleet.plays(hello=[act, says("Done.")])
    done = fleet.fleet("resume", "tasks")
    assert (done.code, fleet.causes()) == (0, {"one": "done"}), done.err
    log = fleet.cli.state / "fleets/tasks/tasks/one/1/check.log"
    assert log.read_text() == "act\n", "no step ran twice"


@pytest.mark.parametrize(("named", "problem"), [
    ("missing/", "there is no file or folder"),
    ("/missing", "there is no file or folder /missing"),
    ("debian:12", "no podman or docker that could have an image 'debian:12'"),
    ("--privileged", "is no file, folder or name of an image"),
    ("a\0b", "image holds a NUL character"),
])  # fmt: skip
def test_an_image_that_cannot_be_is_told_before_anything_starts(
    fleet: FleetHarness, named: str, problem: str
) -> None:
    fleet.cli.env["PATH"] = "/nonexistent"
    done = fleet.fleet("run", fleet.tasks({"id": "one", "image": named}))
    assert done.code == 2
    assert problem in done.err
    assert not (fleet.cli.state / "fleets/tasks/tasks").exists()


@needs_bubblewrap
def test_what_is_no_image_fails_in_the_setup(fleet: FleetHarness, image: Path) -> None:
    (fleet.folder / "empty").mkdir()
    (fleet.folder / "torn.tar").write_bytes(b"no tar")
    fleet.cli.env["LONGREIN_SANDBOX_MODE"] = "off"
    fleet.fleet("run", fleet.tasks({"id": "off", "image": image.name}), "--name", "off")
    assert "by bubblewrap alone (sandbox.mode is off)" in fleet.results("off")["off"]["message"]
    del fleet.cli.env["LONGREIN_SANDBOX_MODE"]
    path = fleet.tasks({"id": "empty", "image": "empty"}, {"id": "torn", "image": "torn.tar"})
    done = fleet.fleet("run", path)
    assert (done.code, set(fleet.causes().values())) == (1, {"setup failed"}), done.err
    results = fleet.results()
    assert "no bash runs in the image" in results["empty"]["message"]
    assert "cannot be unpacked" in results["torn"]["message"]
