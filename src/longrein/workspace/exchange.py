"""Two files change places in one step, so that a write sees what it replaced, and nobody's text goes unseen.

Linux has `renameat2`; elsewhere, and on file systems that lack it, a second name keeps the replaced file in sight.
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

LINUX_NUMBERS = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "loongarch64": 276, "i686": 353, "armv7l": 382}
"""Of the system call `renameat2`, for a C library without a function for it."""
AT_FDCWD = -100
NO_REPLACE, EXCHANGE = 1, 2
"""Flags of `renameat2`."""
LACKING = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
"""What a system says that does not know the call, or whose sandbox or file system does not let it through."""
ALONE_S = 2.0
"""Longest wait for another longrein that writes in the same folder."""
ALONE_PAUSE_MAX_S = 0.002
"""Between two tries to be alone."""
PAUSE_S, PAUSE_MAX_S = 0.0005, 0.01
"""Between two looks at whether a writer has finished."""


def exchange(one: str, other: str) -> bool:
    """Let two files of one folder change places. True when `one` is now what `other` was.

    False where neither an exchange nor a second name is possible: then `one` has become `other`, and what that was is
    not known. Raises OSError, `FileNotFoundError` when either does not exist; then nothing was done.
    """
    if _rename(one, other, EXCHANGE):
        return True
    kept = one.removesuffix(".tmp") + ".old.tmp"
    try:
        os.link(other, kept, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        os.rename(one, other)
        return False
    os.rename(one, other)
    os.rename(kept, one)
    return True


def place_new(one: str, other: str) -> None:
    """Give the file `one` the name `other` too, which must be free: nobody's new file is replaced.

    `one` may keep its name. Raises `FileExistsError` when it is not free, and other OSErrors.
    """
    try:
        os.link(one, other)
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "exists already", other) from None
    except OSError:  # no hard links on this file system
        if _rename(one, other, NO_REPLACE):
            return
        if os.path.lexists(other):
            raise FileExistsError(errno.EEXIST, "exists already", other) from None
        os.rename(one, other)


def _rename(one: str, other: str, flag: int) -> bool:
    """`renameat2`; False when there is no such thing here. Raises OSError for what went wrong."""
    call = _renameat2()
    if call is None:
        return False
    code = call(os.fsencode(one), os.fsencode(other), flag)
    if code in LACKING:
        return False
    if code:
        raise OSError(code, os.strerror(code), other)
    return True


@cache
def _renameat2() -> Callable[[bytes, bytes, int], int] | None:
    """The call, giving 0 or an error number; None where there is none. Loaded at the first write, not at the start."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    number = LINUX_NUMBERS.get(os.uname().machine, 0) if os.uname().sysname == "Linux" else 0
    function = getattr(library, "renameat2", None) or (library.syscall if number else None)
    if function is None:
        return None
    first = () if hasattr(library, "renameat2") else (ctypes.c_long(number),)

    def call(one: bytes, other: bytes, flag: int) -> int:
        failed = function(*first, AT_FDCWD, ctypes.c_char_p(one), AT_FDCWD, ctypes.c_char_p(other), flag)
        return ctypes.get_errno() if failed else 0

    return call


def settled(descriptor: int, wait_s: float) -> bool:
    """Wait until nobody has the file behind `descriptor` open for writing; False when that lasts longer than `wait_s`.

    `descriptor` must be open for reading only. True also where the system does not tell.
    """
    until, pause_s = time.monotonic() + wait_s, PAUSE_S
    while written_elsewhere(descriptor):
        if time.monotonic() >= until:
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
    return True


def written_elsewhere(descriptor: int) -> bool:
    """Whether somebody has the file open for writing: then the system grants no lease on it (2 µs).

    The lease is given back at once. Should a writer come just then, the signal that tells of it is one that nobody
    minds, instead of one that ends the process.
    """
    import fcntl

    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


@contextmanager
def alone_in(folder: str) -> Iterator[None]:
    """Every longrein of this machine writes to files of a folder one after the other: the folder itself is the lock.

    Without it, two that meet would each take the other's text out and put it back. Where a folder cannot be locked, or
    one holds it for long, it goes on without: nothing is lost then either.
    """
    import fcntl

    until, pause_s = time.monotonic() + ALONE_S, PAUSE_S
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        while time.monotonic() < until:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, ALONE_PAUSE_MAX_S)
            except OSError:
                break
            else:
                break
        yield
    finally:
        os.close(descriptor)
