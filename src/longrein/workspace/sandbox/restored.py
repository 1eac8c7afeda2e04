"""Put protected files back, where the sandbox cannot keep commands from changing them (Landlock).

A command that runs beside longrein may read a changed file before that. Files are opened component
by component without following symbolic links, so that nothing outside the project is written.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from longrein.workspace.sandbox.protected import MissingPaths, writable_exceptions

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

    def begin(self, paths: Iterable[str], *, others_run: bool) -> None:
        """Note a command's start and the contents of what exists."""
        paths = list(paths)
        if not self._running and not others_run:
            self._keep(paths)
        super().begin(paths, others_run=others_run)

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
            with suppress(OSError), _opened_folder(os.path.dirname(folder)) as above:
                os.mkdir(os.path.basename(folder), dir_fd=above)
            for path in _entries(folder):
                if (
                    path not in self._kept
                    and path not in self._folders
                    and folder == os.path.dirname(path)
                ):
                    changed.append((path, self._move(path)))
        for path, kept in self._kept.items():
            with suppress(OSError):
                if _stamp(os.lstat(path)) == kept.stamp:
                    continue
            with suppress(OSError):  # its folder is gone: then nothing obeys it
                place = self._put_back(path, kept)
                changed += [(path, place)] if place is not None else []
        self._keep([*self._kept, *self._folders])
        return changed

    def _keep(self, paths: Iterable[str]) -> None:
        before, self._kept, self._folders = self._kept, {}, set()
        left = BYTES_MAX
        for path in (entry for one in dict.fromkeys(paths) for entry in (one, *_entries(one))):
            with suppress(OSError):
                found = os.lstat(path)
                if stat.S_ISDIR(found.st_mode):
                    self._folders.add(path)
                elif (
                    stat.S_ISREG(found.st_mode)
                    and len(self._kept) < FILES_MAX
                    and found.st_size <= left
                ):
                    known = before.get(path)
                    same = known is not None and known.stamp == _stamp(found)
                    self._kept[path] = (
                        known if known is not None and same else _Kept(_stamp(found), _read(path))
                    )
                    left -= found.st_size

    def _put_back(self, path: str, kept: _Kept) -> str | None:
        """Write the former content; return the place of the changed version, None if only its
        times have changed.
        """
        with _opened_folder(os.path.dirname(path)) as folder:
            name, place = os.path.basename(path), ""
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(os.lstat(path).st_mode):
                    place = self._move(path)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(name, flags, 0o644, dir_fd=folder), "r+b") as file:
                changed = file.read(BYTES_MAX)
                os.fchmod(file.fileno(), stat.S_IMODE(kept.stamp[1]))
                if changed == kept.data and not place:
                    return None
                if changed:
                    place = self._store(path, changed)
                file.seek(0)
                file.write(kept.data)
                file.truncate()
        return place

    def _store(self, path: str, changed: bytes) -> str:
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
            place = os.path.join(
                self._folder, f"{len(os.listdir(self._folder)) + 1}-{os.path.basename(path)}"
            )
            with open(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(changed)
        except OSError:
            return ""
        return place


def _entries(folder: str) -> Iterator[str]:
    """Yield what lies in a protected folder, without the parts that commands may change."""
    exceptions, count = set(writable_exceptions(folder)), 0
    for above, folders, names in os.walk(folder) if not os.path.islink(folder) else ():
        folders[:] = [name for name in folders if f"{above}/{name}" not in exceptions]
        yield from (f"{above}/{name}" for name in (*folders, *names))
        count += len(names)
        if count > FILES_MAX:
            return


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: str) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(BYTES_MAX)


@contextmanager
def _opened_folder(path: str) -> Iterator[int]:
    """Open a folder without following any symbolic link. Raises OSError."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open("/", flags)
    try:
        for name in filter(None, path.split("/")):
            below = os.open(name, flags, dir_fd=opened)
            os.close(opened)
            opened = below
        yield opened
    finally:
        os.close(opened)
