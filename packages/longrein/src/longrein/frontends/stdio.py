"""Standard streams of a frontend without an event loop: piped input as a whole, complete output,
one-line messages on stderr.
"""

import io
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from longrein_context.events import LongreinError, UsageError
from longrein_context.events.escape import escape, escape_bytes

STDIN_WAIT_S = 3.0
"""Seconds that a pipe may stay silent before the prompt is sent without it; other agents wait as
long.
"""
STDIN_BYTES_MAX = 10_000_000
"""Largest text and longest line taken from stdin, bytes; other agents have the same limit."""
_READ_BYTES = 1 << 16


def read_piped(fd: int, *, wait_s: float | None, say: Callable[[str], None]) -> bytes:
    """Read everything piped into `fd`; b'' when it is a terminal or closed.

    A pipe or socket is not read when its first byte does not come within `wait_s` seconds (None: no
    limit); after the first byte it is read to its end. `say` gets a line in the first case and when
    the pipe pauses. Raises `UsageError` above `STDIN_BYTES_MAX` and for a folder.
    """
    try:
        os.fstat(fd)
    except OSError:
        return b""
    if os.isatty(fd):
        return b""
    if not _ready(fd, wait_s):
        say(
            f"nothing came on stdin for {wait_s:.0f} s: going on without it (to wait for it: "
            "longrein -p -)"
        )
        return b""
    chunks = []
    size = 0
    patient = wait_s is None
    while chunk := read_chunk(fd):
        chunks.append(chunk)
        size += len(chunk)
        if size > STDIN_BYTES_MAX:
            raise UsageError(
                "stdin is larger than 10 MB: save it to a file and name the file in the prompt"
            )
        if not patient and not _ready(fd, STDIN_WAIT_S):
            patient = True
            say(f"waiting for the end of stdin, {size} bytes so far")
    return b"".join(chunks)


def _ready(fd: int, wait_s: float | None) -> bool:
    """Return True if `fd` becomes readable within `wait_s` seconds. Files are always ready."""
    from select import select

    mode = os.fstat(fd).st_mode
    if wait_s is None or not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return True
    return bool(select([fd], [], [], wait_s)[0])


def read_chunk(fd: int) -> bytes:
    """Read the next bytes of `fd`; b'' at its end. Raises `UsageError`."""
    while True:
        try:
            return os.read(fd, _READ_BYTES)
        except BlockingIOError:  # another process has made the pipe non-blocking
            _ready(fd, STDIN_WAIT_S)
        except OSError as error:
            raise UsageError(f"stdin cannot be read: {error.strerror}") from None


def show(text: str | bytes) -> None:
    """Write all of `text` to stdout as UTF-8; on a terminal, escape control characters.

    Raises `BrokenPipeError` when the reader has left, and `LongreinError` for other errors such as
    a full disk.
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    try:
        data = escape_bytes(data) if os.isatty(1) else data
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise LongreinError(f"stdout cannot be written: {error.strerror}") from None


def stdout_file() -> BinaryIO:
    """Stdout as a binary file; on a terminal only for whole lines. Closing it leaves stdout
    open.
    """
    return _Terminal() if os.isatty(1) else open(1, "wb", closefd=False)


class _Terminal(io.BytesIO):
    def write(self, data: Any, /) -> int:
        show(bytes(data))
        return len(data)


def say(line: str) -> None:
    """Write `line` to stderr as UTF-8, escaped and on one line; errors are ignored."""
    with suppress(OSError):
        os.write(2, f"longrein: {escape(' '.join(line.splitlines()))}\n".encode("utf-8", "replace"))
