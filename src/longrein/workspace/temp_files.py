"""Files in the making: how they are called, and what a killed longrein has left of them.

A file in the making lies beside its target and names its owner, a process. Once it is whole it also names its target,
the content it brings and the content it expects there. So whoever finds it later can tell what it holds: what was to be
written, what was rightly replaced, or somebody else's text that the killed process had taken out of the file and not
yet merged. That text goes back to its place, or where the place has been written since it is kept beside it.
"""

import atexit
import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from itertools import count

import msgspec

from longrein.workspace.files import READ_BYTES_MAX, content_hash, open_regular, read, read_up_to
from longrein.workspace.supervisor.process_tree import LINUX, process

# ---------------------------------------------------------------------------------------------------------------------
#
# Two files change places in one step, so that a write sees what it replaced, and nobody's text goes unseen.
#
# Linux has `renameat2`; elsewhere, and on file systems that lack it, a second name keeps the replaced file in sight.


RENAMEAT2_NUMBERS = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "loongarch64": 276, "i686": 353, "armv7l": 382}
"""Of the system call `renameat2`, for a C library without a function for it."""
AT_FDCWD = -100
NO_REPLACE, EXCHANGE = 1, 2
"""Flags of `renameat2`."""
UNSUPPORTED_ERRORS = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
"""What a system says that does not know the call, or whose sandbox or file system does not let it through."""
LOCK_WAIT_S = 2.0
"""Longest wait for another longrein that writes in the same folder."""
LOCK_PAUSE_MAX_S = 0.002
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


def link_new(one: str, other: str) -> None:
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
    if code in UNSUPPORTED_ERRORS:
        return False
    if code:
        raise OSError(code, os.strerror(code), other)
    return True


