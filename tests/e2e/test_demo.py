"""The demo as a newcomer sees it, offline and without a key; and longrein from a wheel."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lab.source_tree import AGENT, ENGINE

from .harness import BYPASS, CliHarness, bash, calls, says

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


def test_the_demo_tells_of_kill_clearing_recall_summary_and_context_and_the_docs_show_it(
    cli: CliHarness,
) -> None:
    """One showing, as it takes seconds; with `--keep`, its folder is there to look at."""
    cli.config.unlink()
    ran = cli.run("demo", "--keep", env={"TMPDIR": str(cli.folder)})
    assert (ran.code, ran.err) == (0, "")
    (kept,) = [p for p in cli.folder.iterdir() if p.name.startswith("longrein-demo")]
    assert (kept / "project/NOTES.md").exists()
    assert str(kept / "project") in ran.text
    at = [ran.text.find(line) for line in TOLD]
    assert -1 not in at, f"not told: {TOLD[at.index(-1)]}"
    assert at == sorted(at)
    assert cli.sessions == [], "the demo has a state of its own"
    excerpt = re.search(
        r"<!-- excerpt: demo -->\n```console\n(.*?)```",
        (ROOT / "docs/start.md").read_text(),
        re.DOTALL,
    )
    assert excerpt is not None
    shown = iter(ran.text.splitlines())
    for line in filter(str.strip, excerpt[1].splitlines()):
        wanted, is_cut = line.strip().removesuffix("…"), line.endswith("…")
        assert any(
            found.strip().startswith(wanted) if is_cut else found.strip() == wanted
            for found in shown
        ), f"the demo does not show, in this order: {line}"


def test_the_demo_leaves_no_folder_behind(cli: CliHarness) -> None:
    going = cli.start("demo", env={"TMPDIR": str(cli.folder)})
    while b"A git project with a failing test" not in going.line():
        pass
    assert [p.name[:14] for p in cli.folder.iterdir() if p.name.startswith("longrein-demo")] == [
        "longrein-demo-"
    ]
    going.send(signal.SIGINT)
    going.end()
    assert [p.name for p in cli.folder.iterdir() if p.name.startswith("longrein-demo")] == []


def test_a_wheel_holds_the_whole_program(cli: CliHarness) -> None:
    for tree in (ENGINE, AGENT):
        with zipfile.ZipFile(build_wheel(tree.parent.parent, cli.folder)) as archive:
            archive.extractall(cli.folder / "installed")
    code = (
        "import longrein, sys; from longrein.__main__ import main; "
        "sys.stderr.write(longrein.__file__); main()"
    )
    env = {"PYTHONPATH": str(cli.folder / "installed")}
    installed = CliHarness(cli.folder / "newcomer", (sys.executable, "-c", code))
    installed.plays(calls(bash("echo made > here")), says("Done."))
    ran = installed.run("-p", "x", BYPASS, env=env)
    assert ran.told() == (0, "Done.\n", str(cli.folder / "installed/longrein/__init__.py"))
    assert (installed.project / "here").read_text() == "made\n", (
        "the supervisor of commands is in it, too"
    )
    source = {
        p.relative_to(tree.parent)
        for tree in (ENGINE, AGENT)
        for p in tree.rglob("*")
        if p.suffix in (".py", ".pyi", ".toml")
    }
    assert source <= {
        p.relative_to(cli.folder / "installed") for p in (cli.folder / "installed").rglob("*")
    }


def build_wheel(package: Path, folder: Path) -> Path:
    """A wheel of a package of this checkout, made without the network."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed, and a test does not fetch it")
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(folder / "wheels"),
    ]
    subprocess.run(build, cwd=package, capture_output=True, check=True)
    (wheel,) = (folder / "wheels").glob(f"{package.name.replace('-', '_')}-*.whl")
    return wheel


def test_the_help_and_the_version_need_nothing(cli: CliHarness) -> None:
    bare = {"HOME": "/nonexistent", "LONGREIN_STATE_DIR": "/nonexistent/state", "PATH": os.defpath}
    assert cli.run("--version", env=bare).told() == (0, "longrein 0.1.0\n", "")
    ran = cli.run("--help", env=bare)
    assert (ran.code, ran.err) == (0, "")
    assert "longrein -p -c" in ran.text
