"""Walk folders in name order, without following links, respecting `.gitignore`; and translate
glob patterns.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from longrein.workspace.files import read
from longrein.workspace.supervisor.openat import open_real
from longrein_context.events.escape import regular_expression

GITIGNORE = ".gitignore"
GITIGNORE_BYTES_MAX = 1 << 20
NO_PATTERN = (re.error, ValueError, OverflowError, RecursionError)
"""Errors for a line of `.gitignore` that is no pattern, such as `[z-a]`."""


class Ignores:
    """The `.gitignore` files that apply to a folder, its own last. The innermost that matches
    decides.
    """

    __slots__ = ("_outer", "_prefix", "_spec")

    def __init__(self, outer: "Ignores | None", folder: str, spec: Any) -> None:
        self._outer = outer
        self._prefix = len(folder) + (0 if folder == "/" else 1)
        self._spec = spec

    def excludes(self, path: str, is_folder: bool) -> bool:
        """Tell whether an entry below the folder is ignored."""
        said = self._spec.check_file(path[self._prefix :] + ("/" if is_folder else "")).include
        if said is None:
            return self._outer is not None and self._outer.excludes(path, is_folder)
        return bool(said)


def ignores_of(folder: str, outer: Ignores | None) -> Ignores | None:
    """Return `outer` with the folder's own `.gitignore`, if it has a readable one. As for git, a
    link is none.
    """
    try:
        data = read(os.path.join(folder, GITIGNORE), GITIGNORE_BYTES_MAX)
    except OSError:
        return outer
    return Ignores(
        outer, folder, _ignore_spec(data.decode("utf-8", "surrogateescape").splitlines())
    )


def _ignore_spec(lines: Sequence[str]) -> Any:
    """Compile the rules of a `.gitignore`; as for git, a line that is none matches nothing."""
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except NO_PATTERN:
        specs = map(_ignore_spec, ([line] for line in lines)) if len(lines) > 1 else ()
        return GitIgnoreSpec([pattern for spec in specs for pattern in spec.patterns])


def ignores_above(folder: str) -> Ignores | None:
    """Read the `.gitignore` files above, up to the nearest folder with `.git` (as git and rg
    do), or the top.
    """
    above: list[str] = []
    while not os.path.lexists(os.path.join(folder, ".git")) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        above.append(folder)
    found: Ignores | None = None
    for one in reversed(above):
        found = ignores_of(one, found)
    return found


def entries(
    folder: str, enter: Callable[[str], bool], *, ignored: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield (path, is_folder) of everything below a real path, in name order, a folder before its
    content.

    `enter` decides whether to enter a folder. With `ignored`, entries that `.gitignore` excludes
    and `.git` are included. Links are yielded and never followed. Folders that cannot be listed are
    skipped.
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


def _listed(
    folder: str, outer: Ignores | None, ignored: bool
) -> Iterator[tuple[str, bool, Ignores | None]]:
    """Yield one folder's entries. The folder is closed before the first is yielded."""
    try:
        descriptor = open_real(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        with os.scandir(descriptor) as found:
            listed = sorted((one.name, one.is_dir(follow_symlinks=False)) for one in found)
    except OSError:
        return
    finally:
        os.close(descriptor)
    ignores = ignores_of(folder, outer) if not ignored and (GITIGNORE, False) in listed else outer
    for name, is_folder in listed:
        path = os.path.join(folder, name)
        if ignored or (
            name != ".git" and (ignores is None or not ignores.excludes(path, is_folder))
        ):
            yield path, is_folder, ignores


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


# --- Glob patterns --------------------------------------------------------------------------------
#
# As regular expressions: `*`, `?`, `[a-z]`, `[!a]`, `{a,b}`, `**` over folders, backslash to quote.

MAGIC = frozenset("*?[{")


def compile_glob(pattern: str, anywhere: bool = False) -> re.Pattern[str]:
    """Compile a pattern that matches paths relative to the folder.

    With `anywhere`, a pattern without a slash matches a name at any depth.
    """
    if anywhere and "/" not in pattern.rstrip("/"):
        pattern = "**/" + pattern
    shape = _translate(pattern.removeprefix("./").removeprefix("/"))
    return regular_expression(shape + r"\Z", re.DOTALL)


def _translate(pattern: str) -> str:
    out = []
    at = 0
    depth = 0
    while at < len(pattern):
        piece, step = _token(pattern, at, depth)
        depth += (piece == "(?:" and pattern[at] == "{") - (pattern[at] == "}" and piece == ")")
        out.append(piece)
        at += step
    return "".join(out) + ")" * depth


def _token(pattern: str, at: int, depth: int) -> tuple[str, int]:
    """Return (regular expression, pattern characters consumed) at one place."""
    match pattern[at]:
        case "*":
            return _star(pattern, at)
        case "?":
            return "[^/]", 1
        case "[":
            return _set(pattern, at)
        case "{" if "}" in pattern[at:]:
            return "(?:", 1
        case "," if depth:
            return "|", 1
        case "}" if depth:
            return ")", 1
        case "\\" if at + 1 < len(pattern):
            return re.escape(pattern[at + 1]), 2
        case plain:
            return re.escape(plain), 1


def _star(pattern: str, at: int) -> tuple[str, int]:
    starts = at == 0 or pattern[at - 1] in "/{,"
    if starts and pattern.startswith("**/", at):
        return "(?:[^/]+/)*", 3
    if starts and pattern[at:] in ("**", "**/"):
        return ".+", len(pattern) - at
    return "[^/]*", 2 if pattern.startswith("**", at) else 1


def _set(pattern: str, at: int) -> tuple[str, int]:
    first = at + 2 if pattern[at + 1 : at + 2] in ("!", "^") else at + 1
    end = pattern.find("]", first + 1)
    if end < 0:
        return r"\[", 1
    content = pattern[first:end].replace("\\", r"\\").replace("[", r"\[")
    negated = "^/" if first == at + 2 else ""
    text = f"[{negated}{content}]"
    try:
        re.compile(text)
    except re.error:  # such as [z-a]
        return re.escape(pattern[at : end + 1]), end + 1 - at
    return text, end + 1 - at


def split_glob(pattern: str) -> tuple[str, str]:
    """Split into (folder without wildcards, rest): `src/a*/**` is `src` and `a*/**`.

    `/` and `..` stay in the first part.
    """
    parts = pattern.split("/")
    plain = 0
    while plain < len(parts) - 1 and not MAGIC & set(parts[plain]) and "\\" not in parts[plain]:
        plain += 1
    folder = "/".join(parts[:plain])
    return (folder or ("/" if plain else "")), "/".join(parts[plain:])


def name_glob(pattern: str) -> str:
    """Return the pattern of the last name alone, if the whole pattern implies it; '' when any
    name may match.
    """
    name = pattern.rpartition("/")[2]
    return "" if name in ("", "**") or pattern.count("{") != name.count("{") else name
