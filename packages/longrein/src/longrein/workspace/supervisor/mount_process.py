"""Mounts of a confined command: made by descriptors, in a mount namespace of its own.

A command shares its project with other commands, so any name in it may become a symbolic link at
any moment. Each folder and file that is mounted is therefore opened without following a link, and
the mount is made from one descriptor onto another (`open_tree`, `move_mount`, Linux 5.12). Then the
process becomes `bwrap`, which adds the other namespaces, /dev, /proc and the seccomp filter.

Standard library only; also a program: `helper_words` gives its command line.
"""

import os
import socket
import stat
import struct
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from longrein.workspace.supervisor.landlock_process import (
    c_library,
    checked,
    start_prepared,
)
from longrein.workspace.supervisor.openat import IS_FOLDER, open_beneath

TYPE_CHECKING = False  # `typing` is slow to import, and the supervisor starts with each session
if TYPE_CHECKING:
    from typing import Any, NoReturn

WRITE = "write"
READ = "read"
COVER = "cover"
EMPTY = "empty"
CLOSED = "closed"
"""Kinds of mounts: a folder or file that may be changed; one that may be read; a source that hides
a file; an empty folder that can be passed through; one that cannot.
"""
IMAGE = "image"
"""The first mount of a plan, if there is one: the folder that takes the place of `/`."""
LINK = "link"
"""No mount, but a symbolic link to the source that is made in an empty folder of the plan."""
KERNEL_MIN = (5, 12)
"""First Linux with `mount_setattr`; the other calls are older."""

_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_RECURSIVE, _PRIVATE = 1 << 14, 1 << 18
_EMPTY_PATH = 0x1000
_WITH_SUBMOUNTS = 0x8000
_CLONE = 1
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_FSOPEN = 430
_FSCONFIG = 431
_FSMOUNT = 432
_SETATTR = 442
_READ_ONLY = 1
_NO_SETUID = 2
_NO_DEVICES = 4
_FROM_AND_TO_DESCRIPTORS = 0x4 | 0x40
_SET_STRING, _CREATE = 1, 6
_MODES = {EMPTY: b"0755", CLOSED: b"0000"}


Mount = namedtuple("Mount", "kind path source")
"""A mount. Paths are absolute and were real when the plan was made. The source is what is mounted
there; '' for an empty folder.
"""


def encode_plan(mounts: Sequence[Mount]) -> bytes:
    """Return the mounts as bytes; those of outer folders must come first."""
    return b"\0".join(os.fsencode(field) for mount in mounts for field in mount)


def decode_plan(plan: bytes) -> list[Mount]:
    """Return the mounts of a plan."""
    fields = list(map(os.fsdecode, plan.split(b"\0")))
    return [Mount(*fields[at : at + 3]) for at in range(0, len(fields) - 2, 3)]


def _is_among_files(mount: Mount, made: Sequence[Mount]) -> bool:
    """Return True if the mount lies in a folder that is shown at its own place, files and all."""
    around = [one for one in made if mount.path.startswith(one.path.rstrip("/") + "/")]
    return bool(around) and around[-1].source == around[-1].path


def enter_user_namespace(namespace: int = -1) -> None:
    """Enter the open user namespace, or a new one in which the user keeps its ids. Raises OSError.

    A process that hides its memory cannot set the ids of a namespace; it needs an open one.
    """
    libc = c_library()
    if namespace >= 0:
        checked(libc.setns(namespace, _NEW_USER))
        return
    user, group = os.getuid(), os.getgid()
    checked(libc.unshare(_NEW_USER))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def open_user_namespace() -> int:
    """Return a descriptor of a new user namespace in which the user keeps its ids; -1 for none.

    Only for a process with one thread, before it hides its memory.
    """
    return _namespace_of(enter_user_namespace, "user")


def open_mount_namespace(plan: bytes, namespace: int) -> int:
    """Return a descriptor of a mount namespace with the mounts of a plan; -1 where they cannot be
    made. `namespace`: an open user namespace.
    """
    return _namespace_of(lambda: apply_mounts(plan, namespace), "mnt")


