"""Results in short (`steps.call_results`), as the tools really give them."""

from typing import Any

import pytest

from longrein.steps.call_results import last_lines, result_figures
from longrein.steps.human_text import key_argument
from longrein.tools import builtin_tools
from longrein_context.events import Document, Text, ToolEnded

pytestmark = pytest.mark.anyio


LINES = {"pattern": "return", "path": "src", "output_mode": "content", "-C": 1}
FIRST = {"pattern": "def", "output_mode": "content", "head_limit": 2}
RANGE = {"file_path": "long.txt", "offset": 40, "limit": 41}


@pytest.mark.parametrize(("name", "arguments", "subject", "figures"), [
    ("Grep", {"pattern": "return"}, "return", "2 files"),
    ("Grep", LINES, "return in src", "3 hits in 2 files"),
    ("Grep", {"pattern": "def", "output_mode": "count"}, "def", "3 hits in 2 files"),
    ("Grep", FIRST, "def", "more than 2 hits in 1 file"),
    ("Grep", {"pattern": "nowhere", "glob": "*.py"}, "nowhere in *.py", "nothing found"),
    ("Glob", {"pattern": "*.py", "path": "src"}, "*.py in src", "2 files"),
    ("Glob", {"pattern": "*.rs"}, "*.rs", "nothing found"),
    ("Read", {"file_path": "src/b.py"}, "src/b.py", "3 lines"),
    ("Read", RANGE, "long.txt", "40–80 of 1,565"),
    ("Read", {"file_path": "long.txt", "offset": 1500}, "long.txt", "1,500–1,565 of 1,565"),
    ("Bash", {"command": "echo a; exit 3"}, "echo a; exit 3", "exit 3"),
    ("Bash", {"command": "no-such-program"}, "no-such-program", "exit 127: command not found"),
    ("Bash", {"command": "true"}, "true", ""),
])  # fmt: skip
async def test_what_a_call_found_in_figures(
    harness: Any, name: str, arguments: dict[str, Any], subject: str, figures: str
) -> None:
    harness.file("src/a.py", "def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    harness.file("src/b.py", "def h():\n    pass\n    return 3\n")
    harness.file("long.txt", "".join(f"line {n}\n" for n in range(1, 1_566)))
    text = await harness.call(name, **arguments)
    status = "failed" if "[exit code" in text else "ok"
    assert key_argument(arguments) == subject
    kind = next(tool.spec.traits.kind for tool in builtin_tools() if tool.spec.name == name)
    end = ToolEnded("c", name, status, (Text(text),))
    assert result_figures(end, arguments, kind) == figures


async def test_of_a_command_the_last_lines_are_shown_and_more_of_one_that_failed(
    harness: Any,
) -> None:
    text = await harness.call("Bash", command="seq 30")
    shown = last_lines(ToolEnded("c", "Bash", "ok", (Text(text),)))
    assert (shown.rows, shown.hidden) == (["28", "29", "30"], 27)
    text = await harness.call("Bash", command="seq 30; exit 3")
    shown = last_lines(ToolEnded("c", "Bash", "failed", (Text(text),)))
    assert (shown.rows, shown.hidden) == ([str(n) for n in range(23, 31)], 22)
    assert last_lines(ToolEnded("c", "Bash", "ok", (Text("(no output)"),))).rows == []


async def test_of_a_long_output_the_end_is_shown_and_all_lines_are_counted() -> None:
    whole = Document("b" * 64, "text/plain", 90_000, "Bash", 5_000, "1\n2\n", "4999\n5000\x07\n")
    shown = last_lines(ToolEnded("c", "Bash", "ok", (whole,)))
    assert (shown.rows[-1], shown.hidden) == (r"5000\x07", 4_997)
