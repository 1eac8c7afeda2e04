"""Edges of what protects files, without a sandbox: caches, new repositories, stamps of folders,
mounts, rights below a folder, plans of a rewind.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from longrein.workspace import shadow_repository
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.sandbox.bubblewrap import existing_paths, mounts_of
from longrein.workspace.sandbox.policy import SandboxPolicy
from longrein.workspace.sandbox.protected import (
    GIT_FILE_BYTES_MAX,
    Listing,
    is_plain_repository,
    protected_paths,
    writable_exceptions,
)
from longrein.workspace.sandbox.tool_caches import cache_folder
from longrein.workspace.tree_records import CheckpointError

CORE = "[core]\n\tbare = false\n"
FULL = CORE + "#" * (GIT_FILE_BYTES_MAX - len(CORE))
NAMES_A_PROGRAM = "\n\tfsmonitor = ./x\n"


@pytest.mark.parametrize(("files", "is_plain"), [
    ({"config": CORE}, True),
    ({}, False),
    ({"config": FULL}, True),
    ({"config": FULL + "#"}, False),
    ({"config": CORE + "#" + "é" * 2_040 + NAMES_A_PROGRAM}, False),  # bytes, not characters
    ({"config": CORE + NAMES_A_PROGRAM}, False),
    ({"config": CORE, "hooks/pre-commit.sample": ""}, True),
    ({"config": CORE, "hooks/pre-commit": ""}, False),
    ({"config": CORE, "hooks": ""}, False),
    ({"config": CORE, "config.worktree": ""}, False),
    ({"config": CORE, "commondir": ""}, False),
    ({"config": CORE, "modules/x": ""}, False),
    ({"config": CORE, "worktrees/x": ""}, False),
])  # fmt: skip
def test_a_new_repository_executes_nothing(
    tmp_path: Path, files: dict[str, str], is_plain: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert is_plain_repository(str(tmp_path)) is is_plain


def test_commands_may_change_only_real_folders_in_a_protected_one(tmp_path: Path) -> None:
    folder = tmp_path / ".claude"
    (folder / "worktrees").mkdir(parents=True)
    assert writable_exceptions(str(folder)) == [f"{folder}/worktrees"]
    (folder / "worktrees").rename(tmp_path / "elsewhere")
    assert writable_exceptions(str(folder)) == []
    (folder / "worktrees").symlink_to(tmp_path / "elsewhere")
    assert writable_exceptions(str(folder)) == []
    assert writable_exceptions(str(tmp_path)) == []


def test_the_cache_of_a_project_lies_where_the_user_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, other = str(tmp_path / "home"), str(tmp_path / "other")
    found = cache_folder(home, {}, "/work/repo")
    assert found.startswith(f"{home}/.cache/longrein/repo-")
    assert cache_folder(home, {"XDG_CACHE_HOME": "cache"}, "/work/repo") == found
    moved = cache_folder(home, {"XDG_CACHE_HOME": other}, "/work/repo")
    assert moved == found.replace(f"{home}/.cache", other)
    assert cache_folder(home, {}, "/else/repo") != found
    assert "/root-" in cache_folder(home, {}, "/")
    asked = []
    monkeypatch.setattr(os, "access", lambda *words: asked.append(words))
    assert cache_folder(home, {}, "/work/repo") == ""
    assert asked == [(str(tmp_path), os.W_OK)]


@pytest.mark.parametrize(("files", "looked_for"), [
    ("", "all"),  # a folder that cannot be read looks the same
    ("src setup.py", ""),
    ("src .envrc .github", ".envrc .github/actions .github/skills .github/workflows"),
    ("src .Envrc", ".envrc"),  # where case does not count, this is one file
    ("src .github/workflows", ".github/actions .github/skills .github/workflows"),
    ("src .ENVRC/x a.code-workspace", ".envrc a.code-workspace"),
    ("src .env\N{LATIN SMALL LETTER LONG S}", "all"),  # nor is this
    ("src .env\N{ZERO WIDTH SPACE}rc", "all"),
    ("src sub/.envrc", ""),
])  # fmt: skip
def test_one_reading_of_a_root_tells_which_protected_paths_are_missing(
    tmp_path: Path, files: str, looked_for: str
) -> None:
    for name in files.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    listing = Listing()
    paths, outside = protected_paths(str(tmp_path), listing), [f"{tmp_path}/.git/config", "/.envrc"]
    wanted = paths if looked_for == "all" else [f"{tmp_path}/{name}" for name in looked_for.split()]
    assert sorted(listing.may_exist([*paths, *outside])) == sorted([*wanted, *outside])


@pytest.mark.parametrize("place", ["missing", "file", "link"])
def test_a_root_that_is_no_folder_tells_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/other").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    listing = Listing()
    paths = protected_paths(f"{tmp_path}/{place}", listing)
    assert listing.may_exist(paths) == paths


@pytest.mark.parametrize(("fixed", "mounts"), [
    ({"hidden": "a/b/file"}, "write write/a write/a/b cover/a/b/file"),
    ({"hidden": "a/b"}, "write write/a closed/a/b"),
    ({"hidden": "file"}, "write cover/file"),
    ({"read_only": "a/b/c"}, "write write/a write/a/b read/a/b/c"),
    ({"roots": "a/b/c"}, "write write/a/b/c"),
    ({"read_only": "a", "roots": "a/b"}, "write read/a write/a/b"),
])  # fmt: skip
def test_folders_above_what_is_protected_cannot_be_renamed(
    tmp_path: Path, fixed: Mapping[str, str], mounts: str
) -> None:
    """A mount on itself has no other name."""
    (tmp_path / "a/b/c").mkdir(parents=True)
    for name in ("file", "a/b/file"):
        (tmp_path / name).touch()
    paths = {kind: (f"{tmp_path}/{name}",) for kind, name in fixed.items()}
    roots = (str(tmp_path), *paths.pop("roots", ()))
    policy = SandboxPolicy(roots, **paths)
    found = mounts_of(policy, existing_paths(policy))
    inside = [one for one in found if f"{one.path}/".startswith(f"{tmp_path}/")]
    assert " ".join(one.kind + one.path.removeprefix(str(tmp_path)) for one in inside) == mounts


@pytest.mark.parametrize(("files", "in_git", "is_kept"), [
    ((4, 3), False, True),
    ((4, 4), False, False),
    ((1, 1, 1), False, True),
    ((1, 1, 1, 1), False, False),
    ((9,), True, True),
    ((1, 1), True, True),
    ((1, 1, 1), True, False),
])  # fmt: skip
def test_a_tree_is_kept_up_to_a_size(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: tuple[int, ...],
    in_git: bool,
    is_kept: bool,
) -> None:
    monkeypatch.setattr(shadow_repository, "LOOSE_FILES_MAX", 3)
    monkeypatch.setattr(shadow_repository, "LOOSE_BYTES_MAX", 7)
    monkeypatch.setattr(shadow_repository, "TRACKED_MAX", 2 if in_git else 9)
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    for number, size_bytes in enumerate(files):
        (root / "folder" / str(number)).write_text("x" * size_bytes)
    if in_git:
        for command in ("init", "add ."):
            subprocess.run(["git", *command.split()], cwd=root, check=True, capture_output=True)
    store = CheckpointStore(str(tmp_path / "store"), os.environ)
    if is_kept:
        store.repository(str(root)).take()
    else:
        with pytest.raises(CheckpointError, match="more than"):
            store.repository(str(root)).take()
