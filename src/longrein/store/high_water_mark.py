"""The high-water mark: a small file that records how far a database is known to be on disk.

SQLite takes a WAL that was removed, cut short or changed for one that ends early, and reports
nothing. The mark is written after every flush, so a log that ends before its mark has lost entries.
The mark itself is not flushed: it survives `kill -9`, and after a power cut it may be behind the
log but never ahead of it. Lists of sessions read it instead of the database.
"""

import contextlib
import os
from zlib import crc32

import msgspec

from longrein.atomic_file import flush

MARK_FILE = "high-water-mark"
"""File in a session's folder: eight hexadecimal digits of a CRC-32, then the JSON it covers, on
one line.
"""
LAG_NS = 1_000_000_000
"""A trusted mark is older than the database by less than this. Unflushed commits and copies of
the folder make it older.
"""
BYTES_MAX = 1024 * 1024


class HighWaterMark(msgspec.Struct):
    """The state that was on disk at the last flush."""

    created: int = 0
    """Time when the session was first opened, microseconds UTC."""
    cwd: str = ""
    title: str = ""
    one_shot: bool = False
    """True for a run of `longrein -p` without a title of its own."""
    updated: int = 0
    """Time of the last entry of the root session, microseconds UTC; 0 when unknown."""
    entries: dict[int, int] = {}
    """Number of a session in the database -> its last seq."""
    message: int = 0
    """Highest id of an inbox message."""
    size_bytes: int = 0
    """Size of the main file when it was last closed; it never shrinks."""
    cut: set[int] = set()
    """Numbers of sessions that have lost their last entries and were not written since. Their
    last acts are unknown, so nothing may be repeated without asking.
    """


def read_mark(folder: str, *, since_ns: int = 0) -> HighWaterMark | None:
    """Return the mark of the session in `folder`; None when it is missing, invalid or too old.

    `since_ns`: time of the last write to the database. A mark written long before that is too old.
    """
    try:
        with open(f"{folder}/{MARK_FILE}", "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if status.st_mtime_ns + LAG_NS < since_ns or status.st_size > BYTES_MAX:
                return None
            line = file.read(status.st_size).partition(b"\n")[0]
        return _decoder.decode(line[8:]) if int(line[:8], 16) == crc32(line[8:]) else None
    except (OSError, ValueError, msgspec.DecodeError):
        return None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(HighWaterMark)


def write_mark(folder: str, mark: HighWaterMark, *, durable: bool = False) -> None:
    """Replace the mark in one system call, so that a killed process leaves the old or the new one.

    `durable`: flush it before returning. A failed write is ignored, because a mark may be behind.
    """
    body = _encode(mark)
    with contextlib.suppress(OSError):
        descriptor = os.open(
            f"{folder}/{MARK_FILE}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            os.pwrite(descriptor, b"%08x%b\n" % (crc32(body), body), 0)
            if durable:
                flush(descriptor)
        finally:
            os.close(descriptor)
