"""Atomic replacement of a file that other programs may write at the same time.

The new content is written to a temporary file beside the target and exchanged with it in one step.
The replaced content is then checked. Where it is not the expected one, another program has written
meanwhile: its file is put back, and both texts are merged once.

The name of a temporary file holds its owner, a process, and once it is complete hashes of the
target's name, of the new content and of the expected content. So recovery can tell what the file
is: content that was to be written, content that was rightly replaced, or another program's text
that a killed process had displaced. Such a text goes back to the target, or beside it when the
target has been written since.

A program that still writes to the file is waited for. If it keeps the file open, the file stays.
"""

import errno
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from hashlib import sha256
from itertools import count

import msgspec

from longrein.workspace.files import (
    READ_BYTES_MAX,
    check_writable,
    content_hash,
    open_regular,
    read,
    read_up_to,
    write_and_close,
)
from longrein.workspace.supervisor.openat import Folder, open_folder, open_parent
from longrein.workspace.supervisor.process_tree import LINUX, owner_mark, process
from longrein.workspace.workspace_port import Merge, ReplaceResult
from longrein_context.events.escape import whole_number

# --- Exchange of two files ------------------------------------------------------------------------
#
# One step, so that a write sees what it replaced. Linux has `renameat2`; elsewhere, and on file
# systems without it, a second hard link keeps the replaced file.

NO_REPLACE, EXCHANGE = 1, 2
"""Flags of `renameat2`."""
UNSUPPORTED_ERRORS = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
"""Errors where the system, its sandbox or the file system does not support the call."""
LOCK_WAIT_S = 2.0
"""Longest wait for another longrein that writes in the same folder."""
PAUSE_S, PAUSE_MAX_S = 0.0005, 0.002
"""First and longest pause between two tries."""


def exchange(folder: Folder, name: str, other: str) -> bool:
    """Exchange two files of one folder. True when `name` now holds what `other` was.

    False where neither an exchange nor a second link is possible: `name` has become `other`, whose
    old content is lost. Raises OSError, `FileNotFoundError` when either does not exist; then
    nothing was done.
    """
    if _rename(folder, name, other, EXCHANGE):
        return True
    kept = name.removesuffix(".tmp") + ".old.tmp"
    try:
        _link(folder, other, kept)
    except FileNotFoundError:
        raise
    except OSError:
        folder.rename(name, other)
        return False
    folder.rename(name, other)
    folder.rename(kept, name)
    return True


def _link(folder: Folder, name: str, other: str) -> None:
    at = folder.descriptor
    os.link(name, other, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)


def link_new(folder: Folder, name: str, other: str) -> None:
    """Give the file `name` the name `other`, which must be free.

    The file may keep its old name. Raises `FileExistsError` when `other` exists, and other
    OSErrors.
    """
    path = folder.path_of(other)
    try:
        _link(folder, name, other)
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "exists already", path) from None
    except OSError:  # no hard links on this file system
        if _rename(folder, name, other, NO_REPLACE):
            return
        if folder.has(other):
            raise FileExistsError(errno.EEXIST, "exists already", path) from None
        folder.rename(name, other)


def _rename(folder: Folder, name: str, other: str, flag: int) -> bool:
    """Call `renameat2`; False where it is not supported. Raises OSError for other failures."""
    call = _renameat2()
    if call is None:
        return False
    code = call(folder.descriptor, os.fsencode(name), os.fsencode(other), flag)
    if code in UNSUPPORTED_ERRORS:
        return False
    if code:
        raise OSError(code, os.strerror(code), folder.path_of(other))
    return True


@cache
def _renameat2() -> Callable[[int, bytes, bytes, int], int] | None:
    """Return the call, which gives 0 or an error number; None where there is none. Loads ctypes
    on first use.
    """
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "renameat2", None)
    if function is None:
        return None

    def call(folder: int, name: bytes, other: bytes, flag: int) -> int:
        return ctypes.get_errno() if function(folder, name, folder, other, flag) else 0

    return call


