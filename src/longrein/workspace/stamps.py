"""Whether a file is still what it was: four numbers of the file system first, its content only when they differ."""

import os

import msgspec

from longrein.workspace.files import content_hash


class Stamp(msgspec.Struct, frozen=True):
    """A file at one moment. A file that does not exist has a stamp too: zeros and no hash."""

    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    hash: str
    """Of its content; '' when there was no file."""


def stamp(path: str, known_hash: str | None = None) -> Stamp:
    """The file now. `known_hash` saves reading it, when the caller has just read or written these bytes.

    The numbers are taken before the content: a change in between shows as a difference later, never as none.
    """
    numbers = _numbers(path)
    if numbers is None:
        return Stamp(0, 0, 0, 0, "")
    return Stamp(*numbers, content_hash(path) if known_hash is None else known_hash)


def differs(path: str, then: Stamp) -> bool:
    """Whether the content changed, appeared or vanished since. A touch or a rewrite with the same bytes is no change.

    One `stat` when nothing happened.
    """
    numbers = _numbers(path)
    if numbers is None:
        return then.inode != 0
    if numbers == (then.inode, then.size_bytes, then.mtime_ns, then.ctime_ns):
        return False
    return numbers[1] != then.size_bytes or content_hash(path) != then.hash


def _numbers(path: str) -> tuple[int, int, int, int] | None:
    try:
        now = os.stat(path)
    except (OSError, ValueError):
        return None
    return now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
