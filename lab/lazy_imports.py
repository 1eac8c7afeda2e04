"""Cost of each module that functions import at first use: CPU after the modules of a start.

python -m lab.lazy_imports > tests/lazy_imports.toml
"""

import subprocess
import sys

from tests.test_architecture import imported, imports_of_functions, trees
from tests.test_start import LIST

TRIES = 3
IMPORT = """
import importlib, sys, time

for name in sys.argv[2:]:
    importlib.import_module(name)
before = time.process_time()
importlib.import_module(sys.argv[1])
print((time.process_time() - before) * 1000)
"""
GROUPS = {
    "longrein.agent": "with the first call, summary, rewind or subagent",
    "longrein.permissions": "with the first call",
    "longrein.tools": "with the first call of a tool",
    "longrein.workspace": "with the first command, or in the supervisor",
    "longrein.models": "one wire of a session",
    "longrein.store": "with a fork or a search",
    "longrein.config": "where the settings name it",
    "longrein_context.events": "in the supervisor, once a task is kept",
    "longrein_context": "with the first compaction or report",
    "longrein.app": "with a command that shows it, or a message that names files",
    "longrein.steps": "with results that are told in short",
    "longrein.frontends": "with a page, a format or an option that few runs use",
    "longrein.commands": "a command that is typed in the terminal",
    "longrein_fleet": "where Ray, PostgreSQL or Harbor is used",
    "longrein.extensions": "where the extension, or a package that it needs, is there",
    "longrein.entry_points": "after help, version and usage errors",
}
"""Package -> moment at which its modules are needed."""


HEAD = """\
# Imports inside functions: CPU in milliseconds that each spares a start; -1 where a package is not
# installed, 0 where it spares one of the supervisor, help or a usage error. By `python -m
# lab.lazy_imports`."""


def cost_ms(module: str) -> float | None:
    """Return the CPU of an import, in milliseconds; None where the module is not installed."""
    start = LIST.read_text(encoding="utf-8").split()
    tries = []
    for _ in range(TRIES):
        words = [sys.executable, "-P", "-c", IMPORT, module, *start]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            return None
        tries.append(float(done.stdout))
    return min(tries)


def group_of(module: str) -> str:
    """Return the package of longrein to which a module belongs; '' for others."""
    return next((name for name in GROUPS if module == name or module.startswith(f"{name}.")), "")


def main() -> None:
    """Print the table."""
    found = {
        module
        for tree in trees().values()
        for node in imports_of_functions(tree)
        for module in imported(node)
    }
    print(HEAD)
    for group, why in [("", "packages of others"), *GROUPS.items()]:
        print(f'\n["{group or "others"}"]\nwhy = "{why}"')
        for module in sorted(one for one in found if group_of(one) == group):
            cost = cost_ms(module)
            print(f'"{module}" = {"-1" if cost is None else f"{cost:.1f}"}')


if __name__ == "__main__":
    main()
