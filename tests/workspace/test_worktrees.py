"""Worktrees: made outside the user's tree, removed when nothing changed, kept and merged with
the conflicts named.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longrein.workspace import (
    FinishedWorktree,
    Workspace,
    Worktree,
    finish_worktree,
    git_worktrees,
    list_worktrees,
    make_worktree,
    merge_worktree,
    open_workspace,
    read_worktree,
    remove_worktree,
    take_patch,
)
from longrein.workspace.git_worktrees import MergeResult
from tests.workspace.conftest import CommandHarness

pytestmark = pytest.mark.anyio

BASE = "".join(f"line {n}\n" for n in range(1, 31))


def git(folder: Path | str, *args: str) -> str:
    words = [
        "git",
        "-c",
        "user.name=n",
        "-c",
        "user.email=a@b",
        "-c",
        "protocol.file.allow=always",
        *args,
    ]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


def run(folder: Path | str, command: str) -> None:
    subprocess.run(command, shell=True, cwd=folder, check=True)


@pytest.fixture
def repo(harness: CommandHarness) -> Path:
    """A repository with two files and one commit."""
    git(harness.folder, "init", "-q", "-b", "main")
    (harness.folder / "a.txt").write_text(BASE)
    (harness.folder / "sub").mkdir()
    (harness.folder / "sub" / "b.txt").write_text("b\n")
    (harness.folder / ".gitignore").write_text("*.log\n")
    git(harness.folder, "add", ".")
    git(harness.folder, "commit", "-q", "-m", "first")
    return harness.folder


class Trees:
    """The worktrees of `repo`, below the folder `state`."""

    def __init__(self, harness: CommandHarness, state: str) -> None:
        self.harness, self.space, self.state = harness, harness.workspace, state

    async def try_make(self, cwd: Path | str, name: str) -> Worktree | str:
        return await make_worktree(self.space, str(cwd), self.state, name)

    async def make(self, name: str = "a398-1f3e", cwd: Path | str = "") -> Worktree:
        tree = await self.try_make(cwd or self.harness.folder, name)
        assert isinstance(tree, Worktree), tree
        return tree

    async def finish(self, tree: Worktree) -> FinishedWorktree:
        return await finish_worktree(self.space, tree)

    async def merge(self, tree: Worktree) -> MergeResult:
        return await merge_worktree(self.space, tree)

    async def remove(self, tree: Worktree, *, unmerged: bool = False) -> str:
        return await remove_worktree(self.space, tree, unmerged=unmerged)


@pytest.fixture
def trees(harness: CommandHarness, repo: Path, tmp_path: Path) -> Trees:
    return Trees(harness, str(tmp_path / "state" / "worktrees"))


def edit(folder: str | Path, name: str, line: int, text: str) -> None:
    path = Path(folder) / name
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = text + "\n"
    path.write_text("".join(lines))


def seen(repo: Path) -> tuple[str, str, str]:
    """What must not change without being asked: branch, status, branches."""
    return (
        git(repo, "rev-parse", "HEAD"),
        git(repo, "status", "--porcelain"),
        git(repo, "branch", "--list"),
    )


# --- making ---------------------------------------------------------------------------------------


async def test_s18_a_worktree_lies_in_the_state_folder_on_a_branch_of_its_own(
    trees: Trees, repo: Path
) -> None:
    before = seen(repo)
    tree = await trees.make(cwd=repo / "sub")
    found = (tree.path, tree.branch, tree.root)
    assert found == (f"{trees.state}/a398-1f3e", "longrein/a398-1f3e", str(repo))
    assert tree.cwd == f"{trees.state}/a398-1f3e/sub"
    assert tree.mapped(f"{repo}/sub/b.txt") == f"{trees.state}/a398-1f3e/sub/b.txt"
    assert tree.mapped("/etc/hosts") == "/etc/hosts"
    assert Path(tree.path, "a.txt").read_text() == BASE
    assert seen(repo)[:2] == before[:2]
    assert os.stat(trees.state).st_mode & 0o777 == 0o700
    assert read_worktree(tree.path) == tree
    assert list_worktrees(trees.state) == [tree]
    assert await trees.make() == tree, (
        "one that is there is given again: after a crash, or asked again"
    )


async def test_s18_what_is_not_committed_is_not_in_it_and_that_is_said(
    trees: Trees, repo: Path
) -> None:
    edit(repo, "a.txt", 1, "mine")
    (repo / "new file").write_text("x")
    tree = await trees.make()
    assert (tree.missing, tree.missing_count) == (("a.txt", "new file"), 2)
    assert "Not in it: a.txt, new file (not committed there)." in tree.words
    assert Path(tree.path, "a.txt").read_text() == BASE


@pytest.mark.parametrize(("name", "right"), [
    ("a398", True),
    ("A.b_c-9", True),
    ("x" * 64, True),
    ("x" * 65, False),
    ("", False),
    ("-x", False),
    (".x", False),
    ("a..b", False),
    ("a.", False),
    ("a.lock", False),
    ("a/b", False),
    ("a b", False),
    ("a\n", False),
])  # fmt: skip
async def test_s18_names(trees: Trees, repo: Path, name: str, right: bool) -> None:
    made_or_why = await trees.try_make(repo, name)
    assert isinstance(made_or_why, Worktree) == right
    if not right:
        assert "is no name for a worktree" in str(made_or_why)


def unborn(repo: Path) -> Path:
    git(repo.parent, "init", "-q", "unborn")
    return repo.parent / "unborn"


def bare(repo: Path) -> Path:
    git(repo.parent, "clone", "-q", "--bare", str(repo), "bare")
    return repo.parent / "bare"


def with_submodule(repo: Path) -> Path:
    git(repo.parent, "clone", "-q", str(repo), "outer")
    git(repo.parent / "outer", "submodule", "--quiet", "add", str(repo), "inner")
    git(repo.parent / "outer", "commit", "-q", "-m", "a submodule")
    return repo.parent / "outer"


def nowhere(repo: Path) -> Path:
    (repo.parent / "plain").mkdir()
    return repo.parent / "plain"


REFUSED: list[tuple[Callable[[Path], Path], str]] = [
    (nowhere, "is not in a git repository"),
    (bare, "is in a bare repository or in git's own folder"),
    (lambda repo: repo / ".git", "is in a bare repository or in git's own folder"),
    (unborn, "has no commit yet: a worktree begins with the last commit"),
    (with_submodule, "has submodules, which would be empty in a worktree"),
    (lambda repo: with_submodule(repo) / "inner", "is a submodule of"),
]


@pytest.mark.parametrize(("place", "said"), REFUSED, ids=lambda one: getattr(one, "__name__", ""))
async def test_R086_where_there_can_be_none_it_says_why(
    trees: Trees, repo: Path, place: Callable[[Path], Path], said: str
) -> None:
    why = await trees.try_make(place(repo), "a398")
    assert isinstance(why, str)
    assert said in why
    assert "\n" not in why
    assert list_worktrees(trees.state) == []


async def test_R086_no_worktree_inside_a_worktree_and_none_inside_the_users_tree(
    trees: Trees, repo: Path
) -> None:
    tree = await trees.make()
    why = await trees.try_make(tree.path, "a398.a12")
    assert why == "this is a worktree of a subagent already: work in it, or divide the files"
    inside = await make_worktree(trees.space, str(repo), str(repo / ".state"), "a399")
    assert "the state folder lies inside" in str(inside)


async def test_R086_the_users_own_worktrees_links_and_odd_names_work(
    trees: Trees, repo: Path
) -> None:
    git(repo, "worktree", "add", "-q", "-b", "other", str(repo.parent / "wörk\ntree here"))
    linked = await trees.make("a1", str(repo.parent / "wörk\ntree here"))
    assert linked.root == str(repo.parent / "wörk\ntree here")
    (repo.parent / "link").symlink_to(repo)
    found = (await trees.make("a2", str(repo.parent / "link" / "sub"))).cwd
    assert found == f"{trees.state}/a2/sub"


async def test_without_git_it_says_so(trees: Trees, repo: Path) -> None:
    space = open_workspace(
        [str(repo)], spawner=trees.harness.spawner, environment={"PATH": "/nonexistent"}
    )
    found = await make_worktree(space, str(repo), trees.state, "a1")
    assert found == "git is not installed, so there are no worktrees"


async def test_what_a_crash_left_half_made_is_made_anew(trees: Trees, repo: Path) -> None:
    tree = await trees.make()
    record = Path(f"{tree.path}.json")
    record.write_bytes(record.read_bytes().replace(b'"made":true', b'"made":false'))
    Path(tree.path, "a.txt").unlink()
    assert list_worktrees(trees.state) == []
    assert await trees.make() == tree
    assert Path(tree.path, "a.txt").read_text() == BASE


async def test_one_that_a_crash_left_without_a_folder_is_made(trees: Trees, repo: Path) -> None:
    tree = await trees.make()
    record = Path(f"{tree.path}.json")
    git(repo, "worktree", "remove", tree.path)
    record.write_bytes(record.read_bytes().replace(b'"made":true', b'"made":false'))
    (repo / "a.txt").write_text("new")
    git(repo, "commit", "-qam", "second")
    again = await trees.make()
    assert (again.path, again.start) == (tree.path, git(repo, "rev-parse", "HEAD").strip())


@pytest.mark.parametrize(("half_made", "made"), [(1, True), (4, True), (5, False)])
async def test_one_is_made_beside_another_that_is_half_made(
    trees: Trees, repo: Path, monkeypatch: pytest.MonkeyPatch, half_made: int, made: bool
) -> None:
    """`half_made`: commands of git that find the other one so. It is written file by file."""
    other = repo / ".git/worktrees/other"
    run_git = git_worktrees.run_git
    tried: list[str] = []

    async def tries(space: Workspace, words: Sequence[str], *more: str, **how: Any) -> Any:
        tried.extend(["add"] * ("add" in words))
        if "add" in words and len(tried) <= half_made:
            other.mkdir(parents=True, exist_ok=True)
            (other / "commondir").touch()
            for name, text in (("gitdir", f"{repo}/gone/.git"), ("HEAD", "ref: refs/heads/x")):
                (other / name).write_text(f"{text}\n")
        else:
            shutil.rmtree(other, ignore_errors=True)
        return await run_git(space, words, *more, **how)

    monkeypatch.setattr(git_worktrees, "run_git", tries)
    told = await trees.try_make(repo, "a1")
    if made:
        assert isinstance(told, Worktree), told
        assert Path(told.path, "a.txt").read_text() == BASE
    else:
        assert "git cannot make a worktree: fatal: failed to read " in str(told)
        assert isinstance(await trees.try_make(repo, "a1"), Worktree), "the branch is its own"


async def test_one_that_was_never_made_leaves_nothing(trees: Trees, repo: Path) -> None:
    (repo / ".hidden").mkdir()
    tree = await trees.make("a7-1f3e", str(repo / ".hidden"))
    assert (tree.cwd, Path(tree.cwd).is_dir()) == (f"{trees.state}/a7-1f3e/.hidden", True)
    assert not (await trees.finish(msgspec.structs.replace(tree, made=False))).kept
    assert read_worktree(tree.path) is None


async def test_names_that_are_no_text_are_no_hindrance(trees: Trees, repo: Path) -> None:
    (repo / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    assert (await trees.make("a1")).missing == ("caf?.txt",)
    odd = repo.parent / os.fsdecode(b"caf\xe9")
    repo.rename(odd)
    why = await trees.try_make(odd, "a2")
    assert "is not valid text" in str(why)


# --- the end of the work --------------------------------------------------------------------------


async def test_s18_an_unchanged_one_is_removed_with_its_branch(trees: Trees, repo: Path) -> None:
    before = seen(repo)
    tree = await trees.make()
    Path(tree.path, "build.log").write_text("ignored")
    finished = await trees.finish(tree)
    assert (finished.kept, finished.text, finished.files) == (False, "", ())
    assert not os.listdir(trees.state)
    assert seen(repo) == before
    assert git(repo, "worktree", "list").count("\n") == 1


async def test_s18_a_changed_one_is_kept_its_rest_committed_and_the_report_says_how_to_merge(
    trees: Trees, repo: Path
) -> None:
    before = seen(repo)[:2]
    tree = await trees.make()
    edit(tree.path, "a.txt", 2, "two")
    git(tree.path, "commit", "-qam", "by the agent")
    Path(tree.path, "new.txt").write_text("new\n")
    finished = await trees.finish(tree)
    assert finished.kept
    assert finished.files == (f"{repo}/a.txt", f"{repo}/new.txt")
    assert finished.text == (
        f"kept on branch longrein/a398-1f3e, folder {tree.path}: 2 files changed, 2 insertions(+), "
        "1 deletion(-). To see it: git diff HEAD...longrein/a398-1f3e; to take it over: git merge "
        "--squash longrein/a398-1f3e, or, where uncommitted changes are in the way, longrein "
        "worktrees merge a398-1f3e"
    )
    assert seen(repo)[:2] == before
    found = git(tree.path, "log", "-1", "--format=%an %s")
    assert found == "longrein What was left uncommitted in longrein/a398-1f3e\n"
    git(repo, "merge", "--squash", "longrein/a398-1f3e")
    assert (repo / "new.txt").read_text() == "new\n"


async def test_S049_no_hook_of_the_repository_runs(trees: Trees, repo: Path) -> None:
    hooks = "pre-commit post-commit post-checkout commit-msg reference-transaction"
    for hook in hooks.split():
        path = repo / ".git" / "hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch {repo.parent}/tripped\n")
        path.chmod(0o755)
    tree = await trees.make()
    edit(tree.path, "a.txt", 1, "changed")
    assert (await trees.finish(tree)).kept
    assert (await trees.merge(tree)).done
    assert not (repo.parent / "tripped").exists()


async def test_a_clash_with_later_commits_is_said_at_once(trees: Trees, repo: Path) -> None:
    tree = await trees.make()
    edit(tree.path, "a.txt", 3, "theirs")
    edit(repo, "a.txt", 3, "ours")
    git(repo, "commit", "-qam", "ours")
    assert (await trees.finish(tree)).text.endswith("(conflicts with the present commit in a.txt)")


async def test_s18_what_holds_work_is_not_removed(trees: Trees, repo: Path) -> None:
    tree = await trees.make()
    edit(tree.path, "a.txt", 1, "changed")
    found = await trees.remove(tree, unmerged=True)
    assert found == f"{tree.path} was not removed, it holds work (uncommitted: a.txt)"
    git(tree.path, "commit", "-qam", "work")
    assert await trees.remove(tree) == "longrein/a398-1f3e holds commits that were not merged"
    assert Path(tree.path, "a.txt").exists()
    git(repo, "merge", "-q", "longrein/a398-1f3e")
    assert await trees.remove(tree) == ""
    assert "longrein/" not in git(repo, "branch", "--list")
    assert not os.listdir(trees.state)


async def test_what_was_merged_as_changes_and_committed_is_merged(trees: Trees, repo: Path) -> None:
    tree = await trees.make()
    edit(tree.path, "a.txt", 1, "changed")
    assert (await trees.merge(tree)).done
    told = "longrein/a398-1f3e holds commits that were not merged"
    assert await trees.remove(tree) == told, "no commit of the user's holds them yet"
    git(repo, "commit", "-qam", "taken over")
    git(repo, "revert", "--no-edit", "HEAD")
    assert await trees.remove(tree) == told
    git(repo, "revert", "--no-edit", "HEAD")
    assert await trees.remove(tree) == ""
    assert not os.listdir(trees.state)


async def test_a_branch_that_somebody_put_other_work_on_stays(trees: Trees, repo: Path) -> None:
    tree = await trees.make()
    git(tree.path, "checkout", "-q", "--detach")
    other = git(repo, "commit-tree", "-p", "HEAD", "-m", "other", "HEAD^{tree}").strip()
    git(repo, "update-ref", "refs/heads/longrein/a398-1f3e", other)
    assert await trees.remove(tree) == ""
    assert git(repo, "rev-parse", "longrein/a398-1f3e").strip() == other


# --- merging --------------------------------------------------------------------------------------


async def test_s18_a_merge_comes_into_a_dirty_folder_as_uncommitted_changes(
    trees: Trees, repo: Path
) -> None:
    tree = await trees.make()
    edit(tree.path, "a.txt", 28, "theirs")
    Path(tree.path, "tool.sh").write_text("#!/bin/sh\n")
    os.chmod(Path(tree.path, "tool.sh"), 0o755)
    Path(tree.path, "sub", "b.txt").unlink()
    edit(repo, "a.txt", 2, "ours, not committed")
    git(repo, "add", "a.txt")
    edit(repo, "a.txt", 4, "ours, not even staged")
    staged, head = git(repo, "diff", "--cached"), git(repo, "rev-parse", "HEAD")
    merged = await trees.merge(tree)
    assert merged.done, merged.text
    assert merged.files == (f"{repo}/a.txt", f"{repo}/sub/b.txt", f"{repo}/tool.sh")
    lines = (repo / "a.txt").read_text().splitlines()
    found = (lines[1], lines[3], lines[27])
    assert found == ("ours, not committed", "ours, not even staged", "theirs")
    assert os.access(repo / "tool.sh", os.X_OK)
    assert not (repo / "sub" / "b.txt").exists()
    assert (git(repo, "diff", "--cached"), git(repo, "rev-parse", "HEAD")) == (staged, head)
    assert (await trees.merge(tree)).text == f"all of {tree.branch} is in {repo} already"


@pytest.mark.parametrize("committed", [True, False])
async def test_s18_a_conflict_is_named_and_nothing_is_touched(
    trees: Trees, repo: Path, committed: bool
) -> None:
    tree = await trees.make()
    edit(tree.path, "a.txt", 3, "theirs")
    Path(tree.path, "new.txt").write_text("new\n")
    edit(repo, "a.txt", 3, "ours")
    if committed:
        git(repo, "commit", "-qam", "ours")
    before = seen(repo)
    merged = await trees.merge(tree)
    assert (merged.done, merged.conflicts) == (False, (f"{repo}/a.txt",))
    assert merged.text == f"nothing was touched: both sides changed {repo}/a.txt"
    assert (seen(repo), (repo / "new.txt").exists()) == (before, False)


async def test_s18_a_file_that_git_does_not_know_is_not_overwritten(
    trees: Trees, repo: Path
) -> None:
    tree = await trees.make()
    Path(tree.path, "new.txt").write_text("theirs\n")
    edit(tree.path, "a.txt", 3, "theirs")
    (repo / "new.txt").write_text("the user's\n")
    merged = await trees.merge(tree)
    assert merged.text == f"nothing was touched: {repo}/new.txt would be overwritten"
    assert ((repo / "new.txt").read_text(), (repo / "a.txt").read_text()) == ("the user's\n", BASE)


async def test_a_merge_of_nothing_removes_it(trees: Trees, repo: Path) -> None:
    tree = await trees.make()
    merged = await trees.merge(tree)
    assert (merged.done, merged.text) == (True, "longrein/a398-1f3e changed nothing")


async def test_in_the_middle_of_the_users_own_merge_nothing_is_touched(
    trees: Trees, repo: Path
) -> None:
    tree = await trees.make()
    edit(tree.path, "a.txt", 3, "theirs")
    git(repo, "checkout", "-q", "-b", "side")
    edit(repo, "a.txt", 9, "side")
    git(repo, "commit", "-qam", "side")
    git(repo, "checkout", "-q", "main")
    edit(repo, "a.txt", 9, "main")
    git(repo, "commit", "-qam", "main")
    await trees.harness.run("git -c user.name=n -c user.email=a@b merge side")
    assert b"CONFLICT" in trees.harness.printed
    merged = await trees.merge(tree)
    assert not merged.done
    assert "nothing was touched" in merged.text


async def test_what_was_done_on_another_branch_in_it_is_merged_too(
    trees: Trees, repo: Path
) -> None:
    tree = await trees.make()
    git(tree.path, "checkout", "-q", "-b", "elsewhere")
    edit(tree.path, "a.txt", 5, "theirs")
    finished = await trees.finish(tree)
    assert "kept on commit " in finished.text
    assert (await trees.merge(tree)).done
    assert (repo / "a.txt").read_text().splitlines()[4] == "theirs"


# --- Changes that were made elsewhere -------------------------------------------------------------

TWICE = "c\n" * 9 + "X\n" + "c\n" * 40


@pytest.mark.parametrize(("act", "before", "name"), [
    ("echo new > a.txt", "", "a.txt"),
    ("chmod 755 a.txt", "", "a.txt"),
    ("sed -i '30i X' twice", "", "twice"),
    ("touch empty", "", "empty"),
    ("echo new > local.env", "", "local.env"),
    ("echo new > a.txt; echo more > b.txt", "echo new > a.txt; echo half > b.txt", "a.txt"),
    ("rm -r sub; ln -s /etc sub", "rm -r sub", "sub"),
], ids=["text", "mode", "again", "empty", "ignored", "half", "link"])  # fmt: skip
async def test_a_patch_is_taken_once_and_completely(
    trees: Trees, repo: Path, act: str, before: str, name: str
) -> None:
    """`again`: the change is there in another place of the file. `half`: git was killed."""
    (repo / "twice").write_text(TWICE)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "second")
    (repo / ".git/info/exclude").write_text("*.env\n")
    tree = await trees.make()
    copy, patch = repo.parent / "copy", repo.parent / "changes.patch"
    git(repo, "clone", "-q", str(repo), str(copy))
    run(copy, act)
    git(copy, "add", "--all")
    patch.write_text(git(copy, "diff", "--cached", "--binary"))
    run(tree.path, before)
    for _ in range(2):
        assert await take_patch(trees.space, tree, str(patch)) == ""
        assert git(tree.path, "write-tree") == git(copy, "write-tree")
        assert git(tree.path, "status", "--porcelain") == ""
    finished = await trees.finish(tree)
    assert finished.kept
    assert str(repo / name) in finished.files


async def test_a_patch_that_cannot_be_taken_says_why(trees: Trees, repo: Path) -> None:
    tree, patch = await trees.make(), repo.parent / "changes.patch"
    patch.write_text("--- a/../out\n+++ b/../out\n@@ -0,0 +1 @@\n+x\n")
    assert "invalid path" in await take_patch(trees.space, tree, str(patch))
    shutil.rmtree(tree.path)
    assert "git does not answer" in await take_patch(trees.space, tree, str(patch))


async def test_names_that_are_no_text_are_told_as_text(trees: Trees, repo: Path) -> None:
    tree = await trees.make()
    (Path(tree.path) / os.fsdecode(b"\xe9")).touch()
    finished = await trees.finish(tree)
    assert finished.files == (str(repo / "?"),)
