"""`Grep` and `Glob` tools: matches, their display, and notes on incomplete results."""

import os
from typing import Any

import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def tree(harness: Any) -> Any:
    for n, (name, content) in enumerate(
        [
            ("src/a.py", "import os\n\ndef f():\n    return 1\n\ndef g():\n    return 2\n"),
            ("src/deep/b.py", "def f(x):\n    pass\n"),
            ("notes 中.md", "def in words\n"),
            (".gitignore", "build/\n"),
            ("build/c.py", "def f():\n"),
        ]
    ):
        path = harness.file(name, content)
        os.utime(path, ns=(n * 10**9, n * 10**9))
    harness.file("bin", b"def f\0\n")
    return harness


CONTENT = {"output_mode": "content"}
IN_SRC = {**CONTENT, "path": "src", "-C": 1}
IN_A = {**IN_SRC, "path": "src/a.py"}
COUNT = {"output_mode": "count", "path": "src"}
MORE = "[there is more: narrow the search, or raise head_limit]"


AGAIN = 'Next: call Grep with pattern "x", path '
HERE = "Here: bin, notes 中.md, src/, .gitignore."


@pytest.mark.parametrize(("pattern", "arguments", "expected"), [
    ("^def f", {}, "src/deep/b.py\nsrc/a.py"),
    ("^DEF", {"-i": True}, "notes 中.md\nsrc/deep/b.py\nsrc/a.py"),
    ("^def", {"glob": "*.md"}, "notes 中.md"),
    ("def", COUNT, "src/a.py: 2\nsrc/deep/b.py: 1"),
    ("return", IN_SRC, "src/a.py\n3-def f():\n4:    return 1\n5-\n6-def g():\n7:    return 2"),
    ("^def f", CONTENT, "src/a.py\n3:def f():\n\nsrc/deep/b.py\n1:def f(x):"),
    ("import|2", IN_A, "src/a.py\n1:import os\n2-\n--\n6-def g():\n7:    return 2"),
    ("f.*pass", {"multiline": True}, "src/deep/b.py"),
    ("def", {"head_limit": 1}, f"notes 中.md\n{MORE}"),
    ("nowhere", {}, "Nothing found."),
    ("", {}, "[bad-pattern] The pattern is empty; to list files use Glob."),
    ("x", {"head_limit": -1}, "[bad-range] -C and head_limit must not be negative."),
    ("x", {"path": "srcs"},
     f'[not-found] No such path: ROOT/srcs. {HERE} Did you mean src/? {AGAIN}"src/".'),
    ("x", {"path": "lib/no"}, f'[not-found] No such path: ROOT/lib/no. {HERE} {AGAIN}".".'),
])  # fmt: skip
async def test_grep(tree: Any, pattern: str, arguments: dict[str, Any], expected: str) -> None:
    found = await tree.call("Grep", pattern=pattern, **arguments)
    assert found.replace(str(tree.root), "ROOT") == expected


@pytest.mark.parametrize("pattern", ["a(", "a{99999999999}", "(" * 3_000 + ")" * 3_000])
async def test_bad_pattern_is_one_line(tree: Any, pattern: str) -> None:
    """The last two ended the search in Python with a traceback, which was told as no match."""
    text = await tree.call("Grep", pattern=pattern)
    assert text.startswith("[bad-pattern] ")
    assert "\n" not in text
    assert tree.last.status == "failed"


async def test_long_lines_and_much_text(tree: Any) -> None:
    tree.file("min.js", "x" * 2000 + "\n")
    text = await tree.call("Grep", pattern="xxx", output_mode="content")
    cut = "[longrein:5e1f0c cut: characters 1-500 of a line of 2,000]"
    assert text == "min.js\n1:" + "x" * 500 + cut
    tree.file("min.js", "x" * 700 + "here" + "y" * 300 + "\n")
    text = await tree.call("Grep", pattern="here", output_mode="content")
    before = "[longrein:5e1f0c cut: 504 characters]"
    cut = "[longrein:5e1f0c cut: characters 505-1,004 of a line of 1,004]"
    assert text == "min.js\n1:" + before + "x" * 196 + "here" + "y" * 300 + cut
    tree.file("min.js", "x" * 6_000_000 + "here" + "y" * 5_000_000 + "\n")
    text = await tree.call("Grep", pattern="here", output_mode="content")
    assert "x" * 125 + "here" + "y" * 371 in text
    assert text.endswith("cut: characters 5,999,876-6,000,375 of a line of 11,000,004]")
    tree.file("many.txt", ("y" * 400 + "\n") * 200)
    text = await tree.call("Grep", pattern="yyy", output_mode="content")
    assert len(text) < 31_000
    assert text.endswith("[there is more: narrow the search, or raise head_limit]")


async def test_what_was_not_searched_is_never_not_found(tree: Any) -> None:
    text = await tree.call("Grep", pattern="nowhere", path="bin")
    assert text.startswith("Nothing found in what was searched.\n[not searched: bin (a binary file")
    tree.file("gbk.txt", "第一行：函数返回值\n".encode("gbk"))
    assert await tree.call("Grep", pattern="函数") == "gbk.txt"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "**/*.py"}, "src/deep/b.py\nsrc/a.py"),
        ({"pattern": "*.py", "path": "src"}, "src/a.py"),
        ({"pattern": "src/**/*.py"}, "src/deep/b.py\nsrc/a.py"),
        ({"pattern": "deep/*", "path": "src/"}, "src/deep/b.py"),
        ({"pattern": "*.{md,txt}"}, "notes 中.md"),
        ({"pattern": "*.zig"}, "Nothing found."),
        (
            {"pattern": "*", "path": "src/a.py"},
            (
                "[not-a-folder] src/a.py is a file; path must be a folder. Next: call Read with "
                'file_path "src/a.py".'
            ),
        ),
        (
            {"pattern": "lib/**/*.py"},
            (
                f"[not-found] No such path: ROOT/lib. {HERE} Next: call Glob with pattern "
                '"**/*.py", path ".".'
            ),
        ),
        ({"pattern": ""}, "[bad-pattern] The pattern is empty; give one such as **/*.py."),
    ],
)
async def test_glob(tree: Any, arguments: dict[str, Any], expected: str) -> None:
    found = await tree.call("Glob", **arguments)
    assert found.replace(str(tree.root), "ROOT") == expected


async def test_paths_for_permission(tree: Any) -> None:
    glob, grep = tree.tools["Glob"], tree.tools["Grep"]
    assert glob.paths({"pattern": "/etc/**/*.conf", "path": "src"}) == (("/etc", False),)
    assert glob.paths({"pattern": "../x/*", "path": "src"}) == (("src/../x", False),)
    assert glob.paths({"pattern": "*"}) == ((".", False),)
    assert grep.paths({"pattern": "x"}) == ((".", False),)
    assert await tree.call("Glob", pattern=f"{tree.root}/src/*.py") == "src/a.py"
    tree.cwd = f"{tree.root}/src"
    assert await tree.call("Glob", pattern="../*.md") == f"{tree.root}/notes 中.md"
