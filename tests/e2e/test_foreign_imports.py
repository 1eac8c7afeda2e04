"""A repository with modules named like those that longrein imports: none is imported (S047,
point 7 of trust).
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import BYPASS, CliHarness, bash, calls, says

NAMES = sorted(
    {
        *sys.stdlib_module_names,
        "msgspec",
        "httpx2",
        "pathspec",
        "prompt_toolkit",
        "rich",
        "usercustomize",
    }
)
"""Modules of the standard library and of dependencies; also `sitecustomize`, which Python itself
looks for.
"""
PYTHON = str(Path(sys.executable))


@pytest.fixture
def tripwires(cli: CliHarness) -> Path:
    """The project full of modules; importing one creates the returned file."""
    cli.forks = False  # a fork finds all imported
    tripped = cli.folder / "tripped"
    trap = f"open({str(tripped)!r}, 'a').write(__name__ + '\\n')\n"
    for name in {*NAMES, "sitecustomize"} - {"__future__"}:
        (cli.project / f"{name}.py").write_text(trap)
    return tripped


def _remove_loaded_before(cli: CliHarness, *names: str) -> None:
    """Remove the modules that Python itself imports before any line of longrein can run, so that
    none can help it.
    """
    listing = (
        f"import sys\nfor name in {names!r}:\n    try: __import__(name)\n    except ImportError: "
        "pass\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run(
        [PYTHON, "-I", "-c", listing], capture_output=True, text=True, check=True
    ).stdout.split()
    for name in {*(one.partition(".")[0] for one in loaded), *names}:
        (cli.project / f"{name}.py").unlink(missing_ok=True)


STARTS = {
    "the installed command": [],
    "python -m": [PYTHON, "-m", "longrein"],
    "python -m with a flag": [PYTHON, "-B", "-mlongrein"],
    "python -P -m": [PYTHON, "-P", "-m", "longrein"],
}


@pytest.mark.parametrize("start", STARTS)
def test_a_run_with_a_command_and_a_search_imports_nothing_of_the_folder(
    cli: CliHarness, tripwires: Path, start: str
) -> None:
    cli.command = STARTS[start] or cli.command
    if "-P" not in cli.command and len(cli.command) > 1:
        _remove_loaded_before(cli, "runpy")
    cli.plays(
        calls(bash("echo one"), {"name": "Grep", "arguments": {"pattern": "one"}}), says("done")
    )
    ran = cli.run("-p", "go", BYPASS)
    assert (ran.code, ran.text) == (0, "done\n"), ran.err
    assert not tripwires.exists(), tripwires.read_text()


@pytest.mark.parametrize("path", [":", ".", "PROJECT"])
def test_a_python_path_that_names_the_folder_is_not_obeyed(
    cli: CliHarness, tripwires: Path, path: str
) -> None:
    _remove_loaded_before(cli, "site", "sitecustomize", "usercustomize", "encodings.utf_8", "re")
    given = path.replace("PROJECT", str(cli.project))
    cli.plays(calls(bash("echo $PYTHONPATH")), says("done"))
    ran = cli.run("-p", "go", BYPASS, env={"PYTHONPATH": given, "PYTHONSTARTUP": "json.py"})
    assert ran.code == 0, ran.err
    assert not tripwires.exists(), tripwires.read_text()
    assert cli.results()[0][1].startswith(given), "the user's own commands keep it"


def test_a_package_longrein_of_the_folder_is_not_the_program(
    cli: CliHarness, tripwires: Path
) -> None:
    (cli.project / "longrein").mkdir()
    for name in ("__init__", "__main__"):
        (cli.project / f"longrein/{name}.py").write_text(
            f"open({str(tripwires)!r}, 'a').write('longrein\\n')\n"
        )
    cli.plays(calls(bash("echo one")), says("done"))
    for start in (cli.command, STARTS["python -P -m"]):
        cli.command = start
        assert cli.run("-p", "go", BYPASS).text == "done\n"
    assert not tripwires.exists()


@pytest.mark.skipif(not shutil.which("git"), reason="the demo needs git")
def test_the_demo_imports_nothing_of_the_folder(cli: CliHarness, tripwires: Path) -> None:
    assert cli.run("demo").code == 0
    assert not tripwires.exists(), tripwires.read_text()


def test_the_trap_is_armed(cli: CliHarness, tripwires: Path) -> None:
    subprocess.run([PYTHON, "-c", "import json"], cwd=cli.project, check=False)
    assert tripwires.exists()
