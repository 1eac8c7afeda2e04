"""Files that were replaced, looked at a while longer: who had just opened one may still write to it.

Between finding a file by its name and opening it a program can be held up, and then writes to a file that has no name
any more. So its descriptor is kept for a moment, and what came late is found.
"""

import atexit
import os
import threading
import time
from contextlib import suppress
from functools import cache

import msgspec

from longrein.workspace.exchange import settled, written_elsewhere
from longrein.workspace.files import READ_BYTES_MAX, read_up_to

KEPT_S = 0.5
"""How long a replaced file is looked at."""
KEPT_MAX = 16
KEPT_BYTES_MAX = 16 * 1024 * 1024
"""Replaced files that are looked at, at once; older ones are let go."""
SETTLE_S = 0.15
"""How long a program that has a file open for writing is waited for."""
DROP_S = 2.0
"""How long a text lies beside its place when a conflict has put it out: by then it is in a log."""
LOOKS_MAX = 8


class Late(msgspec.Struct, frozen=True):
    """A text that was written to a file after it had been replaced."""

    target: str
    before: bytes
    """What was replaced."""
    data: bytes
    """What it has become."""


class _Out(msgspec.Struct):
    descriptor: int
    target: str
    data: bytes
    numbers: tuple[int, int]
    until_s: float


_outs: list[_Out] = []
_later: list[tuple[float, str]] = []
_guard = threading.Lock()


def content(descriptor: int) -> bytes | None:
    """All of an open file once nobody writes to it; None when that lasts too long. It must be open for reading only."""
    for _ in range(LOOKS_MAX):
        if not settled(descriptor, SETTLE_S):
            return None
        before = _numbers(descriptor)
        os.lseek(descriptor, 0, os.SEEK_SET)
        data = read_up_to(descriptor, READ_BYTES_MAX, before[0])
        if before == _numbers(descriptor) and not written_elsewhere(descriptor):
            return data
    return None


def _numbers(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def watch_out(descriptor: int, target: str, data: bytes) -> None:
    """Look at a file that was taken out of `target` for a while; `data` is its content. The descriptor is ours now."""
    with _guard:
        _outs.append(_Out(descriptor, target, data, _numbers(descriptor), time.monotonic() + KEPT_S))
        while len(_outs) > KEPT_MAX or sum(len(out.data) for out in _outs) > KEPT_BYTES_MAX:
            os.close(_outs.pop(0).descriptor)


def drop_later(path: str) -> None:
    """Remove this file when its text has surely been kept elsewhere: after a while, or at the end of the process."""
    _at_exit()
    _later.append((time.monotonic() + DROP_S, path))


@cache
def _at_exit() -> None:
    atexit.register(drop_until, float("inf"))


def drop_until(now_s: float) -> None:
    """Remove what is due at this moment of the monotonic clock."""
    with _guard:
        while _later and _later[0][0] <= now_s:
            with suppress(OSError):
                os.unlink(_later.pop(0)[1])


def look_again() -> list[Late]:
    """What came late; each is told once. Cheap: a call for each file that was replaced just now."""
    if _later:
        drop_until(time.monotonic())
    if not _outs:
        return []
    late: list[Late] = []
    with _guard:
        for out in list(_outs):
            changed, over = _numbers(out.descriptor) != out.numbers, time.monotonic() > out.until_s
            if not (changed or over) or written_elsewhere(out.descriptor):
                continue
            if changed and (data := content(out.descriptor)) is not None and data != out.data:
                late.append(Late(out.target, out.data, data))
            os.close(out.descriptor)
            _outs.remove(out)
    return late
