"""Bytes of the user's files: read whole, replaced whole. A file is the old one or the new one, never a part (P10)."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import count

READ_BYTES_MAX = 1 << 30
"""A file above this is refused: it cannot be held in memory beside everything else."""
CHUNK_BYTES = 1 << 18

_serial = count(1)


def read(path: str, limit_bytes: int = 0) -> bytes:
    """Content of a regular file, or its first `limit_bytes` (0: all of it). OSError also for what is no file."""
    descriptor, size = _open_regular(path)
    try:
        wanted = limit_bytes or READ_BYTES_MAX + 1
        data = _read_up_to(descriptor, wanted, size)
    finally:
        os.close(descriptor)
    if len(data) > READ_BYTES_MAX:
        raise OSError(errno.EFBIG, f"is larger than {READ_BYTES_MAX >> 20} MiB", path)
    return data


def _open_regular(path: str) -> tuple[int, int]:
    """(descriptor, size). Never waits: a pipe without a writer is refused like any other thing that is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no usable path ({error})", path) from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status.st_size
    os.close(descriptor)
    raise _no_file(path, status.st_mode)


def _no_file(path: str, mode: int) -> OSError:
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "is a folder", path)
    return OSError(errno.EINVAL, "is a device, pipe or socket, not a file", path)


def _read_up_to(descriptor: int, wanted: int, size: int) -> bytes:
    """Most files come in one read; a file that grows meanwhile, or one of /proc with size 0, in more."""
    data = os.read(descriptor, min(wanted, size + 1))
    if len(data) >= wanted or len(data) == 0:
        return data
    pieces, total = [data], len(data)
    while total < wanted and (data := os.read(descriptor, min(CHUNK_BYTES, wanted - total))):
        pieces.append(data)
        total += len(data)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def content_hash(path: str) -> str:
    """SHA-256 (hex) of a regular file's content; '' when there is none or it cannot be read."""
    try:
        descriptor, _ = _open_regular(path)
    except OSError:
        return ""
    digest = sha256()
    try:
        while chunk := os.read(descriptor, CHUNK_BYTES):
            digest.update(chunk)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def write(path: str, data: bytes, *, expect: str | None = None) -> None:
    """Replace a file atomically, keeping mode, owner, extended attributes and the link that leads to it.

    With `expect` (a content hash, '' for "must not exist") the present content is compared right before the rename
    and `FileExistsError` raised when it differs. A read-only file is a `PermissionError`, never a chmod, also for
    root. Another hard link of the file keeps the old content. Raises OSError; then the old file is untouched.
    """
    try:
        target = os.path.realpath(path)
        old = _present(target)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no usable path ({error})", path) from None
    folder = os.path.dirname(target)
    if old is None:
        os.makedirs(folder, exist_ok=True)
    elif expect is not None and content_hash(target) != expect:
        raise FileExistsError(errno.EEXIST, "was changed by somebody else", path)
    temporary, descriptor = _temporary(folder, 0o666 if old is None else 0o600)
    try:
        _fill(descriptor, data, target, old)
        _swap(temporary, target, expect)
    finally:
        _forget(temporary)


def _present(target: str) -> os.stat_result | None:
    """What is there now; None for nothing. Refuses what is no file or may not be written."""
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(old.st_mode):
        raise _no_file(target, old.st_mode)
    if not old.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "is read-only", target)
    return old


def _temporary(folder: str, mode: int) -> tuple[str, int]:
    """A new empty file in `folder`: its name says whose it is, should a power cut leave it behind."""
    while True:
        name = os.path.join(folder, f".longrein-{os.getpid()}-{next(_serial)}.tmp")
        try:
            return name, os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        except FileExistsError:
            continue  # of an earlier process with our number


def _fill(descriptor: int, data: bytes, target: str, old: os.stat_result | None) -> None:
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if old is not None:
            _dress(descriptor, target, old)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _dress(descriptor: int, target: str, old: os.stat_result) -> None:
    """Give the new file the old one's owner, attributes and mode, in this order: a change of owner clears set-id bits.

    Set-id bits stay only with the same owner and group: they must not lend another identity to new content.
    """
    mode = stat.S_IMODE(old.st_mode)
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            mode &= 0o777
    for name, value in _attributes(target):
        try:
            os.setxattr(descriptor, name, value)
        except OSError:
            continue  # best effort: labels of the system may be refused
    os.fchmod(descriptor, mode)


def _attributes(target: str) -> Iterator[tuple[str, bytes]]:
    if not hasattr(os, "listxattr"):  # macOS
        return
    try:
        for name in os.listxattr(target):
            yield name, os.getxattr(target, name)
    except OSError:
        return


def _swap(temporary: str, target: str, expect: str | None) -> None:
    """Put the new file in place; the last look at the old one is right before."""
    if expect == "":
        _place_new(temporary, target)
        return
    if expect is not None and content_hash(target) != expect:
        raise FileExistsError(errno.EEXIST, "was changed by somebody else", target)
    os.rename(temporary, target)


def _place_new(temporary: str, target: str) -> None:
    """A hard link fails when the name is taken, a rename would replace: so nobody's new file is lost."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "exists already", target) from None
    except OSError:  # no hard links on this file system
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "exists already", target) from None
        os.rename(temporary, target)


def _forget(temporary: str) -> None:
    try:
        os.unlink(temporary)
    except FileNotFoundError:
        return


def sweep_halves(folders: Iterable[str]) -> None:
    """Remove half-written files that a killed longrein left in `folders`; those of a living process stay."""
    for folder in folders:
        try:
            names = [name for name in os.listdir(folder) if name.startswith(".longrein-") and name.endswith(".tmp")]
        except OSError:
            continue
        for name in names:
            pid = name.split("-")[1]
            if pid.isdigit() and not _alive(int(pid)):
                _forget(os.path.join(folder, name))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def remove(path: str) -> None:
    """Remove a regular file (of a link, the link itself). Raises OSError."""
    status = os.lstat(path)
    if stat.S_ISDIR(status.st_mode):
        raise _no_file(path, status.st_mode)
    os.unlink(path)
