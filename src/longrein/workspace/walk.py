"""Going through folders: in name order, never along a link, past what `.gitignore` excludes, and never for ever."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

GITIGNORE = ".gitignore"
GITIGNORE_BYTES_MAX = 1 << 20


class Ignores:
    """The `.gitignore` files that bear on one folder, its own last. The innermost that speaks of an entry decides."""

    __slots__ = ("_outer", "_prefix", "_spec")

    def __init__(self, outer: "Ignores | None", folder: str, spec: Any) -> None:
        self._outer = outer
        self._prefix = len(folder) + (0 if folder == "/" else 1)
        self._spec = spec

    def excludes(self, path: str, is_folder: bool) -> bool:
        """Whether an entry below the folder is ignored."""
        said = self._spec.check_file(path[self._prefix :] + ("/" if is_folder else "")).include
        if said is None:
            return self._outer is not None and self._outer.excludes(path, is_folder)
        return bool(said)


def ignores_of(folder: str, outer: Ignores | None) -> Ignores | None:
    """`outer` with the folder's own `.gitignore`, if it has one that can be read."""
    try:
        descriptor = os.open(os.path.join(folder, GITIGNORE), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return outer
    try:
        text = os.read(descriptor, GITIGNORE_BYTES_MAX).decode("utf-8", "surrogateescape")
    except OSError:
        return outer
    finally:
        os.close(descriptor)
    from pathspec import GitIgnoreSpec

    try:
        return Ignores(outer, folder, GitIgnoreSpec.from_lines(text.splitlines()))
    except ValueError:
        return outer


def ignores_above(folder: str) -> Ignores | None:
    """What the folders above say, up to the nearest that holds `.git` (as git and rg do), or to the top."""
    above: list[str] = []
    while not os.path.lexists(os.path.join(folder, ".git")) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        above.append(folder)
    found: Ignores | None = None
    for one in reversed(above):
        found = ignores_of(one, found)
    return found


def entries(folder: str, enter: Callable[[str], bool], *, ignored: bool = False) -> Iterator[tuple[str, bool]]:
    """(path, is_folder) of what lies below, in name order, a folder before its content; `enter` may keep out of one.

    With `ignored` also what `.gitignore` excludes, and `.git`.

    A link is an entry, never a way. What cannot be listed is passed over.
    """
    waiting = [_listed(folder, None if ignored else ignores_above(folder), ignored)]
    while waiting:
        one = next(waiting[-1], None)
        if one is None:
            waiting.pop()
            continue
        path, is_folder, ignores = one
        yield path, is_folder
        if is_folder and enter(path):
            waiting.append(_listed(path, ignores, ignored))


def _listed(folder: str, outer: Ignores | None, ignored: bool) -> Iterator[tuple[str, bool, Ignores | None]]:
    """One folder's entries; the ignored only with `ignored`. The folder is closed before the first is given."""
    try:
        with os.scandir(folder) as found:
            listed = sorted((one.name, one.is_dir(follow_symlinks=False)) for one in found)
    except OSError:
        return
    ignores = ignores_of(folder, outer) if not ignored and _names(listed, GITIGNORE) else outer
    for name, is_folder in listed:
        path = os.path.join(folder, name)
        if ignored or (name != ".git" and (ignores is None or not ignores.excludes(path, is_folder))):
            yield path, is_folder, ignores


def _names(listed: Sequence[tuple[str, bool]], name: str) -> bool:
    return (name, False) in listed


def walk(
    folder: str,
    visit: Callable[[str, bool], bool],
    limit_s: float,
    monotonic: Callable[[], float],
    *,
    ignored: bool = False,
) -> bool:
    """See `Workspace.walk`."""
    wanted = False

    def enter(_path: str) -> bool:
        return wanted

    until = monotonic() + limit_s
    for path, is_folder in entries(folder, enter, ignored=ignored):
        wanted = visit(path, is_folder)
        if monotonic() > until:
            return False
    return True