def _namespace_of(enter: Callable[[], None], kind: str) -> int:
    """Return a descriptor of the namespace that a new process enters; -1 where it cannot."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if not pid:
            try:
                enter()
                opened = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
                socket.send_fds(theirs, [b"1"], [opened])
            finally:
                os._exit(0)
        theirs.close()
        try:
            _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        except OSError:
            descriptors = []
    os.waitpid(pid, 0)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return descriptors[0] if descriptors else -1


def apply_mounts(plan: bytes, namespace: int = -1) -> None:
    """Give this process a mount namespace with the mounts of a plan. Raises OSError.

    `namespace`: see `enter_user_namespace`. All else becomes read-only. The current folder is `/`
    afterwards.
    """
    mounts = decode_plan(plan)
    enter_user_namespace(namespace)
    libc = c_library()
    checked(libc.unshare(_NEW_MOUNTS))
    checked(libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None))
    os.chdir("/")
    with _opened("/") as top:
        trees = {mount: tree for mount in mounts if (tree := _source(libc, top, mount)) is not None}
        is_writable = any(mount.kind == WRITE and mount.path == "/" for mount in mounts)
        _set_attributes(libc, top, _NO_SETUID if is_writable else _NO_SETUID | _READ_ONLY)
        with _opened("proc", top) as processes:  # bwrap may not mount another that is not read-only
            _set_attributes(libc, processes, 0, cleared=_READ_ONLY, alone=True)
        places = top
        made: list[Mount] = []
        for mount, tree in trees.items():
            if mount.kind == IMAGE:  # bwrap makes it the root: its own program is outside of it
                _attach(libc, top, mount._replace(path=mount.source), tree)
                places = tree
                continue
            try:
                _attach(libc, places, mount, tree)
            except FileNotFoundError:
                if _is_among_files(mount, made):  # moved since: a place would be a new file
                    continue
                _make_place(places, mount.path, _is_folder(tree))
                _attach(libc, places, mount, tree)
            made.append(mount)
        for mount in mounts:
            if mount.kind == LINK:
                _make_link(places, mount)
        for mount, tree in trees.items():
            if mount.kind in _MODES:  # now that the places in it are made
                _set_attributes(libc, tree, _READ_ONLY, alone=True)


def enter_mounts(namespace: int, mounts: int) -> None:
    """Enter an open user namespace and one of `open_mount_namespace`. Raises OSError."""
    enter_user_namespace(namespace)
    checked(c_library().setns(mounts, _NEW_MOUNTS))
    os.chdir("/")


def enter_namespaces(pid: int) -> None:
    """Enter the user and mount namespaces of a process. Raises OSError."""
    libc = c_library()
    kinds = ("user", _NEW_USER), ("mnt", _NEW_MOUNTS)
    opened = [
        (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind)
        for name, kind in kinds
    ]
    for namespace, kind in opened:
        checked(libc.setns(namespace, kind))


def renew_mounts(mounts: Sequence[Mount]) -> None:
    """Make mounts of a plan again in this namespace, over files that were replaced.

    What is missing now needs no mount. Raises OSError.
    """
    libc = c_library()
    with _opened("/") as top:
        for mount in mounts:
            try:
                place = open_beneath(top, mount.path.lstrip("/"), getattr(os, "O_PATH", 0))
            except FileNotFoundError:
                continue
            is_folder = _is_folder(place)
            os.close(place)
            if mount.kind in (COVER, CLOSED):
                tree = _empty_folder(libc, b"0000") if is_folder else _empty_file(libc)
            else:
                tree = _source(libc, top, mount._replace(source=mount.path)) or -1
            with suppress(FileNotFoundError):
                _attach(libc, top, mount, tree)


def _empty_file(libc: "Any") -> int:
    """Return a mount of a file that cannot be read."""
    folder = _empty_folder(libc, b"0700")
    os.close(os.open("none", os.O_CREAT | os.O_WRONLY, 0o000, dir_fd=folder))
    flags = _CLONE | os.O_CLOEXEC
    tree = int(checked(libc.syscall(_OPEN_TREE, folder, b"none", flags)))
    _set_attributes(libc, tree, _READ_ONLY)
    return tree


def _source(libc: "Any", top: int, mount: Mount) -> int | None:
    """Return a descriptor of what is to be mounted; None for a link and for a missing file that is
    not hidden.
    """
    if mount.kind == LINK:
        return None
    if mount.kind in _MODES:
        return _empty_folder(libc, _MODES[mount.kind])
    try:
        opened = open_beneath(top, mount.source.lstrip("/"), getattr(os, "O_PATH", 0))
    except FileNotFoundError:
        if mount.kind in (COVER, IMAGE):
            raise
        return None
    try:
        flags = _CLONE | os.O_CLOEXEC | _EMPTY_PATH | _WITH_SUBMOUNTS
        tree = int(checked(libc.syscall(_OPEN_TREE, opened, b"", flags)))
    finally:
        os.close(opened)
    is_fixed = _READ_ONLY if mount.kind not in (WRITE, IMAGE) else 0
    _set_attributes(libc, tree, _NO_SETUID | _NO_DEVICES | is_fixed)
    return tree


def _empty_folder(libc: "Any", mode: bytes) -> int:
    system = int(checked(libc.syscall(_FSOPEN, b"tmpfs", 1)))
    try:
        for key, value in ((b"mode", mode), (b"size", b"4096k")):
            checked(libc.syscall(_FSCONFIG, system, _SET_STRING, key, value, 0))
        checked(libc.syscall(_FSCONFIG, system, _CREATE, None, None, 0))
        return int(checked(libc.syscall(_FSMOUNT, system, 1, _NO_SETUID | _NO_DEVICES)))
    finally:
        os.close(system)


def _attach(libc: "Any", top: int, mount: Mount, tree: int) -> None:
    """Mount at the path."""
    flags = IS_FOLDER if _is_folder(tree) else getattr(os, "O_PATH", 0)
    try:
        place = open_beneath(top, mount.path.lstrip("/"), flags)
    except OSError as error:
        error.filename = mount.path
        raise
    try:
        flags = _FROM_AND_TO_DESCRIPTORS
        checked(libc.syscall(_MOVE_MOUNT, tree, b"", place, b"", flags))
    finally:
        os.close(place)


def _is_folder(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def _make_place(top: int, path: str, is_folder: bool) -> None:
    """Make a folder or an empty file, and the folders above it."""
    above, _, name = path.rpartition("/")
    folder = _open_or_make_folder(top, above)
    try:
        if is_folder:
            os.mkdir(name, 0o755, dir_fd=folder)
        else:
            flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o444, dir_fd=folder))
    finally:
        os.close(folder)


def _open_or_make_folder(top: int, path: str) -> int:
    try:
        return open_beneath(top, path.lstrip("/") or ".", IS_FOLDER)
    except FileNotFoundError:
        _make_place(top, path, True)
        return open_beneath(top, path.lstrip("/"), IS_FOLDER)


def _make_link(top: int, mount: Mount) -> None:
    above, _, name = mount.path.rpartition("/")
    folder = _open_or_make_folder(top, above)
    try:
        os.symlink(mount.source, name, dir_fd=folder)
    finally:
        os.close(folder)


def _set_attributes(
    libc: "Any", mount: int, attributes: int, *, cleared: int = 0, alone: bool = False
) -> None:
    """Set and clear attributes of a mount and, unless it is meant alone, of all mounts in it."""
    wanted = struct.pack("=QQQQ", attributes, cleared, 0, 0)
    flags = _EMPTY_PATH if alone else _EMPTY_PATH | _WITH_SUBMOUNTS
    checked(libc.syscall(_SETATTR, mount, b"", flags, wanted, len(wanted)))


@contextmanager
def _opened(name: str, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, IS_FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def mounted_start(
    plan_path: str,
    namespace: int,
    program: str,
    words: Sequence[str],
    env: Mapping[str, str],
    trace: Callable[[], None] | None = None,
    kept: int = -1,
    **ends: int,
) -> int:
    """Start a sandbox's program after the mounts of a plan and `trace`; see `start_prepared`.

    `kept`: a namespace of `open_mount_namespace` that has the mounts.
    """
    with open(plan_path, "rb") as file:
        plan = file.read()
    c_library()  # loaded here, it costs the new process nothing
    opened = os.open(program, os.O_RDONLY | os.O_CLOEXEC)

    def prepare() -> None:
        if kept >= 0:
            enter_mounts(namespace, kept)
        else:
            apply_mounts(plan, namespace)
        if trace is not None:
            trace()

    try:
        return start_prepared(prepare, opened, words, "/", env, **ends)
    finally:
        os.close(opened)


# --- As a program ---------------------------------------------------------------------------------


_PROGRAM = (
    "import sys, types\n"
    "root = sys.argv.pop(1)\n"
    "for name in ('longrein', 'longrein.workspace'):\n"
    "    sys.modules[name] = types.ModuleType(name)\n"
    "    sys.modules[name].__path__ = [root + name[8:].replace('.', '/')]\n"
    "from longrein.workspace.supervisor.mount_process import main\n"
    "main()\n"
)
"""Program that runs this module without installed packages."""


def helper_words(python: str, plan: str) -> list[str]:
    """Return the command line in front of a sandbox's program. `plan` is the path of a plan."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [python, "-I", "-S", "-c", _PROGRAM, root, plan]


def main() -> "NoReturn":
    """Make the mounts of a plan and become the program in the other arguments."""
    words = sys.argv[2:]
    try:
        program = os.open(words[0], os.O_RDONLY | os.O_CLOEXEC)
        with open(sys.argv[1], "rb") as file:
            plan = file.read()
        apply_mounts(plan)
        os.execv(f"/proc/self/fd/{program}", words)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        os.write(2, f"bwrap: {place}{error.strerror}\n".encode())
        os._exit(126)