@cache
def _renameat2() -> Callable[[bytes, bytes, int], int] | None:
    """The call, giving 0 or an error number; None where there is none. Loaded at the first write, not at the start."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    number = RENAMEAT2_NUMBERS.get(os.uname().machine, 0) if os.uname().sysname == "Linux" else 0
    function = getattr(library, "renameat2", None) or (library.syscall if number else None)
    if function is None:
        return None
    first = () if hasattr(library, "renameat2") else (ctypes.c_long(number),)

    def call(one: bytes, other: bytes, flag: int) -> int:
        failed = function(*first, AT_FDCWD, ctypes.c_char_p(one), AT_FDCWD, ctypes.c_char_p(other), flag)
        return ctypes.get_errno() if failed else 0

    return call


def wait_for_writers(descriptor: int, wait_s: float) -> bool:
    """Wait until nobody has the file behind `descriptor` open for writing; False when that lasts longer than `wait_s`.

    `descriptor` must be open for reading only. True also where the system does not tell.
    """
    until, pause_s = time.monotonic() + wait_s, PAUSE_S
    while is_open_for_writing(descriptor):
        if time.monotonic() >= until:
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
    return True


def is_open_for_writing(descriptor: int) -> bool:
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
def folder_lock(folder: str) -> Iterator[None]:
    """Every longrein of this machine writes to files of a folder one after the other: the folder itself is the lock.

    Without it, two that meet would each take the other's text out and put it back. Where a folder cannot be locked, or
    one holds it for long, it goes on without: nothing is lost then either.
    """
    import fcntl

    until, pause_s = time.monotonic() + LOCK_WAIT_S, PAUSE_S
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
                pause_s = min(2 * pause_s, LOCK_PAUSE_MAX_S)
            except OSError:
                break
            else:
                break
        yield
    finally:
        os.close(descriptor)


# --- Files that were replaced, looked at a while longer: who had just opened one may still write to it ---------------
#
# Between finding a file by its name and opening it a program can be held up, and then writes to a file that has no
# name any more. So its descriptor is kept for a moment, and what came late is found.


WATCH_S = 0.5
"""How long a replaced file is looked at."""
WATCHED_MAX = 16
WATCHED_BYTES_MAX = 16 * 1024 * 1024
"""Replaced files that are looked at, at once; older ones are let go."""
WRITER_WAIT_S = 0.15
"""How long a program that has a file open for writing is waited for."""
REMOVE_AFTER_S = 2.0
"""How long a text lies beside its place when a conflict has put it out: by then it is in a log."""
READS_MAX = 8


class LateWrite(msgspec.Struct, frozen=True):
    """A text that was written to a file after it had been replaced."""

    target: str
    before: bytes
    """What was replaced."""
    data: bytes
    """What it has become."""


class _WatchedFile(msgspec.Struct):
    descriptor: int
    target: str
    data: bytes
    numbers: tuple[int, int]
    until_s: float


_watched: list[_WatchedFile] = []
_removals: list[tuple[float, str]] = []
_lock = threading.Lock()


def read_when_closed(descriptor: int) -> bytes | None:
    """All of an open file once nobody writes to it; None when that lasts too long. It must be open for reading only."""
    for _ in range(READS_MAX):
        if not wait_for_writers(descriptor, WRITER_WAIT_S):
            return None
        before = _numbers(descriptor)
        os.lseek(descriptor, 0, os.SEEK_SET)
        data = read_up_to(descriptor, READ_BYTES_MAX, before[0])
        if before == _numbers(descriptor) and not is_open_for_writing(descriptor):
            return data
    return None


def _numbers(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def watch_replaced(descriptor: int, target: str, data: bytes) -> None:
    """Look at a file that was taken out of `target` for a while; `data` is its content. The descriptor is ours now."""
    with _lock:
        _watched.append(_WatchedFile(descriptor, target, data, _numbers(descriptor), time.monotonic() + WATCH_S))
        while len(_watched) > WATCHED_MAX or sum(len(out.data) for out in _watched) > WATCHED_BYTES_MAX:
            os.close(_watched.pop(0).descriptor)


def remove_later(path: str) -> None:
    """Remove this file when its text has surely been kept elsewhere: after a while, or at the end of the process."""
    _remove_at_exit()
    _removals.append((time.monotonic() + REMOVE_AFTER_S, path))


@cache
def _remove_at_exit() -> None:
    atexit.register(remove_due, float("inf"))


def remove_due(now_s: float) -> None:
    """Remove what is due at this moment of the monotonic clock."""
    with _lock:
        while _removals and _removals[0][0] <= now_s:
            with suppress(OSError):
                os.unlink(_removals.pop(0)[1])


def find_late_writes() -> list[LateWrite]:
    """What came late; each is told once. Cheap: a call for each file that was replaced just now."""
    if _removals:
        remove_due(time.monotonic())
    if not _watched:
        return []
    late: list[LateWrite] = []
    with _lock:
        for out in list(_watched):
            changed, over = _numbers(out.descriptor) != out.numbers, time.monotonic() > out.until_s
            if not (changed or over) or is_open_for_writing(out.descriptor):
                continue
            if changed and (data := read_when_closed(out.descriptor)) is not None and data != out.data:
                late.append(LateWrite(out.target, out.data, data))
            os.close(out.descriptor)
            _watched.remove(out)
    return late


# --- halves ----------------------------------------------------------------------------------------------------------


PREFIX, SUFFIX = ".longrein-", ".tmp"
HASH_CHARS = 16
"""Of a content's hash, in a name."""

_serial = count(1)


class TempFile(msgspec.Struct, frozen=True):
    """A file in the making."""

    folder: str
    owner: str
    """`<pid>.<start>` of the process that makes it."""
    number: str
    target: str = ""
    """Hash of its target's name; '' for one that is not whole yet."""
    put: str = ""
    """Hash of what it brings."""
    there: str = ""
    """Hash of what it expects in its place."""
    within: str = ""
    """Hash of a content that somebody else's text, which it holds, was merged into."""

    @property
    def path(self) -> str:
        """Where it lies."""
        parts = filter(None, (self.owner, self.number, self.target, self.put, self.there, self.within))
        return os.path.join(self.folder, PREFIX + "-".join(parts) + SUFFIX)


def new_temp_file(folder: str) -> TempFile:
    """One of this process, under a number that is not used yet."""
    return TempFile(folder, _owner(os.getpid()), str(next(_serial)))


