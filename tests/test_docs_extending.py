"""The example of docs/extending.md is built as a wheel, installed into a folder and used."""

import configparser
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from longrein.app.run_context import RunContext
from longrein.extension_points import BUNDLED, DOORS
from tests.e2e.harness import CliHarness, call, calls, says
from tests.timeouts import HANG_S

PAGE = (Path(__file__).parent.parent / "docs/extending.md").read_text(encoding="utf-8")


def block(start: str) -> str:
    """Text of the first code block that begins with the line `start`."""
    found = re.search(rf"```{re.escape(start)}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the example, as any build backend would."""
    project = tomllib.loads(block('toml title="pyproject.toml"'))["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    points = configparser.ConfigParser()
    points.read_dict(project["entry-points"])
    entry_points = io.StringIO()
    points.write(entry_points)
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    files = {
        f"{name}.py": block("python"),
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
        ),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points.getvalue(),
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def install(wheel: Path, target: Path) -> None:
    """Install a wheel into a folder, without network."""
    options = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    where = ["--target", str(target), str(wheel)]
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--offline", "--no-index", "--no-deps", *where]
    else:
        command = [sys.executable, "-m", "pip", "install", *options, *where]
    subprocess.run(command, check=True, timeout=HANG_S, env={**os.environ, "HOME": str(target)})


def test_the_example_is_short_and_adds_a_tool_and_a_command(cli: CliHarness) -> None:
    assert len(block("python").splitlines()) <= 30
    target = cli.folder / "installed"
    install(build_wheel(cli.folder), target)
    cli.env["PYTHONPATH"] = str(target)

    cli.plays(says("nothing"))  # installed and not named: nothing of it is used
    assert "no command" not in cli.run("-p", "roman").err
    assert "longrein-roman" not in cli.run("doctor").text
    assert "roman" not in cli.run("help").text

    cli.settings(block("toml").strip())
    assert cli.run("roman", "14").told() == (0, "XIV\n", "")
    page = cli.run("help").text
    assert "  roman " in page
    assert "Write a number in Roman numerals." in cli.run("roman", "--help").text
    told = cli.run("romn")
    assert (told.code, "did you mean roman?" in told.err) == (2, True)
    assert "roman" in cli.run("completion", "bash").text
    assert "roman" not in cli.run("help", "--man").text
    doctor = cli.run("doctor").text
    assert "longrein-roman: tool Roman" in doctor
    assert "longrein-roman: command roman" in doctor
    cli.plays(calls(call("Roman", number=14)), says("done"))
    assert cli.run("-p", "go").text == "done\n"
    assert cli.results() == [("ok", "XIV")]


def test_the_page_lists_every_door_and_every_extension_that_comes_with_longrein() -> None:
    assert re.findall(r"^\| `(longrein\.\w+)` \|", PAGE, re.MULTILINE) == list(DOORS)
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(BUNDLED)


def test_the_place_of_a_command_has_what_the_page_says() -> None:
    (promised,) = re.findall(r"gets the place \((.*?)\)", PAGE)
    assert set(re.findall(r"`(\w+)`", promised)) <= set(RunContext.__struct_fields__)
