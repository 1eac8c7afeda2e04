"""Copies of a work tree: what is in them, what has changed between two, and what they leave."""

import errno
import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.support.tree_operations import user_git
from longrein.workspace import shadow_repository
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.shadow_repository import EMPTY_TREE, ShadowRepository
from longrein.workspace.tree_records import (
    CheckpointError,
    TreeRecord,
    decode_records,
    encode_records,
)

GIT = shutil.which("git")
pytestmark = pytest.mark.skipif(not GIT, reason="git is not installed")


class Kept:
    """A work tree and the repository that keeps it."""

    def __init__(self, folder: Path, left_out: Sequence[str] = ()) -> None:
        self.folder, self.tree, self.place = folder, folder / "tree", folder / "kept"
        self.tree.mkdir(exist_ok=True)
        self.left_out = [f"{folder}/{name}" for name in left_out]
        self.environment = dict(os.environ)
        self.opened: ShadowRepository | None = None

    @property
    def repository(self) -> ShadowRepository:
        if self.opened is None:
            self.opened = ShadowRepository(
                str(self.place), str(self.tree), self.environment, self.left_out
            )
        return self.opened

    def act(self, words: str) -> None:
        """`a=1` writes, `a-` removes, `d/` makes a folder, `a>b` a link, `a:600` sets the mode,
        `a!` makes a repository.

        `look` keeps the tree, `forget` drops the index, `again` is another process.
        """
        for word in words.split():
            path = self.tree / word.rstrip("-/").partition("=")[0].partition(">")[0]
            if word == "look":
                self.repository.take()
            elif word == "forget":
                self.repository.forget_index()
            elif word == "again":
                self.opened = None
            elif word.endswith("!"):
                user_git(self.folder, "init", "-q", str(self.tree / word[:-1]))
            elif word.endswith("-"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif word.endswith("/"):
                path.mkdir(parents=True)
            elif ":" in word:
                name, _, mode = word.partition(":")
                (self.tree / name).chmod(int(mode, 8))
            elif ">" in word:
                path.symlink_to(word.partition(">")[2])
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(word.partition("=")[2])

    def files(self, record: TreeRecord) -> list[str]:
        """The files of a copy, as `act` would make them."""
        files = self.repository.files(record)
        texts = dict(self.repository.contents(file.blob for file in files.values()))
        found = [f"{folder}/" for folder in record.folders]
        for path, file in files.items():
            text = (texts[file.blob] or b"?").decode()
            found.append(f"{path}>{text}" if file.kind == 0o120000 else f"{path}={text}")
            if file.permissions not in (0, 0o644):
                found.append(f"{path}:{file.permissions:o}")
        return found


HOLDS = {
    "a=1": "a=1",
    "b/c=2": "b/c=2",
    "empty/": "empty/",
    "d/e/ d/f/": "d/e/ d/f/",
    "l>b": "l>b",
    "lost>nowhere": "lost>nowhere",
    "private=1 private:600": "private=1 private:600",
    "program=1 program:755": "program=1 program:755",
    "odd=1 odd:700": "odd=1 odd:700",
    "g/.gitignore=*.o g/a.o=1 g/a.c=1": "g/.gitignore=*.o g/a.c=1",
    "ignored/.gitignore=* ignored/a=1": "",
    ".longrein-1.tmp=1 b/.longrein-2.tmp=1": "",
    ".longrein-1=1": ".longrein-1=1",
    "small=1234567": "small=1234567",
    "large=12345678": "",
    "repo! repo/f=1": "",
    "in/repo! in/repo/f=1 in/f=1": "in/f=1",
    "out*/a=1 out/a=1 inner/out*=1": "inner/out*=1 out/a=1",
    "w?[x]/a=1 wa[x]/a=1 w?x/a=1": "w?x/a=1 wa[x]/a=1",
}
"""What is made in the tree -> what is kept of it."""
LEFT_OUT = ("tree/out*", "tree/w?[x]", "elsewhere/a")
SKIPPED = {
    "large": "larger than 0 MB",
    "repo": shadow_repository.INNER,
    "in/repo": shadow_repository.INNER,
}


@pytest.mark.parametrize("in_git", [False, True])
def test_what_a_copy_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_git: bool
) -> None:
    monkeypatch.setattr(shadow_repository, "FILE_BYTES_MAX", 7)
    one = Kept(tmp_path, LEFT_OUT)
    if in_git:
        user_git(one.tree, "init", "-q")
        with (one.tree / ".git/info/exclude").open("w") as file:
            file.write("excluded")  # without a line end
        (tmp_path / "rules").write_text("by-user\n")
        user_git(one.tree, "config", "core.excludesFile", str(tmp_path / "rules"))
        one.act("excluded=1 by-user=1")
    one.act(" ".join(HOLDS))
    for _ in range(2):
        record = one.repository.take()
        assert sorted(one.files(record)) == sorted(" ".join(HOLDS.values()).split())
        assert record.skipped == SKIPPED
        one.act("again")


