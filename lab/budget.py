"""Statements of each package beside what `budget.toml` lets it have; `make check` runs this.

python -m lab.budget [--write]

Statements are counted without docstrings and other texts that stand alone. `--write` lowers the
file to what stands. A number may only be raised in a commit of its own, whose body says what was
removed for it.
"""

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.source_tree import AGENT, PACKAGES, ROOT, TREES

FILE = "budget.toml"
GROWN_SHOWN = 5
"""Modules that grew most, as printed for a package above its budget."""

Counts = Mapping[str, int]


def statements(text: str) -> int:
    """Count the statements of a module without texts that stand alone.

    >>> statements('"Doc."\\nx = 1\\ndef f():\\n    "Doc."\\n    return x\\n')
    3
    """
    return sum(
        isinstance(node, ast.stmt) and not _is_text(node) for node in ast.walk(ast.parse(text))
    )


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def package_of(path: Path) -> str:
    """Return the name in the budget of a module's package; '' for a module that has no budget.

    >>> package_of(AGENT / "agent/loop.py"), package_of(AGENT / "cli.py")
    ('agent', 'modules')
    >>> [package_of(tree / "module.py") for tree in TREES]
    ['longrein-context', 'modules', 'longrein-fleet']
    >>> package_of(ROOT / "tests/cli/test_flags.py"), package_of(ROOT / "lab/bench.py")
    ('tests', '')
    """
    if path.is_relative_to(ROOT / "tests"):
        return "tests"
    if path.is_relative_to(AGENT):
        inside = path.relative_to(AGENT).parts
        return inside[0] if len(inside) > 1 else "modules"
    return path.relative_to(PACKAGES).parts[0] if path.is_relative_to(PACKAGES) else ""


def modules() -> dict[str, int]:
    """Return the statements of each module with a budget, by path."""
    paths = [path for tree in (*TREES, ROOT / "tests") for path in tree.rglob("*.py")]
    return {
        str(path.relative_to(ROOT)): statements(path.read_text(encoding="utf-8")) for path in paths
    }


def packages(found: Counts) -> Counter[str]:
    """Return the statements of each package."""
    sizes: Counter[str] = Counter()
    for path, size in found.items():
        sizes[package_of(ROOT / path)] += size
    return sizes


def grown(package: str, now: Counts, before: Counts) -> list[str]:
    """Return a line for each module of a package that grew most."""
    growth = {
        path: size - before.get(path, 0)
        for path, size in now.items()
        if package_of(ROOT / path) == package and size > before.get(path, 0)
    }
    most = sorted(growth, key=growth.__getitem__, reverse=True)[:GROWN_SHOWN]
    return [f"    {path}: {before.get(path, 0)} → {now[path]}" for path in most]


def git(*words: str) -> str:
    """Return what git prints; '' where it fails, as outside a clone."""
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout if ran.returncode == 0 else ""


def base() -> str:
    """Return the commit from which growth is counted: where this branch left origin/main, on
    main itself the commit before.
    """
    found = git("merge-base", "HEAD", "origin/main").strip()
    return found if found not in ("", git("rev-parse", "HEAD").strip()) else "HEAD~1"


def modules_at(commit: str, paths: Iterable[str]) -> dict[str, int]:
    """Return the statements of modules at a commit; those that it does not have are left out."""
    texts = {path: git("show", f"{commit}:{path}") for path in paths}
    return {path: statements(text) for path, text in texts.items() if text}


def read_budget(text: str) -> dict[str, int]:
    """Return the statements that each package may have."""
    return dict(tomllib.loads(text).get("statements", {}))


def wrongly_raised(commit: str) -> list[str]:
    """Return a line if a number is higher than at `commit`, and the last change of the file stands
    among others or says no reason.
    """
    old, new = (read_budget(git("show", f"{at}:{FILE}")) for at in (commit, "HEAD"))
    if not any(size > old[name] for name, size in new.items() if name in old):
        return []
    last = git("log", "-1", "--format=%H", f"{commit}..HEAD", "--", FILE).strip()
    alone = git("diff-tree", "--no-commit-id", "--name-only", "-r", last).split() == [FILE]
    if alone and git("log", "-1", "--format=%b", last).strip():
        return []
    return [f"{last[:12]} raises {FILE}: do it in a commit of its own that says why"]


def main(words: list[str]) -> int:
    """Print each package that is above its budget; return 1 if there is one."""
    now, path = modules(), ROOT / FILE
    sizes = packages(now)
    if "--write" in words:
        rows = [f"{name} = {size}\n" for name, size in sorted(sizes.items())]
        head = "# Statements that each package may have, without docstrings; see CONTRIBUTING.md.\n"
        path.write_text(f"{head}[statements]\n{''.join(rows)}", encoding="utf-8")
        return 0
    allowed = read_budget(path.read_text(encoding="utf-8"))
    above = {name: size for name, size in sizes.items() if size > allowed.get(name, 0)}
    for name, size in above.items():
        print(f"{name} has {size} statements of {allowed.get(name, 0)} in {FILE}; grown most:")
        mine = [one for one in now if package_of(ROOT / one) == name]
        print("\n".join(grown(name, now, modules_at(base(), mine))))
    wrong = wrongly_raised(base())
    print("\n".join(wrong) or f"{sum(sizes.values()):,} statements, within {FILE}" * (not above))
    return int(bool(above or wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