def _poll(is_ready: Callable[[], bool], wait_s: float) -> bool:
    """Wait in growing pauses until `is_ready()`; False after `wait_s`."""
    until, pause_s = time.monotonic() + wait_s, PAUSE_S
    while not is_ready():
        if time.monotonic() >= until:
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
    return True


def is_open_for_writing(descriptor: int) -> bool:
    """Tell whether a process has the file open for writing: then no lease is granted on it (2 µs).

    The lease is given back at once. A writer that comes just then causes a signal with no effect
    (SIGURG).
    """
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
def folder_lock(folder: Folder) -> Iterator[None]:
    """Let only one longrein of this machine write files of a folder at a time; the folder is the
    lock.

    Without the lock two writers would each displace and restore the other's text. Where the folder
    cannot be locked within `LOCK_WAIT_S`, the write goes on without: nothing is lost then either.
    """

    def is_locked() -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # this folder cannot be locked
            pass
        return True

    try:
        descriptor = folder.open(".", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        _poll(is_locked, LOCK_WAIT_S)
        yield
    finally:
        os.close(descriptor)


# --- Files that another program writes ------------------------------------------------------------

WRITER_WAIT_S = 0.15
"""Longest wait for a program that has the file open for writing."""
READS_MAX = 8
BUSY = "is open for writing in another program"


def read_closed(folder: Folder, name: str) -> bytes:
    """Read a file once no process writes to it. Raises OSError, also when that takes too long."""
    descriptor, _ = open_regular(name, folder)
    try:
        for _ in range(READS_MAX):
            if not _poll(lambda: not is_open_for_writing(descriptor), WRITER_WAIT_S):
                break
            before = _numbers(descriptor)
            os.lseek(descriptor, 0, os.SEEK_SET)
            data = read_up_to(descriptor, READ_BYTES_MAX, before[0])
            if before == _numbers(descriptor) and not is_open_for_writing(descriptor):
                return data
    finally:
        os.close(descriptor)
    raise OSError(errno.EBUSY, BUSY, folder.path_of(name))


def _numbers(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


# --- Temporary files and their recovery -----------------------------------------------------------

PREFIX, SUFFIX = ".longrein-", ".tmp"
HASH_CHARS = 16
"""Length of a hash in a file name."""

_serial = count(1)


class TempFile(msgspec.Struct, frozen=True):
    """A temporary file, as described by its name."""

    owner: str
    """`<pid>.<start>` of the process that writes it."""
    number: str
    target_hash: str = ""
    """Hash of the target's name; '' until the file is complete."""
    new_hash: str = ""
    """Hash of the new content."""
    expected_hash: str = ""
    """Hash of the content that it replaces."""

    @property
    def name(self) -> str:
        """Name in the folder of the target, built from the fields."""
        return PREFIX + "-".join(filter(None, msgspec.structs.astuple(self))) + SUFFIX


def new_temp_file() -> TempFile:
    """Return an unused temporary file of this process."""
    return TempFile(_owner_of(os.getpid()), str(next(_serial)))


def short_hash(digest: str) -> str:
    """Shorten a content hash for a file name."""
    return digest[:HASH_CHARS]


def name_hash(name: str) -> str:
    """Hash of a target's name, for the name of a temporary file."""
    return short_hash(sha256(os.fsencode(name)).hexdigest())


@cache
def _owner_of(_pid: int) -> str:  # once a process, also after a fork
    return owner_mark().strip("/") if LINUX else f"{os.getpid()}.0"


def recover_temp_files(folders: Iterable[str]) -> list[str]:
    """Remove or restore what killed processes left in `folders` (real paths); files of live
    processes stay.

    Returns a sentence for each file with another program's text that had to be kept beside its
    target.
    """
    said: list[str] = []
    for path in folders:
        with suppress(OSError), open_folder(path) as folder:
            for temp in _abandoned_files(folder):
                with suppress(
                    OSError
                ):  # another process recovers it too, or the folder is not writable
                    said += _recover(folder, temp)
    return said


def _abandoned_files(folder: Folder) -> Iterator[TempFile]:
    for name in folder.names():
        if not name.startswith(PREFIX) or not name.endswith(SUFFIX):
            continue
        parts = name[len(PREFIX) : -len(SUFFIX)].removesuffix(".old").split("-")
        pid, _, start = parts[0].partition(".")
        owner = whole_number(pid) if len(parts) > 1 else 0  # else somebody else has named it so
        if owner and not _is_alive(owner, whole_number(start)):
            yield _claim(folder, name, TempFile(*parts[:5]))


def _claim(folder: Folder, name: str, temp: TempFile) -> TempFile:
    """Rename the file to one of this process, so that no other process recovers it too."""
    new = new_temp_file()
    own = msgspec.structs.replace(temp, owner=new.owner, number=new.number)
    with suppress(OSError):
        folder.rename(name, own.name)
    return own


def _is_alive(pid: int, start: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    now = process(pid) if LINUX and start else None
    return now is None or now.start == start


def _recover(folder: Folder, temp: TempFile) -> list[str]:
    """Remove a file whose content is elsewhere, restore one whose content is not. Raises
    OSError.
    """
    digest = short_hash(sha256(read_closed(folder, temp.name)).hexdigest())
    if not temp.expected_hash or digest in (temp.new_hash, temp.expected_hash):
        folder.unlink(temp.name)
        return []
    target = next((name for name in folder.names() if name_hash(name) == temp.target_hash), "")
    if (
        target
        and short_hash(content_hash(target, folder)) == temp.new_hash
        and exchange(folder, temp.name, target)
    ):
        return _recover(folder, temp)  # what came out is ours, or was written at that moment
    return [_move_beside(folder, temp, target)]


def _move_beside(folder: Folder, temp: TempFile, target: str) -> str:
    """Rename to a name that the user sees."""
    kept = free_name_beside(folder, target or "kept")
    folder.rename(temp.name, kept)
    of = folder.path_of(target) if target else "a file"
    return (
        f"{folder.path_of(kept)} holds a change of {of} by another program, which a crash had "
        "cut: compare the two"
    )


def free_name_beside(folder: Folder, target: str) -> str:
    """Return a free visible name beside `target` for another program's text."""
    names = (f"{target}.theirs{number or ''}" for number in count())
    return next(name for name in names if not folder.has(name))


# --- Writing --------------------------------------------------------------------------------------

TRIES_MAX = 2
"""Writes by others at the very moment before the replacement is refused and their content stays."""

_recovered: dict[str, None] = {}


def replace(
    path: str,
    data: bytes,
    *,
    expect: str,
    base: bytes | None = None,
    merge: Merge | None = None,
    like: str = "",
    mode: int | None = None,
) -> ReplaceResult:
    """Replace content `expect` by `data`; see `Workspace.replace`. `path` is a real path.

    A read-only file is a `PermissionError`, also for root; its mode is never changed. Another hard
    link of the file keeps the old content.
    """
    folder, name = open_parent(path, make=not expect)
    with folder, folder_lock(folder):
        _recover_once(folder.path)
        if not expect:
            return _create(folder, name, data, like, mode)
        return _replace(folder, name, data, expect, base, merge)


def _recover_once(folder: str) -> None:
    """Recover the temporary files of killed processes, before the first write to a folder."""
    if folder not in _recovered:
        _recovered[folder] = None
        recover_temp_files([folder])


def _create(folder: Folder, name: str, data: bytes, like: str, mode: int | None) -> ReplaceResult:
    if check_writable(folder, name) is not None:
        return ReplaceResult(None, (read(name, 0, folder),))
    temp = prepare_temp_file(folder, name, data, like=like, mode=mode)
    try:
        link_new(folder, temp.name, name)
    except FileExistsError:
        return ReplaceResult(None, (read(name, 0, folder),))
    finally:
        _remove_temp_file(folder, temp)
    return ReplaceResult(data)


def prepare_temp_file(
    folder: Folder,
    name: str,
    data: bytes,
    expect: str = "",
    like: str = "",
    mode: int | None = None,
) -> TempFile:
    """Write `data` to a temporary file beside the file `name`, with the owner and mode of that one,
    or of the file with path `like`. `mode`: the permissions where there is neither.

    Raises OSError and then leaves nothing.
    """
    above, model = open_parent(like) if like else (folder, name)
    with above if like else nullcontext():
        old = check_writable(above, model)
        is_usual = old is None and mode is None
        temp, descriptor = _open_temp_file(folder, 0o666 if is_usual else 0o600)
        try:
            write_and_close(descriptor, data, above, model, old)
            if old is None and mode is not None:
                folder.set_mode(temp.name, mode)
            whole = msgspec.structs.replace(
                temp,
                target_hash=name_hash(name),
                new_hash=short_hash(sha256(data).hexdigest()),
                expected_hash=short_hash(expect),
            )
            folder.rename(temp.name, whole.name)
        except OSError:
            _remove_temp_file(folder, temp)
            raise
        return whole


def _open_temp_file(folder: Folder, mode: int) -> tuple[TempFile, int]:
    while True:
        temp = new_temp_file()
        try:
            return temp, folder.open(temp.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue  # left by an earlier process with our pid


def _remove_temp_file(folder: Folder, temp: TempFile) -> None:
    with suppress(FileNotFoundError):
        folder.unlink(temp.name)


# --- Replacement of an existing file --------------------------------------------------------------


def _replace(
    folder: Folder, name: str, ours: bytes, expect: str, base: bytes | None, merge: Merge | None
) -> ReplaceResult:
    """Replace content `expect` by `ours`, made from `base`. Raises OSError."""
    foreign: dict[bytes, None] = {}
    for _ in range(TRIES_MAX):
        theirs = read_closed(folder, name)
        if _sha256_hex(theirs) != expect:
            foreign.pop(theirs, None)
            foreign[theirs] = None
            merged = None if base is None or merge is None else merge(base, ours, theirs)
            if merged is None or merged == theirs:  # a conflict, or theirs contains our change
                return ReplaceResult(merged, tuple(foreign))
            base = theirs
            ours = merged
            expect = _sha256_hex(theirs)
        displaced = _exchange(folder, name, ours, expect)
        if displaced is None:
            return ReplaceResult(ours, tuple(foreign))
        foreign[displaced] = None
    theirs = read_closed(folder, name)
    foreign.pop(theirs, None)
    return ReplaceResult(None, (*foreign, theirs))


def _exchange(folder: Folder, name: str, ours: bytes, expect: str) -> bytes | None:
    """Exchange `ours` with the file. Returns None, or the unexpected content that stood there,
    which is put back.

    Raises OSError; the file is then as others left it.
    """
    temp = prepare_temp_file(folder, name, ours, expect)
    try:
        exchanged = exchange(folder, temp.name, name)
    except OSError:
        _remove_temp_file(folder, temp)
        raise
    if not exchanged:
        return None
    try:
        displaced = read_closed(folder, temp.name)
    except OSError:
        _put_back(folder, name, temp, ours)
        raise
    if _sha256_hex(displaced) != expect:
        _put_back(folder, name, temp, ours)
        return displaced
    _remove_temp_file(folder, temp)
    return None


def _put_back(folder: Folder, name: str, temp: TempFile, ours: bytes) -> None:
    """Put the replaced file itself back: another program may still write to it.

    A text that others wrote over ours meanwhile is kept beside it.
    """
    with suppress(OSError):  # the file is gone; recovery finds the replaced one
        exchange(folder, temp.name, name)
        if content_hash(temp.name, folder) == _sha256_hex(ours):
            _remove_temp_file(folder, temp)
        else:
            folder.rename(temp.name, free_name_beside(folder, name))


def _sha256_hex(data: bytes) -> str:
    return sha256(data).hexdigest()
