"""Run the examples and commands in the documents, and compare documents with the code."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import longrein
from lab.source_tree import AGENT, ENGINE, FLEET, PACKAGES
from longrein.config.settings_file import KEYS
from longrein.frontends.help_page import help_page
from longrein.frontends.subcommands import MAIN
from tests import settings_page
from tests.tables import record
from tests.timeouts import HANG_S

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {
    "07_pydantic_ai.py": "pydantic_ai",
    "08_langchain.py": "langchain",
    "09_openai_agents.py": "agents",
    "11_mcp.py": "mcp",
    "13_acp.py": "acp",
    "14_agent_sdk.py": "claude_agent_sdk",
}
"""Example -> the framework it needs, which `make library` installs."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def run(arguments: list[str], home: Path) -> "subprocess.CompletedProcess[str]":
    environment = record(
        HOME=str(home), PATH="/usr/bin:/bin", LONGREIN_STATE_DIR=str(home / "state"), LANG="C.UTF-8"
    )
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_says_something(path: Path, tmp_path: Path) -> None:
    needed = NEEDS.get(path.name, "sys")
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{path.name} needs {needed}, which `make library` installs")
    done = run([str(path)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    for number, code in enumerate(blocks("python")):
        file = tmp_path / f"block{number}.py"
        file.write_text(code, encoding="utf-8")
        done = run([str(file)], tmp_path)
        assert done.returncode == 0, done.stderr


def test_the_readme_is_short_and_its_pictures_are_there() -> None:
    """A page of 120 lines is read; pictures have absolute addresses for the package index."""
    for page in (README, (ROOT / "README.zh.md").read_text(encoding="utf-8")):
        assert len(page.splitlines()) <= 120
        pictures = re.findall(
            r"!\[[^]]+\]\(https://raw.githubusercontent.com/longrein/longrein/main/(\S+)\)", page
        )
        assert len(pictures) == page.count("![") == 2
        assert all((ROOT / picture).is_file() for picture in pictures)


def test_the_tables_of_the_pages_of_settings_are_those_of_the_fields() -> None:
    page = "".join(one.read_text(encoding="utf-8") for one in settings_page.PAGES)
    assert sorted(re.findall(r"^\| `([a-z_.*]+)` \|", page, re.MULTILINE)) == sorted(KEYS), (
        "a table has no place on the page"
    )
    assert page == settings_page.generated(page), (
        "a page is older than settings_schema.py: run `make docs`"
    )


def test__what_the_package_offers_has_a_type() -> None:
    typed = (AGENT / "__init__.pyi").read_text(encoding="utf-8")
    assert sorted(re.findall(r" as (\w+)$", typed, re.MULTILINE)) == sorted(longrein.__all__)


def test__flags_and_commands_named_in_the_readme_exist() -> None:
    page = help_page(MAIN, 100)
    named = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", README, re.IGNORECASE)) - {"--group"}
    for flag in named:
        assert flag in page, flag
    commands = re.findall(r"\$ longrein ([a-z]+)", README)
    assert commands
    for command in commands:
        assert f"  {command} " in page, command


def test__links_of_the_documents_lead_somewhere() -> None:
    pages = [page for folder in ("", "docs", "lab") for page in (ROOT / folder).glob("*.md")]
    for document in pages:
        text = document.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (document.parent / link).exists(), f"{document.name}: {link}"
        for link in re.findall(
            r"\]\(https://github.com/longrein/longrein/(?:blob|tree)/main/([^)#]+)\)", text
        ):
            assert (ROOT / link).exists(), f"{document.name}: {link}"


def test__links_of_the_readme_are_absolute_so_that_they_work_on_the_package_index() -> None:
    assert re.findall(r"\]\((?!https://)[^)]+\)", README) == []


def test__every_package_stands_in_the_architecture_and_nothing_else_does() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = {
        name
        for row in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    }
    there = {path.name for path in AGENT.iterdir() if not path.name.startswith(("_", "py."))}
    assert there - named - {"context.pyi"} == set()
    places = (AGENT, ENGINE.parent, FLEET.parent)

    def exists(name: str) -> bool:
        return any((place / name).exists() for place in places)

    assert not [name for name in named if not exists(name)]
    begins = re.findall(r"^\| `([a-z_/]+)` \| .+ \| (`.+`) \|$", page, re.MULTILINE)
    files = [
        f"{folder}/{file}" for folder, begin in begins for file in re.findall(r"`([^`]+)`", begin)
    ]
    assert len(files) > 15
    assert not [file for file in files if not exists(file)]


def test__every_make_verb_of_the_documents_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for document in ROOT.glob("*.md"):
        for verb in re.findall(r"\$ make ([a-z-]+)", document.read_text(encoding="utf-8")):
            assert f"\n{verb}:" in makefile, verb


def test_the_install_lines_of_the_readme_never_ask_pip_to_install_into_the_system() -> None:
    """Debian and Ubuntu refuse that (PEP 668); a virtual environment, pipx and uv work
    everywhere.
    """
    lines = [
        line for block in blocks("console") for line in block.splitlines() if "pip install" in line
    ]
    assert lines
    for line in lines:
        assert re.search(r"-m venv (\S+) && \1/bin/pip install '\.\[mcp,acp\]'", line), line


def project(folder: Path) -> dict[str, Any]:
    """Return the `pyproject.toml` of a folder."""
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_distributions_have_one_version_and_name_each_other_by_it() -> None:
    for folder in sorted(PACKAGES.iterdir()):
        path = folder / project(folder)["tool"]["hatch"]["version"]["path"]
        assert f'\n__version__ = "{longrein.__version__}"\n' in path.read_text(encoding="utf-8")
        extras = project(folder)["project"].get("optional-dependencies", {})
        named = [*project(folder)["project"]["dependencies"], *extras.get("fleet", ())]
        own = [one for one in named if one.startswith("longrein")]
        assert [one.partition("==")[2] for one in own] == [longrein.__version__] * len(own)


def pins(file: str) -> dict[str, str]:
    """Return package -> version of a lock file."""
    return dict(
        re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    )


def normal(requirement: str) -> str:
    """Return the name in a requirement as a lock file spells it."""
    return re.split(r"[^\w-]", requirement.replace("_", "-"))[0].lower()


def test_the_demo_installs_what_longrein_runs_on_and_no_more() -> None:
    run, tests = pins("requirements-run.lock"), pins("requirements.lock")
    needed = {
        normal(one)
        for name in ("longrein-context", "longrein")
        for one in project(PACKAGES / name)["project"]["dependencies"]
    }
    assert needed - {"longrein-context"} <= run.keys()
    groups = project(ROOT)["dependency-groups"]
    assert not {normal(one) for one in groups["dev"]} - {"anyio"} & run.keys()
    assert run.items() <= tests.items(), "both files name the same versions"


def test_the_demo_says_what_it_does_before_it_installs(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    for file in ("pyproject.toml", "requirements.lock", "requirements-run.lock"):
        (tmp_path / file).touch()
    # it may run in a `make`
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-n", "--no-print-directory", "demo"]
    would = subprocess.run(
        command, cwd=tmp_path, env=own, capture_output=True, text=True, check=True
    ).stdout
    assert would.startswith('echo "make: installing the ')
    assert re.findall(r"-r (\S+?);", would) == ["requirements-run.lock"] * 2, "by uv or by pip"
    assert would.rstrip().endswith("-m longrein demo")
