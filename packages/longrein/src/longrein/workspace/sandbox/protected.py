"""Files in the roots that configure programs which run later: settings of agents and editors,
hooks, git's settings.

Existing ones are mounted read-only. Missing ones cannot be mounted without leaving an empty file or
folder on the disk (other programs and watchers would see it come and go with each command). They
are looked for when a confined command has ended, and what it has made is moved out of the project.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

from longrein.permissions.rules import (
    PROTECTED,
    PROTECTED_ENDINGS,
    UNPROTECTED_SUBFOLDERS,
    obeyed_by,
)
from longrein.workspace.files import is_inside, places_of, read
from longrein.workspace.supervisor.openat import Folder, open_folder, open_parent, open_real

GIT_FILES = ("hooks", "config", "config.worktree", "commondir")
"""Names in a git folder that decide what git executes."""
WORKTREE_FILES = ("commondir", "config.worktree")
"""Names in the git folder of a worktree that do so."""
SUBMODULE_FOLDERS_MAX = 1_000
"""Folders in which git folders of submodules are looked for; a look takes 30 µs."""
GIT_FILE_BYTES_MAX = 4096
CONFIG_BYTES_MAX = 1 << 20
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

    @property
    def problem(self) -> str:
        """Reason why git cannot change submodules; '' where it can."""
        if self._submodules is not None:
            return ""
        return (
            f"{self.common}/modules has more folders than are looked at, so commands cannot "
            "change submodules' git folders"
        )

    def protected(self) -> Iterator[str]:
        """Yield the paths that decide what git executes, existing or not."""
        yield from (f"{folder}/{name}" for folder in self.folders() for name in GIT_FILES)
        if self.folder != self.common:
            yield f"{self.folder}/gitdir"
        yield from _named_files(f"{self.common}/config", os.path.dirname(self.common))
        for worktree in _names_in(f"{self.common}/worktrees"):
            yield from (f"{self.common}/worktrees/{worktree}/{name}" for name in WORKTREE_FILES)
        submodules = self._submodules
        yield from [f"{self.common}/modules"] if submodules is None else submodules

    @cached_property
    def _submodules(self) -> list[str] | None:
        return _submodule_files(f"{self.common}/modules")


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
    """Return the first line of a file, which names a path; '' for no file and for no path."""
    try:
        line = read(path, GIT_FILE_BYTES_MAX).partition(b"\n")[0]
    except OSError:
        return ""
    return "" if b"\0" in line else os.fsdecode(line).strip()


def _named_files(config: str, root: str) -> Iterator[str]:
    """Yield files and folders that git's settings name: hooks in the project, further settings."""
    try:
        text = os.fsdecode(read(os.path.realpath(config), CONFIG_BYTES_MAX))
    except OSError:
        return
    for named in _NAMED_FILE.findall(text):
        value = named.strip().strip('"')
        for base in dict.fromkeys((root, os.path.dirname(config))):
            yield os.path.normpath(os.path.join(base, value))


def _submodule_files(folder: str) -> list[str] | None:
    """Return settings and hooks of submodules; None for too many folders to look at.

    The git folders of submodules may lie some levels deep, and a command can make any folder there.
    """
    found = []
    waiting = [folder]
    count = 0
    while waiting:
        count += 1
        if count > SUBMODULE_FOLDERS_MAX:
            return None
        try:
            with open_folder(waiting.pop()) as opened:
                names = opened.names()
                is_git = "HEAD" in names
                if is_git:
                    found += [opened.path_of(name) for name in GIT_FILES]
                deeper = ["modules"] if is_git else names
                waiting += [opened.path_of(name) for name in deeper if opened.is_folder(name)]
        except OSError:
            continue
    return found


class Listing:
    """Names in the roots that one look has read. Most protected paths are missing, and one reading
    of a root says so of all of them.
    """

    def __init__(self) -> None:
        self._spelled: dict[str, frozenset[str]] = {}
        """Folder -> names in it in lower case; without those where others may lead to a file."""

    def read(self, folder: str) -> list[str]:
        """Return the names in a folder; [] for no folder."""
        found = _names_in(folder)
        joined = "/".join(found)
        # to some file systems names are equal that differ in case or in unseen characters
        if found and joined.isascii():
            self._spelled[folder] = frozenset(joined.lower().split("/"))
        return found

    def may_exist(self, paths: Iterable[str]) -> list[str]:
        """Return the paths without the protected ones that the folders read do not lead to."""
        absent = {
            path
            for folder, names in self._spelled.items()
            for first, path in _named_in(folder)
            if first not in names
        }
        return [path for path in paths if path not in absent]


