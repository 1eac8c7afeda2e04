"""Mounts of a command: what they depend on, and which files replaced under them count."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from longrein.workspace.sandbox import bubblewrap
from longrein.workspace.sandbox.policy import SandboxPolicy
from longrein.workspace.supervisor import kept_mounts
from longrein.workspace.supervisor.kept_mounts import KeptMounts
from longrein.workspace.supervisor.mount_process import COVER, READ, WRITE, Mount, encode_plan
from longrein.workspace.supervisor.mount_watch import MountWatch, Plan


class Watched:
    """A waiting sandbox whose mount over `.env` is watched."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.dropped = folder, 0
        root, hidden = str(folder / "root"), str(folder / "root/.env")
        (folder / "root").mkdir()
        Path(hidden).touch()
        self.plan = folder / "plan"
        self.plan.write_bytes(encode_plan([Mount(WRITE, root, root), Mount(COVER, hidden, "")]))
        self.watch = MountWatch(lambda _descriptor, _look: None, lambda _line: None)

    def start(self) -> None:
        self.watch.remove(1)
        self.watch.add(1, self.watch.prepare(str(self.plan)), self.drop)

    def drop(self) -> None:
        self.dropped += 1

    def replace(self) -> None:
        (self.folder / "new").touch()
        (self.folder / "new").rename(self.folder / "root/.env")


def test_a_file_that_was_replaced_before_a_command_is_no_change_for_it(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.start()
    watched.replace()
    watched.start()
    watched.watch.look()
    assert watched.dropped == 0
    watched.replace()
    watched.watch.look()
    assert watched.dropped == 1


@pytest.mark.parametrize("share", [0.5, 1.01], ids=["many", "more than the kernel keeps"])
def test_a_replaced_file_is_seen_among_many_new_ones(tmp_path: Path, share: float) -> None:
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    watched = Watched(tmp_path)
    watched.start()
    for number in range(int(kept * share)):
        os.mkdir(tmp_path / f"root/{number}")
    watched.replace()
    watched.watch.look()
    assert watched.dropped == 1


def test_a_file_that_comes_into_an_empty_folder_of_others_changes_no_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "EMPTIED", (str(tmp_path),))
    before = bubblewrap.plan_of(SandboxPolicy(("/work",)))
    (tmp_path / "of-others").touch()
    assert bubblewrap.plan_of(SandboxPolicy(("/work",))) == before
    assert os.fsencode(tmp_path) in before


@pytest.mark.parametrize("field", ["home_visible", "home_writable", "roots", "read_only", "hidden"])
def test_a_path_that_comes_or_goes_changes_the_mounts_of_a_policy(
    tmp_path: Path, field: str
) -> None:
    path = tmp_path / "path"
    policy = msgspec.structs.replace(SandboxPolicy((str(tmp_path),)), **{field: (str(path),)})
    plans = [bubblewrap.plan_of(policy)]
    path.mkdir()
    plans.append(bubblewrap.plan_of(policy))
    path.rmdir()
    assert bubblewrap.plan_of(policy) == plans[0] != plans[1]


# --- Mounts that are kept -------------------------------------------------------------------------


class Keeping:
    """Mounts of one plan that are kept: a root with a hidden file and a locked one."""

    def __init__(self, folder: Path) -> None:
        self.root, self.late = folder / "root", list[Callable[[], None]]()
        self.hidden, self.locked = self.root / ".env", self.root / "settings"
        self.root.mkdir()
        self.hidden.touch()
        self.locked.touch()
        self.watch = MountWatch(lambda _descriptor, _look: None, lambda _line: None)
        # a user namespace of its own is needed to make mounts: here a file stands for them
        self.kept = KeptMounts(0, self.watch, lambda _seconds, call: self.late.append(call))
        self.made = 0

    def make(self, _plan: bytes, _namespace: int) -> int:
        self.made += 1
        return os.open("/", os.O_RDONLY)

    def command(self) -> int:
        """Find the mounts for a command; return how often they were made until now."""
        mounts = [
            Mount(WRITE, str(self.root), str(self.root)),
            Mount(COVER, str(self.hidden), "/dev/null"),
            Mount(READ, str(self.locked), str(self.locked)),
        ]
        plan = self.root.with_name("plan")
        plan.write_bytes(encode_plan(mounts))
        self.kept.find(self.watch.prepare(str(plan)))
        return self.made

    def replace(self, path: Path) -> None:
        new = self.root.with_name("new")
        new.touch()
        new.rename(path)

    def remove_and_make(self, path: Path) -> None:
        path.unlink()
        path.touch()

    def replace_root(self) -> None:
        self.root.rename(self.root.with_name("was"))
        self.root.mkdir()
        self.hidden.touch()
        self.locked.touch()


CHANGES: dict[str, Callable[[Keeping], None]] = {
    "a hidden file replaced": lambda one: one.replace(one.hidden),
    "a locked file replaced": lambda one: one.replace(one.locked),
    "a hidden file made anew": lambda one: one.remove_and_make(one.hidden),
    "another root": Keeping.replace_root,
    "a minute": lambda one: one.late[-1](),
    "longrein has left": lambda one: one.kept.drop_all(),
}


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "without inotify"])
@pytest.mark.parametrize("change", CHANGES)
def test_kept_mounts_are_those_of_the_files_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, watched: bool
) -> None:
    keeping = Keeping(tmp_path)
    monkeypatch.setattr(kept_mounts, "open_mount_namespace", keeping.make)
    if not watched:
        monkeypatch.setattr(MountWatch, "_watch_folders", lambda _self, _folders: None)
    assert [keeping.command() for _ in range(4)] == [0, 1, 1, 1], "from the second command on"
    (keeping.root / "more").touch()
    assert keeping.command() == 1, "another file is of no account"
    CHANGES[change](keeping)
    assert max(keeping.command() for _ in range(3)) == 2


def test_mounts_of_few_plans_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = Keeping(tmp_path)
    opened = list[int]()

    def make(plan: bytes, namespace: int) -> int:
        opened.append(keeping.make(plan, namespace))
        return opened[-1]

    monkeypatch.setattr(kept_mounts, "open_mount_namespace", make)
    for number in range(2 * kept_mounts.PLANS_MAX):
        plan = Plan([Mount(WRITE, f"/{number}", f"/{number}")], ())
        assert keeping.kept.find(plan) == -1
        assert [keeping.kept.find(plan) for _ in range(2)] == [opened[-1]] * 2
    assert len(opened) == 2 * kept_mounts.PLANS_MAX
    assert sum(os.path.exists(f"/proc/self/fd/{one}") for one in {*opened}) == kept_mounts.PLANS_MAX
    keeping.kept.drop_all()
    assert not any(os.path.exists(f"/proc/self/fd/{one}") for one in {*opened})


def test_mounts_that_cannot_be_made_are_left_to_the_command(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    keeping.kept = KeptMounts(-1, keeping.watch, lambda _seconds, _call: None)
    assert [keeping.command() for _ in range(3)] == [0, 0, 0]
