"""What a single forgotten line would lose: the check before a file is replaced, a change within one
tick of the clock, the lock of a git that was killed, a zombie, the flush of a task's end.
"""

import errno
import os
from pathlib import Path

import pytest

from longrein.workspace import tree_restore
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.supervisor.process_tree import process
from longrein.workspace.supervisor.spool_writer import write_end
from longrein.workspace.tree_restore import CHANGED_NOW, FileTarget, put_files, remove_files
from tests.timeouts import wait_until


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_text("1")
    return tree


@pytest.fixture
def store(tmp_path: Path, tree: Path) -> CheckpointStore:
    kept = tmp_path / "kept"
    kept.mkdir()
    return CheckpointStore(str(kept), dict(os.environ))


def target(store: CheckpointStore, tree: Path, text: str, *, was: bool) -> FileTarget:
    """The way of file `a` from how it is kept now to `text`, or to no file."""
    root = str(tree)
    _, now = store.take([root])
    repository = store.repository(root)
    known = repository.files(now[root])["a"]
    then = known.__class__(known.kind, repository.store(text.encode()), known.permissions)
    return FileTarget(str(tree / "a"), known, then if was else None)


@pytest.mark.parametrize("removed", [False, True])
def test_a_file_that_changed_since_the_look_is_neither_replaced_nor_removed(
    store: CheckpointStore, tree: Path, removed: bool
) -> None:
    one = target(store, tree, "old", was=not removed)
    contents = store.repository(str(tree)).contents
    (tree / "a").write_text("of the user, just now")
    failed = (
        remove_files([one], str(tree), ())
        if removed
        else put_files({one.then.blob if one.then else "": [one]}, contents)
    )
    assert failed == {str(tree / "a"): CHANGED_NOW}
    assert (tree / "a").read_text() == "of the user, just now"


def test_a_file_that_cannot_be_written_stays_and_nothing_lies_about(
    store: CheckpointStore, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = target(store, tree, "old", was=True)
    assert one.then is not None

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tree_restore, "write_all", full)
    failed = put_files({one.then.blob: [one]}, store.repository(str(tree)).contents)
    assert failed == {str(tree / "a"): "No space left on device"}
    assert [(path.name, path.read_text()) for path in tree.iterdir()] == [("a", "1")]


def test_a_file_that_came_since_the_look_is_not_replaced(
    store: CheckpointStore, tree: Path
) -> None:
    known = target(store, tree, "old", was=True)
    new = FileTarget(str(tree / "new"), None, known.then)
    (tree / "new").write_text("of the user, just now")
    assert new.then is not None
    failed = put_files({new.then.blob: [new]}, store.repository(str(tree)).contents)
    assert failed == {str(tree / "new"): CHANGED_NOW}
    assert (tree / "new").read_text() == "of the user, just now"


def test_a_second_change_with_the_same_size_and_time_is_seen(
    store: CheckpointStore, tree: Path
) -> None:
    root = str(tree)
    (tree / "a").write_text("2")
    stamp = os.stat(tree / "a")
    first, _ = store.take([root])
    (tree / "a").write_text("3")
    os.utime(tree / "a", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    second, _ = store.take([root])
    assert first != second


def test_the_lock_of_a_git_that_was_killed_stops_no_checkpoint(
    store: CheckpointStore, tree: Path, tmp_path: Path
) -> None:
    root = str(tree)
    first, _ = store.take([root])
    indexes = [path for path in (tmp_path / "kept").rglob("*") if path.name.startswith("index")]
    assert indexes
    for index in indexes:
        Path(f"{index}.lock").write_bytes(b"")
    (tree / "a").write_text("2")
    again = CheckpointStore(str(tmp_path / "kept"), dict(os.environ))
    second, _ = again.take([root])
    assert first != second


def test_a_process_that_has_ended_and_is_not_waited_for_is_not_alive() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        wait_until(lambda: process(pid) is None)
    finally:
        os.waitpid(pid, 0)


def test_the_end_of_a_task_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[str, bool]] = []

    def note(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        flushed.append((path.name, path.with_suffix("").exists()))

    monkeypatch.setattr("os.fsync", note)
    write_end(str(tmp_path), "b1", {"state": "done"})
    (end,) = tmp_path.iterdir()
    assert flushed == [(f"{end.name}.new", False)]