_NAMES = [one.name for one in PROTECTED if not one.name.startswith("*")]


@lru_cache(maxsize=32)
def _named_in(root: str) -> list[tuple[str, str]]:
    """Return (first name in lower case, path) of each protected name in a root and each folder on
    the way to one.
    """
    names = {*_NAMES, *(name.partition("/")[0] for name in _NAMES)}
    return [(name.partition("/")[0].lower(), f"{root}/{name}") for name in names]


class ProtectedPaths(NamedTuple):
    """Paths that commands must not change, as of one look."""

    paths: list[str]
    """Existing or not."""
    writable: list[str]
    """Real folders that commands may change."""
    listing: Listing
    """Of the roots."""


def protected_paths(root: str, listing: Listing) -> list[str]:
    """Return the protected paths directly in a root, existing or not; of git only `.git` itself.

    Installed programs are left writable, so that `python3 -m venv .venv` and `npm install` work:
    nothing runs them but by name, as it would run any script of the project.
    """
    return [f"{root}/{name}" for name in _NAMES] + _with_protected_endings(root, listing)


def _with_protected_endings(folder: str, listing: Listing) -> list[str]:
    names = (name for name in listing.read(folder) if name.endswith(PROTECTED_ENDINGS))
    return [f"{folder}/{name}" for name in names]


def _names_in(folder: str) -> list[str]:
    """Return the names in a folder; [] for no folder."""
    try:
        with open_folder(folder) as opened:
            return opened.names()
    except OSError:
        return []


def writable_exceptions(path: str) -> list[str]:
    """Return the existing folders in a protected folder that commands may change."""
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
        config = read(f"{path}/config", GIT_FILE_BYTES_MAX + 1)
        with open_folder(path) as git:
            is_small = not any(map(git.has, (*GIT_FILES[2:], "modules", "worktrees")))
            is_small &= git.is_folder("hooks") or not git.has("hooks")
    except OSError:
        return False
    if not is_small or len(config) > GIT_FILE_BYTES_MAX:
        return False
    lines = config.decode("utf-8", "replace").splitlines()
    hooks = _names_in(f"{path}/hooks")
    return all(map(_HARMLESS_SETTING.fullmatch, lines)) and all(
        name.endswith(".sample") for name in hooks
    )


