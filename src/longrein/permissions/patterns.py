"""Path patterns in gitignore's syntax over absolute paths.

`//abs` starts at the root of the file system, `~/x` at home, `/x` at the folder of the rules, and anything else at
the folder the session started in; without a slash in it a pattern means a name at any depth below that.
"""

import re
from functools import lru_cache
from unicodedata import normalize

_STAR = "*"
"""Stands for any characters of a name."""


def folded(path: str) -> str:
    """`path` without case and in one Unicode form, so that two spellings of one file compare equal."""
    return path.lower() if path.isascii() else normalize("NFC", path.casefold())


class PathPattern:
    """A pattern over absolute paths, taken name by name: its time is linear in the path, however many `**` it has."""

    def __init__(self, root: str, names: list["_Name | None"], *, below: bool) -> None:
        """`root` is a folder; `names` follow below it, None for any number of names (`**`). What lies below a match is
        matched, too; with `below` only that."""
        self._root, self._names, self._below = root.rstrip("/"), names, below

    def match(self, path: str) -> bool:
        """Whether it means `path`."""
        if path == self._root:
            return not self._names and not self._below
        if not path.startswith(self._root + "/"):
            return False
        states = self._open({0})
        for name in path[len(self._root) + 1 :].split("/"):
            if len(self._names) in states:  # `name` lies below it, but for the empty one of `/`
                return bool(name) or not self._below
            states = self._open({after for state in states for after in self._after(state, name)})
        return len(self._names) in states and not self._below

    def _after(self, state: int, name: str) -> tuple[int, ...]:
        wanted = self._names[state]
        if wanted is None:
            return (state,)
        return (state + 1,) if wanted.takes(name) else ()

    def _open(self, states: set[int]) -> set[int]:
        """`states`, and those behind each `**`, which may stand for nothing."""
        for at, wanted in enumerate(self._names):
            if wanted is None and at in states:
                states.add(at + 1)
        return states


class _Name:
    """One name of a pattern: pieces of known length with any characters (`*`) between them."""

    def __init__(self, text: str) -> None:
        pieces: list[list[str]] = [[]]
        i = 0
        while i < len(text):
            piece, i = _piece(text, i)
            pieces.append([]) if piece == _STAR else pieces[-1].append(piece)
        self._pieces = [(re.compile("".join(piece), re.DOTALL), len(piece)) for piece in pieces]

    def takes(self, name: str) -> bool:
        """Whether it means `name`."""
        (first, at), *rest = self._pieces
        if not rest:
            return first.fullmatch(name) is not None
        if not first.match(name):
            return False
        for piece, _ in rest[:-1]:
            found = piece.search(name, at)
            if found is None:
                return False
            at = found.end()
        last, size = rest[-1]
        return len(name) - size >= at and last.match(name, len(name) - size) is not None


@lru_cache(maxsize=1024)
def path_pattern(pattern: str, base: str, home: str, loose: bool) -> PathPattern | None:
    """What a pattern means; None where it has no root (no home, no base).

    `loose` is for deny and ask: case does not count (give it `folded` paths) and `a/**` also means `a`.
    """
    root, rest, anchored = _rooted(pattern, base, home)
    if root is None:
        return None
    folder_only = rest.endswith("/") and not loose
    rest = rest.rstrip("/")
    if loose:
        root, rest = folded(root), folded(rest)
        rest = rest.removesuffix("/**") or "**"
    if not rest:
        return PathPattern(root, [], below=folder_only)
    *names, last = rest.split("/")
    parts = [None if name == "**" else _Name(name) for name in names]
    deep = [] if anchored or names else [None]
    return PathPattern(root, [*deep, *parts, _Name(last)], below=folder_only)


def _rooted(pattern: str, base: str, home: str) -> tuple[str | None, str, bool]:
    """(folder it starts at, what remains, whether it starts exactly there)."""
    pattern = pattern.strip()
    if pattern.startswith("//"):
        return "/", pattern.lstrip("/"), True
    if pattern == "~" or pattern.startswith("~/"):
        return home or None, pattern[2:], True
    if pattern.startswith("/"):
        return base or None, pattern[1:], True
    anchored, folder = False, base
    while pattern.startswith(("./", "../")) or pattern in (".", ".."):
        first, _, pattern = pattern.partition("/")
        folder = folder.rstrip("/").rpartition("/")[0] if first == ".." else folder
        anchored = True
    return (folder or "/") if base else None, pattern, anchored


def _piece(pattern: str, i: int) -> tuple[str, int]:
    """One character or class of a pattern as a regex, and where the next begins."""
    c = pattern[i]
    if c == "*":
        return _STAR, i + len(pattern[i:]) - len(pattern[i:].lstrip("*"))
    if c == "?":
        return "[^/]", i + 1
    if c == "\\" and i + 1 < len(pattern):
        return re.escape(pattern[i + 1]), i + 2
    end = pattern.find("]", i + 2) if c == "[" else -1
    if end > 0:
        inner = pattern[i + 1 : end]
        sign = "^" if inner[0] in "!^" else ""
        inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", inner[len(sign) :])
        return f"(?!/)[{sign}{inner}]", end + 1
    return re.escape(c), i + 1
