"""Worktrees: made outside the user's tree, removed when nothing changed, kept and merged with the conflicts named."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from longrein.workspace import (
    Worktree,
    finish_worktree,
    list_worktrees,
    make_worktree,
    merge_worktree,
    open_workspace,
    read_worktree,
    remove_worktree,
)
from tests.workspace.conftest import CommandHarness

pytestmark = pytest.mark.anyio

BASE = "".join(f"line {n}\n" for n in range(1, 31))


def git(folder: Path | str, *args: str) -> str:
    words = ["git", "-c", "user.name=n", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *args]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


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


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "worktrees")


async def made(harness: CommandHarness, state: str, name: str = "a398-1f3e", cwd: str = "") -> Worktree:
    tree = await make_worktree(harness.workspace, cwd or str(harness.folder), state, name)
    assert isinstance(tree, Worktree), tree
    return tree


def edit(folder: str | Path, name: str, line: int, text: str) -> None:
    path = Path(folder) / name
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = text + "\n"
    path.write_text("".join(lines))


def seen(repo: Path) -> tuple[str, str, str]:
    """What must not change without being asked: branch, status, branches."""
    return git(repo, "rev-parse", "HEAD"), git(repo, "status", "--porcelain"), git(repo, "branch", "--list")


# --- making ------------------------------------------------------------------------------------------------------


async def test_s18_a_worktree_lies_in_the_state_folder_on_a_branch_of_its_own(
    harness: CommandHarness, repo: Path, state: str
) -> None:
    before = seen(repo)
    tree = await made(harness, state, cwd=str(repo / "sub"))
    assert (tree.path, tree.branch, tree.root) == (f"{state}/a398-1f3e", "longrein/a398-1f3e", str(repo))
    assert tree.cwd == f"{state}/a398-1f3e/sub"
    assert tree.mapped(f"{repo}/sub/b.txt") == f"{state}/a398-1f3e/sub/b.txt"
    assert tree.mapped("/etc/hosts") == "/etc/hosts"
    assert Path(tree.path, "a.txt").read_text() == BASE
    assert seen(repo)[:2] == before[:2]
    assert os.stat(state).st_mode & 0o777 == 0o700
    assert read_worktree(tree.path) == tree
    assert list_worktrees(state) == [tree]
    assert await made(harness, state) == tree, "one that is there is given again: after a crash, or asked again"


async def test_s18_what_is_not_committed_is_not_in_it_and_that_is_said(
    harness: CommandHarness, repo: Path, state: str
) -> None:
    edit(repo, "a.txt", 1, "mine")
    (repo / "new file").write_text("x")
    tree = await made(harness, state)
    assert (tree.missing, tree.missing_count) == (("a.txt", "new file"), 2)
    assert "Not in it: a.txt, new file (not committed there)." in tree.words
    assert Path(tree.path, "a.txt").read_text() == BASE


@pytest.mark.parametrize(
    ("name", "right"),
    [
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
    ],
)
async def test_s18_names(harness: CommandHarness, repo: Path, state: str, name: str, right: bool) -> None:
    made_or_why = await make_worktree(harness.workspace, str(repo), state, name)
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
    harness: CommandHarness, repo: Path, state: str, place: Callable[[Path], Path], said: str
) -> None:
    why = await make_worktree(harness.workspace, str(place(repo)), state, "a398")
    assert isinstance(why, str)
    assert said in why
    assert "\n" not in why
    assert list_worktrees(state) == []


async def test_R086_no_worktree_inside_a_worktree_and_none_inside_the_users_tree(
    harness: CommandHarness, repo: Path, state: str
) -> None:
    tree = await made(harness, state)
    why = await make_worktree(harness.workspace, tree.path, state, "a398.a12")
    assert why == "this is a worktree of a subagent already: work in it, or divide the files"
    inside = await make_worktree(harness.workspace, str(repo), str(repo / ".state"), "a399")
    assert "the state folder lies inside" in str(inside)


async def test_R086_the_users_own_worktrees_links_and_odd_names_work(
    harness: CommandHarness, repo: Path, state: str
) -> None:
    git(repo, "worktree", "add", "-q", "-b", "other", str(repo.parent / "wörk\ntree here"))
    linked = await made(harness, state, "a1", str(repo.parent / "wörk\ntree here"))
    assert linked.root == str(repo.parent / "wörk\ntree here")
    (repo.parent / "link").symlink_to(repo)
    assert (await made(harness, state, "a2", str(repo.parent / "link" / "sub"))).cwd == f"{state}/a2/sub"


async def test_without_git_it_says_so(harness: CommandHarness, repo: Path, state: str) -> None:
    space = open_workspace([str(repo)], spawner=harness.spawner, environment={"PATH": "/nonexistent"})
    assert await make_worktree(space, str(repo), state, "a1") == "git is not installed, so there are no worktrees"


async def test_what_a_crash_left_half_made_is_made_anew(harness: CommandHarness, repo: Path, state: str) -> None:
    tree = await made(harness, state)
    record = Path(f"{tree.path}.json")
    record.write_bytes(record.read_bytes().replace(b'"made":true', b'"made":false'))
    Path(tree.path, "a.txt").unlink()
    assert list_worktrees(state) == []
    assert await made(harness, state) == tree
    assert Path(tree.path, "a.txt").read_text() == BASE


async def test_one_that_was_never_made_leaves_nothing(harness: CommandHarness, repo: Path, state: str) -> None:
    (repo / ".hidden").mkdir()
    tree = await made(harness, state, "a7-1f3e", str(repo / ".hidden"))
    assert (tree.cwd, Path(tree.cwd).is_dir()) == (f"{state}/a7-1f3e/.hidden", True)
    assert not (await finish_worktree(harness.workspace, msgspec.structs.replace(tree, made=False))).kept
    assert read_worktree(tree.path) is None


async def test_names_that_are_no_text_are_no_hindrance(harness: CommandHarness, repo: Path, state: str) -> None:
    (repo / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    assert (await made(harness, state, "a1")).missing == ("caf?.txt",)
    odd = repo.parent / os.fsdecode(b"caf\xe9")
    repo.rename(odd)
    why = await make_worktree(harness.workspace, str(odd), state, "a2")
    assert "is not valid text" in str(why)


# --- the end of the work -----------------------------------------------------------------------------------------


async def test_s18_an_unchanged_one_is_removed_with_its_branch(harness: CommandHarness, repo: Path, state: str) -> None:
    before = seen(repo)
    tree = await made(harness, state)
    Path(tree.path, "build.log").write_text("ignored")
    finished = await finish_worktree(harness.workspace, tree)
    assert (finished.kept, finished.text, finished.files) == (False, "", ())
    assert not os.listdir(state)
    assert seen(repo) == before
    assert git(repo, "worktree", "list").count("\n") == 1


async def test_s18_a_changed_one_is_kept_its_rest_committed_and_the_report_says_how_to_merge(
    harness: CommandHarness, repo: Path, state: str
) -> None:
    before = seen(repo)[:2]
    tree = await made(harness, state)
    edit(tree.path, "a.txt", 2, "two")
    git(tree.path, "commit", "-qam", "by the agent")
    Path(tree.path, "new.txt").write_text("new\n")
    finished = await finish_worktree(harness.workspace, tree)
    assert finished.kept
    assert finished.files == (f"{repo}/a.txt", f"{repo}/new.txt")
    assert finished.text == (
        f"kept on branch longrein/a398-1f3e, folder {tree.path}: 2 files changed, 2 insertions(+), 1 deletion(-). "
        "To see it: git diff HEAD...longrein/a398-1f3e; to take it over: git merge --squash longrein/a398-1f3e, "
        "or, where uncommitted changes are in the way, longrein worktrees merge a398-1f3e"
    )
    assert seen(repo)[:2] == before
    assert git(tree.path, "log", "-1", "--format=%an %s") == (
        "longrein What was left uncommitted in longrein/a398-1f3e\n"
    )
    git(repo, "merge", "--squash", "longrein/a398-1f3e")
    assert (repo / "new.txt").read_text() == "new\n"


async def test_S049_no_hook_of_the_repository_runs(harness: CommandHarness, repo: Path, state: str) -> None:
    for hook in ("pre-commit", "post-commit", "post-checkout", "commit-msg", "reference-transaction"):
        path = repo / ".git" / "hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch {repo.parent}/tripped\n")
        path.chmod(0o755)
    tree = await made(harness, state)
    edit(tree.path, "a.txt", 1, "changed")
    assert (await finish_worktree(harness.workspace, tree)).kept
    assert (await merge_worktree(harness.workspace, tree)).done
    assert not (repo.parent / "tripped").exists()


async def test_a_clash_with_later_commits_is_said_at_once(harness: CommandHarness, repo: Path, state: str) -> None:
    tree = await made(harness, state)
    edit(tree.path, "a.txt", 3, "theirs")
    edit(repo, "a.txt", 3, "ours")
    git(repo, "commit", "-qam", "ours")
    assert (await finish_worktree(harness.workspace, tree)).text.endswith(
        "(conflicts with the present commit in a.txt)"
    )


async def test_s18_what_holds_work_is_not_removed(harness: CommandHarness, repo: Path, state: str) -> None:
    tree = await made(harness, state)
    edit(tree.path, "a.txt", 1, "changed")
    assert await remove_worktree(harness.workspace, tree, unmerged=True) == (
        f"{tree.path} was not removed, it holds work (uncommitted: a.txt)"
    )
    git(tree.path, "commit", "-qam", "work")
    assert await remove_worktree(harness.workspace, tree) == "longrein/a398-1f3e holds commits that were not merged"
    assert Path(tree.path, "a.txt").exists()
    git(repo, "merge", "-q", "longrein/a398-1f3e")
    assert await remove_worktree(harness.workspace, tree) == ""
    assert "longrein/" not in git(repo, "branch", "--list")
    assert not os.listdir(state)


async def test_what_was_merged_as_changes_and_committed_is_merged(
    harness: CommandHarness, repo: Path, state: str
) -> None:
    tree = await made(harness, state)
    edit(tree.path, "a.txt", 1, "changed")
    assert (await merge_worktree(harness.workspace, tree)).done
    told = "longrein/a398-1f3e holds commits that were not merged"
    assert await remove_worktree(harness.workspace, tree) == told, "no commit of the user's holds them yet"
    git(repo, "commit", "-qam", "taken over")
    git(repo, "revert", "--no-edit", "HEAD")
    assert await remove_worktree(harness.workspace, tree) == told
    git(repo, "revert", "--no-edit", "HEAD")
    assert await remove_worktree(harness.workspace, tree) == ""
    assert not os.listdir(state)


async def test_a_branch_that_somebody_put_other_work_on_stays(harness: CommandHarness, repo: Path, state: str) -> None:
    tree = await made(harness, state)
    git(tree.path, "checkout", "-q", "--detach")
    other = git(repo, "commit-tree", "-p", "HEAD", "-m", "other", "HEAD^{tree}").strip()
    git(repo, "update-ref", "refs/heads/longrein/a398-1f3e", other)
    assert await remove_worktree(harness.workspace, tree) == ""
    assert git(repo, "rev-parse", "longrein/a398-1f3e").strip() == other


# --- merging -----------------------------------------------------------------------------------------------------


async def test_s18_a_merge_comes_into_a_dirty_folder_as_uncommitted_changes(
    harness: CommandHarness, repo: Path, state: str
) -> None:
    tree = await made(harness, state)
    edit(tree.path, "a.txt", 28, "theirs")
    Path(tree.path, "tool.sh").write_text("#!/bin/sh\n")
    os.chmod(Path(tree.path, "tool.sh"), 0o755)
    Path(tree.path, "sub", "b.txt").unlink()
    edit(repo, "a.txt", 2, "ours, not committed")
    git(repo, "add", "a.txt")
    edit(repo, "a.txt", 4, "ours, not even staged")
    staged, head = git(repo, "diff", "--cached"), git(repo, "rev-parse", "HEAD")
    merged = await merge_worktree(harness.workspace, tree)
    assert merged.done, merged.text
    assert merged.files == (f"{repo}/a.txt", f"{repo}/sub/b.txt", f"{repo}/tool.sh")
    lines = (repo / "a.txt").read_text().splitlines()
    assert (lines[1], lines[3], lines[27]) == ("ours, not committed", "ours, not even staged", "theirs")
    assert os.access(repo / "tool.sh", os.X_OK)
    assert not (repo / "sub" / "b.txt").exists()
    assert (git(repo, "diff", "--cached"), git(repo, "rev-parse", "HEAD")) == (staged, head)
    assert (await merge_worktree(harness.workspace, tree)).text == f"all of {tree.branch} is in {repo} already"


@pytest.mark.parametrize("committed", [True, False])
async def test_s18_a_conflict_is_named_and_nothing_is_touched(
    harness: CommandHarness, repo: Path, state: str, committed: bool
) -> None:
    tree = await made(harness, state)
    edit(tree.path, "a.txt", 3, "theirs")
    Path(tree.path, "new.txt").write_text("new\n")
    edit(repo, "a.txt", 3, "ours")
    if committed:
        git(repo, "commit", "-qam", "ours")
    before = seen(repo)
    merged = await merge_worktree(harness.workspace, tree)
    assert (merged.done, merged.conflicts) == (False, (f"{repo}/a.txt",))
    assert merged.text == f"nothing was touched: both sides changed {repo}/a.txt"
    assert (seen(repo), (repo / "new.txt").exists()) == (before, False)


async def test_s18_a_file_that_git_does_not_know_is_not_overwritten(
    harness: CommandHarness, repo: Path, state: str
) -> None:
    tree = await made(harness, state)
    Path(tree.path, "new.txt").write_text("theirs\n")
    edit(tree.path, "a.txt", 3, "theirs")
    (repo / "new.txt").write_text("the user's\n")
    merged = await merge_worktree(harness.workspace, tree)
    assert merged.text == f"nothing was touched: {repo}/new.txt would be overwritten"
    assert ((repo / "new.txt").read_text(), (repo / "a.txt").read_text()) == ("the user's\n", BASE)


async def test_a_merge_of_nothing_removes_it(harness: CommandHarness, repo: Path, state: str) -> None:
    tree = await made(harness, state)
    merged = await merge_worktree(harness.workspace, tree)
    assert (merged.done, merged.text) == (True, "longrein/a398-1f3e changed nothing")


async def test_in_the_middle_of_the_users_own_merge_nothing_is_touched(
    harness: CommandHarness, repo: Path, state: str
) -> None:
    tree = await made(harness, state)
    edit(tree.path, "a.txt", 3, "theirs")
    git(repo, "checkout", "-q", "-b", "side")
    edit(repo, "a.txt", 9, "side")
    git(repo, "commit", "-qam", "side")
    git(repo, "checkout", "-q", "main")
    edit(repo, "a.txt", 9, "main")
    git(repo, "commit", "-qam", "main")
    await harness.run("git -c user.name=n -c user.email=a@b merge side")
    assert b"CONFLICT" in harness.printed
    merged = await merge_worktree(harness.workspace, tree)
    assert not merged.done
    assert "nothing was touched" in merged.text


async def test_what_was_done_on_another_branch_in_it_is_merged_too(
    harness: CommandHarness, repo: Path, state: str
) -> None:
    tree = await made(harness, state)
    git(tree.path, "checkout", "-q", "-b", "elsewhere")
    edit(tree.path, "a.txt", 5, "theirs")
    finished = await finish_worktree(harness.workspace, tree)
    assert "kept on commit " in finished.text
    assert (await merge_worktree(harness.workspace, tree)).done
    assert (repo / "a.txt").read_text().splitlines()[4] == "theirs"
