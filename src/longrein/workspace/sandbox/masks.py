"""Find the files that a rule forbids to read, so that the sandbox hides them from commands.

Every command needs the list as it is now. A folder is read again only when it has changed, so a look at an unchanged
tree costs one `stat` for each folder.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Forbidden = Callable[[str, str], bool]
"""(path, real path) -> whether a rule forbids reading it."""
SETTLED_S = 0.05
"""A folder is read again until so long after its change was first seen: a further change might not show in its time."""


class _Folder(NamedTuple):
    changed_ns: int
    """Time of its last change."""
    seen_s: float
    """When that change was first seen, on the monotonic clock."""
    read_s: float
    """When it was read last."""
    subfolders: tuple[str, ...]
    hidden: tuple[str, ...]
    linked: tuple[str, ...]
    """Forbidden files with further hard links, which a mask does not hide."""


class Masks(NamedTuple):
    """Files and folders that rules forbid."""

    hidden: tuple[str, ...]
    """Real paths of existing files and folders."""
    problem: str
    """Why some forbidden files may be missing; '' if all are there."""


class MaskIndex:
    """The forbidden files of folders, for one set of rules at a time."""

    def __init__(self) -> None:
        self._rules: object = None
        self._folders: dict[str, _Folder] = {}

    def find(self, folders: Sequence[str], forbidden: Forbidden, rules: object, limit_s: float) -> Masks:
        """Look below the folders (real paths). `rules` stands for what `forbidden` depends on."""
        if rules != self._rules:
            self._rules, self._folders = rules, {}
        until = time.monotonic() + limit_s
        hidden, waiting, problem = list[str](), list[str](), ""
        for folder in folders:
            (hidden if forbidden(folder, folder) else waiting).append(folder)
        seen = dict[str, None]()
        while waiting:
            folder = waiting.pop()
            if folder in seen:
                continue
            seen[folder] = None
            found = self._look(folder, forbidden)
            hidden += found.hidden
            waiting += found.subfolders
            if found.linked:
                problem = f"{found.linked[0]} has another name (a hard link) that no mask hides"
            if time.monotonic() > until:
                return Masks(tuple(hidden), "there are too many files to see which of them a rule forbids to read")
        return Masks(tuple(dict.fromkeys(hidden)), problem)

    def _look(self, folder: str, forbidden: Forbidden) -> _Folder:
        now = time.monotonic()
        try:
            changed_ns = os.stat(folder).st_mtime_ns
        except OSError:
            return _Folder(-1, now, now, (), (), ())
        known = self._folders.get(folder)
        is_same = known is not None and known.changed_ns == changed_ns
        if known is None or not is_same or known.read_s - known.seen_s < SETTLED_S:
            seen_s = known.seen_s if known is not None and is_same else now
            known = self._folders[folder] = _Folder(changed_ns, seen_s, now, *_read(folder, forbidden))
        return known


def _read(folder: str, forbidden: Forbidden) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return (folders to enter, hidden paths, those of them with further hard links)."""
    subfolders, hidden, linked = [], [], []
    try:
        items = list(os.scandir(folder))
    except OSError:
        return (), (), ()
    for item in items:
        real = os.path.realpath(item.path) if item.is_symlink() else item.path
        is_forbidden = forbidden(item.path, real)
        if is_forbidden and os.path.exists(real):
            hidden.append(real)
            if os.path.isfile(real) and os.stat(real).st_nlink > 1:
                linked.append(real)
        elif not is_forbidden and item.is_dir(follow_symlinks=False):
            subfolders.append(item.path)
    return tuple(subfolders), tuple(hidden), tuple(linked)
