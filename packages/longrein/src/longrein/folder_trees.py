"""Walk and remove folders of any depth.

The functions of the standard library call themselves for each level. A command can make more
levels than Python allows, and then they raise `RecursionError`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, islice

Level = tuple[str, list[str], list[str]]
"""Folder, names of the folders in it, names of its files, as of `os.walk`."""


def walk_folders(top: str, on_error: Callable[[OSError], object] | None = None) -> Iterator[Level]:
    """Yield each folder below `top`, itself first, without following links. The caller may change
    the list of folders.
    """
    waiting = [top]
    while waiting:
        for folder, below, names in islice(os.walk(waiting.pop(), onerror=on_error), 1):
            yield folder, below, names
            paths = (os.path.join(folder, name) for name in reversed(below))
            waiting += [path for path in paths if not os.path.islink(path)]


def remove_tree(folder: str, *, ignore_errors: bool = False) -> None:
    """Remove a folder with all that it holds. Raises OSError."""
    import shutil  # slow, and most runs remove nothing

    try:
        shutil.rmtree(folder, ignore_errors=ignore_errors)
    except RecursionError:
        with suppress(*(OSError,) * ignore_errors):
            _flatten(folder)
        shutil.rmtree(folder, ignore_errors=ignore_errors)


def _flatten(top: str) -> None:
    """Move each folder below `top` into it. No path gets longer than at the first level."""
    waiting, names = _folders_in(top), map("{:x}.flat".format, count())
    while waiting:
        folder = waiting.pop()
        for name in _folders_in(os.path.join(top, folder)):
            to = next(one for one in names if not os.path.lexists(os.path.join(top, one)))
            os.rename(os.path.join(top, folder, name), os.path.join(top, to))
            waiting.append(to)


def _folders_in(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
