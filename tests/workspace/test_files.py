"""Atomic writes: a file is replaced completely or not at all, and keeps everything but its
content.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from longrein.workspace import FileStamp, atomic_write
from longrein.workspace import files as files_module
from longrein.workspace.atomic_write import read_closed
from longrein.workspace.files import (
    content_hash,
    read,
    read_up_to,
    refresh_stamp,
    remove,
    resolve_path,
    stamp,
)
from longrein.workspace.supervisor.openat import open_folder
from tests.workspace.writing import write


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def has_changed(path: str, then: FileStamp) -> bool:
    return refresh_stamp(path, then).hash != then.hash


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_R083_mode_is_kept(tmp_path: Path) -> None:
    for bits in (0o644, 0o755, 0o600, 0o640, 0o4755, 0o2755, 0o222):
        path = tmp_path / "file"
        path.write_bytes(b"old")
        path.chmod(bits)
        write(str(path), b"new")
        assert (path.read_bytes(), oct(mode(path))) == (b"new", oct(bits))


def test_R083_a_read_only_file_is_an_error_and_never_a_chmod(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="is read-only"):
        write(str(path), b"new")
    assert (path.read_bytes(), mode(path)) == (b"old", 0o444)
    assert os.listdir(tmp_path) == ["file"]


def test_R083_a_link_stays_and_its_target_changes(tmp_path: Path) -> None:
    """A link is followed when the path is looked up, and never when the file is opened."""
    roots = [str(tmp_path)]
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to("folder/target")
    for opens in (
        write,
        lambda path, data: write(path, data, expect=sha(b"old")),
        lambda path, _: read(path),
    ):
        with pytest.raises(OSError, match="a symbolic link has come into its path"):
            opens(str(link), b"new")
    write(resolve_path("link", str(tmp_path), roots, "").real, b"new", expect=sha(b"old"))
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path / "folder") == ["target"]
    dangling = tmp_path / "dangling"
    dangling.symlink_to("folder/later")
    write(resolve_path("dangling", str(tmp_path), roots, "").real, b"there", expect="")
    assert dangling.is_symlink()
    assert (tmp_path / "folder" / "later").read_bytes() == b"there"


def test_R083_extended_attributes_and_owner_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("no extended attributes on this file system")
    if os.getuid() == 0:
        os.chown(path, 12345, 54321)
        path.chmod(0o4755)
    owner = (path.stat().st_uid, path.stat().st_gid, mode(path))
    write(str(path), b"new")
    assert os.getxattr(path, "user.note") == b"mine"
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == owner


def test_set_id_bits_go_when_the_owner_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a file of somebody else")
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.chown(path, 12345, 54321)
    path.chmod(0o6755)

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(files_module.os, "fchown", refused)
    write(str(path), b"new")
    assert mode(path) == 0o755


def test_a_new_file_has_the_users_mask_and_its_folders(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(str(tmp_path / "a" / "b" / "new"), b"x", expect="")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a" / "b" / "new") == 0o640
    assert mode(tmp_path / "a") == 0o750


@pytest.mark.parametrize(("there", "expect", "written"), [
    (b"old", sha(b"old"), True),
    (b"old", None, True),
    (b"other", sha(b"old"), False),
    (b"old", "", False),
    (None, sha(b"old"), False),
    (None, "", True),
    (None, None, True),
    (b"", sha(b""), True),
])  # fmt: skip
def test_R079_a_file_that_is_not_as_expected_is_left_alone(
    tmp_path: Path, there: bytes | None, expect: str | None, written: bool
) -> None:
    path = tmp_path / "file"
    if there is not None:
        path.write_bytes(there)
    if written:
        write(str(path), b"new", expect=expect)
        assert path.read_bytes() == b"new"
    else:
        with pytest.raises(FileExistsError):
            write(str(path), b"new", expect=expect)
        assert (path.read_bytes() if path.exists() else None) == there
    assert os.listdir(tmp_path) in ([], ["file"]), "no temporary file is left"


@pytest.mark.parametrize("expect", [sha(b"old"), ""])
def test_R079_the_last_look_is_right_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect: str
) -> None:
    path = tmp_path / "file"
    if expect:
        path.write_bytes(b"old")
    flush = os.fsync

    def while_flushing(descriptor: int) -> None:
        flush(descriptor)
        path.write_bytes(b"theirs")

    monkeypatch.setattr(files_module.os, "fsync", while_flushing)
    with pytest.raises(FileExistsError):
        write(str(path), b"ours", expect=expect)
    assert path.read_bytes() == b"theirs"


@pytest.mark.parametrize("changes", [0, 1, 3, atomic_write.READS_MAX])
def test_a_content_that_changed_while_it_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    path, reads = tmp_path / "file", 0
    path.write_bytes(b"0")

    def read_and_change(*args: int) -> bytes:
        nonlocal reads
        reads += 1
        data = read_up_to(*args)
        if reads <= changes:  # by a program that closes the file before the next look
            path.write_bytes(b"0" * (reads + 1))
        return data

    monkeypatch.setattr(atomic_write, "read_up_to", read_and_change)
    with open_folder(str(tmp_path)) as folder:
        if changes < atomic_write.READS_MAX:
            assert read_closed(folder, "file") == path.read_bytes() == b"0" * (changes + 1)
        else:
            with pytest.raises(OSError, match=atomic_write.BUSY):
                read_closed(folder, "file")


@pytest.mark.parametrize("fails", ["write", "fsync", "fchmod", "rename"])
def test_P10_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files_module.os, fails, full)
    with pytest.raises(OSError, match="No space left"):
        write(str(path), b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(
        files_module.os, "write", lambda descriptor, data: real(descriptor, data[:3])
    )
    write(str(tmp_path / "file"), b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


@pytest.mark.parametrize("act", [read, lambda path: write(path, b"x")])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, act: Callable[[str], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for path, error in [
        (str(tmp_path / "pipe"), "is a device, pipe or socket, not a file"),
        ("/dev/zero", "is a device, pipe or socket, not a file"),
        (str(tmp_path / "folder"), "is a folder"),
        (str(tmp_path / "loop"), "a symbolic link has come into its path"),
        (str(tmp_path / ("x" * 5000)), "name too long"),
        (str(tmp_path / "a\0b"), "no usable path"),
    ]:
        with pytest.raises(OSError, match=f"(?i){error}"):
            act(path)


def test_reading_gives_bytes_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"", b"\xef\xbb\xbfa\r\nb\r\n\0\xff", os.urandom(300_001)):
        path.write_bytes(data)
        assert read(str(path)) == data
        assert read(str(path), 5) == data[:5]
        assert content_hash(str(path)) == sha(data)
    assert read(f"/proc/{os.getpid()}/stat").endswith(b"\n"), "a file whose size is not known"
    assert content_hash(str(tmp_path / "none")) == ""
    with pytest.raises(FileNotFoundError):
        read(str(tmp_path / "none"))


def test_a_file_that_memory_cannot_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "READ_BYTES_MAX", 1 << 20)
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(OSError, match="is larger than 1 MiB"):
        read(str(path))
    assert len(read(str(path), 10)) == 10


@pytest.mark.parametrize("expect", [None, sha(b"old")])
def test_another_name_of_a_file_keeps_the_old_content(tmp_path: Path, expect: str | None) -> None:
    """A write never changes a file in place: that is what keeps it whole under other writers."""
    (tmp_path / "file").write_bytes(b"old")
    os.link(tmp_path / "file", tmp_path / "other")
    write(str(tmp_path / "file"), b"new", expect=expect)
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "other").read_bytes() == b"old"


def test_removing_takes_a_file_or_a_link_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    remove(str(tmp_path / "link"))
    assert os.listdir(tmp_path) == ["file"]
    remove(str(tmp_path / "file"))
    with pytest.raises(IsADirectoryError):
        remove(str(tmp_path))


def test_a_file_that_has_become_endless_is_told_apart_by_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    small = stamp(str(path))
    os.truncate(path, 20 << 30)
    huge = stamp(str(path))
    assert has_changed(str(path), small)
    assert not has_changed(str(path), huge)
    assert stamp(str(path)) == huge
    os.truncate(path, 30 << 30)
    assert has_changed(str(path), huge)
    os.truncate(path, 3)
    path.write_bytes(b"one")
    assert stamp(str(path)).hash == small.hash


def test_E22_a_stamp_tells_a_change_from_a_touch(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    then = stamp(str(path))
    assert then.hash == sha(b"one")
    assert not has_changed(str(path), then)
    os.utime(path, ns=(1, 1))
    assert not has_changed(str(path), then), "a touch changes no content"
    path.unlink()
    path.write_bytes(b"one")
    assert not has_changed(str(path), then), "nor does writing the same again"
    path.write_bytes(b"two")
    os.utime(path, ns=(then.mtime_ns, then.mtime_ns))
    assert has_changed(str(path), then), "same size and time, other content"
    path.unlink()
    assert has_changed(str(path), then)
    gone = stamp(str(path))
    assert not has_changed(str(path), gone)
    path.write_bytes(b"")
    assert has_changed(str(path), gone)