class MissingPaths:
    """Watch of protected paths that commands must not make, while confined commands run.

    All names are looked at, moved and made by descriptors beneath folders that were opened without
    following a link, because a command may put a link at any name.
    """

    def __init__(self, folder: str) -> None:
        """`folder` takes what is moved away; made when needed."""
        self._folder = os.path.realpath(folder)
        self._before: dict[str, str | None] = {}
        """Path -> target of the link there, '' for nothing, None for a file or folder."""
        self._way: set[str] = set()
        """Folders on the way to protected paths: they may come, links in their place may not."""
        self._stuck: dict[str, str] = {}
        """Path that a command made and that could not be moved away -> reason."""
        self._between: set[str] = set()
        """Paths that have come between two commands, and were not told of yet."""
        self._running = 0
        self._roots: tuple[str, ...] = ()

    def begin(self, protected: ProtectedPaths, *, others_run: bool) -> None:
        """Note a command's start.

        While other confined commands run, paths that have come meanwhile stay suspect. What lies
        outside the folders that commands may change is the user's.
        """
        roots, listing = protected.writable, protected.listing
        paths = [path for path in protected.paths if is_inside(path, roots)]
        folders = {path.rpartition("/")[0] for path in paths}
        way = {above for folder in folders for above in _folders_between(folder, roots)}
        found = _look({*paths, *way}, listing)
        if not self._running and not others_run:
            absent = {path for path, was in self._before.items() if was == ""} - self._way
            self._between |= {path for path in absent if found.get(path, "") != ""}
            self._before.clear()
            self._way.clear()
            self._roots = ()
        self._running += 1
        if any(found.values()):  # links: those that they lead to and their end are protected, too
            led_to = set(chain.from_iterable(map(places_of, paths))) - found.keys()
            found |= _look({path for path in led_to if is_inside(path, roots)}, listing)
        self._way |= way
        self._roots = tuple(dict.fromkeys((*self._roots, *roots)))
        self._before = {**found, **self._before}

    def take_between(self) -> list[str]:
        """Return once the paths that have come between two commands: the user has made them, or a
        process that a command left behind. They stay.
        """
        found, self._between = sorted(self._between), set()
        return found

    def accept(self, written: Sequence[str]) -> None:
        """Accept what exists now, as `SessionSandbox.accept` says."""
        listing = Listing()
        paths = {*self._before, *self._new_with_endings(listing)}
        self._before |= _look((path for path in paths if _is_accepted(path, written)), listing)

    def refusal(self) -> str:
        """Return why no further command may run; '' for nothing.

        A path that could not be moved away would be obeyed by the next program that looks there.
        """
        found = _look(self._stuck, Listing())
        self._stuck = {path: why for path, why in self._stuck.items() if found[path] != ""}
        for path, why in self._stuck.items():
            return f"a command made {path}, which could not be moved away ({why}): remove it"
        return ""

    def end(self) -> list[tuple[str, str]]:
        """Note a command's end, and `look`."""
        self._running = max(0, self._running - 1)
        return self.look()

    def look(self) -> list[tuple[str, str]]:
        """Move away what has come.

        Returns (path, its new place; '' if it could not be moved) of each.
        """
        moved = []
        listing = Listing()
        self._before |= dict.fromkeys(self._new_with_endings(listing), "")
        found = _look(self._before, listing)
        for path in sorted(found):  # folders before what lies in them
            before, now = self._before[path], found[path]
            is_expected = not now if path in self._way else before is None or now == ""
            if is_expected or now == before:
                continue
            if path.endswith("/.git") and not before and is_plain_repository(path):
                self._before[path] = None
                continue
            moved.append((path, self._move(path)))
            if before:
                self._make_link(path, before)
        return moved

    def _new_with_endings(self, listing: Listing) -> set[str]:
        found = (_with_protected_endings(root, listing) for root in self._roots)
        return set(chain.from_iterable(found)) - self._before.keys()

    def _move(self, path: str) -> str:
        """Move an entry into the session's folder, on another file system to a name beside it."""
        try:
            above, name = open_parent(path)
            with above, open_folder(self._folder, make=True) as kept:
                new = f"{len(kept.names()) + 1}-{name}"
                _allow_move(above, name)
                try:
                    above.move(name, kept, new)
                except OSError as error:
                    if error.errno != errno.EXDEV:
                        raise
                    new = _free_name(above, name)
                    above.rename(name, new)
                    return above.path_of(new)
                return kept.path_of(new)
        except OSError as error:
            self._stuck[path] = error.strerror or str(error)
            return ""

    @staticmethod
    def _make_link(path: str, target: str) -> None:
        with suppress(OSError):
            above, name = open_parent(path)
            with above:
                above.make_link(target, name)


def _is_accepted(path: str, written: Sequence[str]) -> bool:
    return is_inside(path, written) or any(is_inside(one, (path,)) for one in written)


def _look(paths: Iterable[str], listing: Listing) -> dict[str, str | None]:
    """Return the target of the link at each path; '' for nothing, None for something else.

    Nothing counts as there when a folder on the way is a link: that link is looked at itself.
    """
    found: dict[str, str | None] = dict.fromkeys(paths, "")
    names: dict[str, list[str]] = {}
    for path in listing.may_exist(found):
        folder, _, name = path.rpartition("/")
        names.setdefault(folder, []).append(name)
    for folder, inside in names.items():
        with suppress(OSError), open_folder(folder or "/") as above:
            found |= {f"{folder}/{name}": above.link_target(name) for name in inside}
    return found


def _allow_move(above: Folder, name: str) -> None:
    """Give the owner the rights that a move needs: a command can take them from folders."""
    above.allow_changes()
    if stat.S_ISDIR(above.stat(name).st_mode):
        above.allow_changes(name)


def _free_name(folder: Folder, name: str) -> str:
    numbers = range(1, len(folder.names()) + 2)
    return next(new for n in numbers if not folder.has(new := f"{name}.moved-{n}"))


def _folders_between(folder: str, roots: Sequence[str]) -> list[str]:
    """Return `folder` and those above it that lie below a root."""
    found = []
    while folder not in roots and is_inside(folder, roots):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def real_below(paths: Iterable[str], roots: Sequence[str]) -> list[str]:
    """Return the real paths of those that exist and lie in a root.

    Links themselves are watched by `MissingPaths`.
    """
    existing = map(os.path.realpath, filter(os.path.exists, paths))
    return [real for real in existing if is_inside(real, roots)]


TICK_S = 0.02
"""Time in which a second change of a folder may have the same time as the first: twice the step of
a kernel of 100 Hz.
"""


class _SeenFolder(NamedTuple):
    changed_ns: int
    """Time of its last change."""
    first_s: float
    """When that time was seen first (monotonic)."""
    is_settled: bool
    """True if it was read once no further change could have that time."""
    obeyed: frozenset[str]
    """Names in it that programs obey."""
    folders: tuple[str, ...] = ()
    """Names of the folders in it; of a root only."""


