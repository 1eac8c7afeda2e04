"""What the kernel tells of changes in a work tree, and that a checkpoint which trusts it misses
none of them.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.support.tree_operations import operations, start_tree
from longrein.workspace import folder_watch
from longrein.workspace.folder_watch import FolderWatch
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.shadow_repository import EMPTY_TREE
from longrein.workspace.tree_records import TreeRecord

FOLDERS = ("", "src", "src/deep")
IGNORED = (".gitignore\n*.log\n", ".gitignore\n*.txt\n")
"""Rules before and after an act; they do not name themselves as a file to be kept."""
ACTS: dict[str, Callable[[Path], object]] = {
    "a file is written": lambda tree: (tree / "a").write_text("2"),
    "one deep below is appended to": lambda tree: append(tree / "src/deep/c"),
    "a file is cut short": lambda tree: os.truncate(tree / "a", 0),
    "a file is replaced": lambda tree: replace(tree / "src/b"),
    "its time is set back afterwards": lambda tree: set_back(tree / "a"),
    "its mode changes": lambda tree: (tree / "src/b").chmod(0o755),
    "the last file of a folder goes": lambda tree: (tree / "src/deep/c").unlink(),
    "it is removed": lambda tree: (tree / "a").unlink(),
    "a file is moved in": lambda tree: (tree.parent / "outside").rename(tree / "src/in"),
    "a file is moved out": lambda tree: (tree / "a").rename(tree.parent / "out"),
    "rules that ignore themselves change": lambda tree: (tree / ".gitignore").write_text(
        IGNORED[1]
    ),
    "a link is made": lambda tree: (tree / "link").symlink_to("a"),
    "a hard link is made": lambda tree: os.link(tree / "a", tree / "src/name"),
    "a folder is made": lambda tree: (tree / "new").mkdir(),
    "a folder is moved away": lambda tree: (tree / "src").rename(tree.parent / "src"),
    "a folder is replaced": lambda tree: replace_folder(tree / "src"),
    "a new folder gets a file": lambda tree: fill(tree / "new"),
    "the root is moved": lambda tree: tree.rename(tree.parent / "moved"),
    "the root is replaced": lambda tree: replace_folder(tree),  # noqa: PLW0108 - defined below
    "the folder above is replaced": lambda tree: replace_folder(tree.parent),
}


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


def replace(path: Path) -> None:
    new = path.with_name(".new")
    new.write_text("new")
    new.rename(path)


def set_back(path: Path) -> None:
    seen = path.stat()
    path.write_text("2")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def replace_folder(path: Path) -> None:
    old = path.with_name(path.name + ".old")
    path.rename(old)
    shutil.copytree(old, path, symlinks=True)
    (path / "extra").write_text("")


def fill(path: Path) -> None:
    path.mkdir()
    (path / "file").write_text("1")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "above/tree"
    (tree / "src/deep").mkdir(parents=True)
    (tmp_path / "above/outside").write_text("")
    for name in ("a", "src/b", "src/deep/c", "src/d.log"):
        (tree / name).write_text("1")
    (tree / ".gitignore").write_text(IGNORED[0])
    watch = FolderWatch(str(tree))
    watch.begin(FOLDERS)
    if watch.take(FOLDERS) != {}:
        pytest.skip("the kernel tells of no changes here")
    watch.close()
    return tree


@pytest.mark.parametrize("act", ACTS)
def test_every_change_is_heard_once(tree: Path, act: str) -> None:
    watch = FolderWatch(str(tree))
    watch.begin(FOLDERS)
    (tree / "a").read_text()
    os.listdir(tree / "src")
    assert watch.take(FOLDERS) == {}, "reading is no change"
    ACTS[act](tree)
    assert watch.take(FOLDERS) != {}
    if tree.is_dir():
        there = [name for name in FOLDERS if (tree / name).is_dir()]
        watch.begin(there)
        assert watch.take(there) == {}
        (tree / "later").write_text("")
        assert watch.take(there) != {}, "it goes on after the act"
    watch.close()


@pytest.mark.parametrize("act", ACTS)
def test_a_checkpoint_that_trusts_the_watch_is_one_that_looks(tree: Path, act: str) -> None:
    trusting = CheckpointStore(str(tree.parent.parent / "trusting"), dict(os.environ))
    for _ in range(2):
        before, _ = trusting.take([str(tree)])
    assert trusting.take([str(tree)], trusts_watch=True)[0] == before
    ACTS[act](tree)
    fresh = CheckpointStore(str(tree.parent.parent / "fresh"), dict(os.environ))
    gone = {str(tree): TreeRecord(EMPTY_TREE, 0o022)}
    looked = (fresh.take([str(tree)])[1] if tree.is_dir() else gone)[str(tree)]
    for _ in range(3):
        _, trusted = trusting.take([str(tree)], trusts_watch=True)
        found = trusted[str(tree)]
        assert (found.tree, found.folders) == (looked.tree, looked.folders)
    trusting.close()
    fresh.close()


@pytest.mark.parametrize(("seed", "git"), [(1, True), (2, False), (3, False)])
def test_random_commands_are_found_by_what_the_kernel_tells(
    tree: Path, seed: int, git: bool
) -> None:
    start_tree(tree, git=git)
    trusting = CheckpointStore(str(tree.parent.parent / "trusting"), dict(os.environ))
    looking = CheckpointStore(str(tree.parent.parent / "looking"), dict(os.environ))
    for command in operations(random.Random(seed), 40, git=git):
        subprocess.run(["sh", "-c", command], cwd=tree, check=False, capture_output=True)
        _, trusted = trusting.take([str(tree)], trusts_watch=True)
        looking.take([str(tree)])
        _, looked = looking.take([str(tree)])
        assert trusted == looked, command
    assert trusting.shrink(1 << 30) == 0
    trusting.close()
    looking.close()


def git(tree: Path, *words: str) -> str:
    own = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    done = subprocess.run(["git", *own, *words], cwd=tree, check=True, capture_output=True)
    return done.stdout.decode().strip()


def test_an_ignored_file_that_the_user_adds_is_found(tree: Path) -> None:
    git(tree, "init", "-q")
    store = CheckpointStore(str(tree.parent.parent / "kept"), dict(os.environ))
    for _ in range(2):
        _, before = store.take([str(tree)])
    git(tree, "add", "-f", "src/d.log")
    _, after = store.take([str(tree)], trusts_watch=True)
    repository = store.repository(str(tree))
    found = repository.changed(before[str(tree)], after[str(tree)])
    assert found.keys() == {"src/d.log"}
    store.close()


def test_an_emptied_folder_is_found_by_the_look_that_misses_its_files(tree: Path) -> None:
    store = CheckpointStore(str(tree.parent.parent / "kept"), dict(os.environ))
    store.take([str(tree)])
    shutil.rmtree(tree / "src/deep")
    (tree / "src/d.log").unlink()
    (tree / "src/b").unlink()
    assert store.take([str(tree)])[1][str(tree)].folders == ("src",)


@pytest.mark.parametrize("when", ["staged at first", "staged later", "committed later"])
def test_what_is_borrowed_from_the_user_outlives_what_he_throws_away(tree: Path, when: str) -> None:
    git(tree, "init", "-q")
    git(tree, "commit", "-q", "--allow-empty", "-m", "none")
    store = CheckpointStore(str(tree.parent.parent / "kept"), dict(os.environ))
    if when != "staged at first":
        store.take([str(tree)])
        (tree / "src/b").write_text("staged later")
    git(tree, "add", "-A")
    git(tree, "write-tree")
    if when == "committed later":
        git(tree, "commit", "-q", "-m", "thrown away")
    name, _ = store.take([str(tree)])
    if when == "committed later":
        git(tree, "reset", "-q", "--soft", "HEAD^")
        git(tree, "reflog", "expire", "--expire=now", "--all")
    git(tree, "rm", "-rq", "--cached", ".")
    git(tree, "gc", "-q", "--prune=now")
    record = store.load(name)[str(tree)]
    repository = store.repository(str(tree))
    blobs = {path: one.blob for path, one in repository.files(record).items()}
    wanted = {path: (tree / path).read_bytes() for path in ("a", "src/b", "src/deep/c")}
    found = dict(repository.contents(blobs.values()))
    assert found == {blobs[path]: data for path, data in wanted.items()}


def test_nothing_is_trusted_where_nobody_can_know(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(watch: FolderWatch, folders: list[str]) -> None:
        watch.begin(folders)
        assert watch.take(folders) != {}
        watch.close()

    watch = FolderWatch(str(tree))
    assert watch.take([]) != {}, "it has not begun"
    watch.begin(["", "src"])
    assert watch.take(FOLDERS) != {}, "a folder is not watched"
    watch.close()
    assert watch.take([""]) != {}, "it has ended"
    check(FolderWatch(str(tree)), ["", "gone"])
    check(FolderWatch(str(tree / "gone")), [""])
    check(FolderWatch("/proc/self"), [""])
    (tree / "link").symlink_to("src")
    check(FolderWatch(str(tree)), ["", "link"])
    monkeypatch.setattr(folder_watch, "FOLDERS_MAX", 2)
    check(FolderWatch(str(tree)), [*FOLDERS])


def test_a_file_that_was_open_before_is_heard(tree: Path) -> None:
    watch = FolderWatch(str(tree))
    with (tree / "a").open("a") as file:
        watch.begin(FOLDERS)
        file.write("more")
        file.flush()
        assert watch.take(FOLDERS) != {}
    watch.close()


def test_what_was_written_before_it_begins_is_not_heard(tree: Path) -> None:
    watch = FolderWatch(str(tree))
    watch.begin(FOLDERS)
    (tree / "a").write_text("2")
    (tree / "new").mkdir()
    watch.begin((*FOLDERS, "new"))
    assert watch.take((*FOLDERS, "new")) == {}
    (tree / "new/file").write_text("1")
    assert watch.take((*FOLDERS, "new")) == {"new/file": True}
    (tree / "a").write_text("3")
    assert watch.take((*FOLDERS, "new")) == {"a": False}
    assert watch.take((*FOLDERS, "new")) == {}
    watch.close()


def test_what_overflows_is_a_change(tree: Path) -> None:
    watch = FolderWatch(str(tree))
    watch.begin([""])
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 50_000:
        pytest.skip("the queue is long here")
    for n in range(limit // 2 + 10):
        os.close(os.open(tree / f"f{n % 2}", os.O_WRONLY | os.O_CREAT, 0o600))
    assert watch.take([""]) != {}
    watch.begin([""])
    assert watch.take([""]) == {}
    watch.close()
