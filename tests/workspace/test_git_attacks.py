"""Configurations that make git run a program, in every folder in which longrein runs git."""

import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from longrein.workspace import (
    finish_worktree,
    make_worktree,
    merge_worktree,
    remove_worktree,
    run_git,
)
from longrein.workspace.git import pipe_in_git_folder
from longrein.workspace.git_worktrees import Worktree
from longrein.workspace.shadow_repository import ShadowRepository
from longrein.workspace.users_repository import UsersRepository
from tests.workspace.conftest import CommandHarness

pytestmark = pytest.mark.anyio


class Attack:
    """A repository with three files, a state folder for worktrees, and a canary program."""

    def __init__(self, harness: CommandHarness) -> None:
        self.space, self.repo = harness.workspace, harness.folder
        self.state = self.repo.parent / "state"
        self.canary = self.repo.parent / "canary"
        self.canary.write_text(f"#!/bin/sh\necho ran >> {self.canary}.ran\ncat\n")
        self.canary.chmod(0o755)
        self.git("init", "-q", "-b", "main")
        for name in ("a", "b", "c"):
            (self.repo / name).write_text(f"{name}\n" * 20)
        (self.repo / ".gitattributes").write_text("* filter=f\nb merge=m\n")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "first")

    def git(self, *words: str, cwd: str | Path = "") -> str:
        options = ["-c", "user.name=n", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", *options, *words],
            cwd=cwd or self.repo,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    def filters(self, repo: Path) -> None:
        """Name the canary as filter of a repository, in a file of its own."""
        keys = ("clean", "smudge")
        text = '[filter "f"]\n' + "".join(f"\t{key} = {self.canary}\n" for key in keys)
        (repo / ".git/more").write_text(text)

    def include(self, condition: str) -> None:
        """Include the filters under a condition."""
        self.filters(self.repo)
        key = f"includeIf.{condition}.path" if condition else "include.path"
        self.git("config", key, f"{self.repo}/.git/more")

    def inner(self, folder: Path) -> None:
        """Make a repository with filters inside `folder`, known to the index and changed."""
        sub = folder / "sub"
        sub.mkdir()
        self.git("init", "-q", cwd=sub)
        (sub / "f").write_text("f\n")
        (sub / ".gitattributes").write_text("* filter=f\n")
        self.git("add", ".", cwd=sub)
        self.git("commit", "-q", "-m", "inner", cwd=sub)
        (folder / ".gitmodules").write_text('[submodule "s"]\n\tpath = sub\n\tignore = none\n')
        self.git("add", "sub", cwd=folder)
        self.filters(sub)
        self.git("config", "include.path", "more", cwd=sub)
        (sub / "f").write_text("g\n")

    async def make(self) -> Worktree:
        tree = await make_worktree(self.space, str(self.repo), str(self.state), "tree")
        assert isinstance(tree, Worktree), tree
        return tree

    async def status(self, cwd: str = "") -> str:
        _, said = await run_git(self.space, ["status", "--porcelain"], cwd or str(self.repo))
        return said.decode()

    def has_run(self) -> bool:
        return os.path.exists(f"{self.canary}.ran")


@pytest.fixture
def attack(harness: CommandHarness) -> Attack:
    return Attack(harness)


async def whole_life(attack: Attack) -> None:
    """Make a worktree, change it in each way, merge and remove it."""
    tree = await attack.make()
    assert Path(tree.path, "a").read_text() == "a\n" * 20
    Path(tree.path, "a").write_text("new\n")
    Path(tree.path, "new").write_text("new\n")
    assert (await finish_worktree(attack.space, tree)).kept
    merged = await merge_worktree(attack.space, tree)
    assert merged.done, merged.text
    assert await remove_worktree(attack.space, tree, unmerged=True) == ""


async def unchanged(attack: Attack) -> None:
    tree = await attack.make()
    os.utime(f"{tree.path}/a")  # git reads the file again
    assert (await finish_worktree(attack.space, tree)).text == ""


async def of_worktree(attack: Attack) -> None:
    """Settings of the main work tree that `git worktree add` copies."""
    attack.git("config", "extensions.worktreeConfig", "true")
    attack.git("config", "--worktree", "filter.f.smudge", str(attack.canary))
    attack.git("config", "--worktree", "filter.f.clean", str(attack.canary))
    await whole_life(attack)


async def inner_status(attack: Attack) -> None:
    attack.inner(attack.repo)
    assert " sub" not in await attack.status()
    await run_git(attack.space, ["diff", "HEAD"], str(attack.repo))
    await run_git(attack.space, ["diff-files"], str(attack.repo))
    await run_git(attack.space, ["add", "--all"], str(attack.repo))
    await run_git(attack.space, ["stash", "create"], str(attack.repo))
    await run_git(attack.space, ["checkout", "-q", "."], str(attack.repo))


async def inner_worktree(attack: Attack) -> None:
    tree = await attack.make()
    attack.inner(Path(tree.path))
    Path(tree.path, "a").write_text("new\n")
    assert (await finish_worktree(attack.space, tree)).files


async def inner_merge(attack: Attack) -> None:
    tree = await attack.make()
    Path(tree.path, "a").write_text("new\n")
    attack.inner(attack.repo)
    merged = await merge_worktree(attack.space, tree)
    assert merged.done, merged.text


async def merge_driver(attack: Attack) -> None:
    attack.git("config", "merge.m.driver", f"{attack.canary} %O %A %B")
    tree = await attack.make()
    Path(tree.path, "b").write_text("b\n" * 20 + "theirs\n")
    (attack.repo / "b").write_text("ours\n" + "b\n" * 20)
    merged = await merge_worktree(attack.space, tree)
    assert "both sides changed b" in merged.text.replace(f"{attack.repo}/", "")


async def bare(attack: Attack) -> None:
    """Ordinary files that look like a repository; `.git` is an empty folder there, or missing."""
    folder = attack.repo / "data"
    (folder / "below" / ".git").mkdir(parents=True)
    attack.git("init", "-q", "--bare", cwd=folder)
    settings = {"core.bare": "false", "core.worktree": ".", "core.fsmonitor": str(attack.canary)}
    for key, value in settings.items():
        attack.git("config", key, value, cwd=folder)
    for cwd in (folder, folder / "below", folder / "refs"):
        code, said = await run_git(attack.space, ["ls-files", "--others"], str(cwd))
        assert code == 128, cwd
        assert b"bare" in said
        asked = UsersRepository("/usr/bin/git", str(cwd), dict(os.environ))
        assert (asked.top, asked.objects, asked.index) == ("", "", "")


async def checkpoint(attack: Attack) -> None:
    """A file that becomes a repository while git reads it."""
    attack.inner(attack.repo)
    head = attack.git("rev-parse", "HEAD", cwd=attack.repo / "sub").strip()
    shadow = ShadowRepository(str(attack.state), str(attack.repo), dict(os.environ))
    shadow.take()
    attack.git(
        *(f"--git-dir={shadow.folder}", f"--work-tree={attack.repo}"),
        *("update-index", "--add", "--cacheinfo", f"160000,{head},sub"),
    )
    shadow.take()


INCLUDED = {
    "always": "",
    "by the folder of a worktree": "gitdir:**/worktrees/**",
    "by the branch of a worktree": "onbranch:longrein/**",
    "by the branch of the user": "onbranch:main",
}


@pytest.mark.parametrize("condition", INCLUDED.values(), ids=INCLUDED)
@pytest.mark.parametrize("story", [whole_life, unchanged])
async def test_s18_an_included_filter_does_not_run(
    attack: Attack, condition: str, story: Callable[[Attack], Awaitable[None]]
) -> None:
    attack.include(condition)
    await story(attack)
    assert not attack.has_run()


STORIES = (
    of_worktree, inner_status, inner_worktree, inner_merge, merge_driver, bare, checkpoint,
)  # fmt: skip


@pytest.mark.parametrize("story", STORIES, ids=lambda one: one.__name__)
async def test_s18_no_program_of_a_repository_runs(
    attack: Attack, story: Callable[[Attack], Awaitable[None]]
) -> None:
    await story(attack)
    assert not attack.has_run()


def test_s18_the_canary_runs_in_an_ordinary_git(attack: Attack) -> None:
    attack.include("gitdir:**/worktrees/**")
    attack.git("worktree", "add", "-q", str(attack.state))
    assert attack.has_run()


def test_s18_git_starts_itself_in_a_repository_inside(attack: Attack) -> None:
    attack.inner(attack.repo)
    assert not attack.has_run()
    attack.git("-c", "diff.ignoreSubmodules=all", "status")
    assert attack.has_run()


def test_git_of_longrein_reads_no_index_through_a_link_of_a_command(tmp_path: Path) -> None:
    """Commands can make links in the git folder, and git would read what they lead to."""
    outside = tmp_path / "outside"
    outside.write_text("ref: refs/heads/main\n")
    git_folder = tmp_path / "project/.git"
    git_folder.mkdir(parents=True)
    assert pipe_in_git_folder(str(git_folder.parent)) == ""
    (git_folder / "index").symlink_to(outside)
    assert pipe_in_git_folder(str(git_folder.parent)) == str(git_folder / "index")