_NOTHING = _SeenFolder(0, 0.0, False, frozenset())


def _obeyed_in(folders: Mapping[str, _SeenFolder]) -> set[str]:
    return {f"{folder}/{name}" for folder, seen in folders.items() for name in seen.obeyed}


class NewFiles:
    """Watch of files that a command may make and that programs obey later.

    Looked at are a root and the folders directly in it; a folder is read again when it changed.
    """

    def __init__(self) -> None:
        self._folders: dict[str, _SeenFolder] = {}
        self._roots: set[str] = set()
        """Those in which a command has run."""
        self._known: set[str] = set()
        """Files that existed before the first command, were accepted or were told."""

    def begin(self, roots: Sequence[str]) -> None:
        """Note what there is in roots that no command has had yet.

        What has come in the others is still to be told: it may be of a process that goes on.
        """
        new = {*roots} - self._roots
        self._known |= _obeyed_in(self._look(new))
        self._roots |= new

    def accept(self, written: Sequence[str]) -> None:
        """Accept what exists now below `written`, real paths."""
        found = _obeyed_in(self._look(one for one in self._roots if _is_accepted(one, written)))
        self._known |= {path for path in found if is_inside(path, written)}

    def end(self, roots: Sequence[str]) -> list[tuple[str, str]]:
        """Return (path, what obeys it) of each that has come in `roots` and was not told yet."""
        looked = self._look(roots)
        found, before = _obeyed_in(looked), self._known
        self._known = found | {path for path in before if os.path.dirname(path) not in looked}
        return [(path, obeyed_by(path)) for path in sorted(found - before)]

    def _look(self, roots: Iterable[str]) -> dict[str, _SeenFolder]:
        found = {}
        for root in roots:
            found[root] = self._look_in(root, is_root=True)
            for name in found[root].folders:
                folder = f"{root}/{name}"
                found[folder] = self._look_in(folder, is_root=False)
        self._folders |= found
        return found

    def _look_in(self, folder: str, *, is_root: bool) -> _SeenFolder:
        known, first_s = self._folders.get(folder, _NOTHING), time.monotonic()
        is_settled = False
        try:
            with open_folder(folder) as opened:
                changed_ns = os.fstat(opened.descriptor).st_ctime_ns
                if known.changed_ns == changed_ns:
                    if known.is_settled:
                        return known
                    is_settled = first_s - known.first_s > TICK_S
                    first_s = known.first_s
                names = opened.names()
                inner = tuple(filter(opened.is_folder, names)) if is_root else ()
        except OSError:
            return _NOTHING
        obeyed = (name for name in names if obeyed_by(f"{folder}/{name}"))
        return _SeenFolder(
            changed_ns,
            first_s,
            is_settled,
            frozenset(one for one in obeyed if not (is_root and one == ".git")),
            inner,
        )


# --- Putting files back, without mounts -----------------------------------------------------------

FILES_MAX = 2_000
BYTES_MAX = 16 << 20
"""Limits of what is kept in memory; what lies beyond is not put back."""


class _Kept(NamedTuple):
    stamp: tuple[int, ...]
    data: bytes


class RestoredPaths(MissingPaths):
    """Protected paths, missing or not, while commands run that may change them (Landlock).

    A program that runs beside longrein may read a changed file before it is put back. All files are
    opened without following symbolic links, so that nothing outside the project is read or written.
    """

    def __init__(self, folder: str) -> None:
        """`folder` takes what is moved away and the changed versions; made when needed."""
        super().__init__(folder)
        self._kept: dict[str, _Kept] = {}
        self._folders: set[str] = set()
        """Protected folders, and those in them."""

    def begin(self, protected: ProtectedPaths, *, others_run: bool) -> None:
        """Note a command's start and the contents of what exists."""
        if not self._running and not others_run:
            self._keep(protected.paths)
        super().begin(protected, others_run=others_run)

    def accept(self, written: Sequence[str]) -> None:
        """Accept what exists now at and below `written`, and keep its contents."""
        super().accept(written)
        kept, folders = self._kept, self._folders
        guarded = [*kept, *folders, *(self._before.keys() - self._way)]
        changed = [path for path in (*kept, *folders) if is_inside(path, written)]
        self._keep([*changed, *(path for path in written if is_inside(path, guarded))])
        self._kept |= {path: one for path, one in kept.items() if not is_inside(path, written)}
        self._folders |= {path for path in folders if not is_inside(path, written)}

    def look(self) -> list[tuple[str, str]]:
        """Put back what has changed. Returns (path, place of the changed version) of each."""
        changed = super().look()
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
