"""Paths that configure what runs later: a write there asks, whatever the mode, even where nothing is yet.

Names are compared without case and without characters that cannot be seen, since some file systems do not tell them
apart.
"""

from longrein.permissions.port import Touched

NAMES = frozenset(
    (
        *(".git", ".vscode", ".idea", ".husky", ".claude", ".longrein", ".ssh", ".gnupg"),
        *(".mcp.json", ".envrc", ".gitconfig", ".gitmodules", ".ripgreprc"),
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
        *(".zshrc", ".zprofile", ".zshenv", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout"),
    )
)
"""Files and folders; a folder means all below it."""

OPEN_BELOW = {".claude": frozenset(("commands", "skills", "worktrees"))}
"""Folders inside protected ones that hold ordinary work."""

PAIRS = frozenset(((".config", "longrein"), (".config", "git"), (".config", "fish"), (".agents", "agents")))
"""Protected by two names in a row."""


def protected_name(touched: Touched, base: str) -> str:
    """The protected name in a path (as given or behind its links), '' when there is none.

    The part of a path that leads to `base`, the session's first folder, does not count.
    """
    return _found(touched.path, base) or _found(touched.real, base)


def _found(path: str, base: str) -> str:
    root = base.rstrip("/")
    inner = path[len(root) :] if root and path.startswith(root + "/") else path
    names = [_seen(name) for name in inner.split("/") if name]
    for i, name in enumerate(names):
        after = names[i + 1] if i + 1 < len(names) else ""
        if name in NAMES and after not in OPEN_BELOW.get(name, ()):
            return name
        if (name, after) in PAIRS:
            return f"{name}/{after}"
    return ""


def _seen(name: str) -> str:
    if not name.isascii() or not name.isprintable():
        name = "".join(c for c in name if c.isprintable() and not "\ufe00" <= c <= "\ufe0f").casefold()
    name = name.lower().rstrip(" .").partition("::")[0]
    return ".git" if name == "git~1" else name
