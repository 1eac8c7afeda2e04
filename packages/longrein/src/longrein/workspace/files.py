"""Read and fill files, compare them with an earlier stamp, and resolve paths."""

import errno
import os
import pwd
import stat
from collections.abc import Iterable
from contextlib import suppress

from longrein.atomic_file import write_all
from longrein.workspace.supervisor.openat import (
    CHANGED,
    IS_FOLDER,
    PATH_BYTES_MAX,
    Folder,
    open_parent,
    open_real,
)
from longrein.workspace.workspace_port import FileStamp, ResolvedPath

READ_BYTES_MAX = 1 << 30
"""Largest file that is read: it is held in memory."""
CHUNK_BYTES = 1 << 18


def read(path: str, limit_bytes: int = 0, folder: Folder | None = None) -> bytes:
    """Read a regular file, or its first `limit_bytes` (0: all). Raises OSError, also for what is
    not a file.

    `path`: a real path, or with `folder` the name of a file in it.
    """
    descriptor, size = open_regular(path, folder)
    try:
        data = read_up_to(descriptor, limit_bytes or READ_BYTES_MAX + 1, size)
    finally:
        os.close(descriptor)
    if len(data) > READ_BYTES_MAX:
        raise OSError(errno.EFBIG, f"is larger than {READ_BYTES_MAX >> 20} MiB", path)
    return data


READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""Flags that open a pipe or a device without waiting for it and without becoming its terminal's
session.
"""


def open_regular(path: str, folder: Folder | None = None) -> tuple[int, int]:
    """Open a regular file: (descriptor, size). Never blocks, not even on a pipe without a
    writer.
    """
    descriptor = open_real(path, READING) if folder is None else folder.open(path, READING)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status.st_size
    os.close(descriptor)
    raise not_a_file_error(path, status.st_mode)


def not_a_file_error(path: str, mode: int) -> OSError:
    """Return the error for a folder, device, pipe or socket in place of a file."""
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "is a folder", path)
    return OSError(errno.EINVAL, "is a device, pipe or socket, not a file", path)


def read_up_to(descriptor: int, wanted: int, size: int) -> bytes:
    """Read at most `wanted` bytes.

    Most files come in one read; a growing file, or one of /proc with size 0, needs more.
    """
    pieces, total = [os.read(descriptor, min(wanted, size + 1))], 0
    while pieces[-1] and (total := total + len(pieces[-1])) < wanted:
        pieces.append(os.read(descriptor, min(CHUNK_BYTES, wanted - total)))
    return b"".join(pieces)


def content_hash(path: str, folder: Folder | None = None) -> str:
    """SHA-256 (hex) of a regular file; '' when it is missing or cannot be read."""
    try:
        descriptor, _ = open_regular(path, folder)
    except OSError:
        return ""
    from hashlib import sha256  # loads OpenSSL: not for help

    digest = sha256()
    try:
        while chunk := os.read(descriptor, CHUNK_BYTES):
            digest.update(chunk)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def check_writable(folder: Folder, name: str) -> os.stat_result | None:
    """Stat a file that is to be replaced; None when it does not exist.

    Raises OSError for a link, another non-file or a read-only file.
    """
    try:
        old = folder.stat(name)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(old.st_mode):
        raise OSError(errno.ELOOP, CHANGED, folder.path_of(name))
    if not stat.S_ISREG(old.st_mode):
        raise not_a_file_error(folder.path_of(name), old.st_mode)
    if not old.st_mode & 0o222 or not os.access(name, os.W_OK, dir_fd=folder.descriptor):
        raise PermissionError(errno.EACCES, "is read-only", folder.path_of(name))
    return old


def write_and_close(
    descriptor: int, data: bytes, folder: Folder, name: str, old: os.stat_result | None
) -> None:
    """Write all of `data`, copy owner and mode of the `old` file `name`, flush and close. Raises
    OSError.
    """
    try:
        write_all(descriptor, data)
        if old is not None:
            _copy_attributes(descriptor, folder, name, old)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_attributes(descriptor: int, folder: Folder, name: str, old: os.stat_result) -> None:
    """Copy owner, extended attributes and mode, in this order: a change of owner clears set-id
    bits.

    Set-id bits are kept only with the same owner and group, so that they cannot lend another
    identity to new content.
    """
    mode = stat.S_IMODE(old.st_mode)
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            mode &= 0o777
    with suppress(OSError, AttributeError):  # macOS has none
        _copy_extended_attributes(descriptor, folder, name)
    os.fchmod(descriptor, mode)


def _copy_extended_attributes(descriptor: int, folder: Folder, name: str) -> None:
    source, _ = open_regular(name, folder)
    try:
        for key in os.listxattr(source):
            with suppress(OSError):  # labels of the system may be refused
                os.setxattr(descriptor, key, os.getxattr(source, key))
    finally:
        os.close(source)


def remove(path: str) -> int:
    """Remove a regular file; of a symlink, the link itself. Return the permissions that it had.
    Raises OSError.
    """
    folder, name = open_parent(path)
    with folder:
        status = folder.stat(name)
        if stat.S_ISDIR(status.st_mode):
            raise not_a_file_error(path, status.st_mode)
        folder.unlink(name)
    return stat.S_IMODE(status.st_mode)


# --- File stamps ----------------------------------------------------------------------------------
#
# Four numbers of the file system are compared first; the content is read only when they differ.

HASHED_BYTES_MAX = 256 << 20
"""Largest file that is hashed for a stamp. A sparse file of terabytes would take hours."""


def stamp(path: str) -> FileStamp:
    """Take the file's stamp.

    The numbers are taken before the content, so a change in between shows later as a difference.
    """
    try:
        now = stat_real(path)
    except (OSError, ValueError):
        return FileStamp(0, 0, 0, 0, "")
    numbers = _numbers(now)
    is_file = stat.S_ISREG(now.st_mode)  # a pipe is not opened: its writer would notice
    return FileStamp(*numbers, _content_id(path, numbers) if is_file else "")


def refresh_stamp(path: str, then: FileStamp) -> FileStamp:
    """Return `then` when its numbers still hold (one `stat`), else a new stamp."""
    try:
        now = stat_real(path)
    except (OSError, ValueError):
        return stamp(path)
    known = (then.inode, then.size_bytes, then.mtime_ns, then.ctime_ns)
    return then if _numbers(now) == known else stamp(path)


def _content_id(path: str, numbers: tuple[int, int, int, int]) -> str:
    """Hash of the content; for a file too large to read, its numbers."""
    return content_hash(path) if numbers[1] <= HASHED_BYTES_MAX else "-".join(map(str, numbers))


def _numbers(now: os.stat_result) -> tuple[int, int, int, int]:
    return now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def stat_real(path: str) -> os.stat_result:
    """Stat a real path of any length; of a link, the link itself. Raises OSError, ValueError for
    an impossible path.
    """
    if len(path) < PATH_BYTES_MAX:
        return os.lstat(path)
    descriptor = open_real(path, getattr(os, "O_PATH", os.O_RDONLY))
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


# --- Paths ----------------------------------------------------------------------------------------
#
# Only `~` is expanded: `$HOME/x`, `%2e%2e/x` and `file:///x` are plain names. Roots are compared by
# component, so `/w/repo-evil` is not in `/w/repo`. A path is inside a root only when both the
# written path and its real path are.


def resolve_path(path: str, cwd: str, roots: Iterable[str], home: str) -> ResolvedPath:
    """Resolve `path`. `roots` are absolute, in each spelling that counts as inside (as given, and
    real).

    Never raises: NUL, an unencodable or an endless name gives `kind=''`, outside.
    """
    if not path or "\0" in path:
        return ResolvedPath(path, "", "", inside=False, kind="")
    joined = os.path.join(cwd, expand_home(path, home))
    written = _normalize(joined)
    try:
        real = os.path.realpath(joined) if len(joined) < PATH_BYTES_MAX else _long_real_path(joined)
    except (OSError, ValueError):
        return ResolvedPath(path, written, "", inside=False, kind="")
    inside = is_inside(written, roots) and is_inside(real, roots)
    try:
        status = stat_real(real)
    except (OSError, ValueError):  # missing, a name too long, a file used as a folder
        return ResolvedPath(
            path, written, real, inside=inside and len(real) < PATH_BYTES_MAX, kind=""
        )
    if stat.S_ISLNK(status.st_mode):  # a loop of links, or one that was put there just now
        return ResolvedPath(path, written, real, inside, "")
    if stat.S_ISREG(status.st_mode):
        identity = (status.st_dev, status.st_ino) if status.st_nlink > 1 else None
        return ResolvedPath(path, written, real, inside, "file", status.st_size, identity)
    return ResolvedPath(
        path, written, real, inside, "folder" if stat.S_ISDIR(status.st_mode) else "other"
    )


LINKS_MAX = 40
"""Links that are followed in one path, as the kernel does."""


def places_of(path: str) -> list[str]:
    """Return the path of each link that is followed on the way to an absolute path, and where the
    last one leads.
    """
    links = list[str]()
    at = "/"
    waiting = path.split("/")[::-1]
    while waiting and len(links) < LINKS_MAX:
        step = _normalize(os.path.join(at, waiting.pop()))
        try:
            target = os.readlink(step)
        except (OSError, ValueError):
            at = step
            continue
        links.append(step)
        waiting += target.split("/")[::-1]
        at = "/" if target.startswith("/") else at
    return [*links, at]


def _long_real_path(path: str) -> str:
    """`os.path.realpath` for a path that is too long for the kernel: by open folders, name by name.

    Raises OSError for too many links.
    """
    names = path.split("/")[::-1]
    real = [""]
    links = 0
    folder = os.open("/", IS_FOLDER)
    try:
        while names:
            name = step = names.pop()
            if name in ("", "."):
                continue
            target = "" if name == ".." else _link_target(name, folder)
            if target:
                step = "/" if target.startswith("/") else "."
                links += 1
                if links > LINKS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                names += target.split("/")[::-1]
                real = [""] if step == "/" else real
            else:
                real = (real[:-1] or [""]) if name == ".." else [*real, name]
            try:
                below = os.open(step, IS_FOLDER, dir_fd=folder)
            except OSError:  # the end of what exists
                return _normalize("/".join([*real, *names[::-1]]))
            os.close(folder)
            folder = below
    finally:
        os.close(folder)
    return "/".join(real) or "/"


def _link_target(name: str, folder: int) -> str:
    """Return where a link leads; '' for what is no link."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return ""


