"""Files in the roots that configure programs which run later: settings of agents and editors,
hooks, git's settings.

Existing ones are mounted read-only. Missing ones cannot be mounted without leaving an empty file or
folder on the disk (other programs and watchers would see it come and go with each command). They
are looked for when a confined command has ended, and what it has made is moved out of the project.
"""

import errno
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

GIT_FILES = ("hooks", "config", "config.worktree", "commondir")
"""Names in a git folder that decide what git executes."""
SUBMODULES_MAX = 200
"""Submodules whose settings are protected."""
GIT_FILE_BYTES_MAX = 4096
CONFIG_BYTES_MAX = 1 << 20
SETTLED_S = 0.05
"""Time after which a folder's last change has another time than all later changes."""
_NAMED_FILE = re.compile(r"(?im)^\s*(?:hooksPath|path|attributesFile)\s*=\s*(.+)$")
"""A setting of git that names hooks or further settings."""
_HARMLESS_SETTING = re.compile(
    r"\s*(\[core\]|(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)"
    r" = \w+|[#;].*)?\s*"
)
"""A line of a git configuration that executes nothing."""


class GitFolder:
    """The git folder of a root: inside it, above it, or that of the repository of a worktree."""

    def __init__(self, folder: str, common: str) -> None:
        self.folder, self.common = folder, common
        """Folder of HEAD and index, and of objects and settings; the same but for worktrees."""

    def folders(self) -> tuple[str, ...]:
        """Return the folders that git commands change."""
        return tuple(dict.fromkeys((self.common, self.folder)))

    def protected(self) -> Iterator[str]:
        """Yield the paths that decide what git executes, existing or not."""
        yield from (f"{folder}/{name}" for folder in self.folders() for name in GIT_FILES)
        if self.folder != self.common:
            yield f"{self.folder}/gitdir"
        yield from _named_files(f"{self.common}/config", os.path.dirname(self.common))
        yield from _submodule_files(f"{self.common}/modules")


def git_folder(root: str, home: str) -> GitFolder | None:
    """Find the git folder of a root, without running git. None when there is none that can be
    relied on.

    A `.git` file names any folder it likes, so the folder must name it too, as git's worktrees do.
    """
    folder = root
    while True:
        path = f"{folder.rstrip('/')}/.git"
        if os.path.isdir(path):
            real = os.path.realpath(path)
            inside = real == path or real.startswith(root.rstrip("/") + "/")
            return GitFolder(real, real) if inside else None
        if os.path.isfile(path):
            return _linked(path)
        if folder in ("/", home) or os.path.dirname(folder) in ("/", home):
            return None
        folder = os.path.dirname(folder)


def _linked(path: str) -> GitFolder | None:
    """Return the git folder that a worktree's `.git` file names, if that folder names the file
    too.
    """
    named = _first_line(path).removeprefix("gitdir:").strip()
    folder = os.path.realpath(os.path.join(os.path.dirname(path), named)) if named else ""
    back = _first_line(f"{folder}/gitdir") if folder else ""
    if not back.startswith("/") or os.path.realpath(back) != os.path.realpath(path):
        return None
    common = os.path.realpath(os.path.join(folder, _first_line(f"{folder}/commondir") or "."))
    is_repository = os.path.isfile(f"{common}/HEAD") and os.path.isdir(f"{common}/objects")
    return (
        GitFolder(folder, common)
        if is_repository and os.path.dirname(folder) == f"{common}/worktrees"
        else None
    )


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read(GIT_FILE_BYTES_MAX).partition(b"\n")[0]).strip()
    except OSError:
        return ""


