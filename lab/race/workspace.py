"""The tools of a session, which every loop offers: files, search and tests that run on the
script's copy.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

from lab.race.sessions import Script

SYSTEM = (
    "You are a careful engineer. You work on Python packages with the tools you have. Read before "
    "you edit; an edit "
    "needs the exact old text. Do one thing at a time and say briefly what you do."
)
SCHEMAS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "read_file",
        "Read a file, or its lines from `start` to `end` (from 1; end 0 is the end of the file).",
        {"path": "string", "start": "integer", "end": "integer"},
    ),
    (
        "edit_file",
        "Replace the text `old` by `new` in a file.",
        {"path": "string", "old": "string", "new": "string"},
    ),
    ("search", "List the lines of all files that contain `pattern`.", {"pattern": "string"}),
    ("run_tests", "Run the tests of a file.", {"path": "string"}),
)
REQUIRED = {
    "read_file": ["path"],
    "edit_file": ["path", "old", "new"],
    "search": ["pattern"],
    "run_tests": ["path"],
}


def tool_schemas(wire: str) -> list[dict[str, Any]]:
    """Return the schemas for `openai-chat` or `openai-responses`."""
    schemas = []
    for name, description, fields in SCHEMAS:
        properties = {field: {"type": kind} for field, kind in fields.items()}
        parameters = {"type": "object", "properties": properties, "required": REQUIRED[name]}
        function = {"name": name, "description": description, "parameters": parameters}
        schemas.append(
            {"type": "function", **function}
            if wire == "openai-responses"
            else {"type": "function", "function": function}
        )
    return schemas


class Workspace:
    """Files of one session as they are now. Results depend on the script and the calls so far
    only.
    """

    def __init__(self, script: Script) -> None:
        self.files = {path: list(lines) for path, lines in script.files.items()}
        self.shape = script.setting.shape
        self._seed = script.setting.seed

    def run(self, tool: str, arguments: dict[str, Any]) -> str:
        """Run a tool; errors are returned as text."""
        match tool:
            case "read_file":
                return self.read_file(**arguments)
            case "edit_file":
                return self.edit_file(**arguments)
            case "search":
                return self.search(**arguments)
            case "run_tests":
                return self.run_tests(**arguments)
        return f"there is no tool {tool}"

    def read_file(self, path: str, start: int = 1, end: int = 0) -> str:
        """Show a file in the session's shape."""
        if path not in self.files:
            return f"{path} does not exist"
        first = max(start, 1)
        lines = self.files[path][first - 1 : end or None]
        if self.shape == "json":
            return json.dumps({"path": path, "start": first, "content": "\n".join(lines)})
        if self.shape == "numbered":
            return "\n".join(f"{n:6}\t{line}" for n, line in enumerate(lines, first))
        return "\n".join(lines)

    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace whole lines of a file."""
        lines, before, after = self.files.get(path, []), old.split("\n"), new.split("\n")
        for at in range(len(lines) - len(before) + 1):
            if lines[at : at + len(before)] == before:
                lines[at : at + len(before)] = after
                return f"{path}: lines {at + 1} to {at + len(after)} replaced"
        return f"{path}: the old text is not in the file"

    def search(self, pattern: str) -> str:
        """List at most 40 lines that contain the pattern."""
        found = [
            f"{path}:{n}:{line}"
            for path, lines in self.files.items()
            for n, line in enumerate(lines, 1)
            if pattern in line
        ]
        return (
            "\n".join([*found[:40], *([f"({len(found) - 40} more)"] if len(found) > 40 else [])])
            or "nothing found"
        )

    def run_tests(self, path: str) -> str:
        """Show the output of invented tests: progress, and sometimes a failure with its
        traceback.
        """
        rng = random.Random(f"{self._seed} {path} {hash_of(self.files.get(path, ()))}")
        name = path.rpartition("/")[2].removesuffix(".py")
        count = rng.randint(5, 60)
        out = [f"============ test session starts ============\ncollected {count} items", ""]
        out += [
            f"tests/test_{name}.py::test_{n}_{rng.randrange(16**8):08x} PASSED"
            for n in range(count)
        ]
        if rng.random() < 0.4:
            lines = self.files.get(path) or [""]
            at = rng.randrange(len(lines))
            shown = "\n".join(f"    {line}" for line in lines[max(0, at - 4) : at + 1])
            out += [
                "",
                f"____ test_{name} ____",
                shown,
                f"E   AssertionError: {rng.randrange(16**8):08x}",
                f"{path}:{at}",
            ]
        return "\n".join([*out, "", f"{count} passed in {rng.random() * 3:.2f}s"])


def hash_of(lines: Sequence[str]) -> int:
    """Return a number that depends on the text only, in every process."""
    return int.from_bytes("\n".join(lines).encode("utf-8", "replace")[-2_000:], "big") % 1_000_003
