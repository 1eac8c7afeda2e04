"""Read a small file whole, or refuse it: never a pipe, a device or a huge file, and never with a wait.

Every file of a repository or of the home that `config` reads is read here. A sparse file of 20 GB, a pipe without a
writer and a link to /dev/zero cost a few system calls.
"""

import errno
import os
import stat

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_bounded(path: str, bytes_max: int, *, exact: bool = False) -> bytes:
    """Return the whole content of a regular file of at most `bytes_max` bytes.

    With `exact`, `path` is a real path that was judged before: if a link has come into it since, nothing is read.
    Raises `FileNotFoundError` or `NotADirectoryError` where there is none, and `OSError` with a text for the user in
    `strerror` for anything that is no such file.
    """
    try:
        _check(os.stat(path), path, bytes_max)  # before opening: opening a device can have effects
        descriptor = os.open(path, FLAGS | (os.O_NOFOLLOW if exact else 0))
    except ValueError:
        raise FileNotFoundError(errno.ENOENT, "the path holds a NUL", path) from None
    try:
        _check(os.fstat(descriptor), path, bytes_max)
        if exact and _opened_path(descriptor, path) != path:
            raise OSError(errno.ELOOP, "replaced by a link while it was read", path)
        return _read(descriptor, path, bytes_max)
    finally:
        os.close(descriptor)


def _check(status: os.stat_result, path: str, bytes_max: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "folder" if stat.S_ISDIR(status.st_mode) else "device, pipe or socket"
        raise OSError(errno.EINVAL, f"a {kind}, not a file", path)
    if status.st_size > bytes_max:
        raise too_large(path, bytes_max)


def _opened_path(descriptor: int, path: str) -> str:
    """Return the path of an open file as the kernel knows it; `path` where it cannot be told."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return path


def _read(descriptor: int, path: str, bytes_max: int) -> bytes:
    """Read to the end; a file of /proc has more than its size says."""
    pieces, left = [], bytes_max + 1
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    if left <= 0:
        raise too_large(path, bytes_max)
    return b"".join(pieces)


def too_large(path: str, bytes_max: int) -> OSError:
    """Return the error for a file above the limit."""
    limit = f"{bytes_max >> 20} MB" if bytes_max >= 1 << 20 else f"{bytes_max >> 10} kB"
    return OSError(errno.EFBIG, f"larger than {limit}", path)
