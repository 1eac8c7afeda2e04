"""Open files by their real path: no symbolic link is followed on the way.

A permission is judged on a real path: absolute, with every link followed at that moment. Such a
path holds no link. A link that is found when the file is opened was put there since, by a program
that swaps folders and links, and the open fails. `openat2` does this in one system call. The walk,
name by name with `O_NOFOLLOW`, does it where the kernel or its sandbox has no such call, for paths
longer than the kernel takes, and for the first files of a process.

Paths begin at the root of the file system and not at a kept descriptor of a session's root: that
folder may be removed and made again while the session is open. A change of a folder (a new file, a
rename) goes through a `Folder`, an open descriptor, so that all steps of one replacement happen in
one folder.
"""

import errno
import os
import stat
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import count
from types import TracebackType

OPENAT2 = 437
"""System call number, the same on every 64-bit machine of `MACHINES`."""
MACHINES = ("x86_64", "aarch64", "riscv64", "loongarch64", "ppc64le", "s390x")
NO_MAGIC_LINKS = 2
NO_SYMLINKS = 4
BENEATH = 8
"""Values of `open_how.resolve`."""
WALKS = 50
"""First opens of a process, by the walk: the import of `ctypes` takes 6 ms, as long as 200
walks.
"""
PATH_BYTES_MAX = 4000
"""Longest path that is handed to the kernel in one piece; it takes 4,095 bytes."""
CHANGED = "a symbolic link has come into its path between the check and the use; look again"
IS_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""Flags of a folder that only serves to name files in it. `O_PATH` needs no permission to list
it.
"""

Call = Callable[[int, bytes, int, int], int]


def open_real(path: str, flags: int, mode: int = 0) -> int:
    """Open an absolute real path. Raises OSError, `ELOOP` for a path with a link, `EINVAL` for
    one that cannot be.
    """
    sys.audit("open", path, None, flags)  # as `os.open` does
    try:
        return open_beneath(_top(), path.lstrip("/"), flags, mode)
    except OSError as error:
        error.filename = path
        raise


def open_beneath(folder: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path`, relative to an open folder and without a way out of it. Raises OSError as
    `open_real` does.
    """
    try:
        raw = os.fsencode(path)
        if b"\0" in raw:
            raise ValueError("embedded null byte")
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no usable path ({error})", path) from None
    flags |= os.O_CLOEXEC
    call = _openat2() if len(raw) <= PATH_BYTES_MAX else None
    if call is None:
        return _walk(folder, raw, flags, mode)
    again = (
        (-errno.EINTR, -errno.EAGAIN) if b".." in raw else (-errno.EINTR,)
    )  # something was renamed meanwhile
    while True:
        found = call(folder, raw or b".", flags, mode)
        if found >= 0:
            return found
        if found == -errno.ELOOP:
            raise OSError(errno.ELOOP, CHANGED, path)
        if found not in again:
            raise OSError(-found, os.strerror(-found), path)


@cache
def _top() -> int:
    return os.open("/", IS_FOLDER)


def _walk(folder: int, path: bytes, flags: int, mode: int) -> int:
    """Open each folder of the path in its turn, then the last name."""
    names = [name for name in path.split(b"/") if name not in (b"", b".")] or [b"."]
    if b".." in names:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), os.fsdecode(path))
    at = folder
    try:
        for name in names[:-1]:
            below = _open_name(at, name, IS_FOLDER, 0)
            if at != folder:
                os.close(at)
            at = below
        return _open_name(at, names[-1], flags, mode)
    finally:
        if at != folder:
            os.close(at)


def _open_name(folder: int, name: bytes, flags: int, mode: int) -> int:
    try:
        found = os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK) and _is_link(folder, name):
            raise OSError(errno.ELOOP, CHANGED, os.fsdecode(name)) from None
        raise
    if flags & getattr(os, "O_PATH", 0) and stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.ELOOP, CHANGED, os.fsdecode(name))
    return found


def _is_link(folder: int, name: bytes) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return True  # gone since: then it has changed, too


_opens = count(1)


def _openat2() -> Call | None:
    """Return the system call; None where the walk is to be used."""
    return _system_call() if next(_opens) > WALKS else None


@cache
def _system_call() -> Call | None:
    """Return `openat2`, which gives a descriptor or a negative error number; None where there is
    none.
    """
    machine = os.uname()
    if machine.sysname != "Linux" or machine.machine not in MACHINES or sys.maxsize < 1 << 32:
        return None
    import ctypes

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    how = struct.Struct("QQQ")

    def call(folder: int, path: bytes, flags: int, mode: int) -> int:
        wanted = how.pack(
            flags, mode if flags & os.O_CREAT else 0, NO_MAGIC_LINKS | NO_SYMLINKS | BENEATH
        )
        found = int(syscall(OPENAT2, folder, ctypes.c_char_p(path), wanted, how.size))
        return found if found >= 0 else -ctypes.get_errno()

    tried = call(_top(), b".", IS_FOLDER, 0)
    if tried < 0:
        return None
    os.close(tried)
    return call


