"""Put files of a checkpoint back: each file completely or not at all, through no symbolic link.

A file is checked right before it is replaced: content that nobody has kept is never overwritten.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from hashlib import sha1

import msgspec

from longrein.atomic_file import write_all
from longrein.workspace.atomic_write import new_temp_file
from longrein.workspace.supervisor.openat import Folder, open_parent
from longrein.workspace.tree_records import CheckpointError, TreeFile

CHANGED_NOW = "it was changed just now by somebody else"


class FileTarget(msgspec.Struct, frozen=True):
    """Outcome for one file."""

    path: str
    """Absolute real path."""
    now: TreeFile | None
    """The file as it was kept last; None for none."""
    then: TreeFile | None
    """The file as it shall be; None for none."""


def remove_files(
    targets: Iterable[FileTarget], root: str, keep_folders: Collection[str]
) -> dict[str, str]:
    """Remove files, and folders that become empty; return path -> why not.

    `keep_folders`: absolute paths of folders that stay.
    """
    failed = {}
    for target in targets:
        try:
            folder, name = open_parent(target.path)
            with folder:
                if folder.has(name):
                    _check(folder, name, target.now)
                    folder.unlink(name)
        except FileNotFoundError:
            continue
        except OSError as error:
            failed[target.path] = _reason(error)
            continue
        remove_empty_folders(os.path.dirname(target.path), root, keep_folders)
    return failed


def remove_empty_folders(folder: str, root: str, keep_folders: Collection[str]) -> None:
    """Remove `folder` and those above it, below `root`, as long as they are empty and not to be
    kept.
    """
    while folder.startswith(root.rstrip("/") + "/") and folder not in keep_folders:
        try:
            above, name = open_parent(folder)
            with above:
                above.remove_folder(name)
        except OSError:
            return
        folder = os.path.dirname(folder)


def put_files(
    targets: Mapping[str, list[FileTarget]],
    contents: Callable[[Iterable[str]], Iterable[tuple[str, bytes | None]]],
) -> dict[str, str]:
    """Write files, given by their blob; return path -> why not. `contents` may raise
    `CheckpointError`.
    """
    failed: dict[str, str] = {}
    left = dict(targets)
    try:
        for blob, data in contents(targets):
            for target in left.pop(blob):
                _try_put(target, data, failed)
    except CheckpointError as error:
        failed.update((target.path, str(error)) for group in left.values() for target in group)
    return failed


def _try_put(target: FileTarget, data: bytes | None, failed: dict[str, str]) -> None:
    if data is None:
        failed[target.path] = "its old content is no longer kept"
        return
    try:
        put_file(target, data)
    except OSError as error:
        failed[target.path] = _reason(error)


def put_file(target: FileTarget, data: bytes) -> None:
    """Write one file, or a symlink to the path `data`. Raises OSError."""
    assert target.then is not None
    folder, name = open_parent(target.path, make=True)
    with folder:
        if target.now is None and folder.is_folder(name):
            with suppress(OSError):  # it has other files
                folder.remove_folder(name)
        _check(folder, name, target.now)
        if target.now is not None and _same_content(target.now, target.then):
            if target.then.permissions:
                folder.set_mode(name, target.then.permissions)
            return
        temp = new_temp_file().name
        try:
            if stat.S_ISLNK(target.then.kind):
                os.symlink(data, os.fsencode(temp), dir_fd=folder.descriptor)
            else:
                _write(folder, temp, data, target.then.permissions)
            folder.rename(temp, name)
        except OSError:
            with suppress(OSError):
                folder.unlink(temp)
            raise


def _same_content(now: TreeFile, then: TreeFile) -> bool:
    return now.blob == then.blob and stat.S_IFMT(now.kind) == stat.S_IFMT(then.kind)


def _write(folder: Folder, name: str, data: bytes, permissions: int) -> None:
    descriptor = folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        write_all(descriptor, data)
        os.fchmod(descriptor, permissions)
    finally:
        os.close(descriptor)


def _check(folder: Folder, name: str, expected: TreeFile | None) -> None:
    """Raise OSError unless the file is the expected one, or none is."""
    try:
        seen = folder.stat(name)
    except FileNotFoundError:
        if expected is None:
            return
        raise OSError(errno.EBUSY, CHANGED_NOW) from None
    if expected is None:
        if stat.S_ISDIR(seen.st_mode):
            raise OSError(errno.EISDIR, "a folder with other files is in its place")
        raise OSError(errno.EEXIST, CHANGED_NOW)
    if blob_of(folder, name, seen) != expected.blob or stat.S_ISLNK(seen.st_mode) != stat.S_ISLNK(
        expected.kind
    ):
        raise OSError(errno.EBUSY, CHANGED_NOW)


def blob_of(folder: Folder, name: str, seen: os.stat_result) -> str:
    """Return git's name of the content of a file or symlink; '' for anything else. Raises
    OSError.
    """
    if stat.S_ISLNK(seen.st_mode):
        data = os.readlink(os.fsencode(name), dir_fd=folder.descriptor)
    elif stat.S_ISREG(seen.st_mode):
        with open(folder.open(name, os.O_RDONLY), "rb") as file:
            data = file.read()
    else:
        return ""
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
