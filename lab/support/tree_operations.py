"""Random commands and edits on a work tree, and a picture of the tree to compare."""

import os
import random
import shlex
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = (
    "a.txt",
    "b.py",
    "sub/c.txt",
    "sub/deep/d.bin",
    "name with space",
    "new\nline",
    "ünicode",
    "-dash",
    "x/y/z/w",
)
IGNORED = ("log.ignored", "sub/cache.ignored", "built/out.o")
GITIGNORE = "*.ignored\nbuilt/\n"


def picture(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """Kind, permissions and content of everything that a rewind restores."""
    found = {}
    for at, folders, names in os.walk(os.fsencode(root)):
        folders[:] = sorted(name for name in folders if name not in (b".git", b"built"))
        for name in names:
            path = os.path.join(at, name)
            seen, shown = os.lstat(path), os.fsdecode(os.path.relpath(path, os.fsencode(root)))
            if name.endswith(b".ignored"):
                continue
            if stat.S_ISLNK(seen.st_mode):
                found[shown] = ("link", 0, os.readlink(path))
            else:
                found[shown] = (
                    "file",
                    stat.S_IMODE(seen.st_mode),
                    Path(os.fsdecode(path)).read_bytes(),
                )
        for name in folders:
            path = os.path.join(at, name)
            if os.path.islink(path):
                found[os.fsdecode(os.path.relpath(path, os.fsencode(root)))] = (
                    "link",
                    0,
                    os.readlink(path),
                )
            elif not os.listdir(path):
                found[os.fsdecode(os.path.relpath(path, os.fsencode(root)))] = ("folder", 0, b"")
    return found


def start_tree(root: Path, *, git: bool) -> None:
    """Make a small tree; with `git` a repository with attributes that convert line ends."""
    (root / "sub/deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / ".gitignore").write_text(GITIGNORE)
    (root / ".gitattributes").write_text("*.txt text eol=crlf\n*.py ident filter=upper\n")
    for n, name in enumerate(("a.txt", "b.py", "sub/c.txt", "sub/deep/d.bin")):
        (root / name).write_bytes(b"$Id$ start %d\r\nmixed\n" % n + bytes(range(n * 40)))
    (root / "log.ignored").write_text("not kept")
    if git:
        user_git(root, "init", "-q")
        for key, value in {"user.name": "n", "user.email": "e@x", "core.autocrlf": "true"}.items():
            user_git(root, "config", key, value)
        for end in ("clean", "smudge"):
            user_git(root, "config", f"filter.upper.{end}", "tr a-z A-Z")
        user_git(root, "add", ".gitignore", "a.txt", "sub")
        user_git(root, "commit", "-qm", "start")


def user_git(root: Path, *words: str) -> str:
    """Run git as the user does."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace")


def git_state(root: Path) -> list[Any]:
    """What the user's repository holds: index bytes, HEAD, refs, stash, reflog, settings, hooks."""
    words = (
        ["rev-parse", "HEAD"],
        ["for-each-ref"],
        ["stash", "list"],
        ["reflog"],
        ["config", "-l", "--local"],
    )
    index = root / ".git/index"
    hooks = (
        sorted(path.name for path in (root / ".git/hooks").iterdir())
        if (root / ".git/hooks").exists()
        else []
    )
    return [
        index.read_bytes() if index.exists() else b"",
        hooks,
        *(user_git(root, *one) for one in words),
    ]


def operations(rng: random.Random, count: int, *, git: bool) -> Iterator[str]:
    """Yield shell commands that change the tree at random; some fail, as commands do."""
    q = shlex.quote
    for number in range(count):
        one, other = "./" + rng.choice(NAMES), "./" + rng.choice(NAMES)
        folder = q(os.path.dirname(other) or ".")
        text, size = q(f"{number} {rng.random()}"), rng.randrange(1, 5000)
        choices = [
            f"mkdir -p {q(os.path.dirname(one))} && printf '%s\\r\\n' {text} > {q(one)}",
            f"mkdir -p {q(os.path.dirname(one))} && printf '%s' {text} >> {q(one)}",
            f"head -c {size} /dev/urandom > {q(one)}",
            f"rm -rf {q(one)}",
            f"mkdir -p {folder} && mv {q(one)} {q(other)}",
            f"mkdir -p {folder} && cp -a {q(one)} {q(other)}",
            f"chmod {rng.choice(['600', '644', '755', '700', '400', '664'])} {q(one)}",
            (
                f"rm -rf {q(one)}; ln -s "
                f"{q(rng.choice(['sub/c.txt', '/etc/hostname', 'nowhere', 'sub']))} {q(one)}"
            ),
            f"mkdir -p {q(one)}",
            f"rm -rf {q(one)}; mkdir -p {q(one)}/in && echo {number} > {q(one)}/in/file",
            f"mkdir -p e{number % 5}/f/g",
            f"rm -rf {rng.choice(['sub', 'x', 'empty', 'e1', 'e2', 'sub/deep'])}",
            (
                f"echo {number} > {rng.choice(IGNORED[:2])}; mkdir -p built; echo {number} > "
                "built/out.o"
            ),
            f"touch -d '2001-01-01' {q(one)}; sed -i 's/a/b/' {q(one)}",
            f"f=$(printf 'bad\\377{number % 3}'); echo {number} > \"$f\"",
        ]
        if git:
            choices += [
                "git add -A",
                "git commit -qam work",
                "git stash -q",
                "git stash pop -q",
                "git checkout -q -- .",
            ]
            choices += [
                "git mv a.txt moved.txt",
                "git reset -q --hard",
                "git clean -fdq",
                "git gc -q --prune=now",
            ]
        yield rng.choice(choices)
