"""Find the files that a rule forbids to read or to change, so that the sandbox hides or locks them.

Every command needs the list as it is now. One walk finds both kinds. The names in a folder are read
again only when the folder has changed, so a look at an unchanged tree costs one `stat` for each
folder and one for each forbidden file. The time of the change is the inode's (`ctime`): a command
can set back the time of the content (`touch -d`), not this one.
"""

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

Forbidden = Callable[[str, str], bool]
"""(path, real path) -> whether a rule forbids it."""
SETTLED_S = 0.05
"""A folder is read again until so long after its change was first seen: a further change might
not show in its time.
"""
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
            self._rules, self._folders = rules, {}
        until, tests = time.monotonic() + limit_s, (unreadable, unchangeable)
        starts = [_Item(one, unreadable(one, one), unchangeable(one, one)) for one in folders]
        forbidden = [item for item in starts if item.is_hidden or item.is_locked]
        waiting = [item for item in starts if not item.is_hidden]
        seen = set[str]()
        while waiting:
            folder = waiting.pop()
            if folder.path in seen:
                continue
            seen.add(folder.path)
            found = self._look(folder, tests)
            forbidden += found.forbidden
            waiting += found.subfolders
            if time.monotonic() > until:
                return _masks(forbidden, TOO_MANY)
        return _masks(forbidden, "")

    def _look(self, folder: _Item, tests: tuple[Forbidden, Forbidden]) -> _Folder:
        now = time.monotonic()
        try:
            status = os.stat(folder.path)
        except OSError:
            return _Folder((), now, now, (), ())
        version = (status.st_dev, status.st_ino, status.st_ctime_ns)
        known = self._folders.get(folder.path)
        is_same = known is not None and known.version == version
        if known is None or not is_same or known.read_s - known.seen_s < SETTLED_S:
            seen_s = known.seen_s if known is not None and is_same else now
            known = self._folders[folder.path] = _Folder(
                version, seen_s, now, *_read(folder, tests)
            )
        return known


def _read(
    folder: _Item, tests: tuple[Forbidden, Forbidden]
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
        is_hidden, is_locked = (
            unreadable(path, path),
            not folder.is_locked and unchangeable(path, path),
        )
        if is_hidden or is_locked:
            forbidden.append(_Item(path, is_hidden, is_locked, entry.is_symlink()))
        if not is_hidden and entry.is_dir(follow_symlinks=False):
            subfolders.append(_Item(path, False, folder.is_locked or is_locked))
    return tuple(subfolders), tuple(forbidden)


def _masks(forbidden: Sequence[_Item], problem: str) -> Masks:
    """Return the real paths of those items that exist."""
    hidden, locked = dict[str, None](), dict[str, None]()
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
            problem = problem or f"{real} has another name (a hard link) that no mask hides"
            inode = status.st_dev, status.st_ino
            linked[inode] = (*linked.get(inode, ()), real)
    return Masks(tuple(hidden), tuple(locked), problem, linked)
