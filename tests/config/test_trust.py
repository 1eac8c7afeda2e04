"""Trusted folders: kept by real path and identity in the state folder, never taken from the
folder itself.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from longrein.config import distrust, is_trusted, read_trusted, trust
from longrein_context.events import SettingsError

HOME = "/home/ann"


def repository(path: Path) -> Path:
    (path / ".git").mkdir(parents=True)
    (path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    return path


def test_trust_holds_for_the_real_folder_and_below(tmp_path: Path) -> None:
    state, repo, other = (
        str(tmp_path / "state"),
        repository(tmp_path / "repo"),
        tmp_path / "repo-evil",
    )
    (repo / "sub").mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(repo)
    assert not is_trusted(state, str(repo))
    assert trust(state, str(tmp_path / "link/sub"), HOME) == str(repo), "the whole repository"
    trust(state, str(repo), HOME)
    assert all(is_trusted(state, str(p)) for p in (repo, repo / "sub", tmp_path / "link"))
    assert not any(is_trusted(state, str(p)) for p in (other, tmp_path))
    assert (tmp_path / "state/trusted.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    distrust(state, str(repo / "sub"))
    assert not is_trusted(state, str(repo))


def again(repo: Path) -> None:
    shutil.rmtree(repo)
    repository(repo)


def another_git(repo: Path) -> None:
    shutil.rmtree(repo / ".git")
    repository(repo)


def swapped(repo: Path) -> None:
    repository(repo.parent / "evil")
    repo.rename(repo.parent / "away")
    (repo.parent / "evil").rename(repo)


def git_file(repo: Path) -> None:
    shutil.rmtree(repo / ".git")
    (repo / ".git").write_text(f"gitdir: {repo.parent}/evil.git\n")


def copied(repo: Path) -> None:
    shutil.copytree(repo, repo.parent / "copy")
    shutil.rmtree(repo)
    (repo.parent / "copy").rename(repo)


def gone(repo: Path) -> None:
    shutil.rmtree(repo)
    repo.write_text("a file")


def linked(repo: Path) -> None:
    repository(repo.parent / "evil")
    repo.rename(repo.parent / "away")
    repo.symlink_to(repo.parent / "evil")


@pytest.mark.parametrize("change", [again, another_git, swapped, git_file, copied, gone, linked])
def test_another_repository_at_the_same_path_is_not_trusted(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    state, repo = str(tmp_path / "state"), repository(tmp_path / "repo")
    trust(state, str(repo), HOME)
    change(repo)
    assert not is_trusted(state, str(repo))
    if change is not linked:  # there another path is asked about
        assert "another folder or repository stands at" in read_trusted(state).why_not(str(repo))
    if change is not gone:
        trust(state, str(repo), HOME)
        assert is_trusted(state, str(repo))


CLOCK_REALTIME_COARSE = 5
"""Clock of the file system's times, which Python does not name."""


def test_a_clone_at_the_same_inode_is_told_apart(tmp_path: Path) -> None:
    """File systems give the number of a removed folder to the next one; its time of birth is its
    own.
    """
    state, repo = str(tmp_path / "state"), tmp_path / "repo"
    for _ in range(20):
        trust(state, str(repository(repo)), HOME)
        shutil.rmtree(repo)
        begun = time.clock_gettime(CLOCK_REALTIME_COARSE)
        while time.clock_gettime(CLOCK_REALTIME_COARSE) == begun:
            time.sleep(0.001)  # births are told apart by the tick of the kernel's clock
        assert not is_trusted(state, str(repository(repo)))
        shutil.rmtree(repo)


def test_a_moved_repository_is_asked_about_again(tmp_path: Path) -> None:
    state, repo = str(tmp_path / "state"), repository(tmp_path / "repo")
    trust(state, str(repo), HOME)
    repo.rename(tmp_path / "moved")
    assert not is_trusted(state, str(tmp_path / "moved"))
    (tmp_path / "moved").rename(repo)
    assert is_trusted(state, str(repo)), "back in its place it is the same one"


def test_ordinary_work_keeps_the_trust(tmp_path: Path) -> None:
    state, repo = str(tmp_path / "state"), repository(tmp_path / "repo")
    trust(state, str(repo), HOME)
    (repo / ".git/config").write_text("[core]\n")
    (repo / "file").write_text("x")
    (repo / ".git/HEAD").unlink()
    os.utime(repo, (0, 0))
    repo.chmod(0o755)
    assert is_trusted(state, str(repo))


