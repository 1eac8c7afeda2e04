"""The way of a work tree back to a checkpoint: what is restored, what stays, and why."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from longrein.agent.rewind_log import Gap
from longrein.agent.rewind_trees import (
    IGNORED,
    NOT_KEPT,
    OldContent,
    RootPlan,
    _older_contents,
    carry_out,
    make_plan,
)
from longrein.events import FileChanged
from longrein.workspace import shadow_repository
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.tree_records import CheckpointError
from tests.agent.test_rewind_log import entries
from tests.support.tree_operations import picture
from tests.workspace.test_shadow_repository import CHANGES, Kept

SINCE = "it was changed since by somebody else"


class Trees(Kept):
    """A work tree and its checkpoints."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = CheckpointStore(str(folder / "store"), dict(os.environ))
        self.root = str(self.tree)

    def take(self, words: str = "") -> str:
        """Act and keep the tree; return the name of the checkpoint."""
        self.act(words)
        return self.store.take([self.root])[0]

    def plan(
        self,
        name: str,
        gaps: Sequence[Gap] = (),
        older: Mapping[str, OldContent] | None = None,
        unclaimed: Sequence[str] = (),
        *,
        overwrite: bool = False,
    ) -> RootPlan:
        _, now = self.store.take([self.root])
        old = {f"{self.root}/{path}": one for path, one in (older or {}).items()}
        names = [f"{self.root}/{path}" for path in unclaimed]
        (plan,) = make_plan(self.store, name, now, gaps, old, unclaimed=names, overwrite=overwrite)
        return plan

    def back(self, plan: RootPlan) -> tuple[str, dict[str, str]]:
        """Carry a plan out; return what was done (`-` before what was removed), and why not."""
        puts = carry_out(plan)
        short = {put: os.path.relpath(put.path, self.root) for put in puts}
        done = sorted("-" * put.removed + short[put] for put in puts if put.done)
        return " ".join(done), {short[put]: put.why for put in puts if not put.done}

    def edits(self, *edits: str) -> dict[str, list[FileChanged]]:
        """`f:1>2`: the agent's edit of f from content 1 to 2; `f:1>2/u` over the user's."""
        found = dict[str, list[FileChanged]]()
        for edit in edits:
            path, _, texts = edit.partition(":")
            texts, _, over = texts.partition("/")
            before, after = (text and digest(text) for text in texts.split(">"))
            change = FileChanged(f"{self.root}/{path}", after, "agent", "", before, over=over)
            found.setdefault(change.path, []).append(change)
        return found


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def old(text: str, replaced: str, *, is_kept: bool = True) -> OldContent:
    read = text.encode if is_kept else None
    return OldContent(text and digest(text), digest(replaced), read)


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


def test_all_that_changed_is_as_it_was(trees: Trees) -> None:
    same = [change for change in CHANGES if change[0][:5] not in ("grows", "shrin", "g/.gi")]
    more = " l>a same-content=b s>b x/y/z/"
    name = trees.take(" ".join(first for first, _, _ in same) + more)
    before = picture(trees.tree)
    trees.act(" ".join(then for _, then, _ in same) + " l- l=a s- s=b x- deep/er/new=1 e/mpty/")
    done, kept = trees.back(trees.plan(name))
    assert kept == {}
    assert picture(trees.tree) == before
    names = sorted((trees.tree).iterdir())
    assert not {trees.tree / "deep", trees.tree / "e", trees.tree / "new2"} & {*names}
    changed = {name for _, _, names in same for name in names.split()} | {"l", "s", "deep/er/new"}
    removed = {"new", "new2/e", "file/b", "folder", "empty/b", "deep/er/new"}
    assert {*done.split()} == {"-" * (name in removed) + name for name in changed}


def test_a_mode_is_restored_in_the_file_itself(trees: Trees) -> None:
    name = trees.take("a=1")
    os.link(trees.tree / "a", trees.folder / "outside")
    trees.act("a:600")
    assert trees.back(trees.plan(name)) == ("a", {})
    assert (trees.tree / "a").samefile(trees.folder / "outside")
    assert stat.S_IMODE((trees.folder / "outside").stat().st_mode) == 0o644


