"""Bytes of the user's files: read whole, hashed, and filled before they get their place (see `replacing`)."""

import errno
import os
import stat
from collections.abc import Iterator
from hashlib import sha256

READ_BYTES_MAX = 1 << 30
"""A file above this is refused: it cannot be held in memory beside everything else."""
CHUNK_BYTES = 1 << 18


def read(path: str, limit_bytes: int = 0) -> bytes:
    """Content of a regular file, or its first `limit_bytes` (0: all of it). OSError also for what is no file."""
    descriptor, size = open_regular(path)
    try:
        wanted = limit_bytes or READ_BYTES_MAX + 1
        data = read_up_to(descriptor, wanted, size)
    finally:
        os.close(descriptor)
    if len(data) > READ_BYTES_MAX:
        raise OSError(errno.EFBIG, f"is larger than {READ_BYTES_MAX >> 20} MiB", path)
    return data


def open_regular(path: str) -> tuple[int, int]:
    """(descriptor, size). Never waits: a pipe without a writer is refused like any other thing that is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no usable path ({error})", path) from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status.st_size
    os.close(descriptor)
    raise no_file(path, status.st_mode)


def no_file(path: str, mode: int) -> OSError:
    """The error for what is there in place of a file."""
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "is a folder", path)
    return OSError(errno.EINVAL, "is a device, pipe or socket, not a file", path)


def read_up_to(descriptor: int, wanted: int, size: int) -> bytes:
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
        descriptor, _ = open_regular(path)
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


def present(target: str) -> os.stat_result | None:
    """What is there now; None for nothing. Refuses what is no file or may not be written."""
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(old.st_mode):
        raise no_file(target, old.st_mode)
    if not old.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "is read-only", target)
    return old


def fill(descriptor: int, data: bytes, target: str, old: os.stat_result | None) -> None:
    """Write all of `data`, dress the new file like the `old` one, bring it to disk, close it. Raises OSError."""
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


def remove(path: str) -> None:
    """Remove a regular file (of a link, the link itself). Raises OSError."""
    status = os.lstat(path)
    if stat.S_ISDIR(status.st_mode):
        raise no_file(path, status.st_mode)
    os.unlink(path)
