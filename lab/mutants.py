"""Mutation test of the suite: share of sampled one-line bugs in `packages` that a test notices.

    python -m lab.mutants [--count 200] [--seed 1] [--workers 2] [--map FOLDER]
                                [--tests PATH …] [--sources PATH …] [--sampled]

1. The suite runs once under `coverage`, which notes the tests that run each line, child processes
   included.
2. Mutants are drawn with a seeded generator from all places in function bodies: a comparison,
   `and`/`or`, `not`, a number, `True`/`False`, `+`/`-`, a condition turned round, a return value
   dropped, a call left out.
3. Each mutant runs tests of its line, of as many test functions as possible, as far as the time
   allows. A failure or a run without end kills it.

Everything happens in copies below a temporary folder. `--map` keeps the notes of step 1 for further
seeds. `--tests` takes a part of the suite, and draws from the lines that it runs. `--sources` draws
from the files whose paths begin so; `promises` stands for those that keep the user's files and
machine safe, with their tests. `--sampled` judges each killed mutant once more, by the tests
that `make test` runs.
"""

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import coverage
import pytest

from lab.source_tree import ROOT, TREES

TESTS_S_MAX = 40.0
"""Seconds of the tests that are run for one mutant: of each test function one before a second, the
shortest first. A line that hundreds of functions run is told apart by a certain row of a table.
"""
SECONDS_MAX = 240.0
"""Longest run of the tests of one mutant; a mutant that takes longer counts as killed."""
PROMISES = (
    "longrein/agent/checkpoints.py",
    "longrein/agent/rewind",
    "longrein/store/snapshot.py",
    "longrein_context/snapshot_codec.py",
    "longrein/permissions/",
    "longrein/workspace/atomic_write.py",
    "longrein/workspace/folder_",
    "longrein/workspace/root_copies.py",
    "longrein/workspace/sandbox/",
    "longrein/workspace/shadow_repository.py",
    "longrein/workspace/tree_re",
    "longrein/extensions/mcp/",
)
"""Checkpoints, rewind, sandbox, permissions, snapshot and MCP: prefixes of paths below `src`."""
PROMISE_TESTS = tuple(
    f"tests/{name}"
    for name in (
        *("agent", "cli", "config", "context", "mcp_servers", "permissions", "standards", "store"),
        *("test_sdk.py", "tools", "workspace"),
    )
)
SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
CHILD = """
import os, runpy

def measure():
    if measured or "MUTANTS_MAP" not in os.environ:
        return
    measured.append(True)
    import atexit, coverage

    context = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    found = coverage.Coverage(data_file=os.environ["MUTANTS_MAP"], data_suffix=True,
                              source_pkgs=["longrein"], context=context)
    told = ("module-not-imported", "module-not-measured", "no-data-collected")
    found.set_option("run:disable_warnings", told)
    leave_at_once = os._exit

    def save():
        found.stop()
        try:
            found.save()
        except Exception:
            pass

    def leave(code):
        try:
            save()
        finally:
            leave_at_once(code)

    atexit.register(save)
    os._exit = leave
    found.start()

def run_module(*words, **how):
    measure()
    return run_module_as_it_is(*words, **how)

measured = []
run_module_as_it_is = runpy.run_module
runpy.run_module = run_module
measure()
"""
"""Module that each interpreter of a copy imports at its start; a fork of `lab.support.forked`
begins with `run_module`. It says nothing, because tests look at what a command prints, and in a
sandbox it cannot save.
"""
FORKING = "forked.py"
"""Process whose forks are measured, and which is not measured itself."""


class Mutant(NamedTuple):
    """Changed place: file below a `src`, lines, the text that replaces columns `start` to `end`
    (UTF-8 bytes).
    """

    path: str
    line: int
    line_end: int
    start: int
    end: int
    text: str
    kind: str


# --- Mutants of a file ----------------------------------------------------------------------------


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of the function bodies of a file."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen = set()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        node: Any
        for node in (n for statement in function.body for n in ast.walk(statement)):
            for new, kind in changes(node):
                first, last = (
                    starts[node.lineno - 1] + node.col_offset,
                    starts[node.end_lineno - 1] + node.end_col_offset,
                )
                if (first, last, kind) not in seen:
                    seen.add((first, last, kind))
                    yield Mutant(
                        path, node.lineno, node.end_lineno or node.lineno, first, last, new, kind
                    )


