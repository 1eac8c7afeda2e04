"""Modification times of the folders of a tree: while none changes, no file was created, removed
or renamed in it.
"""

import os
from collections.abc import Iterable

SETTLED_NS = 2_000_000_000
"""Age of a folder's last change in nanoseconds from which its time is trusted, also where it
counts whole seconds.
"""


class FolderStamps:
    """Stamps of all folders that hold known files. Paths are relative to `root`."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[str, int] = {"": 0}
        """Folder -> time of its last change; 0 where that is not to be trusted."""
        self.complete = True
        """False where some folders are not known."""

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
        found = {}
        for path in self._known:
            try:
                changed_ns = os.stat(
                    os.path.join(self._root, path), follow_symlinks=False
                ).st_mtime_ns
            except OSError:
                continue
            found[path] = changed_ns if changed_ns < now_ns - SETTLED_NS else 0
        same = found == self._known and 0 not in found.values()
        self._known = found or {"": 0}
        return not (same and self.complete)
