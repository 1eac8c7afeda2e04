"""Replacing a file under other writers: a file is the old one or the new one, never a part (P10), and no text is lost.

The new content is made whole beside the target and changes places with it in one step. What came out is looked at: is
it not what was expected, somebody wrote in that very moment, and their text and ours are merged and put in place, or
theirs goes back. Until then it lies beside the target under a name that says so (see `halves`).

A program that still writes to the very file that came out is waited for. One that keeps it open gets it back.
"""

import errno
import os
import stat
from contextlib import suppress
from hashlib import sha256

import msgspec

from longrein.workspace.files import check_writable, not_a_file_error, open_regular, read, write_and_close
from longrein.workspace.port import Merge, ReplaceResult
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
    read_when_closed,
    recover_temp_files,
    remove_later,
    short_hash,
    watch_replaced,
)

ROUNDS_MAX = 8
"""Writers in a row that may come in between; then theirs stands and ours is refused."""

DEPTH_MAX = 3
"""Writes that put back what another had taken out, one within the other."""
UNKNOWN_HASH = "0" * 16
BUSY = "is open for writing in another program"

_recovered: dict[str, None] = {}


def write(path: str, data: bytes, *, expect: str | None = None) -> None:
    """Replace a file atomically, keeping mode, owner, extended attributes and the link that leads to it.

    With `expect` (a content hash, '' for "must not exist") `FileExistsError` is raised, and the file is as it was,
    when its content is another. A read-only file is a `PermissionError`, never a chmod, also for root. Another hard
    link of the file keeps the old content. Raises OSError; then the old file is untouched.
    """
    if expect is not None:
        try:
            replaced = replace(path, data, expect=expect)
        except FileNotFoundError:
            raise FileExistsError(errno.EEXIST, "was removed by somebody else", path) from None
        if replaced.data is None:
            raise FileExistsError(errno.EEXIST, "was changed by somebody else", path)
        return
    target = _target(path)
    half = prepare_temp_file(target, data)
    try:
        os.rename(half.path, target)
    except OSError:
        _remove_temp_file(half)
        raise


def replace(
    path: str, data: bytes, *, expect: str, base: bytes | None = None, merge: Merge | None = None
) -> ReplaceResult:
    """Put `data` in the place of content `expect` (its hash, '' for "must not exist"); see `Workspace.replace`."""
    target = _target(path)
    folder = os.path.dirname(target)
    with folder_lock(folder):
        _recover_once(folder)
        for late in find_late_writes():
            merge_late_write(late, merge)
        return _Replacement(target, base, merge).run(data, expect) if expect else _create(target, data)


def merge_late_write(late: LateWrite, merge: Merge | None) -> None:
    """What was written to a file that had already been replaced goes into the one in its place, or beside it."""
    texts = [late.data]
    with suppress(OSError):
        replaced = _Replacement(late.target, late.before, merge).run(late.data, _sha256_hex(late.before))
        texts = [] if replaced.data is not None else [late.data, *replaced.taken[:-1]]
    for text in texts:
        with suppress(OSError):
            half = prepare_temp_file(late.target, text)
            os.rename(half.path, free_name_beside(late.target))


