"""Atomic replacement of a file that other programs may write at the same time.

The new content is written to a temporary file beside the target and exchanged with it in one step.
The replaced content is then checked. Where it is not the expected one, another program has written
meanwhile: both texts are merged and written, or the other text is restored. Until then the other
text is kept under a temporary name that tells what it is (see `temp_files`), so a crash loses
nothing.

A program that still writes to the replaced file is waited for. If it keeps the file open, the file
is put back.
"""

import errno
import os
import stat
from contextlib import nullcontext, suppress
from hashlib import sha256

import msgspec

from longrein.workspace.files import (
    check_writable,
    not_a_file_error,
    open_regular,
    read,
    write_and_close,
)
from longrein.workspace.supervisor.openat import Folder, open_parent
from longrein.workspace.temp_files import (
    LateWrite,
    TempFile,
    contains_all_lines,
    exchange,
    find_late_writes,
    folder_lock,
    free_name_beside,
    link_new,
    name_hash,
    new_temp_file,
    read_closed,
    read_when_closed,
    recover_temp_files,
    remove_later,
    short_hash,
    watch_replaced,
)
from longrein.workspace.workspace_port import Merge, ReplaceResult

ROUNDS_MAX = 8
"""Writes by others in a row before the replacement is refused and their content stays."""
UNKNOWN_HASH = "0" * 16
BUSY = "is open for writing in another program"

_recovered: dict[str, None] = {}


def write(path: str, data: bytes, *, expect: str | None = None) -> None:
    """Replace a file atomically, keeping mode, owner and extended attributes. `path` is a real
    path.

    With `expect` (a content hash, '' for "must not exist") another content raises `FileExistsError`
    and stays. A read-only file is a `PermissionError`, also for root; its mode is never changed.
    Another hard link of the file keeps the old content. Raises OSError; then the old file is
    untouched.
    """
    if expect is not None:
        try:
            replaced = replace(path, data, expect=expect)
        except FileNotFoundError:
            raise FileExistsError(errno.EEXIST, "was removed by somebody else", path) from None
        if replaced.data is None:
            raise FileExistsError(errno.EEXIST, "was changed by somebody else", path)
        return
    folder, name = open_parent(path, make=True)
    with folder:
        temp = prepare_temp_file(folder, name, data)
        try:
            folder.rename(temp.name, name)
        except OSError:
            _remove_temp_file(folder, temp)
            raise


def replace(
    path: str,
    data: bytes,
    *,
    expect: str,
    base: bytes | None = None,
    merge: Merge | None = None,
    like: str = "",
) -> ReplaceResult:
    """Replace content `expect` (its hash, '' for "must not exist") by `data`; see
    `Workspace.replace`.
    """
    folder, name = open_parent(path, make=not expect)
    with folder, folder_lock(folder):
        _recover_once(folder.path)
        merge_late_writes(merge, lock=False)
        return (
            _Replacement(folder, name, base, merge).run(data, expect)
            if expect
            else _create(folder, name, data, like)
        )


def merge_late_writes(merge: Merge | None, *, lock: bool) -> None:
    """Merge writes to already replaced files into the present ones, or save them beside those.

    `lock`: whether to lock the folders of these files. A caller that holds a lock takes no second
    one.
    """
    for late in find_late_writes():
        with suppress(OSError):
            folder, name = open_parent(late.target)
            with folder, folder_lock(folder) if lock else nullcontext():
                _merge_late_write(folder, name, late, merge)


def _merge_late_write(folder: Folder, name: str, late: LateWrite, merge: Merge | None) -> None:
    texts = [late.data]
    with suppress(OSError):
        replaced = _Replacement(folder, name, late.before, merge).run(
            late.data, _sha256_hex(late.before)
        )
        texts = [] if replaced.data is not None else [late.data, *replaced.taken[:-1]]
    for text in texts:
        with suppress(OSError):
            temp = prepare_temp_file(folder, name, text)
            folder.rename(temp.name, free_name_beside(folder, name))


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


def _remove_temp_file(folder: Folder, temp: TempFile | None) -> None:
    if temp is not None:
        with suppress(FileNotFoundError):
            folder.unlink(temp.name)