CHANGES = (
    ("same=1", "", ""),
    ("a=1", "a=2", "a"),
    ("gone=1", "gone-", "gone"),
    ("", "new=1 new2/e=1", "new new2/e"),
    ("mode=1", "mode:600", "mode"),
    ("back=1 back:600", "back:644", "back"),
    ("odd=1 odd:600", "odd-", "odd"),
    ("file=1", "file- file/b=1", "file file/b"),
    ("folder/b=1", "folder- folder=1", "folder folder/b"),
    ("to-link=1", "to-link- to-link>b", "to-link"),
    ("to-empty=1", "to-empty- to-empty/", "to-empty"),
    ("empty/", "empty/b=1", "empty/b"),
    ("last/b=1", "last/b-", "last/b"),
    ("grows=1234", "grows=12345678", "grows"),
    ("shrinks=12345678", "shrinks=1234", "shrinks"),
    ("g/.gitignore=*.o g/a.o=1", "g/.gitignore=*.a", "g/.gitignore g/a.o"),
)
"""Made before the first copy, made before the second, changed."""


@pytest.mark.parametrize("way", ["", "again", "forget", "trusting", "trusting a part"])
def test_what_has_changed_between_two_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(shadow_repository, "FILE_BYTES_MAX", 7)
    one, trusting = Kept(tmp_path), way.startswith("trusting")
    if way == "trusting a part":  # the first look does not come to all folders
        monkeypatch.setattr(shadow_repository, "EMPTY_WALK_MAX", 1)
        one.act(" ".join(f"far{n}/x/y=1" for n in range(9)))
    one.act(" ".join(first for first, _, _ in CHANGES))
    for _ in range(3 if trusting else 1):
        before = one.repository.take()
    monkeypatch.setattr(shadow_repository, "EMPTY_WALK_MAX", 5_000)
    assert one.repository.touched == set()
    one.act(" ".join(then for _, then, _ in CHANGES))
    one.act(way if not trusting else "")
    after = one.repository.take(trusts_watch=trusting)
    changed = sorted(" ".join(names for _, _, names in CHANGES).split())
    assert sorted(one.repository.changed(before, after)) == changed
    left = one.repository.files(after)
    assert sorted(one.repository.touched) == [path for path in changed if path in left]
    one.repository.touched.clear()
    assert one.repository.take(trusts_watch=trusting) == after
    assert one.repository.touched == set()
    one.opened = None
    one.place = tmp_path / "fresh"
    assert one.repository.take() == after


def test_a_look_that_trusts_the_watch_finds_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_repository, "FILE_BYTES_MAX", 7)
    monkeypatch.setattr(shadow_repository, "RACY_NS", -(10**15))  # no time is too young
    monkeypatch.setattr(shadow_repository, "WRITTEN_MAX", 3)
    one = Kept(tmp_path)
    one.act(".gitignore=*.o a.o=1 a=1 b=1 d/e=1 grows=1 w1=1 w2=1 w3=1 w4=1")
    os.link(one.tree / "a", one.tree / "d/name")

    one.act("look look look")

    def check(acts: str, changed: str) -> None:
        one.act(acts)
        one.repository.touched.clear()
        one.repository.take(trusts_watch=True)
        assert " ".join(sorted(one.repository.touched)) == changed

    check("", "")
    check("b=2", "b")
    check("", "")
    check("b=3 b- d/new=1", "d/new")
    check("c.o=1", "")
    check("grows=12345678", "")
    check("w1=2 w2=2 w3=2", "w1 w2 w3")
    check("w1=3 w2=3 w3=3 w4=3", "w1 w2 w3 w4")
    check("a=2", "a d/name")
    check("d/e- d/name- d/new- a=3", "a")
    assert one.repository.take(trusts_watch=True).folders == ("d",)
    check("d/e=1", "d/e")
    check(".gitignore=*.a", ".gitignore a.o c.o")
    one.act("in! look look look")
    check("b=9", "b")
    skipped = {"grows": "larger than 0 MB", "in": shadow_repository.INNER}
    assert one.repository.take(trusts_watch=True).skipped == skipped


