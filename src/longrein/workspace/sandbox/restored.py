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
from longrein.workspace.supervisor.openat import open_folder, open_parent, open_real

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
            for path in _entries(folder):
                if (
                    path not in self._kept
                    and path not in self._folders
                    and folder == os.path.dirname(path)
                ):
                    changed.append((path, self._move(path)))
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
        above, name = open_parent(path)
        with above:
            place = ""
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(above.stat(name).st_mode):
                    place = self._move(path)
            flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
            with open(above.open(name, flags, 0o644), "r+b") as file:
                changed = file.read(BYTES_MAX)
                os.fchmod(file.fileno(), stat.S_IMODE(kept.stamp[1]))
                if changed == kept.data and not place:
                    return None
                if changed:
                    place = self._store(name, changed)
                file.seek(0)
                file.write(kept.data)
                file.truncate()
        return place

    def _store(self, name: str, changed: bytes) -> str:
        try:
            with open_folder(self._folder, make=True) as folder:
                new = f"{len(folder.names()) + 1}-{name}"
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
                with open(folder.open(new, flags, 0o600), "wb") as file:
                    file.write(changed)
                return folder.path_of(new)
        except OSError:
            return ""


def _entries(folder: str) -> Iterator[str]:
    """Yield what lies in a protected folder, without the parts that commands may change.

    In a git folder only single names are protected; they are paths of their own.
    """
    if folder.endswith("/.git"):
        return
    exceptions, waiting, count = set(writable_exceptions(folder)), [folder], 0
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