def _named_files(config: str, root: str) -> Iterator[str]:
    """Yield files and folders that git's settings name: hooks in the project, further settings."""
    try:
        with open(config, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(CONFIG_BYTES_MAX)
    except OSError:
        return
    for named in _NAMED_FILE.findall(text):
        value = named.strip().strip('"')
        yield from (
            os.path.join(base, value) for base in dict.fromkeys((root, os.path.dirname(config)))
        )


def _submodule_files(folder: str) -> Iterator[str]:
    """Yield settings and hooks of submodules; their git folders may lie some levels deep."""
    count, waiting = 0, [folder]
    while waiting and count < SUBMODULES_MAX:
        folder = waiting.pop()
        with suppress(OSError):
            for item in os.scandir(folder):
                if item.is_dir(follow_symlinks=False):
                    count += 1
                    if os.path.exists(f"{item.path}/HEAD"):
                        yield from (f"{item.path}/{name}" for name in GIT_FILES)
                        waiting.append(f"{item.path}/modules")
                    else:
                        waiting.append(item.path)


def protected_paths(root: str) -> list[str]:
    """Return the protected paths directly in a root, existing or not; of git only `.git` itself.

    Installed programs are left writable, so that `python3 -m venv .venv` and `npm install` work:
    nothing runs them but by name, as it would run any script of the project.
    """
    from longrein.permissions.verdict import INSTALLED_PROGRAMS, PROTECTED_NAMES, PROTECTED_PAIRS

    pairs = sorted(PROTECTED_PAIRS - INSTALLED_PROGRAMS)
    return [
        *(f"{root}/{name}" for name in sorted(PROTECTED_NAMES)),
        *(f"{root}/{a}/{b}" for a, b in pairs),
    ]


def writable_exceptions(path: str) -> list[str]:
    """Return the existing folders in a protected folder that commands may change."""
    from longrein.permissions.verdict import UNPROTECTED_SUBFOLDERS

    names = UNPROTECTED_SUBFOLDERS.get(path.rpartition("/")[2])
    if names is None:
        return []
    folders = [f"{os.path.realpath(path)}/{name}" for name in sorted(names)]
    return [
        folder for folder in folders if os.path.isdir(folder) and os.path.realpath(folder) == folder
    ]


def is_plain_repository(path: str) -> bool:
    """Return True for a new `.git` as `git init` makes it: no setting or hook in it executes
    anything.
    """
    try:
        with open(f"{path}/config", encoding="utf-8", errors="replace") as file:
            lines = file.read(GIT_FILE_BYTES_MAX + 1)
        hooks = os.listdir(f"{path}/hooks") if os.path.lexists(f"{path}/hooks") else []
    except OSError:
        return False
    plain = len(lines) <= GIT_FILE_BYTES_MAX and all(
        map(_HARMLESS_SETTING.fullmatch, lines.splitlines())
    )
    others = [name for name in GIT_FILES[2:] if os.path.lexists(f"{path}/{name}")]
    return plain and not others and all(name.endswith(".sample") for name in hooks)


class MissingPaths:
    """Protected paths that did not exist, or were symbolic links, before the commands that run
    now.
    """

    def __init__(self, folder: str) -> None:
        """`folder` takes what is moved away; made when needed."""
        self._folder = folder
        self._before: dict[str, str] = {}
        """Path -> target of the symbolic link there; '' for nothing."""
        self._versions: dict[str, tuple[int, ...] | None] = {}
        """Folder of such paths -> its version before the first of these commands; None where it
        tells nothing.
        """
        self._seen: dict[str, tuple[tuple[int, ...], float]] = {}
        """Folder -> (its version, when that was first seen)."""
        self._running = 0

    def begin(self, paths: Iterable[str], *, others_run: bool) -> None:
        """Note a command's start. While other confined commands run, paths that have come
        meanwhile stay suspect.
        """
        if not self._running and not others_run:
            self._before.clear()
            self._versions.clear()
        self._running += 1
        for path in paths:
            folder = os.path.dirname(path)
            if folder not in self._versions:  # before the look at the path
                self._versions[folder] = self._settled_version(folder)
            if path not in self._before and (target := _link_target(path)) is not None:
                self._before[path] = target

    def _settled_version(self, folder: str) -> tuple[int, ...] | None:
        """Return the version of a folder; None if it is new: the next change may get the same
        time.
        """
        version, now = _version(folder), time.monotonic()
        known = self._seen.get(folder)
        if known is None or known[0] != version:
            self._seen[folder] = (version, now)
            return None
        return version if now - known[1] >= SETTLED_S else None

    def accept(self) -> None:
        """Accept everything that exists now: longrein itself, or a command outside the sandbox,
        may have made it.
        """
        found = {path: _link_target(path) for path in self._before}
        self._before = {path: target for path, target in found.items() if target is not None}

    def end(self) -> list[tuple[str, str]]:
        """Note a command's end; move away what has come, and return (path, its new place; '' if
        it could not).
        """
        self._running = max(0, self._running - 1)
        moved = []
        same = {
            one
            for one, version in self._versions.items()
            if version is not None and version == _version(one)
        }
        for path, target in list(self._before.items()):
            if os.path.dirname(path) in same or _link_target(path) == target:
                continue
            if os.path.basename(path) == ".git" and not target and is_plain_repository(path):
                del self._before[path]
                continue
            if not os.path.lexists(path):
                continue  # the command has removed a link
            moved.append((path, self._move(path)))
            if target:
                with suppress(OSError):
                    os.symlink(target, path)
        return moved

    def _move(self, path: str) -> str:
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
            place = os.path.join(
                self._folder, f"{len(os.listdir(self._folder)) + 1}-{os.path.basename(path)}"
            )
            shutil.move(path, place)
        except OSError:
            return ""
        return place


def _link_target(path: str) -> str | None:
    """Return the target of a symbolic link; '' where nothing is, None where something else is."""
    try:
        return os.readlink(path)
    except OSError as error:
        return None if error.errno == errno.EINVAL else ""


def _version(folder: str) -> tuple[int, ...]:
    """Return what changes when an entry of a folder is made or removed; () for no folder."""
    try:
        found = os.stat(folder)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_ctime_ns


def real_below(paths: Iterable[str], roots: Sequence[str]) -> list[str]:
    """Return the real paths of those that exist and lie in a root. Links themselves are watched
    by `MissingPaths`.
    """
    found = []
    for path in paths:
        if os.path.exists(path):
            real = os.path.realpath(path)
            if any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots):
                found.append(real)
    return found
