"""Architecture rules, each an ordinary test. Exceptions stand in a list with their reason; the lists only shrink."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "longrein"
FILES = sorted(SRC.rglob("*.py"))


@cache
def trees() -> dict[Path, ast.Module]:
    """Each module of the package, parsed at the first use."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def room(path: Path) -> str:
    parts = path.relative_to(SRC).parts
    return parts[0] if len(parts) > 1 else path.stem


def name(path: Path) -> str:
    return str(path.relative_to(SRC))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, level=0) if module:
            return [module]
        case _:
            return []


def imports(tree: ast.AST) -> set[str]:
    return {top for node in ast.walk(tree) for top in imported(node)}


# --- imports -----------------------------------------------------------------------------------------------------

LAZY = {
    "httpx2",
    "rich",
    "prompt_toolkit",
    "psutil",
    "pathspec",
    "platformdirs",
    "click",
    "tomllib",
    "importlib",
    "markdown_it",
}
"""Packages too dear to import before they are needed, and the parts of the standard library that are."""
LAZY_STDLIB = {
    "ctypes",  # six milliseconds, for one call when memory is short
    "difflib",
    "fcntl",
    "fnmatch",
    "signal",  # four milliseconds, for the name of one; the supervisor of processes needs none
    "shutil",
    "tempfile",
    "zipfile",
    "ssl",
    "email",
    "glob",
    "json",
    "urllib",
    "select",
    "ast",
    "binascii",
    "msgspec",
}


LAZY_OWN = {
    "longrein.workspace.supervisor.launch",  # `subprocess` is half of the start of a supervisor, and it is a fallback
}


def test_imports_inside_functions_are_only_of_heavy_packages() -> None:
    wrong = [
        f"{name(path)}:{node.lineno} {module}"
        for path, tree in trees().items()
        for function in functions(tree)
        for node in ast.walk(function)
        for module in imported(node)
        if module.split(".")[0] not in LAZY | LAZY_STDLIB and module not in LAZY_OWN
    ]
    assert not wrong, wrong


PRIVATE = {f"workspace/supervisor/{part}.py" for part in ("main", "supervisor", "channel", "spawn")}
"""Who may import private modules of Python; the figure that they buy stands in `workspace/supervisor/__init__.py`."""


def test_no_private_modules_of_python_and_no_hand_in_the_table_of_modules() -> None:
    """`sys.modules` is shared by all threads of a process: a stand-in there breaks the others' imports."""
    private = {name(path) for path, tree in trees().items() if any(top.startswith("_") for top in _absolute(tree))}
    assert private == PRIVATE
    wrong = [name(path) for path, tree in trees().items() if "sys.modules" in {used for _, used in attributes(tree)}]
    assert not wrong, wrong


def _absolute(tree: ast.AST) -> set[str]:
    return imports(tree) - {"__future__"}


def test_no_import_hides_under_TYPE_CHECKING() -> None:
    assert not [name(path) for path in FILES if "TYPE_CHECKING" in path.read_text(encoding="utf-8")]


PURE_STDLIB = {"collections", "typing", "re", "copy", "functools", "math", "uuid", "hashlib", "unicodedata", "bisect"}
PURE_STDLIB |= {"itertools", "operator", "importlib"}  # the engine for other loops is no part of longrein's own start


