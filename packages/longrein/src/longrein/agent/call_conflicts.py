"""Conflicts between the calls of one reply: what each reads and writes, and which may run at the
same time.

Commands are judged by the same reading as for permissions. An unknown program may read anything and
writes nothing that is known: tests and builds run side by side, but not beside a command that is
known to write.
"""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from longrein.permissions.bash_parser import Word, WordPart
    from longrein.permissions.command_rules import KnownCommand
    from longrein.permissions.program_table import Effect


Resolve = Callable[[str, str], str]
"""Real path of a path in a folder."""

_LEAVES_FOLDER = frozenset(["cd", "pushd", "popd", "eval", "source", "."])
"""Shell commands after which a command may end in another folder."""
_PATH_LENGTH_MAX = 4096


class Footprint(msgspec.Struct, frozen=True):
    """Paths and locks that one call uses while it runs."""

    reads: tuple[str, ...] = ()
    """Real paths of files and folders; a folder stands for everything below it."""
    writes: tuple[str, ...] = ()
    reads_anything: bool = False
    writes_anything: bool = False
    """True for what changes unknown files, or takes a lock (git, package managers): it runs
    alone.
    """
    unknown: bool = False
    """True if it runs a program whose effects are not known."""
    moves: bool = False
    """True if it may leave the shell in another folder, in which later commands start."""
    placed: bool = True
    """True if it does not depend on the shell's current folder."""

    @property
    def reads_only(self) -> bool:
        """True if it is known to write nothing."""
        return not (self.writes or self.writes_anything or self.unknown)


def in_conflict(earlier: Footprint, later: Footprint) -> bool:
    """Return True if two calls must run in the order of the reply."""
    if earlier.writes_anything or later.writes_anything or (earlier.moves and not later.placed):
        return True
    return _disturbs(earlier, later) or _disturbs(later, earlier)


def _disturbs(writer: Footprint, other: Footprint) -> bool:
    """Return True if one call writes what the other reads or writes."""
    if other.reads_anything and writer.writes:
        return True
    return any(
        _overlap(path, one) for path in writer.writes for one in (*other.reads, *other.writes)
    )


def _overlap(path: str, other: str) -> bool:
    path, other = path.rstrip("/") + "/", other.rstrip("/") + "/"
    return path.startswith(other) or other.startswith(path)


def paths_footprint(paths: Iterable[tuple[str, bool]], cwd: str, resolve: Resolve) -> Footprint:
    """Return the footprint of a tool that names its paths: pairs of a path and True if the path
    is written.
    """
    pairs = tuple(paths)
    real = [(resolve(path, cwd), writes) for path, writes in pairs]
    return Footprint(
        tuple(path for path, writes in real if not writes),
        tuple(path for path, writes in real if writes),
        placed=all(path.startswith("/") for path, _ in pairs),
    )


def command_footprint(command: "KnownCommand", cwd: str, resolve: Resolve) -> Footprint:
    """Return the footprint of a command that starts in the folder `cwd`."""
    parts = command.script.parts
    if not parts:
        return Footprint((), (), True, True, unknown=True, moves=True, placed=False)
    found = [
        _part_footprint(part, effect, resolve)
        for part, effect in zip(parts, command.effects, strict=True)
    ]
    return Footprint(
        tuple(dict.fromkeys(path for one in found for path in one.reads)),
        tuple(dict.fromkeys(path for one in found for path in one.writes)),
        reads_anything=bool(command.script.problem) or any(one.reads_anything for one in found),
        writes_anything=any(one.writes_anything for one in found),
        unknown=bool(command.script.problem) or any(one.unknown for one in found),
        moves=_may_leave_unread(command) or any(_may_leave_folder(part, cwd) for part in parts),
        placed=_starts_elsewhere(command, cwd),
    )


def _part_footprint(part: "WordPart", effect: "Effect", resolve: Resolve) -> Footprint:
    from longrein.permissions.bash_parser import Word

    written, writes_known = _paths(part, (*part.writes, *effect.writes), resolve)
    if effect.problem:
        return Footprint((), written, True, bool(effect.lock) or not writes_known, unknown=True)
    named = [
        word for word in part.words[1:] if not word.text.startswith("-")
    ]  # `test -f x`, `which x`
    read, reads_known = _paths(part, (*part.reads, *effect.reads, *named), resolve)
    if not read and part.words:  # `ls`
        read, reads_known = _paths(part, (Word("."),), resolve)
    anything = (
        not reads_known or part.program.rpartition("/")[2] == "git"
    )  # git reads the whole work tree
    return Footprint(read, written, anything, bool(effect.lock) or not writes_known)


def _paths(
    part: "WordPart", words: "Iterable[Word]", resolve: Resolve
) -> tuple[tuple[str, ...], bool]:
    """Return the real paths of `words` in each folder of a part, and False if some are not
    known.
    """
    from longrein.permissions.command_rules import glob_base

    found: dict[str, None] = {}
    known = True
    for word in dict.fromkeys(words):
        path = glob_base(word.text) if word.kind == "glob" else word.text
        folders = ("/",) if path.startswith("/") else part.folders
        if word.kind == "open" or not folders or len(path) >= _PATH_LENGTH_MAX or "\n" in path:
            known = False
        else:
            found.update((resolve(path, folder), None) for folder in folders)
    return tuple(found), known


def _may_leave_unread(command: "KnownCommand") -> bool:
    """Return True if a command that is not read completely may change the folder."""
    return bool(command.script.problem) and not _LEAVES_FOLDER.isdisjoint(
        re.findall(r"[\w.]+", command.text)
    )


def _may_leave_folder(part: "WordPart", cwd: str) -> bool:
    """Return True if the shell may be in another folder than `cwd` after a part."""
    target = _absolute_target(part)
    return (
        bool(part.words) and (not part.program or part.program in _LEAVES_FOLDER) and target != cwd
    )


def _absolute_target(part: "WordPart") -> str:
    """Return the folder of `cd /absolute`; '' for any other part."""
    from longrein.permissions.bash_parser import join_path

    words = part.words
    is_cd = (
        part.program == "cd"
        and len(words) == 2
        and words[1].kind == "literal"
        and words[1].text.startswith("/")
    )
    return join_path("/", words[1].text) if is_cd else ""


def _starts_elsewhere(command: "KnownCommand", cwd: str) -> bool:
    """Return True for `cd /absolute && …` where nothing runs in the folder that the command
    starts in.
    """
    first, *rest = command.script.parts
    target = _absolute_target(first)
    if not command.text.lstrip().startswith("cd ") or not target:
        return False
    return all(part.folders and (cwd == target or cwd not in part.folders) for part in rest)
