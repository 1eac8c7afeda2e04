"""Examples in docstrings are indented blocks that Python or JSON can read; some run."""

import ast
import importlib
import json
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from lab.source_tree import TREES, module_file
from longrein import testing
from longrein.agent import UserMessage
from longrein_context.events import Text

pytestmark = pytest.mark.anyio

OTHER_TEXT = {
    "longrein.store.bundle",  # the files of a bundle
    "longrein.tools.apply_patch.apply_patch",  # a patch
    "longrein.extensions.schedules.cron_tools.CronCreate",  # an argument that takes two lines
    "longrein.tools.diff",  # lines of a diff
    "longrein_context.clearing.rewrite.head",  # a line of a view
    "longrein_context.events.errors",  # the tree of errors
    "longrein_context.summary.pointers",  # lines of a summary
    "longrein_fleet.harbor",  # a command line
    "longrein_fleet.harbor_reader",  # a command line
}
"""Docstrings whose blocks are no example in Python or JSON."""


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each docstring of the published packages."""
    for tree in TREES:
        for path in sorted(tree.rglob("*.py")):
            module = ".".join(path.relative_to(tree.parent).with_suffix("").parts)
            module = module.removesuffix(".__init__")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(
                    node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
                ):
                    name = getattr(node, "name", "")
                    yield f"{module}.{name}".rstrip("."), ast.get_docstring(node) or ""


def blocks(text: str) -> Iterator[str]:
    """Yield the indented blocks of a docstring."""
    lines = text.split("\n")
    for indented, block in groupby(lines, lambda line: not line or line.startswith("    ")):
        if indented and (code := textwrap.dedent("\n".join(block)).strip()):
            yield code


def can_be_read(code: str) -> bool:
    if code.startswith("{"):
        return bool(json.loads(code))
    try:
        return bool(ast.parse(code))
    except SyntaxError:
        return False


@pytest.mark.scan
def test_the_examples_of_docstrings_can_be_read() -> None:
    wrong = {
        name for name, text in docstrings() if not all(can_be_read(block) for block in blocks(text))
    }
    assert wrong == OTHER_TEXT


@pytest.mark.parametrize(
    "name",
    [
        "longrein.permissions.bash_parser",
        "longrein.testing.harness",
        "longrein.tools.registry",
        "longrein_context.integrations",
    ],
)
async def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tree = ast.parse(module_file(name).read_text(encoding="utf-8"))
    texts = [ast.get_docstring(tree) or ""] + [
        ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.FunctionDef)
    ]
    found = [code for text in texts for code in blocks(text)]
    names: dict[str, Any] = {"Text": Text, "UserMessage": UserMessage, **vars(testing)}
    names |= vars(importlib.import_module(name))
    assert found
    for code in found:
        exec(f"async def example():\n{textwrap.indent(code, '    ')}", names)
        await names["example"]()
    assert capsys.readouterr().err == ""