def changes(node: Any) -> Iterator[tuple[str, str]]:
    """Yield (new text, kind) for each mutant of one node."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield (
                f"({ast.unparse(ast.Compare(left, [SWAPPED[type(op)]()], [right]))})",
                "comparison",
            )
        case ast.BoolOp(op=op, values=values):
            yield f"({ast.unparse(ast.BoolOp(SWAPPED[type(op)](), values))})", "and/or"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})", "not"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            yield f"({ast.unparse(ast.BinOp(left, SWAPPED[type(op)](), right))})", "plus/minus"
        case ast.Constant(value=bool() as value):
            yield str(not value), "boolean"
        case ast.Constant(value=int() as value):
            yield str(value + 1), "number"
        case ast.IfExp(test=test, body=body, orelse=other):
            yield f"({ast.unparse(ast.IfExp(test, other, body))})", "condition"
        case ast.Return(value=ast.Constant(value=None | False)):
            pass  # as false as None
        case ast.Return(value=ast.expr()):
            yield "return None", "return"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "pass", "call"


# --- Map of lines to tests: this module as a pytest plugin ----------------------------------------

_durations: dict[str, float] = {}


def pytest_configure() -> None:
    """Let the processes that tests start with variables of their own be measured too."""
    if "MUTANTS_MAP" not in os.environ:
        return
    begin = subprocess.Popen.__init__

    def measured(self: Any, args: Any, *rest: Any, **how: Any) -> None:
        if how.get("env") is not None and FORKING not in str(args):
            names = ("MUTANTS_MAP", "PYTEST_CURRENT_TEST")
            how["env"] = {**how["env"], **{n: os.environ[n] for n in names if n in os.environ}}
        begin(self, args, *rest, **how)

    subprocess.Popen.__init__ = measured  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if (found := coverage.Coverage.current()) is not None:
        found.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    before = _durations.get(report.nodeid, 0.0)
    _durations[report.nodeid] = before + report.duration if report.passed else float("inf")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("MUTANTS_MAP") and not hasattr(session.config, "workerinput"):
        Path(os.environ["MUTANTS_MAP"]).with_name("durations.json").write_text(
            json.dumps(_durations)
        )


# --- Copies and runs ------------------------------------------------------------------------------


def source_folders(root: Path) -> list[Path]:
    """Return the folders `src` of the three distributions."""
    return [root / tree.parent.relative_to(ROOT) for tree in TREES]


def make_copy(folder: Path) -> Path:
    """Copy the tracked files into `folder`; return a Python that imports longrein from the copy."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.split(b"\0")
    for name in (os.fsdecode(n) for n in names if n):
        if (ROOT / name).is_file():
            (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "copy" / name)
    venv.create(folder / "venv", symlinks=True)
    packages = next((folder / "venv").glob("lib/python*/site-packages"))
    ours = [p for p in sys.path if p.endswith("site-packages")]
    (packages / "mutants_child.py").write_text(CHILD)
    (packages / "paths.pth").write_text(
        "\n".join([*map(str, source_folders(folder / "copy")), *ours, "import mutants_child"])
        + "\n"
    )
    python = folder / "venv" / "bin" / "python"
    script = python.with_name("longrein")
    script.write_text(f"#!{python}\nfrom longrein.__main__ import main\n\nmain()\n")
    script.chmod(0o755)
    return python


def run_tests(
    python: Path, folder: Path, arguments: list[str], limit_s: float | None, **env: str
) -> int | None:
    """Run pytest in the copy; return its exit code, or None after `limit_s` seconds."""
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-header",
        *arguments,
    ]
    variables = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", **env}
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder / "copy",
            env=variables,
            start_new_session=True,
            stdout=output,
            stderr=output,
        )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def map_tests(python: Path, folder: Path, data: Path, tests: list[str]) -> None:
    """Run the suite, or only `tests`, once; write the coverage data with the tests as contexts,
    and the durations beside it.
    """
    arguments = [
        "-n",
        "4",
        "--dist",
        "worksteal",
        "-p",
        "lab.mutants",
        "--timeout",
        "600",
        *tests,
    ]
    run_tests(python, folder, arguments, None, MUTANTS_MAP=str(data))
    whole = coverage.Coverage(data_file=str(data))
    whole.combine([str(data.parent)], keep=False)
    whole.save()


def tests_of_lines(data: Path) -> dict[str, dict[int, dict[str, float]]]:
    """Return the tests of each line of each file below `source` with their seconds, the shortest
    first; failed tests are left out.
    """
    found = coverage.CoverageData(str(data))
    found.read()
    seconds = json.loads(data.with_name("durations.json").read_text())
    result: dict[str, dict[int, dict[str, float]]] = {}
    for file in found.measured_files():
        if "/packages/longrein" in file:
            result[file.partition("/src/")[2]] = {
                line: dict(
                    sorted(
                        ((t, seconds[t]) for t in tests if seconds.get(t, float("inf")) < 60),
                        key=itemgetter(1),
                    )
                )
                for line, tests in found.contexts_by_lineno(file).items()
            }
    return result


def varied(tests: Iterable[str]) -> list[str]:
    """Order tests so that each test function comes before any comes a second time."""
    seen: Counter[str] = Counter()
    ranked = []
    for test in tests:
        function = test.partition("[")[0]
        ranked.append((seen[function], test))
        seen[function] += 1
    return [test for _, test in sorted(ranked, key=lambda pair: pair[0])]


def within(seconds: float, tests: Mapping[str, float]) -> list[str]:
    """Return the first of the varied tests that take so long together; one at least."""
    chosen = varied(tests)
    sums = accumulate(tests[test] for test in chosen)
    return chosen[: max(1, sum(took <= seconds for took in sums))]


