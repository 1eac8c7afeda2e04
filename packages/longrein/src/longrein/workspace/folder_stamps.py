"""Change times of the folders of a tree: while none changes, no file was created, removed or
renamed in it. `touch` and `tar` set a modification time back, and no program the change time. Also
which of the folders cannot be read.
"""

import os
import stat
from collections.abc import Collection, Iterable

SETTLED_NS = 2_000_000_000
"""Age of a folder's last change in nanoseconds from which its time is trusted, also where it
counts whole seconds.
"""
FOR_ALL = stat.S_IROTH | stat.S_IXOTH
"""Permission bits of a folder that everybody can read."""


class FolderStamps:
    """Stamps of all folders that hold known files. Paths are relative to `root`."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[str, int] = {"": 0}
        """Folder -> time of its last change; 0 where that is not to be trusted."""
        self.complete = True
        """False where some folders are not known."""
        self.closed: list[str] = []
        """Known folders that could not be read at the last look."""

    @property
    def folders(self) -> Collection[str]:
        """The known folders."""
        return self._known.keys()

    def add(self, paths: Iterable[str]) -> None:
        """Add the folders above files; their times are taken by the next look."""
        for path in paths:
            above = os.path.dirname(path)
            while above not in self._known:
                self._known[above] = 0
                above = os.path.dirname(above)

    def look(self, now_ns: int) -> bool:
        """Take all times; return True if the folders may hold other entries than at the last look.

        Call it right before the entries are listed. `now_ns`: a moment that is not later than now.
        """
        found: dict[str, int] = {}
        closed = []
        for path in self._known:
            full = os.path.join(self._root, path)
            try:
                seen = os.stat(full, follow_symlinks=False)
            except PermissionError:  # below a folder that is closed
                found[path] = 0
                continue
            except OSError:
                continue
            if _is_closed(full, seen.st_mode):
                closed.append(path)
            found[path] = seen.st_ctime_ns if seen.st_ctime_ns < now_ns - SETTLED_NS else 0
        same = found == self._known and closed == self.closed and 0 not in found.values()
        self._known = found or {"": 0}
        self.closed = closed
        return not (same and self.complete)


def _is_closed(path: str, mode: int) -> bool:
    if not stat.S_ISDIR(mode) or mode & FOR_ALL == FOR_ALL:
        return False
    return not os.access(path, os.R_OK | os.X_OK)