def is_inside(path: str, roots: Iterable[str]) -> bool:
    """Tell whether an absolute, normalised path is one of the roots or below one."""
    return any(
        path == root or path.startswith(root if root == "/" else root + "/") for root in roots
    )


def expand_home(path: str, home: str) -> str:
    """Expand `~` and `~/x` by `home`, `~name/x` by the password file. Other paths stay as
    written.
    """
    if not path.startswith("~"):
        return path
    name, slash, rest = path[1:].partition("/")
    if name:
        home = ""
        with suppress(KeyError, ValueError):
            home = pwd.getpwnam(name).pw_dir
    return home + slash + rest if home else path


def _normalize(path: str) -> str:
    """`os.path.normpath`, but `//x` becomes `/x`, as Linux and macOS treat it."""
    tidy = os.path.normpath(path)
    return tidy[1:] if tidy.startswith("//") else tidy


def spellings(roots: Iterable[str]) -> tuple[str, ...]:
    """Return each root as written and with its symlinks followed, without duplicates, in order."""
    both = [
        spelling
        for root in roots
        for spelling in (_normalize(os.path.abspath(root)), os.path.realpath(root))
    ]
    return tuple(dict.fromkeys(both))


def find_program(name: str, search_path: str, roots: Iterable[str]) -> str:
    """Return the path of an executable on `search_path` that lies outside the roots; '' for none.

    Relative entries are skipped: the programs that longrein runs must not depend on the current
    folder.
    """
    for folder in search_path.split(":"):
        found = os.path.join(folder, name)
        is_program = folder.startswith("/") and os.access(found, os.X_OK) and os.path.isfile(found)
        if is_program and not any(
            is_inside(one, roots) for one in (_normalize(found), os.path.realpath(found))
        ):
            return found
    return ""