def sampled_tests(python: Path, folder: Path) -> set[str]:
    """Return the cases that `make test` runs."""
    run_tests(python, folder, ["--collect-only", "--sample", "-o", "addopts="], None)
    printed = (folder / "output").read_text(encoding="utf-8").splitlines()
    return {line for line in printed if "::" in line}


def judge(
    mutant: Mutant,
    python: Path,
    folder: Path,
    lines: Mapping[int, Mapping[str, float]],
    among: Set[str] | None = None,
) -> str:
    """Return 'killed', 'survived' or 'not run' for one mutant, by the tests in `among` if given."""
    tests = {
        test: seconds
        for line in range(mutant.line, mutant.line_end + 1)
        for test, seconds in lines.get(line, {}).items()
        if among is None or test in among
    }
    if not tests:
        return "not run"
    file = next(
        found for src in source_folders(folder / "copy") if (found := src / mutant.path).is_file()
    )
    before = file.read_bytes()
    file.write_bytes(before[: mutant.start] + mutant.text.encode() + before[mutant.end :])
    chosen, once = within(TESTS_S_MAX, tests), {"PYTHONDONTWRITEBYTECODE": "1"}
    try:
        code = run_tests(python, folder, ["-x", "--timeout", "60", *chosen], SECONDS_MAX, **once)
    finally:
        file.write_bytes(before)
    if code == pytest.ExitCode.USAGE_ERROR:  # a module of tests cannot be imported, or is not there
        code = run_tests(python, folder, ["--collect-only", *chosen], SECONDS_MAX, **once)
        if code == pytest.ExitCode.USAGE_ERROR:
            raise SystemExit(f"no tests of {mutant.path} are here: delete the folder of --map")
        return "killed"
    return "survived" if code == 0 else "killed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--map", type=Path, help="folder that keeps the map of lines to tests")
    parser.add_argument("--tests", nargs="*", default=[], help="files or folders of tests")
    parser.add_argument("--sources", nargs="*", default=[], help="files to change, by their start")
    parser.add_argument("--sampled", action="store_true", help="judge by `make test`, too")
    options = parser.parse_args()
    if options.sources == ["promises"]:
        options.sources, options.tests = PROMISES, options.tests or list(PROMISE_TESTS)
    with tempfile.TemporaryDirectory(prefix="longrein-mutants-") as temporary:
        os.chmod(temporary, 0o755)  # some tests play as another user, who runs the copy too
        free: Queue[tuple[Path, Path]] = Queue()
        for number in range(options.workers):
            folder = Path(temporary) / str(number)
            free.put((make_copy(folder), folder))
        keep = options.map or Path(temporary) / "map"
        keep.mkdir(parents=True, exist_ok=True)
        keep.chmod(0o777)  # and whose processes note their lines
        data = keep / "coverage"
        if not data.exists():
            python, folder = free.queue[0]
            map_tests(python, folder, data, options.tests)
        lines = tests_of_lines(data)
        report(options, free, lines)


def report(
    options: argparse.Namespace,
    free: "Queue[tuple[Path, Path]]",
    lines: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> None:
    """Judge the sampled mutants, print each that survives and the totals."""
    files = {
        str(path.relative_to(src)): path
        for src in source_folders(ROOT)
        for path in sorted(src.rglob("*.py"))
        if "testing" not in path.parts
    }
    if options.sources:
        begins = tuple(options.sources)
        files = {name: path for name, path in files.items() if name.startswith(begins)}
    places = [m for name, path in files.items() for m in mutants_of(name, path.read_text())]
    if options.tests:
        places = [m for m in places if lines.get(m.path, {}).get(m.line)]
    options.count = min(options.count, len(places))
    sample = random.Random(options.seed).sample(places, options.count)

    sampled = sampled_tests(*free.queue[0]) if options.sampled else set[str]()

    def one(mutant: Mutant) -> str:
        copy = free.get()
        try:
            result = judge(mutant, *copy, lines.get(mutant.path, {}))
            if sampled and result == "killed":
                quickly = judge(mutant, *copy, lines.get(mutant.path, {}), sampled)
                result = result if quickly == "killed" else "only whole"
        finally:
            free.put(copy)
        if result != "killed":
            old = (
                files[mutant.path]
                .read_bytes()[mutant.start : mutant.end]
                .decode()
                .partition("\n")[0]
            )
            print(
                f"{result:10} {mutant.path}:{mutant.line} {mutant.kind}: {old[:50]} -> "
                f"{mutant.text[:50]}",
                flush=True,
            )
        return result

    with ThreadPoolExecutor(options.workers) as pool:
        counts = Counter(pool.map(one, sample))
    killed = counts["killed"] + counts["only whole"]
    if sampled:
        print(f"{counts['killed']} of the {killed} killed mutants by `make test`")
    print(
        f"{killed} of {options.count} mutants killed ({killed / options.count:.1%}), "
        f"{counts['survived']} survived, "
        f"{counts['not run']} on lines that no test runs; {len(places)} places, seed "
        f"{options.seed}"
    )


if __name__ == "__main__":
    main()
