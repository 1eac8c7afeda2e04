"""The demo as a newcomer sees it: offline, without a key, and from a wheel that is not this checkout."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .house import Stage

ROOT = Path(__file__).parents[2]
TOLD = (
    "the model's part is played from a script, offline",
    "*** kill -9: longrein dies in the middle of that command ***",
    "$ longrein -p -c",
    "what is probably dead was cleared",
    "> Recall",
    "> Compact what was decided about refunds",
    "--- summed up",
    "> Recall DECIDED amount in parentheses",
    "$ longrein context",
    "verified milestones",
    "b3 begins: sh till.sh",
    "it goes on in the background as b4",
    "| The two contradict each other",
    "*** kill -9 again",
    "/b3  running",
    "b3 is over: killed, stopped by TaskStop",
    "the test now    passes",
)


def test_the_demo_tells_of_kill_clearing_recall_summary_and_context(stage: Stage) -> None:
    stage.config.unlink()
    ran = stage.run("demo", env={"TMPDIR": str(stage.folder)})
    assert (ran.code, ran.err) == (0, "")
    at = [ran.text.find(line) for line in TOLD]
    assert -1 not in at, f"not told: {TOLD[at.index(-1)]}"
    assert at == sorted(at)
    assert stage.sessions == [], "the demo has a state of its own"
    assert [p.name for p in stage.folder.iterdir() if p.name.startswith("longrein-demo")] == []


def test_the_demo_keeps_its_folder_when_asked(stage: Stage) -> None:
    ran = stage.run("demo", "--keep", env={"TMPDIR": str(stage.folder)})
    assert ran.code == 0
    (kept,) = [p for p in stage.folder.iterdir() if p.name.startswith("longrein-demo")]
    assert (kept / "project/NOTES.md").exists()
    assert str(kept / "project") in ran.text


def test_the_demo_from_a_wheel(stage: Stage) -> None:
    wheel = build_wheel(stage.folder)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(stage.folder / "installed")
    code = "import longrein, sys; from longrein.__main__ import main; sys.stderr.write(longrein.__file__); main()"
    env = {"PYTHONPATH": str(stage.folder / "installed"), "TMPDIR": str(stage.folder)}
    installed = Stage(stage.folder / "newcomer", (sys.executable, "-c", code))
    ran = installed.run("demo", env=env)
    assert ran.code == 0, ran.err
    assert ran.err == str(stage.folder / "installed/longrein/__init__.py")
    assert "the test now    passes" in ran.text


def build_wheel(folder: Path) -> Path:
    """A wheel of this checkout, made without the network."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed, and a test does not fetch it")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "wheels")]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = (folder / "wheels").glob("longrein-*.whl")
    return wheel


def test_the_help_and_the_version_need_nothing(stage: Stage) -> None:
    bare = {"HOME": "/nonexistent", "LONGREIN_STATE_DIR": "/nonexistent/state", "PATH": os.defpath}
    assert stage.run("--version", env=bare).told() == (0, "longrein 0.1.0\n", "")
    ran = stage.run("--help", env=bare)
    assert (ran.code, ran.err) == (0, "")
    assert "longrein -p -c" in ran.text