def test_a_folder_that_no_look_has_come_to_is_found_when_it_has_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_repository, "EMPTY_WALK_MAX", 1)
    one = Kept(tmp_path)
    folders = [f"folder{n}/in" for n in range(4)]
    one.act(" ".join(f"{folder}/" for folder in folders) + " a=1 look look look")
    for folder in folders:
        one.act(f"{folder}/new=1")
        one.repository.take(trusts_watch=True)
        assert one.repository.touched == {f"{folder}/new"}
        one.repository.touched.clear()


def test_a_root_in_another_one_is_kept_with_it(tmp_path: Path) -> None:
    one = Kept(tmp_path)
    one.act("a=1 in/b=1")
    store, tree = CheckpointStore(str(tmp_path / "store"), dict(os.environ)), str(one.tree)
    for roots in ([tree, f"{tree}/in"], [f"{tree}/in/", tree], [tree, f"{tree}/none"]):
        assert store.take(roots)[1].keys() == {tree}
    assert store.take([f"{tree}/in", f"{tmp_path}/none"])[1].keys() == {f"{tree}/in"}


@pytest.mark.parametrize(("made", "umask"), [
    ("", 0o022),
    ("a=1 a:600", 0o066),
    ("a=1 a:666", 0o000),
    ("a=1 b=1 c=1 a:600 b:600", 0o066),
    ("a=1 b=1 c=1 a:600 b:664 c:664", 0o002),
    ("a=1 b=1 c=1 a:600 b:755 c:755", 0o066),
    ("a=1 a:600 l>a m>a n>a", 0o066),
])  # fmt: skip
def test_most_files_tell_which_permissions_are_usual(tmp_path: Path, made: str, umask: int) -> None:
    one = Kept(tmp_path)
    one.act(made)
    record = one.repository.take()
    assert record.umask == umask
    shutil.rmtree(one.tree)
    assert one.repository.take() == TreeRecord(EMPTY_TREE, umask)


def test_a_root_that_was_never_there_is_an_empty_tree(tmp_path: Path) -> None:
    one = Kept(tmp_path)
    assert one.repository.touched == set()
    one.tree.rmdir()
    record = one.repository.take()
    assert record == TreeRecord(EMPTY_TREE, 0o022)
    assert one.repository.has(EMPTY_TREE)
    assert one.repository.files(record) == {}
    assert not one.repository.has("1" * 40)


def test_contents_come_in_the_order_asked_and_lost_ones_are_none(tmp_path: Path) -> None:
    one = Kept(tmp_path)
    texts = [b"", b"one", b"two\nlines", bytes(300_000)]
    blobs = {one.repository.store(text): text for text in texts}
    lost = "1" * 40
    asked = [lost, *blobs, lost, *reversed(blobs)]
    found = list(one.repository.contents(asked))
    assert found == [(blob, blobs.get(blob)) for blob in asked]


def test_nobody_else_reads_what_is_kept(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        one = Kept(tmp_path)
        one.act("a=1 b/c=2")
        one.repository.take()
        one.act("a=2")
        one.repository.take()
    finally:
        os.umask(before)
    paths = list(one.place.rglob("*"))
    assert len(paths) > 15
    assert [path for path in paths if path.stat().st_mode & 0o077] == []


def test_a_tree_that_has_grown_too_large_is_kept_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_repository, "LOOSE_FILES_MAX", 2)
    one = Kept(tmp_path)
    one.act("a=1 b=1 look c=1 again")
    assert sorted(one.files(one.repository.take())) == ["a=1", "b=1", "c=1"]
    one.act("forget again")
    with pytest.raises(CheckpointError, match="has more than 2 files or 1,024 MB"):
        one.repository.take()


def test_the_newest_checkpoints_are_kept_within_the_space(tmp_path: Path) -> None:
    one, records = Kept(tmp_path), list[TreeRecord]()

    def left(bytes_max: int) -> tuple[int, list[int]]:
        dropped = one.repository.shrink(bytes_max)
        return dropped, [n for n, one_of in enumerate(records) if one.repository.has(one_of.tree)]

    for number in range(5):
        (one.tree / "noise").write_text(random.Random(number).randbytes(10_000).hex())
        records.append(one.repository.take())
        path = one.place / "refs/kept" / records[-1].tree
        os.utime(path, ns=(number, number))
    everything = one.repository.size_bytes()
    assert 55_000 < everything < 65_000
    assert left(everything + 5_000) == (0, [0, 1, 2, 3, 4])
    assert left(40_000) == (3, [3, 4])
    assert left(18_000) == (1, [4])
    assert left(1) == (0, [4])
    assert one.files(records[4]) != []
    assert not list(one.place.glob("objects/??")) or not list(one.place.glob("objects/??/*"))
    assert len(list(one.place.glob("objects/pack/*.pack"))) == 1