def short_hash(digest: str) -> str:
    """A content's hash as it stands in a name."""
    return digest[:HASH_CHARS]


def name_hash(path: str) -> str:
    """The name of a target, as it stands in the name of a file in the making."""
    return short_hash(sha256(os.fsencode(os.path.basename(path))).hexdigest())


@cache
def _owner(pid: int) -> str:
    own = process(pid) if LINUX else None
    return f"{pid}.{own.start if own else 0}"


def recover_temp_files(folders: Iterable[str]) -> list[str]:
    """Clear up what killed processes left in `folders`; what living ones make stays.

    Gives a sentence for each file with somebody else's text that had to be kept beside its place.
    """
    said: list[str] = []
    for folder in folders:
        for half in _abandoned_files(folder):
            with contextlib.suppress(OSError):  # another process clears up too, or the folder is not ours
                said += _recover(half)
    return said


def _abandoned_files(folder: str) -> Iterator[TempFile]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if not name.startswith(PREFIX) or not name.endswith(SUFFIX):
            continue
        parts = name[len(PREFIX) : -len(SUFFIX)].removesuffix(".old").split("-")
        pid, _, start = parts[0].partition(".")
        if pid.isdigit() and not _is_alive(int(pid), int(start) if start.isdigit() else 0):
            yield _claim(os.path.join(folder, name), TempFile(folder, *parts[:6]))


def _claim(path: str, half: TempFile) -> TempFile:
    """The same under a name of this process, so that nobody else clears it up too; a missing one stays missing."""
    mine = msgspec.structs.replace(half, owner=_owner(os.getpid()), number=str(next(_serial)))
    with contextlib.suppress(OSError):
        os.rename(path, mine.path)
    return mine


def _is_alive(pid: int, start: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    now = process(pid) if LINUX and start else None
    return now is None or now.start == start


def _recover(half: TempFile) -> list[str]:
    """Drop what everybody has, put back what only it has. Raises OSError."""
    text = _read_closed(half.path)
    digest = "" if text is None else short_hash(sha256(text).hexdigest())
    if not half.there or digest in (half.put, half.there):
        os.unlink(half.path)
        return []
    names = (name for name in os.listdir(half.folder) if name_hash(name) == half.target)
    target = os.path.join(half.folder, next(names, ""))
    now = short_hash(content_hash(target))
    if now == half.put and exchange(half.path, target):
        return _check_restored(half, target)
    if now and text is not None and (now == half.within or contains_all_lines(read(target), text)):
        os.unlink(half.path)
        return []
    return [_move_beside(half, target if now else "")]


def _check_restored(half: TempFile, target: str) -> list[str]:
    """After an exchange: what came out is what was put there, unless somebody wrote in that very moment."""
    text = _read_closed(half.path)
    if text is not None and short_hash(sha256(text).hexdigest()) == half.put:
        os.unlink(half.path)
        return []
    exchange(half.path, target)
    return [_move_beside(half, target)]


def _read_closed(path: str) -> bytes | None:
    """Content, once nobody who had the file open before it was taken out writes to it; None when that goes on."""
    descriptor, _ = open_regular(path)
    try:
        return read_when_closed(descriptor)
    finally:
        os.close(descriptor)


def contains_all_lines(text: bytes, other: bytes) -> bool:
    """Whether every line of `other` is in `text` too: then nothing that anybody wrote goes with it."""
    return set(other.splitlines()) <= set(text.splitlines())


def _move_beside(half: TempFile, target: str) -> str:
    """Give it a name that people see."""
    kept = free_name_beside(target or os.path.join(half.folder, "kept"))
    os.rename(half.path, kept)
    return f"{kept} holds a change of {target or 'a file'} by another program, which a crash had cut: compare the two"


def free_name_beside(target: str) -> str:
    """A free name beside `target`, which people see, for a text of somebody else that has no place in it."""
    names = (f"{target}.theirs{number or ''}" for number in count())
    return next(name for name in names if not os.path.lexists(name))