def only_interns(path: Path) -> bool:
    """`sys.intern` lets equal strings be one; all else in there is the world."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "import sys" in line or "sys import" in line] == ["from sys import intern"]


def test_the_pure_packages_import_nothing_that_touches_the_world() -> None:
    wrong = [
        f"{name(path)}: {module}"
        for path, tree in trees().items()
        if room(path) in ("context", "permissions", "events")
        for module in imports(tree)
        if module.split(".")[0] not in PURE_STDLIB | {"msgspec", "longrein"}
        if module != "sys" or not only_interns(path)
    ]
    assert not wrong, wrong


OWNERS = {
    "sqlite3": {"store"},
    "subprocess": {"workspace", "frontends", "app"},
    "h11": {"models"},
    "httpx2": {"models", "app"},
    "prompt_toolkit": {"frontends"},
    "rich": {"frontends"},
    "psutil": {"workspace"},
    "random": {"composition", "testing"},
    "fcntl": {"store", "workspace", "frontends"},
    "termios": {"frontends", "workspace"},
    "logging": set(),
}
"""Module -> rooms that may import it. `testing` and the demo are the outside world played back."""


def test_each_part_of_the_world_has_one_toucher() -> None:
    wrong = [
        f"{name(path)}: {module}"
        for path, tree in trees().items()
        for module in imports(tree)
        if (owners := OWNERS.get(module.split(".")[0])) is not None
        if room(path) not in owners and name(path) != "commands/demo.py" and room(path) != "testing"
    ]
    assert not wrong, wrong


def attributes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"


SEAMS = {
    "os.environ": {"config", "testing", "commands"},
    "os.getenv": set(),
    "time.time": {"testing"},
    "time.time_ns": {"run_context", "testing", "integrations"},
    "time.monotonic": {"run_context", "testing", "workspace", "frontends"},
    "time.sleep": {"testing", "workspace"},
    "asyncio.to_thread": set(),
    "uuid.uuid4": {"composition", "run_context", "testing", "integrations"},
}
"""What a simulation must be able to turn -> rooms that own it. Limits of real processes are measured in real time."""


def test_time_ids_and_environment_come_in_as_values() -> None:
    wrong = [
        f"{name(path)}:{line} {used}"
        for path, tree in trees().items()
        for line, used in attributes(tree)
        if used in SEAMS and room(path) not in SEAMS[used]
    ]
    assert not wrong, wrong


def test_only_the_agent_appends_to_a_log() -> None:
    wrong = [
        f"{name(path)}:{number}"
        for path in FILES
        if room(path) in ("frontends", "config", "tools", "models", "context", "permissions")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "log.append(" in line
    ]
    assert not wrong, wrong


# --- words -------------------------------------------------------------------------------------------------------


def test_there_is_no_list_of_messages_beside_the_log() -> None:
    wrong = []
    for path, tree in trees().items():
        if room(path) in ("models", "testing"):
            continue
        for node in ast.walk(tree):
            names = [
                getattr(node, "id", ""),
                getattr(node, "attr", ""),
                getattr(node, "arg", ""),
                getattr(node, "name", ""),
            ]
            wrong += [f"{name(path)}:{getattr(node, 'lineno', 0)}" for n in names if n == "messages"]
    assert not wrong, wrong


def test_nothing_is_called_manager_helper_utils_base_or_service() -> None:
    bad = re.compile(r"(Manager|Helper|Utils?|Service|Base)$|^(utils?|helpers?|base|misc|common)$")
    wrong = [name(path) for path in FILES if bad.search(path.stem)]
    wrong += [
        f"{name(path)}: {node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and bad.search(node.name)
    ]
    assert not wrong, wrong


NAMED = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_every_public_thing_says_what_it_is() -> None:
    wrong = []
    for path, tree in trees().items():
        if not ast.get_docstring(tree):
            wrong.append(name(path))
        public = [n for n in tree.body if isinstance(n, NAMED) and not n.name.startswith("_")]
        wrong += [f"{name(path)}: {node.name}" for node in public if not ast.get_docstring(node)]
    assert not wrong, wrong


# --- sizes -------------------------------------------------------------------------------------------------------


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def test_functions_are_short() -> None:
    sizes = sorted(lines_of(f) for tree in trees().values() for f in functions(tree))
    long = [
        f"{name(path)}: {f.name} {lines_of(f)}"
        for path, tree in trees().items()
        for f in functions(tree)
        if lines_of(f) > 60
    ]
    assert not [line for line in long if "context/fold.py: step" not in line], long
    assert sizes[len(sizes) // 2] <= 10, "the median function has more than ten lines"


def test_the_main_loop_is_one_screen() -> None:
    path = SRC / "agent" / "loop.py"
    tree = trees()[path]
    doc = sum(len((ast.get_docstring(n) or "").splitlines()) + 1 for n in [tree, *functions(tree)])
    assert len(path.read_text(encoding="utf-8").splitlines()) - doc <= 150
    matches = [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
    assert len(matches) == 1, "the loop holds one match over moves"


# --- start -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["rich", "prompt_toolkit", "psutil", "pathspec", "platformdirs", "pydantic"])
def test_nothing_heavy_is_imported_before_the_prompt(package: str) -> None:
    code = f"import longrein.app, sys; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_importing_the_package_imports_none_of_its_packages() -> None:
    code = "import sys, longrein; print([name for name in sys.modules if name.startswith(('longrein.', 'msgspec'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_of_a_room_is_there() -> None:
    """Also those that are imported at first use."""
    for room in (
        "events",
        "context",
        "permissions",
        "store",
        "models",
        "workspace",
        "tools",
        "agent",
        "config",
        "replay",
    ):
        package = importlib.import_module(f"longrein.{room}")
        assert [name for name in package.__all__ if not hasattr(package, name)] == [], room
