"""Where a path leads: lexically, really, and whether both lie in a root.

Nothing here is expanded but `~`: `$HOME/x`, `%2e%2e/x` and `file:///x` are plain (odd) names. Roots are compared by
component, so `/w/repo-evil` is not in `/w/repo`; a path is inside only when what is written *and* what it leads to are.
"""

import os
import pwd
import stat
from collections.abc import Iterable

from longrein.workspace.port import Place


def look(path: str, cwd: str, roots: Iterable[str], home: str) -> Place:
    """Look `path` up. `roots` are absolute, in each spelling that counts as inside (as given, and real).

    Never raises: NUL, what the system cannot encode or an endless name is `kind=''`, outside.
    """
    if not path or "\0" in path:
        return Place(path, "", "", inside=False, kind="")
    joined = os.path.join(cwd, expand_home(path, home))
    written = _tidy(joined)
    try:
        real = os.path.realpath(joined)
    except (OSError, ValueError):
        return Place(path, written, "", inside=False, kind="")
    inside = is_inside(written, roots) and is_inside(real, roots)
    return _measured(path, written, real, inside)


def _measured(path: str, written: str, real: str, inside: bool) -> Place:
    try:
        status = os.stat(real)
    except FileNotFoundError:
        return Place(path, written, real, inside, "")
    except (OSError, ValueError):  # a loop of links, a name too long, a file used as a folder
        return Place(path, written, real, inside=inside and len(real) < 4096, kind="")
    kind = kind_of(status.st_mode)
    return Place(path, written, real, inside, kind, status.st_size if kind == "file" else 0)


def kind_of(mode: int) -> str:
    """`file`, `folder` or `other`."""
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "other"


def is_inside(path: str, roots: Iterable[str]) -> bool:
    """Whether an absolute, tidy path is one of the roots or below one."""
    return any(path == root or path.startswith(root if root == "/" else root + "/") for root in roots)


def expand_home(path: str, home: str) -> str:
    """`~` and `~/x` by `home`, `~name/x` by the password file; what cannot be expanded stays as written."""
    if not path.startswith("~"):
        return path
    name, slash, rest = path[1:].partition("/")
    folder = _home_of(name) if name else home
    return folder + slash + rest if folder else path


def _home_of(name: str) -> str:
    try:
        return pwd.getpwnam(name).pw_dir
    except (KeyError, ValueError):
        return ""


def _tidy(path: str) -> str:
    """`os.path.normpath` without its one exception: POSIX lets `//x` differ from `/x`, Linux and macOS do not."""
    tidy = os.path.normpath(path)
    return tidy[1:] if tidy.startswith("//") else tidy


def spellings(roots: Iterable[str]) -> tuple[str, ...]:
    """Each root as written and as it really is, without doubles, in order."""
    both = [spelling for root in roots for spelling in (_tidy(os.path.abspath(root)), os.path.realpath(root))]
    return tuple(dict.fromkeys(both))


def find_program(name: str, search_path: str, roots: Iterable[str]) -> str:
    """Absolute path of an executable on `search_path` that does not come out of a root; '' when there is none.

    Relative entries are passed over: what runs for the harness must not depend on the folder it is in.
    """
    for folder in search_path.split(":"):
        found = os.path.join(folder, name)
        if folder.startswith("/") and os.access(found, os.X_OK) and os.path.isfile(found) and _outside(found, roots):
            return found
    return ""


def _outside(path: str, roots: Iterable[str]) -> bool:
    return not is_inside(_tidy(path), roots) and not is_inside(os.path.realpath(path), roots)
