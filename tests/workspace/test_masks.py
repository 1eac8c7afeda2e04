"""Files that a rule forbids: which of them are hidden and locked, in trees that change."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from longrein.workspace.sandbox import MaskIndex, masks
from longrein.workspace.sandbox.masks import TOO_MANY, Forbidden, Masks, identity_of
from tests.timeouts import HANG_S


def named(root: Path, word: str) -> Forbidden:
    """The rule that forbids what has `word` in its path below the root."""
    return lambda path, _: word in path.removeprefix(str(root))


def find(
    root: Path, index: MaskIndex, *folders: str, word: str = "secret", limit_s: float = HANG_S
) -> Masks:
    """Look for `word` (hidden) and `locked` below the folders; the root if there are none."""
    given = [str(root / folder) for folder in folders] or [str(root)]
    return index.find(given, named(root, word), named(root, "locked"), word, limit_s)


def short(root: Path, paths: tuple[str, ...]) -> str:
    return " ".join(sorted(os.path.relpath(path, root) for path in paths))


def make(root: Path, names: str) -> None:
    """Make files, `link>target` and hard links `name=of`."""
    for word in names.split():
        name, _, target = word.partition(">")
        name, _, other = name.partition("=")
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if target:
            (root / name).symlink_to(target)
        elif other:
            os.link(root / other, root / name)
        else:
            (root / name).write_text(name)


@pytest.mark.parametrize(("names", "hidden", "locked"), [
    ("a d/b", "", ""),
    ("a secret d/secret", "d/secret secret", ""),
    ("secret/a secret/locked", "secret", ""),
    ("locked/a locked/b/c", "", "locked"),
    ("locked/a locked/b/secret", "locked/b/secret", "locked"),
    ("d/locked d/secret", "d/secret", "d/locked"),
    ("secret-locked", "secret-locked", "secret-locked"),
    # a link counts by its own name, and what it leads to is hidden
    ("a secret>a", "a", ""),
    ("d/a locked>d", "", "d"),
    ("d/a link>d/secret d/secret", "d/secret", ""),
    ("d/secret link>d", "d/secret", ""),
    ("secret>gone", "", ""),
    ("secret>secret", "", ""),
    # another name of a hidden file
    ("secret other=secret", "other secret", ""),
    ("a/secret b/other=a/secret", "a/secret b/other", ""),
    ("b/secret a/other=b/secret", "a/other b/secret", ""),
])  # fmt: skip
def test_what_rules_forbid_is_found(tmp_path: Path, names: str, hidden: str, locked: str) -> None:
    make(tmp_path, names)
    found = find(tmp_path, MaskIndex())
    assert (short(tmp_path, found.hidden), short(tmp_path, found.locked)) == (hidden, locked)
    assert found.problem == ""


@pytest.mark.parametrize(("folders", "hidden", "locked"), [
    ("a b", "a/secret b/secret", "b/locked"),
    ("a a", "a/secret", ""),
    (". a", "a/secret b/secret secret-too", "b/locked"),
    ("secret-too", "secret-too", ""),
    ("secret-too a", "a/secret secret-too", ""),
    ("b", "b/secret", "b/locked"),
    ("b/locked", "", "b/locked"),
    ("none a", "a/secret", ""),
    ("plain a", "a/secret", ""),
])  # fmt: skip
def test_each_of_the_folders_is_looked_through(
    tmp_path: Path, folders: str, hidden: str, locked: str
) -> None:
    make(tmp_path, "a/secret b/secret b/locked/x secret-too/x plain")
    found = find(tmp_path, MaskIndex(), *folders.split())
    assert (short(tmp_path, found.hidden), short(tmp_path, found.locked)) == (hidden, locked)


@pytest.mark.parametrize(("names", "linked", "problem"), [
    ("secret", {}, ""),
    ("secret a=secret", {"secret": "a secret"}, ""),
    ("secret locked=secret", {"secret": "locked secret"}, ""),
    ("locked", {}, ""),
    ("locked a=locked", {"locked": "locked"}, "locked"),
    ("locked locked-too=locked", {"locked": "locked locked-too"}, ""),
    ("d/secret ../outside=d/secret", {"d/secret": "d/secret"}, "d/secret"),
])  # fmt: skip
def test_another_name_that_no_mask_covers_is_told(
    tmp_path: Path, names: str, linked: dict[str, str], problem: str
) -> None:
    root = tmp_path / "root"
    make(root, names)
    found = find(root, MaskIndex())
    expected = {(root / one).stat().st_ino: paths for one, paths in linked.items()}
    assert {inode: short(root, paths) for (_, inode), paths in found.linked.items()} == expected
    said = f"{root}/{problem} has another name (a hard link) that no mask hides" if problem else ""
    assert found.problem == said


def test_a_file_that_was_hidden_stays_so_under_any_name(tmp_path: Path) -> None:
    make(tmp_path, "d/secret other")
    index = MaskIndex()
    for name in ("d/secret", "moved", "d/again"):
        (tmp_path / "d/secret").replace(tmp_path / name)
        for _ in range(2):
            assert short(tmp_path, find(tmp_path, index).hidden) == name
        (tmp_path / name).replace(tmp_path / "d/secret")


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no file system that has handles")
def test_a_later_file_with_the_same_inode_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        paths = [f"{folder}/one", f"{folder}/other"]
        for path in paths:
            Path(path).touch()
        status = os.lstat(paths[0])
        monkeypatch.setattr(os, "lstat", lambda _: status)
        one, again, other = map(identity_of, (paths[0], *paths))
        monkeypatch.undo()
        assert one == again != other


def test_other_rules_are_not_answered_from_what_was_known(tmp_path: Path) -> None:
    make(tmp_path, "secret private")
    index = MaskIndex()
    for word in ("secret", "private", "secret"):
        assert short(tmp_path, find(tmp_path, index, word=word).hidden) == word
    (tmp_path / "secret").rename(tmp_path / "moved")
    assert short(tmp_path, find(tmp_path, index, word="private").hidden) == "private"


@pytest.mark.parametrize(("limit_s", "problem"), [(-1, TOO_MANY), (HANG_S, "")])
def test_a_look_that_takes_too_long_says_so(tmp_path: Path, limit_s: float, problem: str) -> None:
    make(tmp_path, "secret")
    found = find(tmp_path, MaskIndex(), limit_s=limit_s)
    assert found.problem == problem
    assert bool(found.hidden) is not bool(problem)


def test_a_folder_is_read_again_after_a_change_until_its_time_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a/x x")
    index, asked, now = MaskIndex(), set[str](), [0.0]
    monkeypatch.setattr(masks.time, "monotonic", lambda: now[0])

    def rule(path: str, _: str) -> bool:
        asked.add(path.removeprefix(str(tmp_path)))
        return False

    def check(at_s: float, new: str, read: str) -> None:
        if new:
            (tmp_path / new).touch()
        asked.clear()
        now[0] = at_s
        index.find([str(tmp_path)], rule, rule, "rule", HANG_S)
        assert " ".join(sorted(asked - {""})) == read

    check(1.0, "", "/a /a/x /x")
    check(1.04, "", "/a /a/x /x")
    check(10.0, "", "/a /a/x /x")
    check(10.0, "", "")
    check(20.0, "a/y", "/a/x /a/y")
    check(20.04, "", "/a/x /a/y")
    check(30.0, "", "/a/x /a/y")
    check(30.0, "z", "/a /x /z")


def test_another_name_in_a_folder_that_did_not_change_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "x d/y")
    monkeypatch.setattr(masks, "SETTLED_S", -1.0)
    index = MaskIndex()
    assert find(tmp_path, index).hidden == ()
    make(tmp_path, "d/secret=x")
    assert short(tmp_path, find(tmp_path, index).hidden) == "d/secret x"
