"""Whether a file is still what it was: four numbers of the file system first, its content only when they differ."""

import os

from longrein.workspace.files import content_hash
from longrein.workspace.port import Stamp

HASHED_BYTES_MAX = 256 << 20
"""Reading a larger file takes more than a moment: of a sparse one, which costs nothing to make, hours."""


def stamp(path: str, known_hash: str | None = None) -> Stamp:
    """The file now. `known_hash` saves reading it, when the caller has just read or written these bytes.

    The numbers are taken before the content: a change in between shows as a difference later, never as none.
    """
    numbers = _numbers(path)
    if numbers is None:
        return Stamp(0, 0, 0, 0, "")
    return Stamp(*numbers, _identity(path, numbers) if known_hash is None else known_hash)


def differs(path: str, then: Stamp) -> bool:
    """Whether the content changed, appeared or vanished since. A touch or a rewrite with the same bytes is no change.

    One `stat` when nothing happened.
    """
    numbers = _numbers(path)
    if numbers is None:
        return then.inode != 0
    if numbers == (then.inode, then.size_bytes, then.mtime_ns, then.ctime_ns):
        return False
    return numbers[1] != then.size_bytes or _identity(path, numbers) != then.hash


def stamp_again(path: str, then: Stamp) -> Stamp:
    """The file now; `then` itself, for one `stat`, when its numbers are the same."""
    if _numbers(path) == (then.inode, then.size_bytes, then.mtime_ns, then.ctime_ns):
        return then
    return stamp(path)


def _identity(path: str, numbers: tuple[int, int, int, int]) -> str:
    """Hash of the content; of a file too large to be read the numbers stand for it."""
    return content_hash(path) if numbers[1] <= HASHED_BYTES_MAX else "-".join(map(str, numbers))


def _numbers(path: str) -> tuple[int, int, int, int] | None:
    try:
        now = os.stat(path)
    except (OSError, ValueError):
        return None
    return now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
