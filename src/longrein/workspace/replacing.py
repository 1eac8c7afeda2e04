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

from longrein.workspace.exchange import exchange, place_new, settled, written_elsewhere
from longrein.workspace.files import (
    READ_BYTES_MAX,
    content_hash,
    fill,
    no_file,
    open_regular,
    present,
    read,
    read_up_to,
)
from longrein.workspace.halves import Half, name_hash, new_half, short, sweep_halves
from longrein.workspace.port import Merge, Replaced

ROUNDS_MAX = 8
"""Writers in a row that may come in between; then theirs stands and ours is refused."""
SETTLE_S = 0.15
"""How long a program that has the file open for writing is waited for."""

BUSY = "is open for writing in another program"

_swept: dict[str, None] = {}


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
    half = prepared(target, data)
    try:
        os.rename(half.path, target)
    except OSError:
        _drop(half)
        raise


def replace(path: str, data: bytes, *, expect: str, base: bytes | None = None, merge: Merge | None = None) -> Replaced:
    """Put `data` in the place of content `expect` (its hash, '' for "must not exist"); see `Workspace.replace`."""
    target = _target(path)
    _sweep_once(os.path.dirname(target))
    if not expect:
        return _create(target, data)
    return _Replacing(target, base, merge).run(data, expect)


def _target(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no usable path ({error})", path) from None


def _sweep_once(folder: str) -> None:
    """What an earlier longrein left in a folder comes back to its place before the first write there."""
    if folder not in _swept:
        _swept[folder] = None
        sweep_halves([folder])


def _create(target: str, data: bytes) -> Replaced:
    if present(target) is not None:
        return Replaced(None, (read(target),))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    half = prepared(target, data)
    try:
        place_new(half.path, target)
    except FileExistsError:
        return Replaced(None, (read(target),))
    finally:
        _drop(half)
    return Replaced(data)


def prepared(target: str, data: bytes, expect: str = "") -> Half:
    """`data` as a whole file on disk beside `target`, dressed like what is there. Raises OSError and leaves nothing."""
    old = present(target)
    folder = os.path.dirname(target)
    if old is None:
        os.makedirs(folder, exist_ok=True)
    half, descriptor = _opened(folder, 0o666 if old is None else 0o600)
    try:
        fill(descriptor, data, target, old)
        whole = msgspec.structs.replace(
            half, target=name_hash(target), put=short(sha256(data).hexdigest()), there=short(expect)
        )
        os.rename(half.path, whole.path)
    except OSError:
        _drop(half)
        raise
    return whole


def _opened(folder: str, mode: int) -> tuple[Half, int]:
    while True:
        half = new_half(folder)
        try:
            return half, os.open(half.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        except FileExistsError:
            continue  # of an earlier process with our number


def _drop(half: Half) -> None:
    try:
        os.unlink(half.path)
    except FileNotFoundError:
        return


class _Replacing:
    """One write that goes on until it stands, or somebody else's text does."""

    def __init__(self, target: str, base: bytes | None, merge: Merge | None) -> None:
        self.target = target
        self.base = base
        """What both sides began with."""
        self.merge = merge
        self.taken: list[bytes] = []
        """What was found that nobody expected, the last one as it came."""
        self.held: Half | None = None
        """The last one, when it was taken out of the file and is not in it again."""
        self.put = ""
        """Hash of what was put in its place."""

    def run(self, put: bytes, expect: str) -> Replaced:
        """`put` into the file that holds `expect`. Raises OSError; then the file is as others left it."""
        try:
            data = self._rounds(put, expect)
        except OSError:
            self._give_back()
            raise
        if data is None:
            self._give_back()
        elif self.held is not None:
            _drop(self.held)
        return Replaced(data, tuple(self.taken))

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
            self.base, put, expect = there, merged, _sha(there)
        return None

    def _found(self, expect: str) -> bytes | None:
        """What the file holds now; None when that is what was expected. Raises OSError when it is gone or busy."""
        descriptor, _ = open_regular(self.target)
        try:
            data = _content(descriptor)
        finally:
            os.close(descriptor)
        if data is None:
            raise OSError(errno.EBUSY, BUSY, self.target)
        return None if _sha(data) == expect else data

    def _merged(self, put: bytes, theirs: bytes) -> bytes | None:
        if theirs in self.taken:
            self.taken.remove(theirs)
        self.taken.append(theirs)
        return None if self.base is None or self.merge is None else self.merge(self.base, put, theirs)

    def _swap(self, put: bytes, expect: str) -> bytes | None:
        """Let `put` and the file change places. What came out; None when that is what was expected.

        Raises OSError; what had come out is `held` then.
        """
        half = prepared(self.target, put, expect)
        if self.held is not None:
            within = msgspec.structs.replace(self.held, within=half.put)
            os.rename(self.held.path, within.path)
            self.held = within
        try:
            looked = exchange(half.path, self.target)
        except OSError:
            _drop(half)
            raise
        if not looked:
            return None
        if self.held is not None:
            _drop(self.held)  # it is within what was put
        self.held, self.put = half, _sha(put)
        return self._out(half, expect)

    def _out(self, half: Half, expect: str) -> bytes | None:
        """What came out, looked at until nobody writes to it any more."""
        status = os.lstat(half.path)
        if not stat.S_ISREG(status.st_mode):
            raise no_file(self.target, status.st_mode)
        descriptor = os.open(half.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = _content(descriptor)
            if data is None:
                raise OSError(errno.EBUSY, BUSY, self.target)
            if _sha(data) != expect:
                return data
            _drop(half)
            self.held = None
            late = _content(descriptor)
        finally:
            os.close(descriptor)
        if late is None or late == data:
            return None
        self.held = prepared(self.target, late, self.put)
        return late

    def _give_back(self) -> None:
        """Somebody's text back into its place, where ours stands; who wrote there meanwhile stands instead."""
        if self.held is None:
            return
        half, self.held = self.held, None
        with suppress(OSError):  # the place is gone: the next sweep keeps what was taken out beside it
            for _ in range(ROUNDS_MAX):
                goes = content_hash(half.path)
                if not exchange(half.path, self.target):
                    return
                came = read(half.path)
                if _sha(came) == self.put:
                    _drop(half)
                    return
                self.taken.append(came)
                self.put = goes
            os.rename(half.path, self.target)  # they come without end: the newest stands


def _content(descriptor: int) -> bytes | None:
    """All of an open file once nobody writes to it; None when that lasts too long."""
    for _ in range(ROUNDS_MAX):
        if not settled(descriptor, SETTLE_S):
            return None
        before = os.fstat(descriptor)
        os.lseek(descriptor, 0, os.SEEK_SET)
        data = read_up_to(descriptor, READ_BYTES_MAX, before.st_size)
        after = os.fstat(descriptor)
        same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        if same and not written_elsewhere(descriptor):
            return data
    return None


def _sha(data: bytes) -> str:
    return sha256(data).hexdigest()