class _Replacement:
    """A replacement, with the contents that others wrote meanwhile."""

    def __init__(self, folder: Folder, name: str, base: bytes | None, merge: Merge | None) -> None:
        self.folder = folder
        self.name = name
        self.base = base
        """Common ancestor of our content and theirs."""
        self.merge = merge
        self.foreign: list[bytes] = []
        """Unexpected contents that were found, the present one last."""
        self.versions: list[bytes] = []
        """Contents that the file has held since, ours and others'."""
        self.displaced: TempFile | None = None
        """The last replaced file, while its content is not in the target again."""
        self.displaced_data: bytes | None = None
        """Its content; None while it is not known."""
        self.ours = b""
        """The content that replaced it."""

    @property
    def path(self) -> str:
        """Path of the file, for messages."""
        return self.folder.path_of(self.name)

    def run(self, ours: bytes, expect: str) -> ReplaceResult:
        """Replace content `expect` by `ours`. Raises OSError only when no other text was found."""
        try:
            data = self._exchange_until_stable(ours, expect)
        except OSError:
            self._put_back()
            if not self.foreign:
                raise
            data = None
        else:
            if (
                data is None and self.displaced_data == self.foreign[-1]
            ):  # ours stands in the place of theirs
                self._put_back()
        if data is None:
            self._keep_beside()
        else:
            _remove_temp_file(self.folder, self.displaced)  # its text is in the merged content
        return ReplaceResult(data, tuple(self.foreign))

    def _exchange_until_stable(self, ours: bytes, expect: str) -> bytes | None:
        """Exchange and merge until nobody else writes; None when the other content is to stay."""
        for _ in range(ROUNDS_MAX):
            theirs = self._unexpected_content(expect)
            there = ours if theirs is None else theirs
            if theirs is None:
                theirs = self._exchange(ours, expect)
            if theirs is None:
                return ours
            merged = self._merge(ours, theirs)
            if merged is None or merged == there:  # a conflict, or theirs contains our change
                return merged
            ours, expect = merged, _sha256_hex(there)
        return None

    def _unexpected_content(self, expect: str) -> bytes | None:
        """Return the present content; None when it is the expected one.

        Raises OSError when the file is gone or busy.
        """
        data = read_closed(self.folder, self.name)
        if data is None:
            raise OSError(errno.EBUSY, BUSY, self.path)
        return None if _sha256_hex(data) == expect else data

    def _merge(self, ours: bytes, theirs: bytes) -> bytes | None:
        """Merge both; None for a conflict. Theirs may be based on `base` or on a version written
        since.
        """
        self.foreign = [*(one for one in self.foreign if one != theirs), theirs]
        if self.base is None or self.merge is None:
            return None
        merged = self.merge(self.base, ours, theirs)
        for base in reversed(self.versions):
            if merged is None:
                merged = self.merge(base, ours, theirs)
                merged = (
                    merged
                    if merged is not None and _has_all_changes(merged, self.base, ours, theirs)
                    else None
                )
        self.versions.append(theirs)
        return merged

    def _exchange(self, ours: bytes, expect: str) -> bytes | None:
        """Exchange `ours` with the file. Returns the replaced content; None when it is the expected
        one.

        Raises OSError; `displaced` is then the replaced file.
        """
        temp = prepare_temp_file(self.folder, self.name, ours, expect)
        if self.displaced is not None:
            renamed = msgspec.structs.replace(self.displaced, merged_hash=temp.new_hash)
            self.folder.rename(self.displaced.name, renamed.name)
            self.displaced = renamed
        try:
            exchanged = exchange(self.folder, temp.name, self.name)
        except OSError:
            _remove_temp_file(self.folder, temp)
            raise
        if not exchanged:
            return None
        _remove_temp_file(self.folder, self.displaced)  # its text is in `ours`
        self.displaced, self.ours, self.displaced_data = temp, ours, None
        self.versions.append(ours)
        return self._check_displaced(temp, expect)

    def _check_displaced(self, temp: TempFile, expect: str) -> bytes | None:
        """Read the replaced file once nobody writes to it; None when it has the expected
        content.
        """
        status = self.folder.stat(temp.name)
        if not stat.S_ISREG(status.st_mode):
            raise not_a_file_error(self.path, status.st_mode)
        descriptor, _ = open_regular(temp.name, self.folder)
        data = read_when_closed(descriptor)
        if data is not None and _sha256_hex(data) == expect:
            _remove_temp_file(self.folder, temp)
            self.displaced = None
            watch_replaced(descriptor, self.path, data)
            return None
        os.close(descriptor)
        if data is None:
            raise OSError(errno.EBUSY, BUSY, self.path)
        self.displaced_data = data
        return data

    def _put_back(self) -> None:
        """Put the replaced file itself back: another program may still write to it.

        A text that others wrote over ours meanwhile is newer and stands. Over a file that is still
        being written it does not, and is left to recovery.
        """
        with suppress(OSError):
            is_known, newer = self.displaced_data is not None, self._swap_displaced()
            if is_known and newer not in (None, self.ours):
                older = self._swap_displaced()
                self.foreign += [
                    one for one in (older, newer) if one is not None and one != self.foreign[-1]
                ]

    def _swap_displaced(self) -> bytes | None:
        """Exchange the displaced file with the target; returns the content that came out."""
        if self.displaced is None or not exchange(self.folder, self.displaced.name, self.name):
            return None
        self.displaced_data = read_closed(self.folder, self.displaced.name)
        if self.displaced_data == self.ours:
            _remove_temp_file(self.folder, self.displaced)
            self.displaced = None
        return self.displaced_data

    def _keep_beside(self) -> None:
        """Keep texts that are not in the file beside it until the caller has stored them."""
        *others, stands = self.foreign
        for text in others:
            if self.displaced is not None and text == self.displaced_data:
                remove_later(self.folder.path_of(self.displaced.name))
            elif not contains_all_lines(stands, text):
                with suppress(OSError):
                    temp = prepare_temp_file(self.folder, self.name, text)
                    unknown = msgspec.structs.replace(
                        temp, new_hash=UNKNOWN_HASH, expected_hash=UNKNOWN_HASH
                    )
                    self.folder.rename(temp.name, unknown.name)
                    remove_later(self.folder.path_of(unknown.name))


def _has_all_changes(merged: bytes, base: bytes, *sides: bytes) -> bool:
    """Tell whether `merged` has every line that a side added to `base`."""
    return all(contains_all_lines(merged + b"\n" + base, side) for side in sides)


def _sha256_hex(data: bytes) -> str:
    return sha256(data).hexdigest()