def test_roots_share_the_space_and_what_was_dropped_is_forgotten(tmp_path: Path) -> None:
    roots, names = [tmp_path / "x", tmp_path / "y"], list[str]()
    store = CheckpointStore(str(tmp_path / "store"), dict(os.environ))
    for number in range(4):
        for root in roots:
            root.mkdir(exist_ok=True)
            noise = random.Random(f"{root.name}{number}").randbytes(10_000)
            (root / "noise").write_text(noise.hex())
        name, records = store.take([*map(str, roots)])
        names.append(name)
        for root, record in records.items():
            kept = Path(store.repository(root).folder, "refs/kept", record.tree)
            os.utime(kept, ns=(number, number))
    assert store.shrink(1 << 20) == 0
    largest = max(store.repository(str(root)).size_bytes() for root in roots)
    assert store.shrink(2 * largest) == 0
    assert store.shrink(largest + 4_000) == 4
    assert [bool(store.records(name)) for name in names] == [False, False, True, True]
    assert [store.load(name).keys() for name in names[2:]] == [{*map(str, roots)}] * 2


def test_new_contents_go_to_another_repository_once(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    here, there = Kept(tmp_path / "here"), Kept(tmp_path / "there")
    here.act("a=1 d/b=2")
    first = here.repository.take()
    here.act("a=3 c=4")
    second = here.repository.take()
    sizes = list[int]()
    for trees, known in (([first.tree, second.tree], EMPTY_TREE), ([second.tree], first.tree)):
        pack = Path(here.repository.write_pack(trees, known))
        assert list(pack.parent.glob("*.pack")) == [pack]
        sizes.append(len(pack.read_bytes()))
        if known == EMPTY_TREE:
            there.repository.read_pack(pack.read_bytes())
    assert sizes[1] < sizes[0]
    assert here.repository.write_pack([second.tree], second.tree) == ""
    assert list(pack.parent.iterdir()) == []
    for record, files in ((first, ["a=1", "d/b=2"]), (second, ["a=3", "c=4", "d/b=2"])):
        assert sorted(there.files(record)) == files
        assert not there.repository.has(record.tree), "nobody has counted it"
        there.repository.keep(record.tree)
        assert there.repository.has(record.tree)
    with pytest.raises(CheckpointError, match="git: "):
        there.repository.read_pack(b"PACK, but damaged")


IGNORED = (
    ("", "", "a.o d/a.o", ""),
    (".gitignore=*.o", "", "a.o d/a.o a.c", "a.o d/a.o"),
    ("", ".gitignore=*.o", "a.o", ""),
    (".gitignore=*.o", ".gitignore-", "a.o a.c", "a.o"),
    (".gitignore=*.o", ".gitignore=*.c", "a.o a.c", "a.o"),
    ("d/.gitignore=/*.o", "d- d=1", "d/a.o d/d/a.o a.o", "d/a.o"),
    ("d/.gitignore=*.o", ".gitignore=!*.o", "d/a.o", "d/a.o"),
    (".gitignore=built", "", "built/a d/built/a built.c", "built/a d/built/a"),
    ("alone/.gitignore=* alone/a=1", "", "alone/b", "alone/b"),
    (".gitignore=*.o", "", ":(top)x.o new/x.o :y", ":(top)x.o new/x.o"),
    ("", "", "above.x d/above.x a", "above.x d/above.x"),
)
"""Made before the first copy, made before the second; paths; those that were ignored at first."""


@pytest.mark.parametrize(("first", "then", "paths", "ignored"), IGNORED)
def test_ignored_files_are_those_of_the_rules_of_then(
    tmp_path: Path, first: str, then: str, paths: str, ignored: str
) -> None:
    user_git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.x\n")
    one = Kept(tmp_path)
    one.act(first)
    before = one.repository.files(one.repository.take())
    one.act(then)
    after = one.repository.files(one.repository.take())
    assert one.repository.ignored(paths.split(), before, after) == {*ignored.split()}
    with pytest.raises(CheckpointError, match="is outside repository"):
        one.repository.ignored(["../../outside"], before, after)
    assert one.repository.ignored([], before, after) == set()
    assert not [*one.place.glob("tmp*")]


def test_rules_below_more_folders_than_python_calls_functions(tmp_path: Path) -> None:
    one, deep = Kept(tmp_path), "ddd/" * 1_000
    one.act("a=1")
    one.repository.take()
    for line in (f"mkdir -p {deep}; echo '*.o' > {deep}.gitignore", f"touch {deep}x.o"):
        subprocess.run(["bash", "-c", line], cwd=one.tree, check=True)
    found = one.repository.files(one.repository.take())
    paths = [f"{deep}x.o", f"{deep}x.c", "x.o"]
    assert one.repository.ignored(paths, found, ()) == {f"{deep}x.o"}
    assert not [*one.place.glob("tmp*")]
    subprocess.run(["rm", "-rf", str(tmp_path)], check=True)


# --- git that fails -------------------------------------------------------------------------------


@pytest.mark.parametrize(("failing", "script", "told"), [
    ("diff-files", "echo one >&2; echo fatal: two >&2; exit 3", "git: fatal: two"),
    ("diff-files", "exit 3", "git: exit code 3"),
    ("diff-files", f"exec {shutil.which('sleep')} 1000", "git took longer than 0 s"),
    ("write-tree", "exit 3", "git: exit code 3"),
])  # fmt: skip
def test_a_git_that_fails_twice_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, script: str, told: str
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(shadow_repository, "GIT_S", 0.3)
    one, git, first = Kept(tmp_path), tmp_path / "bin/git", tmp_path / "first"
    one.act("a=1")
    git.parent.mkdir()
    fails = f"if [ ! -e {first} ]; then : > {first}; {script}; fi"
    again = f"if [ ! -e {first}2 ]; then : > {first}2; {script}; fi"
    git.write_text(
        f'#!/bin/sh\ncase "$*" in *{failing}*) {fails}; {again};; esac\nexec {GIT} "$@"\n'
    )
    git.chmod(0o755)
    one.environment["PATH"] = f"{git.parent}:{os.environ['PATH']}"
    with pytest.raises(CheckpointError, match=told):
        one.repository.take()
    monkeypatch.undo()
    assert one.files(one.repository.take()) == ["a=1"]


@pytest.mark.parametrize(("fails", "is_told"), [(1, False), (2, True)])
def test_a_disk_that_was_full_leaves_no_copy_without_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int, *, is_told: bool
) -> None:
    one, put, left = Kept(tmp_path), shadow_repository.replace_file, [fails]
    one.act("a=1 b=1 look a=2")

    def full(*given: Any, **how: Any) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        put(*given, **how)

    monkeypatch.setattr(shadow_repository, "replace_file", full)
    if is_told:
        with pytest.raises(OSError, match="No space left"):
            one.repository.take()
    assert sorted(one.files(one.repository.take())) == ["a=2", "b=1"]
    assert one.repository.touched == {"a"}


