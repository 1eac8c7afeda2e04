"""Measures of the source code itself: modules, lines, functions, docstrings, cycles, imports by
string.

python -m benchmarks.structure
"""

import ast
import re
from pathlib import Path

from tests.test_architecture import (
    FILES,
    SRC,
    STRING_IMPORTERS,
    cycles,
    functions,
    import_graph,
    imports,
    lines_of,
    package_graph,
    statements_of,
    trees,
)

QUESTION_WORDS = {
    *("What", "Who", "Whose", "Where", "When", "Whether", "Why", "Which", "How", "One"),
    *("Whatever", "Whoever", "Nothing", "That", "It"),
}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def lines(folder: Path) -> int:
    """Count the lines of the Python files below a folder."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in folder.rglob("*.py"))


def count(pattern: str) -> int:
    """Count the matches of a pattern in the source code."""
    return sum(
        len(re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)) for path in FILES
    )


def lines_with_code(tree: ast.Module) -> set[int]:
    """Return the lines on which a syntax node begins or ends."""
    placed = (node for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr))
    return {line for node in placed for line in (node.lineno, node.end_lineno or 0)}


def statements_below(folder: str) -> int:
    """Count the statements of the modules below a folder of the source."""
    below = SRC / folder
    return sum(statements_of(tree) for path, tree in trees().items() if below in path.parents)


def main() -> None:
    """Print a table of the measures."""
    found = [f for tree in trees().values() for f in functions(tree)]
    sizes = sorted(lines_of(f) for f in found)
    documented = [
        n for tree in trees().values() for n in ast.walk(tree) if isinstance(n, DOCUMENTED)
    ]
    docstrings = [text for node in documented if (text := ast.get_docstring(node))]
    riddles = [text for text in docstrings if text.split()[0].strip(",.:") in QUESTION_WORDS]
    parsed = trees()
    nodes = sum(1 for tree in parsed.values() for _ in ast.walk(tree))
    code_lines = sum(len(lines_with_code(tree)) for tree in parsed.values())
    private = [
        path
        for path, tree in trees().items()
        if any(m[0] == "_" and m != "__future__" for m in imports(tree))
    ]
    lazy = [
        path
        for path, tree in trees().items()
        for n in tree.body
        if getattr(n, "name", "") == "__getattr__"
    ]
    rows = {
        "modules in src": len(FILES),
        "statements in src": statements_below("."),
        "statements in permissions": statements_below("permissions"),
        "statements in workspace/sandbox": statements_below("workspace/sandbox"),
        "syntax nodes for a line of code": f"{nodes / code_lines:.1f}",
        "lines in src": lines(SRC),
        "lines in tests": lines(SRC.parent.parent / "tests"),
        "docstrings that begin with a question word": f"{len(riddles)} of {len(docstrings)}",
        "functions": len(found),
        "functions of 1 to 3 lines": sum(size <= 3 for size in sizes),
        "lines of a function: median": sizes[len(sizes) // 2],
        "lines of a function: 99th percentile": sizes[len(sizes) * 99 // 100],
        "lines of a function: longest": sizes[-1],
        "cycles between modules": len(cycles(import_graph())),
        "cycles between packages": len(cycles(package_graph())),
        "modules that import by a string": len(STRING_IMPORTERS),
        "modules with a module-level __getattr__": len(lazy),
        "modules that import private modules of Python": len(private),
        "type: ignore": count(r"# type: ignore"),
    }
    for name, value in rows.items():
        print(f"{name:58} {value}")


if __name__ == "__main__":
    main()
