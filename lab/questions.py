"""Permission questions that recorded sessions would have asked, by mode, with and without the
sandbox.

    python -m lab.questions FOLDER

FOLDER holds recorded sessions (`*.jsonl.gz`). The user answers "always" where rules are offered,
and accepts all edits at the first edit, so that a question is asked once for its kind. The files of
the recording machine do not exist here: paths are compared as text, and the root is the deepest
folder that holds four fifths of the files.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

import msgspec

from lab.replay.recording import read_recording
from longrein.permissions import Call, PartFacts, Rules, Touched, glob_base, judge, read_command
from longrein.permissions.bash_parser import join_path

READING = {"Read": "file_path", "Grep": "path", "Glob": "path", "LS": "path"}
WRITING = {
    "Edit": "file_path",
    "Write": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}
HOME = "/Users/user"

Arguments = dict[str, Any]


def calls_of(path: Path) -> list[tuple[str, Arguments]]:
    """Return (tool, arguments) of each recorded call."""
    items = read_recording(path.name, path.read_bytes()).items
    return [
        (item.name, msgspec.json.decode(item.text)) for item in items if item.kind == "tool_call"
    ]


def root_of(calls: Sequence[tuple[str, Arguments]]) -> str:
    """Return the deepest folder that holds four fifths of the files."""
    paths = [str(arguments.get((READING | WRITING).get(tool, ""), "")) for tool, arguments in calls]
    counts = Counter(
        str(folder)
        for path in paths
        if path.startswith("/")
        for folder in PurePosixPath(path).parents
    )
    enough = [folder for folder, count in counts.items() if count >= 0.8 * counts["/"]]
    return max(enough, key=len, default="/w")


def touched(path: str, root: str, *, writes: bool) -> Touched:
    inside = path == root or path.startswith((f"{root}/", "/tmp/"))
    return Touched(path, path, path, inside, writes)


def call_of(
    tool: str, arguments: Arguments, root: str, *, sandbox: bool, gated: bool = False
) -> Call:
    """Return the call as the agent would judge it."""
    if tool == "Bash":
        command = read_command(str(arguments.get("command", "")), root, HOME)
        facts = tuple(PartFacts(tuple(_files(part, effect, root))) for part, effect in
                      zip(command.script.parts, command.effects, strict=True))  # fmt: skip
        return Call(
            "Bash", arguments, "command", command=command, parts=facts, confined=sandbox,
            masked=sandbox, gated=gated,
        )  # fmt: skip
    key = (READING | WRITING).get(tool)
    if key is None:
        return Call(tool, arguments, "read" if tool.startswith(("Web", "mcp__")) else "none")
    path = join_path(root, str(arguments.get(key) or root))
    writes = tool in WRITING
    name = "Edit" if writes else "Read"
    return Call(
        tool, arguments, "write" if writes else "read", (touched(path, root, writes=writes),), name
    )


def _files(part: Any, effect: Any, root: str) -> Iterator[Touched]:
    for words, writes in ((effect.reads, False), (effect.writes, True)):
        for word in words if not effect.problem or not part.words else ():
            text = (
                glob_base(word.text)
                if word.kind == "glob"
                else word.text
                if word.kind == "literal"
                else "/?"
            )
            for folder in part.folders or ("/?",):
                yield touched(join_path(folder, text), root, writes=writes)


def questions(
    calls: Sequence[tuple[str, Arguments]], mode: str, *, sandbox: bool, gated: bool = False
) -> int:
    """Count the questions of one session."""
    root, rules, asked = root_of(calls), list[str](), 0
    for tool, arguments in calls:
        call = call_of(tool, arguments, root, sandbox=sandbox, gated=gated)
        verdict = judge(call, Rules(tuple(rules), base=root, home=HOME), mode, root)
        if verdict.kind == "ask":
            asked += 1
            rules += verdict.suggestions
            mode = "acceptEdits" if verdict.edits and mode == "default" else mode
    return asked


def main() -> int:
    """Print the table; return 1 if the median with the sandbox is above 5, or above 1 in `auto`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    sessions = [calls_of(path) for path in sorted(parser.parse_args().folder.rglob("*.jsonl.gz"))]
    print(f"{len(sessions)} sessions, {sum(map(len, sessions))} calls")
    missed = False
    for mode, where in (
        ("default", "no sandbox"),
        ("default", "sandbox"),
        ("auto", "sandbox"),
        ("default", "sandbox, client asked"),
    ):
        sandbox, gated = where != "no sandbox", where.endswith("asked")
        counts = sorted(questions(one, mode, sandbox=sandbox, gated=gated) for one in sessions)
        middle, high = median(counts), counts[len(counts) * 9 // 10]
        print(f"{mode:8} {where:21}  median {middle:4g}   90 % {high:4}   most {counts[-1]:4}")
        missed = missed or (where == "sandbox" and middle > (1 if mode == "auto" else 5))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
