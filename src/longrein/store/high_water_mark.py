"""The high-water mark: how far the logs of a database are known to be on disk, in a small file beside it.

SQLite takes a write-ahead log that was removed, cut short or changed for one that ends early, and says nothing. The
mark is written after every flush, so a log that ends before its mark has lost entries. It is never flushed itself: it
survives `kill -9`, and after a power cut it may be behind the log but never ahead of it. Lists of sessions read it in
place of the database.
"""

import contextlib
import os
from zlib import crc32

import msgspec

from longrein.store.session_folder import flush

MARK_FILE = "high-water-mark"
"""The file in a session's folder: eight hexadecimal digits of the CRC-32 of the JSON behind them, to the line's end."""
LAG_NS = 1_000_000_000
"""A commit that is not flushed yet, and a copy of the folder, leave the mark older than the database by less."""
BYTES_MAX = 1024 * 1024
"""A larger file is none of ours."""


class HighWaterMark(msgspec.Struct):
    """What was on disk at the last flush."""

    created: int = 0
    """When the session was opened first, microseconds UTC."""
    cwd: str = ""
    """Where it started."""
    title: str = ""
    """First words of the user."""
    updated: int = 0
    """Time of the last entry of the root session, microseconds UTC; 0 when it is not known."""
    entries: dict[int, int] = {}
    """Number of a session in the database -> its last seq."""
    message: int = 0
    """Highest id of an inbox message."""
    size_bytes: int = 0
    """Of the main file when it was last closed; it never shrinks."""
    cut: set[int] = set()
    """Numbers of sessions that have lost their last entries and have not gone on since: what they did last is not
    known, and nothing of it may be done a second time unasked."""


def read_mark(folder: str, *, since_ns: int = 0) -> HighWaterMark | None:
    """The mark of the session in `folder`; None where there is none that can be trusted, or only one that was written
    long before `since_ns`."""
    try:
        descriptor = os.open(f"{folder}/{MARK_FILE}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if status.st_mtime_ns + LAG_NS < since_ns or status.st_size > BYTES_MAX:
            return None
        line = os.read(descriptor, status.st_size).partition(b"\n")[0]
        if int(line[:8], 16) == crc32(line[8:]):
            return _decoder.decode(line[8:])
    except (OSError, ValueError, msgspec.DecodeError):
        pass
    finally:
        os.close(descriptor)
    return None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(HighWaterMark)


class MarkFile:
    """The file of one session, open for writing. What cannot be written is left out: a mark may be behind."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, MARK_FILE)
        self._descriptor = -1

    def write(self, mark: HighWaterMark, *, durable: bool = False) -> None:
        """Replace the mark in one system call, so that a killed process leaves the old one or the new one.

        `durable`: on disk when this returns.
        """
        body = _encode(mark)
        with contextlib.suppress(OSError):
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._descriptor, b"%08x%b\n" % (crc32(body), body), 0)
            if durable:
                flush(self._descriptor)

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_mark(folder: str, mark: HighWaterMark) -> None:
    """Bring the mark of a session that nobody has open to disk."""
    file = MarkFile(folder)
    file.write(mark, durable=True)
    file.close()
