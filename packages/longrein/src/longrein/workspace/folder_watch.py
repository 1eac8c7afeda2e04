"""Watch of the files that are written in the folders of a tree, by inotify(7).

Not told is what a program writes through a memory map, until it closes the file, and through a hard
link outside these folders. A caller that must know that too looks at the files.

Linux, on the file systems of `LOCAL`: on others a writer may be on another machine. The queue is
read with system calls of our own, because packages for inotify look for the C library by programs.
"""

import os
from collections.abc import Collection
from contextlib import suppress

from longrein.workspace.supervisor.landlock_process import c_library, checked
from longrein.workspace.supervisor.mount_watch import EVENT_BYTES, events_in

FOLDERS_MAX = 4_000
"""Folders of the largest tree that is watched: older kernels allow a user 8,192 in all."""
LOCAL = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # XFS
        0x9123683E,  # btrfs
        0x01021994,  # tmpfs
        0x794C7630,  # overlayfs
        0xF2F52010,  # F2FS
        0x2FC12FC1,  # ZFS
        0xCA451A4E,  # bcachefs
    }
)
"""Types of file systems (statfs(2)) that only this machine writes to."""

_WRITES = 0x2 | 0x4 | 0x8
"""Modified, attributes changed, closed after writing."""
_NAMES = 0x40 | 0x80 | 0x100 | 0x200
"""Moved away, moved here, created, deleted."""
_NEW_NAMES = 0x80 | 0x100
_SELF = 0x400 | 0x800
"""The folder itself was deleted or moved."""
_ONLY_FOLDERS, _NO_LINKS = 0x01000000, 0x02000000
_MASK = _WRITES | _NAMES | _SELF | _ONLY_FOLDERS | _NO_LINKS
_OF_FOLDERS = _SELF | 0x2000 | 0x4000 | 0x8000 | 0x40000000
"""Events of folders; also unmounted, overflow, and a watch that the kernel has ended."""
_STATFS_BYTES = 256


class FolderWatch:
    """A watch over the folders of one tree. For one thread at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._queue = -1
        self._watched: dict[int, str] = {}
        """Watch -> its folder."""
        self._root_stamp = (0, 0)
        self._is_off = False
        self._heard: dict[str, bool] = {}
        """File that was written, made, moved or removed since `begin` or `take` -> whether its name
        may be new.
        """

    def begin(self, folders: Collection[str]) -> None:
        """Forget what was written until now, and watch `folders` (relative to the root) from now
        on.

        Call it right before they are read.
        """
        self._listen()
        self._heard.clear()
        if self._is_off or len(folders) > FOLDERS_MAX:
            self.close()
            return
        try:
            stamp = self._stamp()
            if stamp != self._root_stamp:
                self.close()
            self._root_stamp = stamp
            self._follow(folders)
        except OSError:  # no inotify here, or no watch is left
            self.close()
            self._is_off = True

    def take(self, folders: Collection[str]) -> dict[str, bool] | None:
        """Return once the files of `folders` that were written since `begin` or `take`, each with
        whether its name may be new; None where nobody knows, also where a folder came or went.

        Call it right before they are read.
        """
        if not self._knows(folders):
            return None
        heard, self._heard = self._heard, {}
        return heard

    def close(self) -> None:
        """Watch nothing any more."""
        if self._queue >= 0:
            os.close(self._queue)
        self._queue = -1
        self._watched.clear()
        self._heard.clear()

    def _knows(self, folders: Collection[str]) -> bool:
        self._listen()
        with suppress(OSError):
            is_there = self._queue >= 0 and self._stamp() == self._root_stamp
            return is_there and set(self._watched.values()).issuperset(folders)
        return False

    def _stamp(self) -> tuple[int, int]:
        seen = os.stat(self._root)
        return seen.st_dev, seen.st_ino

    def _follow(self, folders: Collection[str]) -> None:
        libc = c_library()
        if self._queue < 0:
            self._queue = checked(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        for folder in set(folders).difference(self._watched.values()):
            path = os.fsencode(os.path.join(self._root, folder))
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                watch = checked(libc.inotify_add_watch(self._queue, path, _MASK))
                if _kind(path) not in LOCAL:
                    raise OSError("other machines may write here")
                self._watched[watch] = folder

    def _listen(self) -> None:
        """Take what has come. Where folders came, went or moved, nothing is known any more."""
        moved = False
        while self._queue >= 0:
            try:
                data = os.read(self._queue, EVENT_BYTES)
            except BlockingIOError:
                break
            for watch, kinds, name in events_in(data):
                moved = moved or bool(kinds & _OF_FOLDERS)
                path = os.path.join(self._watched.get(watch, ""), name)
                self._heard[path] = bool(kinds & _NEW_NAMES) or self._heard.get(path, False)
        if moved:
            self.close()


def _kind(path: bytes) -> int:
    """Return the type of the file system of `path`. Raises OSError."""
    import ctypes

    found = ctypes.create_string_buffer(_STATFS_BYTES)
    checked(c_library().statfs(path, found))
    kind: int = ctypes.c_long.from_buffer(found).value
    return kind & 0xFFFFFFFF