class Folder:
    """An open folder. Files are named relative to its descriptor, whatever has become of its
    path.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor

    def __enter__(self) -> "Folder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)

    def path_of(self, name: str) -> str:
        """Return the path of a file, for messages and events."""
        return os.path.join(self.path, name)

    def open(self, name: str, flags: int, mode: int = 0) -> int:
        """Open a file. Raises OSError, `ELOOP` for a link."""
        return _open_name(self.descriptor, os.fsencode(name), flags | os.O_CLOEXEC, mode)

    def stat(self, name: str) -> os.stat_result:
        """Stat an entry; of a link, the link itself."""
        return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)

    def has(self, name: str) -> bool:
        """Tell whether there is an entry of that name."""
        try:
            self.stat(name)
        except OSError:
            return False
        return True

    def is_folder(self, name: str) -> bool:
        """Tell whether there is a folder of that name, not a link to one."""
        try:
            return stat.S_ISDIR(self.stat(name).st_mode)
        except OSError:
            return False

    def rename(self, name: str, other: str) -> None:
        """Rename an entry over another."""
        self.move(name, self, other)

    def move(self, name: str, folder: "Folder", other: str) -> None:
        """Move an entry into an open folder of the same file system; a link is moved, not
        followed. Raises OSError, `EXDEV` for another file system.
        """
        os.rename(name, other, src_dir_fd=self.descriptor, dst_dir_fd=folder.descriptor)

    def link_target(self, name: str) -> str | None:
        """Return the target of a symbolic link; '' where nothing is, None where something else
        is.
        """
        try:
            return os.readlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return ""
        except OSError:
            return None

    def make_link(self, target: str, name: str) -> None:
        """Make a symbolic link. Raises OSError."""
        os.symlink(target, name, dir_fd=self.descriptor)

    def make_folder(self, name: str) -> None:
        """Make a folder. Raises OSError."""
        os.mkdir(name, dir_fd=self.descriptor)

    def allow_changes(self, name: str = "") -> None:
        """Let the owner change a folder in this one, or this one itself. Not for links."""
        opened = os.dup(self.descriptor) if not name else self.open(name, IS_FOLDER)
        try:
            _set_mode(opened, stat.S_IMODE(os.fstat(opened).st_mode) | 0o700)
        finally:
            os.close(opened)

    def set_mode(self, name: str, mode: int) -> None:
        """Set the permissions of an entry. Raises OSError, `ELOOP` for a link."""
        opened = self.open(name, getattr(os, "O_PATH", os.O_RDONLY))
        try:
            _set_mode(opened, mode)
        finally:
            os.close(opened)

    def unlink(self, name: str) -> None:
        """Remove an entry that is no folder."""
        os.unlink(name, dir_fd=self.descriptor)

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder. Raises OSError."""
        os.rmdir(name, dir_fd=self.descriptor)

    def names(self) -> list[str]:
        """List the entries."""
        listed = self.open(".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            return os.listdir(listed)
        finally:
            os.close(listed)


def _set_mode(descriptor: int, mode: int) -> None:
    """Set the permissions of an open file; `fchmod` refuses those without the right to read."""
    os.chmod(f"/proc/self/fd/{descriptor}", mode)


def open_folder(path: str, *, make: bool = False) -> Folder:
    """Open a folder by its real path; with `make`, make it and its missing parents. Raises
    OSError.
    """
    missing: list[str] = []
    existing = path
    while True:
        try:
            found = Folder(path, open_real(existing, IS_FOLDER))
            break
        except FileNotFoundError:
            if not make or existing in ("/", ""):
                raise
            existing, _, name = existing.rpartition("/")
            missing.append(name)
    try:
        for name in reversed(missing):
            found.descriptor = _make_below(found.descriptor, name)
    except OSError:
        os.close(found.descriptor)
        raise
    return found


def _make_below(folder: int, name: str) -> int:
    """Make and open a folder below an open one, which is closed."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    below = _open_name(folder, os.fsencode(name), IS_FOLDER, 0)
    os.close(folder)
    return below


def open_parent(path: str, *, make: bool = False) -> tuple[Folder, str]:
    """Open the folder that holds a file: (folder, name of the file). Raises OSError as
    `open_real` does.
    """
    parent, _, name = path.rpartition("/")
    if not name or name in (".", "..") or "\0" in name:
        raise OSError(errno.EINVAL, "no usable path", path)
    return open_folder(parent or "/", make=make), name