def test_what_was_ignored_or_left_out_stays_and_is_named(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_repository, "FILE_BYTES_MAX", 7)
    name = trees.take(
        ".gitignore=*.o a.o=1 gone=12345678 same=12345678 small=12345678 large=1 repo! repo/f=1"
    )
    trees.act(".gitignore- new.o=1 new=1 gone- small=1 large=12345678 repo- second=12345678")
    large = f"{NOT_KEPT}: larger than 0 MB"
    done, kept = trees.back(trees.plan(name))
    assert done == "-new .gitignore"
    assert kept == {
        **dict.fromkeys(("a.o", "new.o"), IGNORED),
        **dict.fromkeys(("gone", "small", "large"), large),
        "repo": f"{NOT_KEPT}: {shadow_repository.INNER}",
    }
    assert (trees.tree / "large").read_text() == "12345678"


def test_what_others_changed_meanwhile_stays(trees: Trees) -> None:
    first = trees.take(
        "mine=0 theirs=0 both=0 edit=0 twice=0 wrong=0 over=0 gone=0 odd=0 odd:600 "
        "lost=0 lost2=0 left=0"
    )
    second = trees.take("mine=1 both=1 new=1")
    edits = trees.edits("edit:0>2", "twice:0>1", "twice:1>2", "wrong:7>2", "over:0>2/u", "gone:0>")
    edits |= trees.edits("made:>2", "later:>3", "odd:0>0")
    third = trees.take(
        "theirs=2 both=2 came=2 edit=2 twice=2 wrong=2 over=2 gone- made=2 later=2 odd:644 "
        "lost=2 left-"
    )
    trees.act("mine=3 last=3 lost- lost2-")

    def kept(gap: Gap) -> dict[str, str]:
        plan = trees.plan(first, [gap])
        return {os.path.relpath(path, trees.root): why for path, why in plan.kept.items()}

    theirs = ("theirs", "both", "came", "wrong", "over", "later", "odd", "left")
    assert kept(Gap(second, third, edits)) == dict.fromkeys(theirs, SINCE)
    for tasks, why in (
        (("t1",), "it changed while t1 was running, perhaps by you"),
        (("t1", "t2"), "it changed while t1 and t2 were running, perhaps by you"),
    ):
        assert kept(Gap(second, third, edits, tasks)) == dict.fromkeys(theirs, why)
    assert kept(Gap(third, "", {})) == dict.fromkeys(("mine", "last", "lost", "lost2"), SINCE)
    assert kept(Gap(third, third, {})) == {}
    plan = trees.plan(first, [Gap(second, third, edits)], unclaimed=["mine", "unchanged", "lost2"])
    done, stays = trees.back(plan)
    command = "it changed while a command was running, perhaps by you"
    assert stays == {**dict.fromkeys(theirs, SINCE), "mine": command}
    assert done == "-last -made -new edit gone lost lost2 twice"
    plan = trees.plan(first, [Gap(second, third, edits)], unclaimed=[""])
    assert trees.back(plan)[0] == ""
    plan = trees.plan(first, [Gap(second, third, edits)], unclaimed=[""], overwrite=True)
    assert trees.back(plan) == ("-came -later both left mine odd over theirs wrong", {})


def test_a_name_that_is_not_utf_8_is_told_in_the_form_of_the_log(trees: Trees) -> None:
    name = trees.take("caf\udce9=0 a=0")
    trees.act("caf\udce9=1 a=1")
    kept = {"caf\ufffd": "it changed while a command was running, perhaps by you"}
    assert trees.back(trees.plan(name, unclaimed=["caf\ufffd"])) == ("a", kept)