def test_an_index_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    one = Kept(tmp_path)
    one.act("a=1 look a=2")
    index = one.place / "index"
    index.write_bytes(index.read_bytes()[:-10] + bytes(10))
    assert one.files(one.repository.take()) == ["a=2"]
    assert one.repository.touched == {"a"}


def test_equal_records_have_equal_bytes() -> None:
    one = {name: TreeRecord("t", 0o022, {"a": 0o600, "b": 0o755}) for name in "xy"}
    other = {name: TreeRecord("t", 0o022, {"b": 0o755, "a": 0o600}) for name in "yx"}
    assert encode_records(one) == encode_records(other)
    assert decode_records(encode_records(one)) == other


def test_after_the_end_of_the_users_repository_the_tree_is_kept_anew(tmp_path: Path) -> None:
    one = Kept(tmp_path)
    one.act("a=1 d/b=1")
    for words in ("init -q", "add -A", "-c user.name=n -c user.email=e commit -qm first"):
        user_git(one.tree, *words.split())
    borrowed = one.repository.take()
    one.act(".git- a=2")
    found = one.repository.take()
    assert sorted(one.files(found)) == ["a=2", "d/b=1"]
    assert one.repository.touched == {"a", "d/b"}, "nobody knows what has changed"
    assert one.repository.shrink(1 << 20) == 0
    assert one.repository.has(found.tree)
    assert not one.repository.has(borrowed.tree)
    assert one.repository.take() == found


def test_after_the_end_nothing_is_kept(tmp_path: Path) -> None:
    one = Kept(tmp_path)
    one.act("a=1 look a=2")
    one.repository.give_up()
    with pytest.raises(CheckpointError, match="the session has ended"):
        one.repository.take()
    store = CheckpointStore(str(tmp_path / "store"), dict(os.environ))
    store.give_up()
    with pytest.raises(CheckpointError, match="the session has ended"):
        store.take([str(one.tree)])