@pytest.mark.parametrize("kind", ["repository", "submodule", "worktree", "odd"])
def test_what_stands_inside_is_not_trusted_by_inheritance(tmp_path: Path, kind: str) -> None:
    state, repo = str(tmp_path / "state"), repository(tmp_path / "repo")
    inner = repo / "vendor/inner"
    inner.mkdir(parents=True)
    if kind == "repository":
        repository(inner)
    elif kind == "odd":
        (inner / ".git").symlink_to("nowhere")
    else:
        (inner / ".git").write_text("gitdir: ../../.git/modules/inner\n")
    (inner / "deep").mkdir()
    trust(state, str(repo), HOME)
    assert is_trusted(state, str(repo / "vendor"))
    assert not is_trusted(state, str(inner))
    assert not is_trusted(state, str(inner / "deep"))
    trust(state, str(inner / "deep"), HOME)
    assert is_trusted(state, str(inner))


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_with_real_git_a_worktree_and_a_clone_of_the_same_commits_are_others(
    tmp_path: Path,
) -> None:
    state, repo = str(tmp_path / "state"), tmp_path / "repo"

    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True
        )

    git("init", "-q", "repo")
    git("-C", "repo", "commit", "-q", "--allow-empty", "-m", "first")
    trust(state, str(repo), HOME)
    git("-C", "repo", "worktree", "add", "-q", str(tmp_path / "tree"))
    git("clone", "-q", "repo", "clone")
    assert is_trusted(state, str(repo))
    assert not is_trusted(state, str(tmp_path / "tree"))
    shutil.rmtree(repo)
    (tmp_path / "clone").rename(repo)
    assert not is_trusted(state, str(repo))


def test_a_folder_without_a_repository_is_trusted_with_what_is_below(tmp_path: Path) -> None:
    state, folder = str(tmp_path / "state"), tmp_path / "notes"
    (folder / "a/b").mkdir(parents=True)
    trust(state, str(folder), HOME)
    assert is_trusted(state, str(folder / "a/b"))
    repository(folder / "a")
    assert not is_trusted(state, str(folder / "a/b"))
    assert is_trusted(state, str(folder))


def test_a_link_that_is_turned_elsewhere_loses_its_trust(tmp_path: Path) -> None:
    state, link = str(tmp_path / "state"), tmp_path / "link"
    for name in ("good", "evil"):
        (tmp_path / name).mkdir()
    link.symlink_to(tmp_path / "good")
    trust(state, str(link), HOME)
    link.unlink()
    link.symlink_to(tmp_path / "evil")
    assert not is_trusted(state, str(link))


def test_the_whole_home_is_never_trusted(tmp_path: Path) -> None:
    home = tmp_path / "home" / "ann"
    repository(home)  # of dotfiles
    (home / "work").mkdir()
    for folder in (home, home.parent, Path("/")):
        with pytest.raises(
            SettingsError, match="holds your whole home: trust the folder of one project"
        ):
            trust(str(tmp_path / "state"), str(folder), str(home))
    assert trust(str(tmp_path / "state"), str(home / "work"), str(home)) == str(home / "work")
    assert is_trusted(str(tmp_path / "state"), str(home / "work"))
    assert not is_trusted(str(tmp_path / "state"), str(home))


def test_an_entry_of_an_older_version_is_confirmed_once(tmp_path: Path) -> None:
    state, repo = tmp_path / "state", repository(tmp_path / "repo")
    state.mkdir()
    (state / "trusted.json").write_bytes(msgspec.json.encode([str(repo), "/elsewhere"]))
    assert not is_trusted(str(state), str(repo))
    assert "was trusted by an older longrein" in read_trusted(str(state)).why_not(str(repo))
    trust(str(state), str(repo), HOME)
    assert is_trusted(str(state), str(repo))
    assert read_trusted(str(state)).why_not(str(repo)) == ""
    assert [entry.folder for entry in read_trusted(str(state)).entries] == ["/elsewhere", str(repo)]


@pytest.mark.parametrize(
    "damage", ["", "\x00\x00", "{", '{"a": 1}', "[1]", '["/"]', '[{"folder": "/"}]']
)
def test_R049_a_damaged_list_trusts_nothing(tmp_path: Path, damage: str) -> None:
    (tmp_path / "trusted.json").write_text(damage)
    assert not is_trusted(str(tmp_path), str(tmp_path))
    trust(str(tmp_path), str(tmp_path), HOME)
    assert is_trusted(str(tmp_path), str(tmp_path))


def test_what_cannot_be_written_is_said_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(
        SettingsError, match=r"^/.*/state/trusted.json cannot be written \((File exists|Not a dir)"
    ):
        trust(str(tmp_path / "state"), str(tmp_path), HOME)


def test_a_list_that_never_ends_trusts_nothing(tmp_path: Path) -> None:
    (tmp_path / "trusted.json").write_text("[")
    os.truncate(tmp_path / "trusted.json", 20 << 30)
    assert not is_trusted(str(tmp_path), "/work")
