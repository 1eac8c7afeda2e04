"""Architecture rules, each an ordinary test.

Exceptions stand in a list next to their rule. The lists may shrink; a new exception needs a reason
in a comment.
"""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

from lab.source_tree import AGENT, ROOT, TREES
from longrein.tools import own_tools

pytestmark = pytest.mark.scan

FILES = sorted(path for tree in TREES for path in tree.rglob("*.py"))


@cache
def trees() -> dict[Path, ast.Module]:
    """Syntax tree of each module, parsed once."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


@cache
def walk(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a syntax tree, found once: most tests look at all of them."""
    return tuple(ast.walk(tree))


def top_package(path: Path) -> str:
    """Package directly below `longrein` that holds the module; the module itself where none
    does. The whole of another distribution is one.
    """
    parts = Path(name(path)).parts
    return parts[0] if len(parts) > 1 else path.stem


def name(path: Path) -> str:
    """Path below `longrein`; of another distribution with its own name in front."""
    return str(path.relative_to(AGENT if AGENT in path.parents else source_folder(path)))


def source_folder(path: Path) -> Path:
    """Folder `src` of the distribution that holds the module."""
    return next(tree.parent for tree in TREES if tree in path.parents)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def imported(node: ast.AST) -> list[str]:
    """Modules that one import statement names."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, level=0) if module:
            return [module]
        case _:
            return []


def imports_of_functions(tree: ast.AST) -> set[ast.Import | ast.ImportFrom]:
    """The import statements inside functions, also in those of classes and of other functions."""
    found = {node for node in walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)}
    nodes = [tree]
    while nodes:
        for node in ast.iter_child_nodes(nodes.pop()):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.discard(node)
            elif not isinstance(node, ast.expr | ast.FunctionDef | ast.AsyncFunctionDef):
                nodes.append(node)
    return found


def imports(tree: ast.AST) -> set[str]:
    """Modules that a syntax tree imports, also inside functions."""
    return {module for node in walk(tree) for module in imported(node)}


def attributes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, `name.attribute`) of each attribute of a plain name."""
    for node in walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"


# --- Imports --------------------------------------------------------------------------------------

LAZY_HEADLESS = {
    "longrein.app.attachments",  # few prompts name files
    "longrein.frontends.terminal.command_table",  # imports prompt_toolkit, to name its commands
    "longrein.frontends.reports.context",  # only for /context
    "longrein.frontends.reports.cost",  # only for /cost
    "longrein.steps.call_results",  # only with --verbose
}
"""Modules that a headless run imports at first use, and the terminal at its start."""
LAZY: dict[str, float] = {
    module: cost
    for group in tomllib.loads(
        (Path(__file__).parent / "lazy_imports.toml").read_text("utf-8")
    ).values()
    for module, cost in group.items()
    if module != "why"
}
"""Module that functions import at first use -> milliseconds that this spares a start."""
LAZY_OWN = {module for module in LAZY if module.startswith("longrein")} - LAZY_HEADLESS


def test_functions_import_only_listed_modules() -> None:
    """Each import inside a function spares a start what the list says."""
    found = {
        module: f"{name(path)}:{node.lineno}"
        for path, tree in trees().items()
        for node in imports_of_functions(tree)
        for module in imported(node)
    }
    new = {module: place for module, place in found.items() if module not in LAZY}
    assert not new, "import these at the top, or run python -m lab.lazy_imports"
    assert not LAZY.keys() - found.keys(), "these are not imported inside functions any more"


def test_no_private_module_of_python_is_imported() -> None:
    private = {
        f"{name(path)} {module}"
        for path, tree in trees().items()
        for module in imports(tree) - {"__future__"}
        if module.startswith("_")
    }
    assert not private


def test_no_module_changes_sys_modules() -> None:
    """All threads of a process share `sys.modules`: a stand-in there breaks the imports of other
    threads. `__main__` hides a module from one import, before there is another thread.
    """
    wrong = [
        name(path)
        for path, tree in trees().items()
        if name(path) != "__main__.py" and "sys.modules" in {used for _, used in attributes(tree)}
    ]
    assert not wrong, wrong