def _target(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no usable path ({error})", path) from None


def _recover_once(folder: str) -> None:
    """What an earlier longrein left in a folder comes back to its place before the first write there."""
    if folder not in _recovered:
        _recovered[folder] = None
        recover_temp_files([folder])


def _create(target: str, data: bytes) -> ReplaceResult:
    if check_writable(target) is not None:
        return ReplaceResult(None, (read(target),))
    make_folders(os.path.dirname(target))
    half = prepare_temp_file(target, data)
    try:
        link_new(half.path, target)
    except FileExistsError:
        return ReplaceResult(None, (read(target),))
    finally:
        _remove_temp_file(half)
    return ReplaceResult(data)


def make_folders(folder: str) -> None:
    """Make a folder and those above it, however many; one that is there is fine. Raises OSError."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for one in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(one)


def prepare_temp_file(target: str, data: bytes, expect: str = "") -> TempFile:
    """`data` as a whole file on disk beside `target`, dressed like what is there. Raises OSError and leaves nothing."""
    old = check_writable(target)
    folder = os.path.dirname(target)
    if old is None:
        make_folders(folder)
    half, descriptor = _open_temp_file(folder, 0o666 if old is None else 0o600)
    try:
        write_and_close(descriptor, data, target, old)
        whole = msgspec.structs.replace(
            half, target=name_hash(target), put=short_hash(sha256(data).hexdigest()), there=short_hash(expect)
        )
        os.rename(half.path, whole.path)
    except OSError:
        _remove_temp_file(half)
        raise
    return whole


def _open_temp_file(folder: str, mode: int) -> tuple[TempFile, int]:
    while True:
        half = new_temp_file(folder)
        try:
            return half, os.open(half.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        except FileExistsError:
            continue  # of an earlier process with our number


def _remove_temp_file(half: TempFile | None) -> None:
    if half is not None:
        with suppress(FileNotFoundError):
            os.unlink(half.path)


class _Replacement:
    """One write that goes on until it stands, or somebody else's text does."""

    def __init__(self, target: str, base: bytes | None, merge: Merge | None, depth: int = 0) -> None:
        self.target = target
        self.base = base
        """What our content was made from."""
        self.merge = merge
        self.depth = depth
        """How many writes before this one it mends."""
        self.taken: list[bytes] = []
        """What was found that nobody expected, the last one as it came."""
        self.been: list[bytes] = []
        """What has been in the file since, by us and by others."""
        self.held: TempFile | None = None
        """The last one, when it was taken out of the file and is not in it again."""
        self.out = b""
        """Its content."""
        self.put = b""
        """What was put in its place."""

    def run(self, put: bytes, expect: str) -> ReplaceResult:
        """`put` into the file that holds `expect`. Raises OSError when nobody's text has to be told of."""
        try:
            data = self._rounds(put, expect)
        except OSError:
            for one in self.taken:
                if one != self.out:
                    self._lay_beside(one)
            self._file_back()
            if not self.taken:
                raise
            return ReplaceResult(None, tuple(self.taken))
        if data is None:
            self._text_back()
        else:
            _remove_temp_file(self.held)  # it is within what stands
        return ReplaceResult(data, tuple(self.taken))

    def _rounds(self, put: bytes, expect: str) -> bytes | None:
        """What stands in the file in the end; None when theirs is to stand."""
        for _ in range(ROUNDS_MAX):
            theirs = self._found(expect)
            there = put if theirs is None else theirs
            if theirs is None:
                theirs = self._swap(put, expect)
            if theirs is None:
                return put
            merged = self._merged(put, theirs)
            if merged is None or merged == there:  # a conflict, or theirs has all that we wanted
                return merged
            put, expect = merged, _sha256_hex(there)
        return None

    def _found(self, expect: str) -> bytes | None:
        """What the file holds now; None when that is what was expected. Raises OSError when it is gone or busy."""
        descriptor, _ = open_regular(self.target)
        try:
            data = read_when_closed(descriptor)
        finally:
            os.close(descriptor)
        if data is None:
            raise OSError(errno.EBUSY, BUSY, self.target)
        return None if _sha256_hex(data) == expect else data

    def _merged(self, put: bytes, theirs: bytes) -> bytes | None:
        """Both; None for a conflict. Theirs was made from our base, or from what somebody wrote since."""
        self.taken = [*(one for one in self.taken if one != theirs), theirs]
        if self.base is None or self.merge is None:
            return None
        merged = self.merge(self.base, put, theirs)
        for base in reversed(self.been):
            if merged is None:
                merged = self.merge(base, put, theirs)
                merged = merged if merged is not None and _has_all_changes(merged, self.base, put, theirs) else None
        self.been.append(theirs)
        return merged

    def _swap(self, put: bytes, expect: str) -> bytes | None:
        """Let `put` and the file change places. What came out; None when that is what was expected.

        Raises OSError; what had come out is `held` then.
        """
        half = prepare_temp_file(self.target, put, expect)
        if self.held is not None:
            within = msgspec.structs.replace(self.held, within=half.put)
            os.rename(self.held.path, within.path)
            self.held = within
        try:
            looked = exchange(half.path, self.target)
        except OSError:
            _remove_temp_file(half)
            raise
        if not looked:
            return None
        _remove_temp_file(self.held)  # it is within what was put
        self.held, self.put, self.out = half, put, b""
        self.been.append(put)
        return self._out(half, expect)

    def _out(self, half: TempFile, expect: str) -> bytes | None:
        """What came out, looked at until nobody writes to it any more."""
        status = os.lstat(half.path)
        if not stat.S_ISREG(status.st_mode):
            raise not_a_file_error(self.target, status.st_mode)
        descriptor = os.open(half.path, os.O_RDONLY | os.O_CLOEXEC)
        data = read_when_closed(descriptor)
        if data is not None and _sha256_hex(data) == expect:
            _remove_temp_file(half)
            self.held = None
            watch_replaced(descriptor, self.target, data)
            return None
        os.close(descriptor)
        if data is None:
            raise OSError(errno.EBUSY, BUSY, self.target)
        self.out = data
        return data

    def _text_back(self) -> None:
        """What we took out into the file again, and what somebody wrote over ours meanwhile too.

        What cannot be in the file lies beside it until the caller has kept it.
        """
        out, there = self.out, self.taken[-1]
        if self.held is None:
            return
        if there == out:  # ours stands in the file
            for one in self.taken[:-1]:
                if not contains_all_lines(there, one):
                    self._lay_beside(one)
            came = self._file_back()
            if came is None:
                return
            stands = self._brought_back(came, there, came)
        else:
            stands = self._brought_back(out, there, there)
        self.taken = [one for one in self.taken if one != stands] + [stands]

    def _brought_back(self, text: bytes, there: bytes, otherwise: bytes) -> bytes:
        """What stands in the end when `text`, which is `held`, is to go into the file that holds `there`."""
        both = None if self.base is None or self.merge is None else self.merge(self.base, text, there)
        stands, goal = there, otherwise if both is None else both
        self.taken.append(text)
        if goal != there and self.depth < DEPTH_MAX:
            again = _Replacement(self.target, self.base, self.merge, self.depth + 1)
            again.been = self.been.copy()
            try:
                back = again.run(goal, _sha256_hex(there))
            except OSError:
                return there  # the next sweep keeps it beside
            self.taken += back.taken
            stands = back.taken[-1] if back.data is None else back.data
        if contains_all_lines(stands, text):
            _remove_temp_file(self.held)
        elif self.held is not None:
            remove_later(self.held.path)
        return stands

    def _lay_beside(self, text: bytes) -> None:
        """Under a name by which a sweep takes it for somebody's text, should this process be killed."""
        with suppress(OSError):
            half = prepare_temp_file(self.target, text)
            unknown = msgspec.structs.replace(half, put=UNKNOWN_HASH, there=UNKNOWN_HASH)
            os.rename(half.path, unknown.path)
            remove_later(unknown.path)

    def _file_back(self) -> bytes | None:
        """The very file that came out into its place again: somebody may still write to it.

        What somebody wrote to ours meanwhile, or over it; it is `held` then, and left to the next sweep if it stays so.
        """
        with suppress(OSError):
            if self.held is None or not exchange(self.held.path, self.target):
                return None
            descriptor, _ = open_regular(self.held.path)
            came = read_when_closed(descriptor)
            os.close(descriptor)
            if came != self.put:
                return came
            _remove_temp_file(self.held)
            self.held = None
        return None


def _has_all_changes(merged: bytes, base: bytes, *sides: bytes) -> bool:
    """Whether every line that a side has and `base` has not is in `merged`: nothing anybody wrote has gone."""
    return all(contains_all_lines(merged + b"\n" + base, side) for side in sides)


def _sha256_hex(data: bytes) -> str:
    return sha256(data).hexdigest()
