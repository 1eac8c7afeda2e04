"""What is piped in: a whole text before the run, or lines while it goes on."""

import asyncio
import io
import os
import stat
from collections.abc import AsyncIterator, Callable
from typing import Any, BinaryIO

from longrein.events import LongreinError, UsageError
from longrein.frontends.text_format import escape_bytes

STDIN_WAIT_S = 3.0
"""How long a pipe may stay silent before a prompt goes on without it; other agents wait as long."""
STDIN_BYTES_MAX = 10_000_000
"""Largest text taken from stdin, and the longest line; other agents have the same cap."""
_READ_BYTES = 1 << 16


def read_piped(fd: int, *, wait_s: float | None, say: Callable[[str], None]) -> bytes:
    """All that is piped into `fd`, or b'' when it is a terminal or closed.

    A pipe or socket is left alone when its first byte does not come within `wait_s` seconds (None: no limit), and
    `say` gets a line; once it has spoken it is read to its end, `say` gets a line when it pauses. Raises `UsageError`
    above `STDIN_BYTES_MAX` and for a folder.
    """
    if not _is_piped(fd):
        return b""
    if not _ready(fd, wait_s):
        say(f"nothing came on stdin for {wait_s:.0f} s: going on without it (to wait for it: longrein -p -)")
        return b""
    chunks, size, patient = [], 0, wait_s is None
    while chunk := _read(fd):
        chunks.append(chunk)
        size += len(chunk)
        if size > STDIN_BYTES_MAX:
            raise UsageError("stdin is larger than 10 MB: save it to a file and name the file in the prompt")
        if not patient and not _ready(fd, STDIN_WAIT_S):
            patient = True
            say(f"waiting for the end of stdin, {size} bytes so far")
    return b"".join(chunks)


async def read_lines(fd: int) -> AsyncIterator[bytes]:
    """The lines of `fd` as they come, without their newlines; blank ones are left out. Raises `UsageError` for a line
    above `STDIN_BYTES_MAX`. Reading never stops the loop, except for a plain file, which is always ready."""
    rest = bytearray()
    while chunk := await _wait_chunk(fd):
        rest += chunk
        if b"\n" in chunk:
            *whole, rest = rest.split(b"\n")
            for line in filter(bytes.strip, map(bytes, whole)):
                yield line
        if len(rest) > STDIN_BYTES_MAX:
            raise UsageError("a line on stdin is longer than 10 MB")
    if rest.strip():
        yield bytes(rest)


def _is_piped(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return not os.isatty(fd)


def _ready(fd: int, wait_s: float | None) -> bool:
    """Whether reading `fd` would not wait longer than `wait_s`. Files are always ready."""
    from select import select

    mode = os.fstat(fd).st_mode
    if wait_s is None or not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return True
    return bool(select([fd], [], [], wait_s)[0])


def _read(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, _READ_BYTES)
        except BlockingIOError:  # somebody left the pipe non-blocking
            _ready(fd, STDIN_WAIT_S)
        except OSError as error:
            raise UsageError(f"stdin cannot be read: {error.strerror}") from None


async def _wait_chunk(fd: int) -> bytes:
    """The next bytes of `fd`, b'' at its end."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(fd, _settle, came)
    except OSError:  # epoll takes no plain files
        return _read(fd)
    try:
        await came
    finally:
        loop.remove_reader(fd)
    return _read(fd)


def _settle(came: asyncio.Future[None]) -> None:
    if not came.done():
        came.set_result(None)


# --- What was asked for, on stdout, whole ----------------------------------------------------------------------------


def show(text: str | bytes) -> None:
    """Write all of `text` to stdout, as UTF-8 whatever the locale; on a terminal escapes and controls are shown, not
    obeyed. Raises BrokenPipeError when its reader has left, and `LongreinError` where it takes no more, such as a full
    disk."""
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
    """stdout as a file for many lines; on a terminal it takes whole lines only. Closing it leaves stdout open."""
    return _Terminal() if os.isatty(1) else open(1, "wb", closefd=False)


class _Terminal(io.BytesIO):
    def write(self, data: Any, /) -> int:
        show(bytes(data))
        return len(data)


# --- One line for the person, on stderr ------------------------------------------------------------------------------


def say(line: str) -> None:
    """Write `line` to stderr, whatever the locale and whatever stands in it; nothing when stderr is gone."""
    shown = "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in line)
    data = f"longrein: {shown}\n".encode("utf-8", "replace")
    try:
        os.write(2, data)
    except OSError:
        return
