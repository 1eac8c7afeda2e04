"""Put protected files back, where the sandbox cannot keep commands from changing them (Landlock).

A program that runs beside longrein may read a changed file before that. All files are opened
without following symbolic links, so that nothing outside the project is read or written.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from longrein.workspace.sandbox.protected import MissingPaths, writable_exceptions
from longrein.workspace.supervisor.openat import Folder, open_folder, open_parent, open_real

FILES_MAX = 2_000
BYTES_MAX = 16 << 20
"""Limits of what is kept in memory; what lies beyond is not put back."""


class _Kept(NamedTuple):
    stamp: tuple[int, ...]
    data: bytes


class RestoredPaths(MissingPaths):
    """Protected paths, missing or not, while commands run that may change them."""

    def __init__(self, folder: str) -> None:
        """`folder` takes what is moved away and the changed versions; made when needed."""
        super().__init__(folder)
        self._kept: dict[str, _Kept] = {}
        self._folders: set[str] = set()
        """Protected folders, and those in them."""

    def begin(self, paths: Iterable[str], roots: Sequence[str], *, others_run: bool) -> None:
        """Note a command's start and the contents of what exists."""
        paths = list(paths)
        if not self._running and not others_run:
            self._keep(paths)
        super().begin(paths, roots, others_run=others_run)

    def accept(self) -> None:
        """Accept everything that exists now."""
        super().accept()
        self._keep([*self._kept, *self._folders])

    def end(self) -> list[tuple[str, str]]:
        """Note a command's end; put back what has changed. Returns (path, place of the changed
        version) of each.
        """
        changed = super().end()
        for folder in sorted(self._folders):
            changed += self._put_folder_back(folder)
            inner = (path for path in _entries(folder) if os.path.dirname(path) == folder)
            new = [path for path in inner if path not in self._kept and path not in self._folders]
            changed += [(path, self._move(path)) for path in new]
        for path, kept in self._kept.items():
            with suppress(OSError):
                if _stamp(_stat(path)) == kept.stamp:
                    continue
            with suppress(OSError):  # its folder is gone: then nothing obeys it
                place = self._put_back(path, kept)
                changed += [(path, place)] if place is not None else []
        self._keep([*self._kept, *self._folders])
        return changed

    def _put_folder_back(self, folder: str) -> list[tuple[str, str]]:
        """Make a folder again; move away what is in its place. Returns what was moved, as `end`.

        A git folder is not made: an empty one is of no use.
        """
        moved = []
        with suppress(OSError):
            above, name = open_parent(folder)
            with above:
                if above.has(name) and not above.is_folder(name):
                    moved.append((folder, self._move(folder)))
                if name != ".git":
                    above.make_folder(name)
        return moved

    def _keep(self, paths: Iterable[str]) -> None:
        before, self._kept, self._folders = self._kept, {}, set()
        left = BYTES_MAX
        for path in (entry for one in dict.fromkeys(paths) for entry in (one, *_entries(one))):
            with suppress(OSError):
                found = _stat(path)
                if stat.S_ISDIR(found.st_mode):
                    self._folders.add(path)
                is_kept = stat.S_ISREG(found.st_mode) and len(self._kept) < FILES_MAX
                if is_kept and found.st_size <= left:
                    known = before.get(path)
                    if known is None or known.stamp != _stamp(found):
                        known = _Kept(_stamp(found), _read(path))
                    self._kept[path] = known
                    left -= found.st_size

    def _put_back(self, path: str, kept: _Kept) -> str | None:
        """Make the former file anew; return the place of the changed one, None if only its times
        have changed. The changed one may be another name of any file in the project.
        """
        above, name = open_parent(path)
        with above:
            place = ""
            if above.has(name):
                if _restore_mode(above, name, kept):
                    return None
                place = self._move(path)
                if not place:
                    return ""
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with open(above.open(name, flags, 0o600), "wb") as file:
                os.fchmod(file.fileno(), stat.S_IMODE(kept.stamp[1]))
                file.write(kept.data)
        return place


def _restore_mode(folder: Folder, name: str, kept: _Kept) -> bool:
    """Set the former mode of a file with its former content; return False for any other file."""
    with suppress(OSError):
        opened = folder.open(name, os.O_RDONLY | os.O_NONBLOCK)
        with open(opened, "rb") as file:
            if os.fstat(opened).st_ino == kept.stamp[0] and file.read(BYTES_MAX) == kept.data:
                os.fchmod(opened, stat.S_IMODE(kept.stamp[1]))
                return True
    return False


def _entries(folder: str) -> Iterator[str]:
    """Yield what lies in a protected folder, without the parts that commands may change.

    Of a git folder only single files are protected.
    """
    if folder.endswith("/.git"):
        return
    exceptions = set(writable_exceptions(folder))
    waiting = [folder]
    count = 0
    while waiting and count <= FILES_MAX:
        with suppress(OSError), open_folder(waiting.pop()) as opened:
            for name in opened.names():
                path = opened.path_of(name)
                if path not in exceptions:
                    yield path
                    count += 1
                    if opened.is_folder(name):
                        waiting.append(path)


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _stat(path: str) -> os.stat_result:
    above, name = open_parent(path)
    with above:
        return above.stat(name)


def _read(path: str) -> bytes:
    with open(open_real(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        return file.read(BYTES_MAX)