def test_edited_files_become_older_than_the_checkpoint(trees: Trees) -> None:
    name = trees.take("a=1 program=1 program:755 removed=1 lost=1 theirs=9 same=1 out=1")
    trees.act("a=2 gone-later=2 back=2 out-")
    older = {
        "a": old("0", "1"),
        "program": old("0", "1"),
        "removed": old("", "1"),
        "lost": old("0", "1", is_kept=False),
        "theirs": old("0", "1"),
        "out": old("", "1"),
        "back": OldContent(digest("0"), "", lambda: b"0"),
        "elsewhere": old("0", "1"),
    }
    done, kept = trees.back(trees.plan(name, older=older))
    assert done == "-gone-later -removed a back program"
    assert kept == {"lost": NOT_KEPT, "theirs": SINCE}
    found = trees.store.take([trees.root])[1][trees.root]
    repository = trees.store.repository(trees.root)
    modes = {path: stat.S_IMODE(file.permissions) for path, file in repository.files(found).items()}
    assert modes == {
        **dict.fromkeys(("a", "lost", "theirs", "same", "back"), 0o644),
        "program": 0o755,
    }
    texts = {path: (trees.tree / path).read_text() for path in ("a", "program", "back", "lost")}
    assert texts == {"a": "0", "program": "0", "back": "0", "lost": "1"}


@pytest.mark.parametrize(
    ("words", "to", "found"),
    [
        ("f:1 f:1>2", 1, "1 2 kept"),
        ("f:1 f:1>2", 2, None),
        ("f:1>2 g:5", 1, None),
        ("f:1>2 f:2 f:2>1", 2, "2 1 kept"),
        ("f:1 f:1>2 f:2>1", 1, None),
        ("g:5 f:>2", 1, "- 2 lost"),
        ("f:1! f:1>2", 1, "1 2 lost"),
        ("f:1 f:1>2/u", 1, "1 merged kept"),
        ("f:1>2/u f:2 f:2>3", 1, "2 3 kept"),
    ],
)
def test_edits_before_the_first_checkpoint_are_known(
    words: str, to: int, found: str | None
) -> None:
    """The content to restore, the one that the edits left, and whether the first one is kept."""
    older = _older_contents(str.encode, entries(words), to).get("f")
    if found is None:
        assert older is None
        return
    assert older is not None
    kept = "lost" if older.read is None else "kept"
    assert f"{older.hash or '-'} {older.replaced} {kept}" == found
    assert older.read is None or older.read() == older.hash.encode()


def test_what_changes_between_the_plan_and_the_restore_stays(trees: Trees) -> None:
    name = trees.take("a=1 b=1 c=1 d=1 e/ f/g=1 link>a")
    trees.act("a=2 b=2 c- d- e- new=1 newer=1 f- mode=1 link- link=b")
    plan = trees.plan(name)
    trees.act("a=9 b- c=9 d/x=9 e=9 new=9 newer- newer>a f=9 link- link>b")
    done, kept = trees.back(plan)
    now = "it was changed just now by somebody else"
    assert kept == {
        **dict.fromkeys(("a", "b", "c", "new", "newer", "link"), now),
        "d": "a folder with other files is in its place",
        "e": "a file is in its place",
        "f/g": "Not a directory",
    }
    assert done == "-mode"


def test_contents_that_are_lost_are_named(trees: Trees) -> None:
    name = trees.take("a=1 b=1 c=3")
    trees.act("a=2 b=2 c=4")
    plan = trees.plan(name)
    contents = plan.repository.contents
    plan.repository.contents = lambda blobs: (  # type: ignore[method-assign]
        (blob, None if data == b"1" else data) for blob, data in contents(blobs)
    )
    lost = "its old content is no longer kept"
    assert trees.back(plan) == ("c", {"a": lost, "b": lost})

    def broken(blobs: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        yield next(contents(blobs))
        raise CheckpointError("git ended")

    trees.act("c=5")
    plan = trees.plan(name)
    plan.repository.contents = broken  # type: ignore[method-assign]
    assert trees.back(plan) == ("a b", {"c": "git ended"})


def test_a_root_that_becomes_empty_stays(trees: Trees) -> None:
    name = trees.take()
    trees.act("new=1 d/new=1")
    assert trees.back(trees.plan(name)) == ("-d/new -new", {})
    assert list(trees.tree.iterdir()) == []


def test_a_time_without_the_root_tells_nothing_of_its_files(trees: Trees) -> None:
    first = trees.take("a=1")
    (trees.folder / "other").mkdir()
    without, _ = trees.store.take([str(trees.folder / "other")])
    last = trees.take("a=2")
    for gap in (Gap(without, last, {}), Gap(first, without, {}), Gap(without, "", {})):
        assert trees.plan(first, [gap]).kept == {}
