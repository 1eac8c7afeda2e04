"""Write the spool: record, output and end of each background task, as files the user can read.

`<task>.json` is the record, written when the task is kept. `<task>.out` is the first half of the
output's quota. The newest half lies in `<task>.more/<offset>`, named by the offset of its first
byte in the whole output, so a gap between two files tells what was not kept. `<task>.end` is
written under another name, flushed and renamed, so it is complete or absent.
"""

import errno
import os
from collections import namedtuple
from contextlib import suppress

from longrein.atomic_file import replace_file

TYPE_CHECKING = False  # `typing` is slow to import, and the supervisor starts with each session
if TYPE_CHECKING:
    from longrein_context.events.redact_stream import StreamRedactor

FILE_MODE, FOLDER_MODE = 0o600, 0o700
NOT_A_PIECE = -1
"""Stands for the file of the first half."""
PIECES = 8
"""Number of files of the newest half; the oldest is dropped when there is no room."""
PIECES_MAX = 64
END_BYTES = 4096
"""Space reserved for a task's end, so that it can be written on a full disk."""
REASONS = {
    errno.ENOSPC: "the disk was full",
    errno.EDQUOT: "the user's disk quota was used up",
    errno.ENOENT: "its folder is gone",
    errno.EROFS: "the disk became read-only",
}


WriterState = namedtuple("WriterState", "size head lost_bytes lost pieces held")
"""State with which another process goes on writing: numbers in bytes, (offset, size) of each
piece, held text.
"""


class SpoolWriter:
    """Writes a task's output to the spool, redacted and within the quota.

    Writing never fails: bytes that cannot be written are counted.
    """

    def __init__(
        self, folder: str, task: str, quota_bytes: int, redactor: "StreamRedactor"
    ) -> None:
        self.folder = folder
        self.task = task
        self._redactor = redactor
        self.set_quota(quota_bytes)
        self.size_bytes = 0
        """Bytes printed, after redaction."""
        self.lost = ""
        """Reason why some of the output could not be written."""
        self.lost_bytes = 0
        self._head_bytes = 0
        self._pieces: list[tuple[int, int]] = []
        """(offset, size) of the files of the newest half."""
        self._file = -1
        self._room = 0

    def set_quota(self, quota_bytes: int) -> None:
        """Set the quota for what follows."""
        self._half_bytes = max(1, quota_bytes // 2)
        self._piece_bytes = max(1, self._half_bytes // PIECES)

    def write(self, data: bytes) -> None:
        """Add output."""
        self._put(memoryview(self._redactor.take(data)))

    def close(self) -> None:
        """Write what was held back and close the file."""
        self._put(memoryview(self._redactor.rest()))
        self.release()

    def release(self) -> None:
        """Close the file; a later write opens it again."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._room = -1, 0

    @property
    def elided_bytes(self) -> int:
        """Bytes printed but not kept."""
        return self.size_bytes - self._head_bytes - sum(size for _, size in self._pieces)

    def _put(self, data: memoryview) -> None:
        while data:
            try:
                written = self._write(data)
            except OSError as error:
                self.count_lost(error, len(data))
                return
            data = data[written:]

    def _write(self, data: memoryview) -> int:
        if self._room <= 0:
            self._next_file()
        written = os.write(self._file, data[: self._room])
        self._room -= written
        self.size_bytes += written
        if self._pieces:
            offset, size = self._pieces[-1]
            self._pieces[-1] = offset, size + written
        else:
            self._head_bytes += written
        return written

    def _next_file(self) -> None:
        self.release()
        if not self._pieces and self._head_bytes == self.size_bytes < self._half_bytes:
            self._file = self._open(NOT_A_PIECE)
            self._room = self._half_bytes - self._head_bytes
            return
        while self._pieces and self._no_room():
            self._unlink(self._pieces.pop(0)[0])
        if not self._pieces:
            os.makedirs(os.path.join(self.folder, f"{self.task}.more"), FOLDER_MODE, exist_ok=True)
        self._file = self._open(self.size_bytes)
        self._pieces.append((self.size_bytes, 0))
        self._room = self._piece_bytes

    def _no_room(self) -> bool:
        held = sum(size for _, size in self._pieces)
        return held + self._piece_bytes > self._half_bytes or len(self._pieces) >= PIECES_MAX

    def _open(self, piece: int) -> int:
        return _open_private(
            self._path(piece), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        )

    def _path(self, piece: int) -> str:
        return os.path.join(
            self.folder, f"{self.task}.out" if piece < 0 else f"{self.task}.more/{piece}"
        )

    def count_lost(self, error: OSError, size_bytes: int) -> None:
        """Count bytes that could not be written; the next write begins a new file."""
        self.release()
        if self._pieces and self._pieces[-1][1] == 0:
            self._unlink(self._pieces.pop()[0])
        self.lost = REASONS.get(error.errno or 0, error.strerror or str(error))
        self.lost_bytes += size_bytes
        self.size_bytes += size_bytes

    def export_state(self) -> dict[str, object]:
        """Return the state for another process to go on writing. This one must not write any
        more.
        """
        self.release()
        held = self._redactor.held.decode("latin-1")
        state = WriterState(
            self.size_bytes, self._head_bytes, self.lost_bytes, self.lost, self._pieces, held
        )
        return state._asdict()

    def resume_from(self, handed: dict[str, object]) -> None:
        """Go on where another process stopped."""
        state = WriterState(**handed)
        self.size_bytes, self._head_bytes, self.lost_bytes, self.lost = state[:4]
        self._pieces = [(offset, size) for offset, size in state.pieces]
        self._redactor.held = state.held.encode("latin-1")

    def rename(self, task: str) -> None:
        """Give the files written so far to `task`. Raises OSError."""
        self.release()
        for wanted, suffix in ((self._head_bytes, "out"), (self._pieces, "more")):
            if wanted:
                before = os.path.join(self.folder, f"{self.task}.{suffix}")
                os.rename(before, os.path.join(self.folder, f"{task}.{suffix}"))
        self.task = task

    def _unlink(self, piece: int) -> None:
        with suppress(OSError):  # it is gone already, with its folder
            os.unlink(self._path(piece))


def reserve_end(folder: str, task: str) -> None:
    """Reserve space for the task's end, so that it can be written on a full disk. Failure is no
    error.
    """
    # not supported by every system and file system
    with (
        suppress(AttributeError, OSError),
        open(_end_path(folder, task) + ".new", "ab", opener=_open_private) as file,
    ):
        os.posix_fallocate(file.fileno(), 0, END_BYTES)


def write_end(folder: str, task: str, end: dict[str, object]) -> None:
    """Write a task's end, complete or not at all, flushed. Raises OSError."""
    import json

    path = _end_path(folder, task)
    data = json.dumps(
        end
    ).encode()  # not by `replace_file`, which would give up the space reserved for it
    file = _open_private(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    try:
        os.write(file, data.ljust(END_BYTES))
        os.ftruncate(file, max(len(data), END_BYTES))
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(path + ".new", path)


def write_record(folder: str, name: str, record: str) -> None:
    """Write a JSON record, complete or not at all. Raises OSError."""
    replace_file(
        os.path.join(folder, f"{name}.json"), (record.encode(),), durable=False, mode=FILE_MODE
    )


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _end_path(folder: str, task: str) -> str:
    return os.path.join(folder, f"{task}.end")
