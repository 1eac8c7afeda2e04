"""Mounts of a command: what they depend on, and which files replaced under them count."""

import os
from pathlib import Path

import msgspec
import pytest

from longrein.workspace.sandbox import bubblewrap
from longrein.workspace.sandbox.policy import SandboxPolicy
from longrein.workspace.supervisor.mount_process import COVER, WRITE, Mount, encode_plan
from longrein.workspace.supervisor.mount_watch import MountWatch


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
