"""Versions: the changelog, the public names that docs/versions.md promises, and `make release`."""

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest

import longrein
from lab.source_tree import AGENT, module_file
from tests.release import ROOT, changes, version

PAGE = (ROOT / "docs/versions.md").read_text(encoding="utf-8")
PROMISED = {
    module: sorted(re.findall(r"\w+", names))
    for module, names in re.findall(
        r"^(longrein[\w.]*): ((?:.|\n(?= ))*)", PAGE.split("```")[1], re.MULTILINE
    )
}
"""Module -> its public names, as the page lists them."""


def test_the_newest_heading_of_the_changelog_is_the_version() -> None:
    assert changes()[0][0] == version() == longrein.__version__
    numbers = [tuple(map(int, name.split("."))) for name, _ in changes()]
    assert numbers == sorted(numbers, reverse=True)
    assert "unreleased" not in [day for _, day in changes()[1:]]
    headings = re.findall(
        "^## .*$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(headings) == len(changes()), headings


@pytest.mark.parametrize("module", PROMISED)
def test_the_public_names_are_those_that_the_page_promises(module: str) -> None:
    """A name that is taken away, or one that is added and not promised, fails here."""
    if module == "longrein":
        assert sorted(longrein.__all__) == PROMISED[module]
        return
    tree = ast.parse(module_file(module).read_text(encoding="utf-8"))
    listed = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    if listed:
        assert sorted(listed[0]) == PROMISED[module]
    else:
        defined = {getattr(node, "name", "") for node in tree.body}
        assert set(PROMISED[module]) <= defined


def test_every_module_with_adapters_or_doubles_is_promised() -> None:
    adapters = {
        f"longrein.integrations.{path.stem}"
        for path in (AGENT / "integrations").glob("*.py")
        if re.search(r"^__all__ = ", path.read_text(encoding="utf-8"), re.MULTILINE)
        and path.stem != "__init__"
    }
    assert adapters <= PROMISED.keys()


# --- make release ---------------------------------------------------------------------------------


def make(folder: Path, *words: str, path: str = "") -> "subprocess.CompletedProcess[str]":
    (folder / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (folder / "requirements-run.lock").touch()
    (folder / ".venv").mkdir()
    (folder / ".venv/run").touch()
    (folder / "requirements-release.lock").touch()
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=folder,
        env=own | ({"PATH": path} if path else {}),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_release_is_built_and_checked_with_pinned_programs(tmp_path: Path) -> None:
    would = make(tmp_path, "-n", "release").stdout
    order = [
        "requirements-release.lock",
        "-m build",
        "-m twine check --strict",
        "tests.release dist/*",
    ]
    places = [would.index(one) for one in order]
    assert places == sorted(places)
    assert re.findall(r"--no-deps -r (\S+?);", would) == ["requirements-release.lock"] * 2
    lock = (ROOT / "requirements-release.lock").read_text(encoding="utf-8")
    assert {"build", "hatchling", "twine"} <= set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    assert lock.count("--hash=sha256:") >= lock.count("==")


def test_without_build_and_twine_one_line_says_so(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("python3", "echo 'no network' >&2; exit 1"), ("uv", "exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    done = make(tmp_path, "release", path=f"{programs}:/usr/bin:/bin")
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == (
        "make: build and twine cannot be installed, so nothing is released"
    )
    assert not (tmp_path / ".venv/release").exists()
