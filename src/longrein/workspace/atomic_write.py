"""Atomic replacement of a file that other programs may write at the same time.

The new content is written to a temporary file beside the target and exchanged with it in one step.
The replaced content is then checked. Where it is not the expected one, another program has written
meanwhile: its file is put back, and both texts are merged once. Until then its file has a temporary
name that tells what it is (see `temp_files`), so a crash loses nothing.

A program that still writes to the file is waited for. If it keeps the file open, the file stays.
"""

import os
from contextlib import nullcontext, suppress
from hashlib import sha256

import msgspec

from longrein.workspace.atomic_temp_files import (
    TempFile,
    exchange,
    folder_lock,
    free_name_beside,
    link_new,
    name_hash,
    new_temp_file,
    read_closed,
    recover_temp_files,
    short_hash,
)
from longrein.workspace.files import (
    check_writable,
    content_hash,
    read,
    write_and_close,
)
from longrein.workspace.supervisor.openat import Folder, open_parent
from longrein.workspace.workspace_port import Merge, ReplaceResult

TRIES_MAX = 2
"""Writes by others at the very moment before the replacement is refused and their content stays."""

_recovered: dict[str, None] = {}


def replace(
    path: str,
    data: bytes,
    *,
    expect: str,
    base: bytes | None = None,
    merge: Merge | None = None,
    like: str = "",
) -> ReplaceResult:
    """Replace content `expect` by `data`; see `Workspace.replace`. `path` is a real path.

    A read-only file is a `PermissionError`, also for root; its mode is never changed. Another hard
    link of the file keeps the old content.
    """
    folder, name = open_parent(path, make=not expect)
    with folder, folder_lock(folder):
        _recover_once(folder.path)
        if not expect:
            return _create(folder, name, data, like)
        return _replace(folder, name, data, expect, base, merge)


def _recover_once(folder: str) -> None:
    """Recover the temporary files of killed processes, before the first write to a folder."""
    if folder not in _recovered:
        _recovered[folder] = None
        recover_temp_files([folder])


def _create(folder: Folder, name: str, data: bytes, like: str) -> ReplaceResult:
    if check_writable(folder, name) is not None:
        return ReplaceResult(None, (read(name, 0, folder),))
    temp = prepare_temp_file(folder, name, data, like=like)
    try:
        link_new(folder, temp.name, name)
    except FileExistsError:
        return ReplaceResult(None, (read(name, 0, folder),))
    finally:
        _remove_temp_file(folder, temp)
    return ReplaceResult(data)


def prepare_temp_file(
    folder: Folder, name: str, data: bytes, expect: str = "", like: str = ""
) -> TempFile:
    """Write `data` to a temporary file beside the file `name`, with the owner and mode of that one,
    or of the file with path `like`.

    Raises OSError and then leaves nothing.
    """
    above, model = open_parent(like) if like else (folder, name)
    with above if like else nullcontext():
        old = check_writable(above, model)
        temp, descriptor = _open_temp_file(folder, 0o666 if old is None else 0o600)
        try:
            write_and_close(descriptor, data, above, model, old)
            whole = msgspec.structs.replace(
                temp,
                target_hash=name_hash(name),
                new_hash=short_hash(sha256(data).hexdigest()),
                expected_hash=short_hash(expect),
            )
            folder.rename(temp.name, whole.name)
        except OSError:
            _remove_temp_file(folder, temp)
            raise
        return whole


def _open_temp_file(folder: Folder, mode: int) -> tuple[TempFile, int]:
    while True:
        temp = new_temp_file()
        try:
            return temp, folder.open(temp.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue  # left by an earlier process with our pid


def _remove_temp_file(folder: Folder, temp: TempFile) -> None:
    with suppress(FileNotFoundError):
        folder.unlink(temp.name)


# --- Replacement of an existing file --------------------------------------------------------------


def _replace(
    folder: Folder, name: str, ours: bytes, expect: str, base: bytes | None, merge: Merge | None
) -> ReplaceResult:
    """Replace content `expect` by `ours`, made from `base`. Raises OSError."""
    foreign: dict[bytes, None] = {}
    for _ in range(TRIES_MAX):
        theirs = read_closed(folder, name)
        if _sha256_hex(theirs) != expect:
            foreign.pop(theirs, None)
            foreign[theirs] = None
            merged = None if base is None or merge is None else merge(base, ours, theirs)
            if merged is None or merged == theirs:  # a conflict, or theirs contains our change
                return ReplaceResult(merged, tuple(foreign))
            base = theirs
            ours = merged
            expect = _sha256_hex(theirs)
        displaced = _exchange(folder, name, ours, expect)
        if displaced is None:
            return ReplaceResult(ours, tuple(foreign))
        foreign[displaced] = None
    theirs = read_closed(folder, name)
    foreign.pop(theirs, None)
    return ReplaceResult(None, (*foreign, theirs))


def _exchange(folder: Folder, name: str, ours: bytes, expect: str) -> bytes | None:
    """Exchange `ours` with the file. Returns None, or the unexpected content that stood there,
    which is put back.

    Raises OSError; the file is then as others left it.
    """
    temp = prepare_temp_file(folder, name, ours, expect)
    try:
        exchanged = exchange(folder, temp.name, name)
    except OSError:
        _remove_temp_file(folder, temp)
        raise
    if not exchanged:
        return None
    try:
        displaced = read_closed(folder, temp.name)
    except OSError:
        _put_back(folder, name, temp, ours)
        raise
    if _sha256_hex(displaced) != expect:
        _put_back(folder, name, temp, ours)
        return displaced
    _remove_temp_file(folder, temp)
    return None


def _put_back(folder: Folder, name: str, temp: TempFile, ours: bytes) -> None:
    """Put the replaced file itself back: another program may still write to it.

    A text that others wrote over ours meanwhile is kept beside it.
    """
    with suppress(OSError):  # the file is gone; recovery finds the replaced one
        exchange(folder, temp.name, name)
        if content_hash(temp.name, folder) == _sha256_hex(ours):
            _remove_temp_file(folder, temp)
        else:
            folder.rename(temp.name, free_name_beside(folder, name))


def _sha256_hex(data: bytes) -> str:
    return sha256(data).hexdigest()
