"""Glob patterns as regular expressions: `*`, `?`, `[a-z]`, `[!a]`, `{a,b}`, `**` over folders, backslash to quote."""

import re

MAGIC = frozenset("*?[{")


def compile_glob(pattern: str, anywhere: bool = False) -> re.Pattern[str]:
    """Matches paths relative to the folder. With `anywhere` a pattern without a slash matches a name at any depth."""
    if anywhere and "/" not in pattern.rstrip("/"):
        pattern = "**/" + pattern
    return re.compile(_translate(pattern.removeprefix("./").removeprefix("/")) + r"\Z", re.DOTALL)


def _translate(pattern: str) -> str:
    out, at, depth = [], 0, 0
    while at < len(pattern):
        piece, step = _token(pattern, at, depth)
        depth += (piece == "(?:" and pattern[at] == "{") - (pattern[at] == "}" and piece == ")")
        out.append(piece)
        at += step
    return "".join(out) + ")" * depth


def _token(pattern: str, at: int, depth: int) -> tuple[str, int]:
    """(regular expression, characters of the pattern it stands for) at one place."""
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
    """(folder part without magic, the rest): `src/a*/**` is `src` and `a*/**`; `/` and `..` stay in the first."""
    parts = pattern.split("/")
    plain = 0
    while plain < len(parts) - 1 and not MAGIC & set(parts[plain]) and "\\" not in parts[plain]:
        plain += 1
    folder = "/".join(parts[:plain])
    return (folder or ("/" if plain else "")), "/".join(parts[plain:])


def name_glob(pattern: str) -> str:
    """A pattern for the last name alone, if the whole one implies it; '' when any name may match."""
    name = pattern.rpartition("/")[2]
    return "" if name in ("", "**") or pattern.count("{") != name.count("{") else name
