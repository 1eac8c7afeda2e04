"""Write files completely or not at all, and flush them to disk.

For every package, and cheap to import for the supervisor. `workspace.atomic_write` writes the
user's files, which other programs may change at the same time.
"""

import fcntl
import os
from collections.abc import Iterable


def replace_file(
    path: str,
    pieces: Iterable[bytes | bytearray],
    *,
    durable: bool,
    mode: int = 0o600,
    temporary: str = "",
) -> None:
    """Create or replace the file at `path`: a reader, and a crash, sees the old content or the new.

    `durable`: it is on disk on return. `temporary`: path of the unfinished file, by default `path`
    with `.new`; it is removed on failure. Raises OSError.
    """
    temporary = temporary or path + ".new"
    write_file(temporary, pieces, durable=durable, mode=mode)
    try:
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    if durable:
        flush_path(os.path.dirname(path) or ".")


def move_into_place(finished: str, path: str) -> None:
    """Flush the file `finished` and rename it to `path`, on disk on return. Raises OSError."""
    flush_path(finished)
    os.rename(finished, path)
    flush_path(os.path.dirname(path))


def write_file(
    path: str, pieces: Iterable[bytes | bytearray], *, durable: bool, mode: int = 0o600
) -> None:
    """Write a file with mode `mode`, whatever the umask; its name is not flushed, and on failure
    it is removed.
    """
    if os.path.lexists(
        path
    ):  # left by a killed process; it may have another name too, whose content stays
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
        for piece in pieces:
            write_all(descriptor, piece)
        if durable:
            flush(descriptor)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of `data`. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def flush(descriptor: int) -> None:
    """Flush the data of a file to the disk itself."""
    if not _flush_fully(descriptor):
        os.fdatasync(descriptor)


def flush_path(path: str) -> None:
    """Flush a file or folder by path; for a folder, the names in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not _flush_fully(descriptor):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_fully(descriptor: int) -> bool:
    """Flush also the drive's cache, where fsync stops before it (macOS); return whether that was
    done.
    """
    command = getattr(fcntl, "F_FULLFSYNC", None)
    if command is not None:
        fcntl.fcntl(descriptor, command)
    return command is not None
