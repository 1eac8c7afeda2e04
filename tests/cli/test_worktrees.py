"""`longrein worktrees`: list, merge into the user's folder, remove."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.support.spawner import spawner_in
from longrein import entry_points
from longrein.cli import main
from longrein.workspace import Worktree, make_worktree, open_workspace
from tests.tables import cases, row

Run = Callable[..., tuple[int, str, str]]


def git(folder: Path | str, *args: str) -> str:
    words = ["git", "-c", "user.name=n", "-c", "user.email=a@b", *args]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*argv: str) -> tuple[int, str, str]:
        return main(
            ["worktrees", *argv, "--state-dir", str(tmp_path / "state")], lambda: entry_points
        ), *capfd.readouterr()

    return run


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def left(repo: Path, name: str, **files: str) -> Worktree:
    """A worktree in which a subagent has written these files."""

    async def make() -> Worktree:
        spawner = spawner_in(repo.parent / "spool", os.environ, (str(repo),))
        space = open_workspace((str(repo),), spawner=spawner, environment=os.environ)
        made = await make_worktree(space, str(repo), str(repo.parent / "state/worktrees"), name)
        await spawner.drain()
        assert isinstance(made, Worktree)
        return made

    tree = asyncio.run(make())
    for file, text in files.items():
        Path(tree.path, f"{file}.txt").write_text(text)
    return tree


def test_nothing(run: Run) -> None:
    assert run() == (0, "no worktrees are kept\n", "")
    assert run("--json") == (0, "[]\n", "")


def test_they_are_listed(run: Run, repo: Path) -> None:
    tree = left(repo, "s-1", a="two\n", b="new\n")
    git(tree.path, "commit", "-qam", "work")
    assert run() == (0, f"s-1  {repo}  files changed: 1 and 1 not committed\n", "")
    assert json.loads(run("--json")[1]) == [
        {
            "name": "s-1",
            "branch": "longrein/s-1",
            "folder": tree.path,
            "repository": str(repo),
            "committed": 1,
            "uncommitted": 1,
        }
    ]


def test_one_is_merged_and_removed(run: Run, repo: Path) -> None:
    left(repo, "s-1", a="two\n")
    left(repo, "s-2", b="new\n")
    assert run("merge", "longrein/s-1") == row(
        0, f"1 file changed in {repo}, not committed: {repo}/a.txt\n", ""
    )
    assert (repo / "a.txt").read_text() == "two\n"
    refused = (
        "longrein: longrein/s-1 holds commits that were not merged; --unmerged removes it "
        "all the same\n"
    )
    assert run("remove", "s-1") == (1, "", refused)
    assert run("remove", "s-1", "--unmerged") == (0, "s-1 is gone, with its branch\n", "")
    assert run() == (0, f"s-2  {repo}  files changed: 0 and 1 not committed\n", "")
    code, _, err = run("remove", "s-2", "--unmerged")
    assert (code, "holds work (uncommitted: b.txt)" in err) == (1, True)


def test_a_conflict_touches_nothing(run: Run, repo: Path) -> None:
    left(repo, "s-1", a="theirs\n")
    (repo / "a.txt").write_text("ours\n")
    said = f"longrein: nothing was touched: both sides changed {repo}/a.txt\n"
    assert run("merge", "s") == (1, "", said)
    assert (repo / "a.txt").read_text() == "ours\n"


@cases(
    "argv said",
    (
        ["merge"],
        (
            "what is to be done with merge? longrein worktrees [merge NAME | remove NAME "
            "[--unmerged]]"
        ),
    ),
    (["burn", "s-1"], "what is to be done with burn s-1?"),
    (["merge", "x"], "x: there is no worktree of that name; there are s-1, s-2"),
    (["merge", "s-"], "s-: several worktrees begin so; there are s-1, s-2"),
)
def test_bad_input(run: Run, repo: Path, argv: list[str], said: str) -> None:
    left(repo, "s-1")
    left(repo, "s-2")
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert err.startswith(f"longrein: {said}")
