"""Find the files that a rule forbids to read or to change, so that the sandbox hides or locks them.

Every command needs the list as it is now. A forbidden file stays forbidden under any other name
in the folders, so files are remembered by their identity. One walk finds both kinds. The names in
a folder are read again only when the folder has changed, so a look at an unchanged tree costs one
`stat` for each folder and one for each forbidden file. The time of the change is the inode's
(`ctime`): a command can set back the time of the content (`touch -d`), not this one.
"""

import os
import stat
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from longrein.workspace.supervisor.landlock_process import c_library

Forbidden = Callable[[str, str], bool]
"""(path, real path) -> whether a rule forbids it."""
SETTLED_S = 0.05
"""A folder is read again until so long after its change was first seen: a further change might
not show in its time.
"""
HANDLE_BYTES = 128
"""Largest handle of a file (`MAX_HANDLE_SZ`)."""
TOO_MANY = "there are too many files to see which of them a rule forbids to read"


class _Item(NamedTuple):
    """A folder, or a file that a rule forbids. What a link leads to is looked up each time."""

    path: str
    is_hidden: bool
    is_locked: bool
    is_link: bool = False


class _Folder(NamedTuple):
    version: tuple[int, ...]
    """Device, inode and time of its last change."""
    seen_s: float
    """Time at which that change was first seen, on the monotonic clock."""
    read_s: float
    """Time of the last read, on the monotonic clock."""
    subfolders: tuple[_Item, ...]
    """Folders to enter."""
    forbidden: tuple[_Item, ...]


class Masks(NamedTuple):
    """Files and folders that rules forbid. Real paths of what exists."""

    hidden: tuple[str, ...] = ()
    """Must not be read."""
    locked: tuple[str, ...] = ()
    """Must not be changed."""
    problem: str = ""
    """Reason why some of the paths may be missing; '' if all are there."""
    linked: Mapping[tuple[int, int], tuple[str, ...]] = MappingProxyType({})
    """Device and inode of a forbidden file that has further names (hard links) -> its paths."""


class MaskIndex:
    """The forbidden files of folders, for one set of rules at a time."""

    def __init__(self) -> None:
        self._rules: object = None
        self._folders: dict[str, _Folder] = {}
        self._hidden: dict[int, set[bytes]] = {}
        """Inode -> identities of the hidden files that had it."""

    def find(
        self,
        folders: Sequence[str],
        unreadable: Forbidden,
        unchangeable: Forbidden,
        rules: object,
        limit_s: float,
    ) -> Masks:
        """Look below the folders (real paths). `rules` stands for what the two tests depend on."""
        if rules != self._rules:
            self._rules = rules
            self._folders = {}
            self._hidden = {}
        until = time.monotonic() + limit_s
        found = self._walk(folders, (unreadable, unchangeable), until)
        if self._remember(found):  # another name of such a file may lie in a folder read before
            self._folders.clear()
            found = self._walk(folders, (unreadable, unchangeable), until)
        is_late = time.monotonic() > until
        return _masks(found, TOO_MANY if is_late else "")

    def _walk(
        self, folders: Sequence[str], tests: tuple[Forbidden, Forbidden], until: float
    ) -> list[_Item]:
        unreadable, unchangeable = tests
        starts = [_Item(one, unreadable(one, one), unchangeable(one, one)) for one in folders]
        forbidden = [item for item in starts if item.is_hidden or item.is_locked]
        waiting = [item for item in starts if not item.is_hidden]
        seen = set[str]()
        while waiting and time.monotonic() <= until:
            folder = waiting.pop()
            if folder.path not in seen:
                seen.add(folder.path)
                found = self._look(folder, tests)
                forbidden += found.forbidden
                waiting += found.subfolders
        return forbidden

    def _remember(self, forbidden: Sequence[_Item]) -> bool:
        """Remember the hidden files; return True if a new one has several names."""
        is_shared = False
        for item in forbidden:
            with suppress(OSError):
                status = os.lstat(item.path)
                if item.is_hidden and stat.S_ISREG(status.st_mode):
                    known = self._hidden.setdefault(status.st_ino, set())
                    identity = identity_of(item.path)
                    is_shared |= identity not in known and status.st_nlink > 1
                    known.add(identity)
        return is_shared

    def _is_hidden(self, entry: "os.DirEntry[str]") -> bool:
        """Return True for another name of a hidden file."""
        known = self._hidden.get(entry.inode())
        with suppress(OSError):
            return known is not None and identity_of(entry.path) in known
        return False

    def _look(self, folder: _Item, tests: tuple[Forbidden, Forbidden]) -> _Folder:
        now = time.monotonic()
        try:
            status = os.stat(folder.path)
        except OSError:
            return _Folder((), now, now, (), ())
        version = (status.st_dev, status.st_ino, status.st_ctime_ns)
        known = self._folders.get(folder.path)
        if known is not None and known.version != version:
            known = None
        if known is None or known.read_s - known.seen_s < SETTLED_S:
            seen_s = now if known is None else known.seen_s
            read = _read(folder, tests, self._is_hidden)
            known = self._folders[folder.path] = _Folder(version, seen_s, now, *read)
        return known


