"""Path patterns in gitignore's syntax, as regular expressions over absolute paths.

`//abs` starts at the root of the file system, `~/x` at home, `/x` at the folder of the rules, and anything else at
the folder the session started in; without a slash in it a pattern means a name at any depth below that.
"""

import re
from functools import lru_cache
from unicodedata import normalize


def folded(path: str) -> str:
    """`path` without case and in one Unicode form, so that two spellings of one file compare equal."""
    return path.lower() if path.isascii() else normalize("NFC", path.casefold())


@lru_cache(maxsize=1024)
def path_regex(pattern: str, base: str, home: str, loose: bool) -> re.Pattern[str] | None:
    """A pattern as a regex for `match` on absolute paths; None where it has no root (no home, no base).

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
    depth = "/" if anchored or "/" in rest else "/(?:.*/)?"
    tail = "/.+" if folder_only else "(?:/.*)?"
    return re.compile(
        f"{re.escape(root.rstrip('/'))}{depth}{_body(rest)}{tail}\\Z"
        if rest
        else f"{re.escape(root.rstrip('/'))}{tail}\\Z",
        re.DOTALL,
    )


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


def _body(pattern: str) -> str:
    out, i = [], 0
    while i < len(pattern):
        if pattern.startswith("**", i) and pattern[i - 1 : i] in ("", "/"):
            after = pattern[i + 2 : i + 3]
            if after == "/":
                out.append("(?:.*/)?")
                i += 3
                continue
            if not after:
                out.append(".*")
                break
        piece, i = _piece(pattern, i)
        out.append(piece)
    return "".join(out)


def _piece(pattern: str, i: int) -> tuple[str, int]:
    """One character or class of a pattern as a regex, and where the next begins."""
    c = pattern[i]
    if c == "*":
        return "[^/]*", i + len(pattern[i:]) - len(pattern[i:].lstrip("*"))
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
