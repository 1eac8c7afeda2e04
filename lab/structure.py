"""Measures of the source code itself: modules, lines, functions, docstrings, cycles, imports by
string; and the modules that one prompt passes.

python -m lab.structure
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import get_args

from lab.budget import modules, packages
from lab.source_tree import AGENT, ROOT, TREES
from longrein_context.events import AnyEvent
from tests.test_architecture import (
    FILES,
    SESSION_NAMES_MAX,
    STRING_IMPORTERS,
    circles,
    cycles,
    functions,
    import_graph,
    imports,
    lines_of,
    package_graph,
    trees,
    users_of,
)
from tests.test_architecture import (
    name as path_name,
)

QUESTION_WORDS = {
    *("What", "Who", "Whose", "Where", "When", "Whether", "Why", "Which", "How", "One"),
    *("Whatever", "Whoever", "Nothing", "That", "It"),
}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
DISTRIBUTIONS = ("longrein-context", "longrein-fleet")
FIELDS_MAX = 12
"""Fields up to which a record may be handed around."""
EVENTS_READ_MIN = 4
"""Classes of events that a module tells apart before it counts as a reader of the log."""
PROMPT = """
import inspect, json, os, sys, threading

passed, changes, calls, last = set(), 0, 0, ""

def follow(frame, event, _):
    global changes, calls, last
    name = frame.f_globals.get("__name__", "")
    called = event == "call" and frame.f_code.co_flags & inspect.CO_NEWLOCALS
    if not called or not name.startswith("longrein"):
        return
    calls += 1
    if name != last:
        changes += 1
        last = name
        passed.add(name)

home = os.environ["HOME"]
os.makedirs(f"{home}/.config/longrein")
with open(f"{home}/.config/longrein/config.toml", "w") as file:
    file.write('model = "play/one"\\n[providers.play]\\nwire = "scripted"\\n')
    file.write(f'base_url = "{home}/script.json"\\n')
read = {"name": "Read", "arguments": {"path": "notes.txt"}}
with open(f"{home}/script.json", "w") as file:
    json.dump({"turns": [{"calls": [read]}, {"text": "Done."}]}, file)
with open(f"{home}/notes.txt", "w") as file:
    file.write("Buy milk.\\n")
sys.argv[1:] = ["-p", "Read the notes."]
from longrein.__main__ import main

leave = os._exit

def tell(code):
    sys.setprofile(None)
    os.write(1, f"{len(passed)} {changes} {calls}\\n".encode())
    leave(code)

os._exit = tell
threading.setprofile(follow)
sys.setprofile(follow)
main()
"""
"""A headless prompt that reads a file; it prints what `modules_of_a_prompt` returns."""


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


def inner_imports(tree: ast.Module) -> int:
    """Count the imports inside the functions of a module."""
    inside = {node for function in functions(tree) for node in ast.walk(function)}
    return sum(isinstance(node, ast.Import | ast.ImportFrom) for node in inside)


def readers_of_events() -> list[str]:
    """Return the modules that tell at least four classes of events apart, by `match` or
    `isinstance`.
    """
    events = {event.__name__ for event in get_args(AnyEvent)}
    return [
        path_name(path)
        for path, tree in trees().items()
        if len(events & set(told_apart(tree))) >= EVENTS_READ_MIN
    ]


def told_apart(tree: ast.AST) -> list[str]:
    """Return the names of the classes that a tree matches or asks `isinstance` for."""
    tested: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.MatchClass(cls=name):
                tested.append(name)
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]):
                tested += ast.walk(classes)
    return [node.id for node in tested if isinstance(node, ast.Name)]


def modules_of_a_prompt() -> tuple[int, int, int]:
    """Return how many modules of longrein one headless prompt with one `Read` passes, how often
    the control goes from one to another, and how many calls of functions it makes.

    Every call of a function counts, in all threads; no return, and no code that an import runs.
    """
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "LONGREIN_STATE_DIR": f"{home}/state",
        }
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROMPT],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    modules, changes, calls = done.stdout.split()[-3:]
    return int(modules), int(changes), int(calls)


def large_records() -> set[str]:
    """Return the classes with more than `FIELDS_MAX` annotated fields."""
    return {
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(one, ast.AnnAssign) for one in node.body) > FIELDS_MAX
    }


def names_with_several_meanings() -> list[str]:
    """Return the names of public classes that several modules define."""
    places = Counter(
        node.name
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, places in places.items() if places > 1)


def import_ms(module: str) -> float:
    """Return the CPU of an import by a bare Python, in milliseconds; the least of three."""
    code = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    tries = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    return min(float(done.stdout) for done in tries) * 1000


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
    sessions = users_of({"Session"})
    passed, changes, calls = modules_of_a_prompt()
    sizes_of = packages(modules())
    own = {name: n for name, n in sizes_of.items() if name not in (*DISTRIBUTIONS, "tests")}
    core = sum(n for name, n in own.items() if name not in ("extensions", "testing"))
    largest = max(own, key=own.__getitem__)
    users = users_of(large_records())
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
        "modules in packages": len(FILES),
        "statements without docstrings": sum(sizes_of.values()) - sizes_of["tests"],
        **{f"  of {name}": sizes_of[name] for name in DISTRIBUTIONS},
        "  of longrein": sum(own.values()),
        "  of longrein without extensions and testing": core,
        "packages and modules directly in longrein": len(list(AGENT.glob("[a-z]*/")))
        + len(list(AGENT.glob("[a-z]*.py"))),
        "largest package of longrein": f"{largest}, {own[largest]}",
        "CPU of importing the engine, ms": f"{import_ms('longrein_context.integrations'):.0f}",
        "syntax nodes for a line of code": f"{nodes / code_lines:.1f}",
        "lines in packages": sum(map(lines, TREES)),
        "lines in tests": lines(ROOT / "tests"),
        "docstrings that begin with a question word": f"{len(riddles)} of {len(docstrings)}",
        "functions": len(found),
        "functions of 1 to 3 lines": sum(size <= 3 for size in sizes),
        "lines of a function: median": sizes[len(sizes) // 2],
        "lines of a function: 99th percentile": sizes[len(sizes) * 99 // 100],
        "lines of a function: longest": sizes[-1],
        "functions of more than 60 lines": sum(size > 60 for size in sizes),
        "cycles between modules": len(cycles(import_graph())),
        "cycles between packages": len(cycles(package_graph())),
        "largest circle of modules, type hints included": max(circles(), default=1),
        "imports inside functions": sum(map(inner_imports, parsed.values())),
        "modules that tell four or more events apart": len(readers_of_events()),
        "functions that take Session": len(sessions),
        "functions that use at most two names of it": sum(n <= SESSION_NAMES_MAX for n in sessions),
        f"functions that take a record of more than {FIELDS_MAX} fields": len(users),
        "  and use at most two names of it": sum(n <= SESSION_NAMES_MAX for n in users),
        "public class names with several meanings": len(names_with_several_meanings()),
        "modules that a headless prompt with one Read passes": passed,
        "changes of module in it": changes,
        "calls of functions in it": calls,
        "modules that import by a string": len(STRING_IMPORTERS),
        "modules with a module-level __getattr__": len(lazy),
        "modules that import private modules of Python": len(private),
        "type: ignore": count(r"# type: ignore"),
    }
    for name, value in rows.items():
        print(f"{name:58} {value}")


if __name__ == "__main__":
    main()