def _read(
    folder: _Item,
    tests: tuple[Forbidden, Forbidden],
    is_known: "Callable[[os.DirEntry[str]], bool]",
) -> tuple[tuple[_Item, ...], tuple[_Item, ...]]:
    """Return (folders to enter, forbidden items). In a locked folder nothing more needs a lock.

    A link counts by its own path: what it leads to is found by its own path, too, where the walk
    comes there.
    """
    subfolders, forbidden = [], []
    unreadable, unchangeable = tests
    try:
        entries = list(os.scandir(folder.path))
    except OSError:
        return (), ()
    for entry in entries:
        path = entry.path
        is_hidden = unreadable(path, path) or is_known(entry)
        is_locked = not folder.is_locked and unchangeable(path, path)
        if is_hidden or is_locked:
            forbidden.append(_Item(path, is_hidden, is_locked, entry.is_symlink()))
        if not is_hidden and entry.is_dir(follow_symlinks=False):
            subfolders.append(_Item(path, False, folder.is_locked or is_locked))
    return tuple(subfolders), tuple(forbidden)


def identity_of(path: str) -> bytes:
    """Return the handle of a file: its inode with the generation, so that a later file does not
    count as the same. The inode alone where the file system has no handles.

    Raises OSError. The source is name_to_handle_at(2).
    """
    import ctypes

    found, mounted = os.lstat(path), ctypes.c_int()
    inode = struct.pack("=QQ", found.st_dev, found.st_ino)
    handle = ctypes.create_string_buffer(struct.pack("=Ii", HANDLE_BYTES, 0) + bytes(HANDLE_BYTES))
    called = c_library().name_to_handle_at(
        -100, os.fsencode(path), handle, ctypes.byref(mounted), 0
    )
    return inode if called < 0 else inode + handle.raw


def _masks(forbidden: Sequence[_Item], problem: str) -> Masks:
    """Return the real paths of those items that exist."""
    hidden, locked = dict[str, None](), dict[str, None]()
    shared: dict[tuple[int, int], tuple[str, int]] = {}
    linked = dict[tuple[int, int], tuple[str, ...]]()
    for item in forbidden:
        real = os.path.realpath(item.path) if item.is_link else item.path
        try:
            status = os.stat(real)
        except OSError:
            continue
        if item.is_hidden:
            hidden[real] = None
        if item.is_locked:
            locked[real] = None
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            inode = status.st_dev, status.st_ino
            shared[inode] = real, status.st_nlink
            linked[inode] = tuple(dict.fromkeys((*linked.get(inode, ()), real)))
    for inode, (real, links) in shared.items():
        if len(linked[inode]) < links:
            problem = problem or f"{real} has another name (a hard link) that no mask hides"
    return Masks(tuple(hidden), tuple(locked), problem, linked)