PURE_STDLIB = {
    "collections",
    "typing",
    "re",
    "copy",
    "functools",
    "math",
    "uuid",
    "hashlib",
    "difflib",
    "unicodedata",
    "bisect",
}
PURE_STDLIB |= {"binascii", "codecs", "ipaddress", "json"}
PURE_STDLIB |= {
    "itertools",
    "operator",
    "importlib",
}  # `importlib`: the engine for other programs loads its adapters at first use


def imports_only_intern(path: Path) -> bool:
    """Whether `sys.intern` is all that a module imports from `sys`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "import sys" in line or "sys import" in line] == [
        "from sys import intern"
    ]


def test_pure_packages_import_no_module_that_does_io() -> None:
    wrong = [
        f"{name(path)}: {module}"
        for path, tree in trees().items()
        if top_package(path) in ("longrein_context", "permissions")
        if not name(path).startswith("longrein_context/integrations/")
        for module in imports(tree)
        if module.split(".")[0]
        not in PURE_STDLIB
        | {"msgspec", "longrein", "longrein_context", "tree_sitter", "tree_sitter_bash"}
        if module != "sys" or not imports_only_intern(path)
    ]
    assert not wrong, wrong


IO_OWNERS = {
    "sqlite3": {"store"},
    "subprocess": {"workspace", "frontends", "entry_points"},
    "h11": {"models", "workspace"},
    "httpx2": {
        "models",
        "workspace",
        "entry_points",
        "extensions",
    },  # `extensions.mcp.transports`, for MCP servers over HTTP
    "prompt_toolkit": {"frontends"},
    "rich": {"frontends"},
    "psutil": {"workspace"},
    "random": {"app", "testing"},
    "fcntl": {"store", "workspace", "frontends", "atomic_file"},
    "termios": {"frontends", "workspace"},
    "logging": {
        "extensions",
        "longrein_fleet",
    },  # warnings of OpenTelemetry become a line; `extensions.mcp.connection` silences the SDK, and
    # `longrein_fleet.postgresql.connection` psycopg
}
"""Module -> packages that may import it. `testing` and `commands/demo.py` play the outside world
and may use all.
"""


def test_io_modules_are_imported_only_by_their_owners() -> None:
    wrong = [
        f"{name(path)}: {module}"
        for path, tree in trees().items()
        for module in imports(tree)
        if (owners := IO_OWNERS.get(module.split(".")[0])) is not None
        if top_package(path) not in owners
        and name(path) != "commands/demo.py"
        and top_package(path) != "testing"
    ]
    assert not wrong, wrong


CLOCK_AND_ID_OWNERS = {
    "os.environ": {"config", "testing", "commands", "__main__"},
    "os.getenv": set(),
    "time.time": {"testing"},
    "time.time_ns": {"app", "testing"},
    "time.monotonic": {"app", "testing", "workspace", "frontends", "store"},
    "time.sleep": {"testing", "workspace", "store"},
    "asyncio.to_thread": set(),
    "uuid.uuid4": {"app", "testing"},
}
"""Source of time, ids or settings -> packages that may read it; all others get the value as an
argument, so that a simulation can set it. Limits of real processes are measured in real time.
"""
ENDS = {
    ("longrein_fleet/ray_executor.py", "os.environ"),  # sets what Ray reads
    ("longrein_fleet/harbor.py", "uuid.uuid4"),  # what Harbor starts
    ("longrein_fleet/postgresql/connection.py", "time.monotonic"),
    ("longrein_fleet/postgresql/connection.py", "time.sleep"),  # a lost connection is tried again
    ("longrein_context/integrations/__init__.py", "time.time_ns"),  # an engine for any loop
    ("longrein_context/integrations/__init__.py", "uuid.uuid4"),
}
"""Modules outside these packages that may, and what."""


def test_time_ids_and_environment_are_passed_as_arguments() -> None:
    wrong = [
        f"{name(path)}:{line} {used}"
        for path, tree in trees().items()
        for line, used in attributes(tree)
        if used in CLOCK_AND_ID_OWNERS and top_package(path) not in CLOCK_AND_ID_OWNERS[used]
        if (name(path), used) not in ENDS
    ]
    wrong += [
        f"{name(path)}:{node.lineno} from os import environ"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "os"
        if any(one.name == "environ" for one in node.names)
    ]
    assert not wrong, wrong


def test_only_the_agent_appends_to_a_log() -> None:
    wrong = [
        f"{name(path)}:{number}"
        for path in FILES
        if top_package(path)
        in ("frontends", "config", "tools", "models", "longrein_context", "permissions")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "log.append(" in line
    ]
    assert not wrong, wrong


# --- Import graph ---------------------------------------------------------------------------------

Graph = dict[str, set[str]]
"""Module or package -> those that it imports."""

STRING_IMPORTERS = {
    "__init__.py",  # public names and packages, at first use
    "longrein_context/lazy_names.py",  # names of packages, at first use
    "extension_points.py",  # parts of extensions, the module of the chosen subcommand
    "workspace/system_keyring.py",  # the optional package `keyring`
    "extensions/mcp/servers.py",  # the module that needs the SDK
    "longrein_context/integrations/__init__.py",  # the adapter of the framework that is in use
}
"""Modules that may import by a string, which the import graph does not show."""


def dotted(path: Path) -> str:
    """Dotted name of a module: `longrein.store.log`, `longrein.store` for its `__init__.py`."""
    parts = path.relative_to(source_folder(path)).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(*, with_hints: bool = False) -> Graph:
    """Modules of longrein and the modules of longrein that they import at run time, also inside
    functions. `with_hints`: also those that only type hints need.
    """
    modules = {dotted(path): tree for path, tree in trees().items()}
    guarded = {
        node
        for tree in trees().values()
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in walk(block)
    }
    graph: Graph = {}
    for module, tree in modules.items():
        found: set[str] = set()
        for node in walk(tree):
            if node in guarded and not with_hints:
                continue
            found |= set(imported(node))
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= names
                if (
                    names <= modules.keys()
                ):  # `from package import module` alone needs no name of the package
                    found.discard(node.module)
        graph[module] = (found & modules.keys()) - {module}
    return graph


def package_graph() -> Graph:
    """The import graph of packages and sub-packages, each with the modules directly in it."""
    package_of = {dotted(path): dotted(path.parent / "__init__.py") for path in FILES}
    alone = {
        module for module in package_of if module.count(".") == 1
    }  # each stands in a layer of its own
    package_of |= {module: module for module in alone}
    graph: Graph = {package: set() for package in package_of.values()}
    for module, targets in import_graph().items():
        graph[package_of[module]] |= {package_of[target] for target in targets} - {
            package_of[module]
        }
    return graph


def cycles(graph: Graph) -> set[frozenset[str]]:
    """Groups of nodes that reach each other."""

    def reachable(start: str) -> set[str]:
        found: set[str] = set()
        pending = [start]
        while pending:
            new = graph[pending.pop()] - found
            found |= new
            pending += new
        return found

    reach = {node: reachable(node) for node in graph}
    return {
        frozenset(other for other in reach[node] if node in reach[other])
        for node in graph
        if node in reach[node]
    }


def test_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert cycles(graph) == {frozenset({"b", "c"})}


def test_no_modules_import_each_other() -> None:
    assert cycles(import_graph()) == set()


def circles() -> list[int]:
    """Return the sizes of the groups of modules that import each other, type hints included; the
    largest first.
    """
    return sorted(map(len, cycles(import_graph(with_hints=True))), reverse=True)


def test_no_circle_of_modules_is_large_type_hints_included() -> None:
    """Nobody can read one module of a large circle without the others."""
    assert max(circles(), default=1) <= 5


SESSION_NAMES_MAX = 2
"""Names of a session up to which a function would be better off with these alone."""


def users_of(records: Collection[str]) -> list[int]:
    """Return, of each argument of a function that is one of these records, how many names of it
    the function uses.
    """
    return [
        len(_names_used(function, one.arg))
        for tree in trees().values()
        for function in functions(tree)
        for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        if one.annotation and ast.unparse(one.annotation).strip("'\"") in records
    ]


def _names_used(function: ast.AST, argument: str) -> set[str]:
    held = [node for node in ast.walk(function) if isinstance(node, ast.Attribute)]
    return {n.attr for n in held if isinstance(n.value, ast.Name) and n.value.id == argument}


def test_few_functions_take_a_session_for_one_or_two_of_its_names() -> None:
    used = users_of({"Session"})
    few = sum(names <= SESSION_NAMES_MAX for names in used)
    assert few <= 5, f"{few} of {len(used)} functions could take what they use instead"


def test_no_packages_import_each_other() -> None:
    assert cycles(package_graph()) == set()


def test_only_listed_modules_import_by_string() -> None:
    calls = {"importlib.import_module", "importlib.__import__"}
    found = {
        name(path)
        for path, tree in trees().items()
        if calls & {used for _, used in attributes(tree)}
        or any(
            isinstance(node, ast.Name) and node.id in ("import_module", "__import__")
            for node in walk(tree)
        )
    }
    assert found == STRING_IMPORTERS


# --- Names ----------------------------------------------------------------------------------------


def test_no_name_is_messages_outside_models_and_testing() -> None:
    wrong = []
    for path, tree in trees().items():
        if top_package(path) in ("models", "testing"):
            continue
        for node in walk(tree):
            names = [
                getattr(node, "id", ""),
                getattr(node, "attr", ""),
                getattr(node, "arg", ""),
                getattr(node, "name", ""),
            ]
            wrong += [
                f"{name(path)}:{getattr(node, 'lineno', 0)}" for n in names if n == "messages"
            ]
    assert not wrong, wrong


def test_no_name_says_manager_helper_utils_base_or_service() -> None:
    bad = re.compile(r"(Manager|Helper|Utils?|Service|Base)$|^(utils?|helpers?|base|misc|common)$")
    wrong = [name(path) for path in FILES if bad.search(path.stem)]
    wrong += [
        f"{name(path)}: {node.name}"
        for path, tree in trees().items()
        for node in walk(tree)
        if isinstance(node, ast.ClassDef) and bad.search(node.name)
    ]
    assert not wrong, wrong


DEFINITION = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_every_module_and_public_definition_has_a_docstring() -> None:
    wrong = []
    for path, tree in trees().items():
        if not ast.get_docstring(tree):
            wrong.append(name(path))
        public = [n for n in tree.body if isinstance(n, DEFINITION) and not n.name.startswith("_")]
        documented = [n for n in public if "overload" not in map(ast.unparse, n.decorator_list)]
        wrong += [
            f"{name(path)}: {node.name}" for node in documented if not ast.get_docstring(node)
        ]
    assert not wrong, wrong


# --- Tool names -----------------------------------------------------------------------------------
#
# A tool says its aliases, traits and permission rule where it is made. A list of tool names
# anywhere else would be one more place to change for each new tool.

LISTS_OF_TOOL_NAMES = {
    "longrein_context/seed_policy.py",  # the names that they have in the founding documents
    # traits of the tools in logs that state none; old, so it never grows
    "longrein_context/state/tool_traits.py",
    # tools whose result is the user's answer, in logs of other agents too
    "longrein_context/state/ledger.py",
    "permissions/rules.py",  # names of rules, which users copy from other agents
    "frontends/terminal/approvals.py",  # arguments of the two tools whose question shows a diff
}


def names_in(node: ast.AST) -> set[str]:
    """Elements of a collection literal, or words of `"…".split()`, that are texts."""
    match node:
        case ast.Set(elts=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            elements = [parts]
        case ast.Dict(keys=keys, values=values):
            elements = [keys, values]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
            return set(text.split())
        case _:
            return set()
    return {
        e.value
        for one in elements
        for e in one
        if isinstance(e, ast.Constant) and isinstance(e.value, str)
    }


def test_only_the_tools_know_the_names_of_tools() -> None:
    own = {one.spec.name for one in own_tools()}
    found = {
        name(path)
        for path, tree in trees().items()
        if top_package(path) != "tools"
        if any(len(own & names_in(node)) > 1 for node in walk(tree))
    }
    assert found == LISTS_OF_TOOL_NAMES


# --- Sizes ----------------------------------------------------------------------------------------


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def statements_of(node: ast.AST) -> int:
    """Count the statements in a module or function, docstrings included."""
    return sum(isinstance(one, ast.stmt) and one is not node for one in ast.walk(node))


def test_functions_are_short() -> None:
    found = [
        (statements_of(f), f"{name(path)}: {f.name}")
        for path, tree in trees().items()
        for f in functions(tree)
    ]
    sizes = sorted(size for size, _ in found)
    assert [one for one in found if one[0] > 50] == []
    assert sizes[len(sizes) // 2] <= 6, "the median function has more than six statements"


def test_a_line_holds_one_idea() -> None:
    wrong = []
    for path, tree in trees().items():
        for node in walk(tree):
            match node:
                case (
                    ast.IfExp(body=ast.IfExp())
                    | ast.IfExp(orelse=ast.IfExp())
                    | ast.IfExp(test=ast.IfExp())
                ):
                    wrong.append(f"{name(path)}:{node.lineno} a choice inside a choice")
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple()) if (
                    len(names) > 3
                ):
                    wrong.append(f"{name(path)}:{node.lineno} {len(names)} assignments in one")
    assert not wrong, wrong


def test_the_main_loop_fits_on_one_screen() -> None:
    path = AGENT / "agent" / "loop.py"
    tree = trees()[path]
    doc = sum(len((ast.get_docstring(n) or "").splitlines()) + 1 for n in [tree, *functions(tree)])
    assert len(path.read_text(encoding="utf-8").splitlines()) - doc <= 150
    matches = [node for node in walk(tree) if isinstance(node, ast.Match)]
    assert len(matches) == 1, "the loop holds one match over moves"


# --- Start time -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "package",
    ["rich", "prompt_toolkit", "psutil", "pathspec", "platformdirs", "pydantic", "yaml", "tomlkit"],
)
def test_start_imports_no_heavy_package(package: str) -> None:
    code = f"import longrein.entry_points, sys; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_import_longrein_imports_no_subpackage() -> None:
    code = (
        "import sys, longrein; print([name for name in sys.modules if "
        "name.startswith(('longrein.', 'msgspec'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PACKAGES_WITH_PUBLIC_NAMES = (
    "permissions",
    "store",
    "models",
    "workspace",
    "tools",
    "agent",
    "steps",
    "config",
)


def test_every_name_in_all_of_a_package_exists() -> None:
    """Also names that are imported at first use."""
    for package_name in PACKAGES_WITH_PUBLIC_NAMES:
        package = importlib.import_module(f"longrein.{package_name}")
        missing = [public for public in package.__all__ if not hasattr(package, public)]
        assert missing == [], package_name


# --- Names that a confined command could have made ------------------------------------------------

BY_PATH = {
    *("rename", "replace", "unlink", "remove", "rmdir", "mkdir", "makedirs", "chmod", "chown"),
    *("symlink", "link", "open", "truncate", "utime"),
}
FOLLOWS_PATHS = {
    "root_copies": "its own folder in the state",
    "files": "looks paths up, by which calls are judged; they are opened without links later",
    "git": "looks up whether a git folder leads out of itself",
    "memory_use": "/proc and /sys",
    "orphans": "/proc",
    "sandbox/landlock": "the read-only home in the state",
    "sandbox/masks": "looks up where links to denied files lead, to hide that too",
    "sandbox/protected": "looks up where links lead, to protect that too; acts by descriptors",
    "sandbox/proxy": "its socket in the state",
    "sandbox/proxy_forwarder": "runs inside the sandbox",
    "sandbox/rung": "the last success in the state",
    "sandbox/secret_places": "home, which commands cannot change",
    "sandbox/session_sandbox": "the session's folder in the state; looks up roots and home",
    "sandbox/tool_caches": "looks up the cache folder",
    "shadow_repository": "its own repository in the state",
    "spool_reader": "the spool in the state",
    "supervised_command": "the spool in the state",
    "supervisor/landlock_process": "the plan by descriptor; a pipe",
    "supervisor/main": "its socket in the spool",
    "supervisor/mount_process": "/proc, the plan in the state, the sandbox's program",
    "supervisor/mount_watch": "the plan in the state",
    "supervisor/openat": "the module of descriptors",
    "supervisor/process_tree": "/proc",
    "supervisor/shell_lines": "the filter in the state",
    "supervisor/posix_spawn": "the plan in the state",
    "supervisor/spool_writer": "the spool",
    "supervisor/supervisor": "the spool, /dev/null",
    "supervisor/task_processes": "the spool",
    "supervisor/write_traces": "looks up what a command names; reads its memory in /proc",
    "supervisor_client": "the spool, a temporary folder for its socket",
    "system_keyring": "searches a program of the system",
    "tree_restore": "wraps a descriptor that was opened without links",
    "users_repository": "looks up the folder of objects that git borrows",
    "git_worktrees": "records beside the worktrees in the state; looks up roots",
}
"""Modules of `workspace` that act by path or follow links, and why that is harmless."""


def _acts_by_path(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if {"dir_fd", "src_dir_fd", "dst_dir_fd"} & {word.arg for word in node.keywords}:
        return False
    match node.func:
        case ast.Name(id="open") | ast.Attribute(attr="realpath"):
            return True
        case ast.Attribute(value=ast.Name(id="shutil")):
            return True
        case ast.Attribute(value=ast.Name(id="os"), attr=name):
            return name in BY_PATH
    return False


def test_only_listed_modules_of_the_workspace_act_by_path() -> None:
    """A confined command can put a link at any name in the project."""
    found = {
        str(path.relative_to(AGENT / "workspace").with_suffix(""))
        for path, tree in trees().items()
        if AGENT / "workspace" in path.parents and any(map(_acts_by_path, walk(tree)))
    }
    assert found == FOLLOWS_PATHS.keys()


SHORT_TASK = re.compile(r'\b(?:background|keep)\((?:"b\d+", )?f?"(?:echo \w+; )?sleep 0?\.\d')


def test_no_background_task_of_a_test_lasts_tenths_of_a_second() -> None:
    """What it is to outlast may take longer on a busy machine: a file holds it back (`UNTIL_GO` of
    `tests/e2e/harness.py`).
    """
    found = [
        f"{path}: {match[0]}"
        for path in sorted(Path(__file__).parent.rglob("*.py"))
        for match in SHORT_TASK.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


# --- Numbers in texts -----------------------------------------------------------------------------

UNBOUND_DIGITS = re.compile(r"\((?:\?P<\w+>)?-?(?:\\d|\[0-9\])\+\)")
READ_BY_WHOLE_NUMBER = {
    "longrein_context/state/command_results.py",  # counts of test runners
    "longrein_context/context_report.py",  # shown as text
    "longrein_context/summary/grounding_check.py",  # looked for as text
    "workspace/sandbox/rung.py",  # release of the kernel
    "config/settings_file.py",  # message of the TOML parser
}
DIGITS_OF_OWN_NAMES = {
    "workspace/supervisor/process_tree.py",  # names in /proc
    "workspace/sandbox/proxy_forwarder.py",
    "workspace/spool_reader.py",  # names that longrein gave
    "workspace/memory_use.py",  # lines of /proc and /sys
    "workspace/command_environment.py",  # at most three digits
    "longrein_context/fold_notices.py",  # of an event that longrein made
    "frontends/argv.py",  # at most nine digits
    "tools/argument_substitution.py",  # at most four
    "longrein_context/events/escape.py",  # `whole_number` itself
}


def test_a_number_that_a_text_holds_has_a_bound() -> None:
    """Python refuses to read more than 4,300 digits, and texts of models, files and providers may
    hold more: `whole_number` reads them, or the pattern that finds them has a bound.
    """
    unbound, tested = set(), set()
    for path, tree in trees().items():
        for node in walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                unbound |= {name(path)} if UNBOUND_DIGITS.search(node.value) else set()
        for function in functions(tree):
            called = {
                call.func.attr
                if isinstance(call.func, ast.Attribute)
                else getattr(call.func, "id", "")
                for call in ast.walk(function)
                if isinstance(call, ast.Call)
            }
            if "int" in called and called & {"isdigit", "isdecimal", "isnumeric"}:
                tested.add(name(path))
    assert unbound == READ_BY_WHOLE_NUMBER
    assert tested == DIGITS_OF_OWN_NAMES


RECURSE = {"os.walk", "os.fwalk", "shutil.rmtree"}
WALK_SHALLOW_FOLDERS = {
    "folder_trees.py",
    "store/snapshot.py",  # the sources of longrein
    "commands/demo.py",  # the folder of the demo
    "longrein_fleet/harbor_check.py",  # tests of the author of a task
}


def test_folders_of_any_depth_are_walked_and_removed() -> None:
    """A command can make more levels of folders than Python can call functions."""
    found = {
        name(path)
        for path, tree in trees().items()
        if any(text in RECURSE for _, text in attributes(tree))
    }
    assert found == WALK_SHALLOW_FOLDERS


JSON_OF_OUR_OWN = {
    "agent/model_hooks.py",  # the event that a hook is told of
    "commands/demo.py",
    "commands/report.py",
    "longrein_context/message_list/message_formats.py",  # arguments that were decoded before
    "longrein_context/events/codec.py",  # a log; deep values were replaced
    "frontends/headless/hook_callbacks.py",  # the event that a hook is told of
    "longrein_fleet/harbor.py",
    "models/wire_content.py",  # catches `RecursionError`; the typed decoder reads the result
    "extensions/transcripts/import_transcript.py",  # is followed by `is_too_deep`
    "workspace/file_search.py",  # what the search program prints
    "workspace/tree_records.py",
}


def test_json_of_others_is_not_nested_deep() -> None:
    """Each function that visits a value calls itself: `decode_json` refuses a value that is nested
    too deep for them. A decoder with a type has its own depth.
    """
    found = {
        name(path)
        for path, tree in trees().items()
        if "testing" not in path.parts
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"msgspec.json.decode", "json.loads", "json.load"}
        and not any(word.arg == "type" for word in node.keywords)
    }
    assert found == JSON_OF_OUR_OWN


PRIVATE_IN_TESTS = {
    "lab/support/forked.py": 2,  # of Python, which a fork ends as an interpreter does
    "tests/permissions/test_real_programs.py": 1,
    "tests/standards/python_agents.py": 1,  # of another agent
    "tests/store/fixtures.py": 1,
    "tests/timeouts.py": 2,  # of the event loop: what it is going to do
    "tests/workspace/conftest.py": 2,
}
"""File -> private names of others that it asks for."""


def test_tests_ask_for_promises_and_not_for_private_names() -> None:
    found = {
        name: size
        for folder in ("lab/campaigns", "lab/support", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (size := private_names(ast.parse(path.read_text(encoding="utf-8"))))
        and (name := str(path.relative_to(ROOT)))
    }
    assert found == PRIVATE_IN_TESTS


def private_names(tree: ast.Module) -> int:
    """Count the private names that are imported from longrein or asked of another object."""
    imported = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("longrein")
        for alias in node.names
    ]
    asked = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) not in ("self", "cls", "super()", "os", "sys")
    ]
    return sum(
        name.startswith("_") and not name.startswith("__") and name not in ("_asdict", "_fields")
        for name in (*imported, *asked)
    )
