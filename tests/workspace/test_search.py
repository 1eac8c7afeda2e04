"""Search by content and by name: `rg` and Python give the same, and neither can hang the
session.
"""

import os
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.workspace import CommandExit, Query, SearchResult, glob, grep, split_glob
from longrein.workspace import file_search as search_module
from longrein.workspace.walk import compile_glob
from tests.tables import split_words
from tests.workspace.conftest import CommandHarness

pytestmark = pytest.mark.anyio

TREE = {
    ".gitignore": "*.log\nbuild/\n!keep.log\n/top.txt\n",
    "a.py": "import os\n\ndef one():\n    return os.sep\n",
    "b.txt": "One\r\ntwo\r\none more\r\n",
    "keep.log": "one kept\n",
    "lost.log": "one ignored\n",
    "top.txt": "one ignored\n",
    "build/out.py": "one ignored\n",
    ".hidden/c.py": "one hidden\n",
    ".git/config": "one of git\n",
    "sub/top.txt": "one deeper\n",
    "sub/.gitignore": "inner.py\n!lost.log\n",
    "sub/inner.py": "one ignored\n",
    "sub/lost.log": "one let in again\n",
    "sub/deep/d.ts": "const one = {\n  two: 1,\n}\n",
    "bin.dat": "one\0two\n",
    "empty.py": "",
    "last": "no end one",
}


@pytest.fixture
def tree(harness: CommandHarness) -> Path:
    for number, (name, text) in enumerate(TREE.items()):
        path = harness.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        os.utime(path, ns=(10**18 - number, 10**18 - number))
    (harness.folder / "link.py").symlink_to("a.py")
    (harness.folder / "sub" / "up").symlink_to("..")
    return harness.folder


@pytest.fixture(params=["rg", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(search_module, "_rg", lambda workspace: "")
    elif not search_module.find_program("rg", os.environ["PATH"], ()):
        pytest.skip("no rg on this machine")
    return str(request.param)


def told(found: SearchResult, folder: Path) -> list[str]:
    """What was found, one text each, relative to the folder."""
    start = len(str(folder)) + 1
    paths = [path[start:] for path in found.paths] + [
        f"{path[start:]}={number}" for path, number in found.counts
    ]
    return paths + [
        f"{one.path[start:]}:{one.number}{':' if one.match else '-'}{one.text}"
        for one in found.lines
    ]


ALL_ONES = "a.py b.txt keep.log .hidden/c.py sub/top.txt sub/lost.log sub/deep/d.ts last"
CONTENT = {"mode": "content"}
IN_A = {"mode": "content", "glob": "a.py"}
BLOCK = ["sub/deep/d.ts:1:const one = {", "sub/deep/d.ts:2:  two: 1,", "sub/deep/d.ts:3:}"]
AROUND = ["a.py:2-", "a.py:3:def one():", "a.py:4-    return os.sep"]


@pytest.mark.parametrize(("pattern", "query", "expected"), [
    (r"\bone\b", {}, split_words(ALL_ONES)),
    ("one", {"glob": "*.py"}, ["a.py", ".hidden/c.py"]),
    ("one", {"glob": "*.{ts,txt}"}, ["b.txt", "sub/top.txt", "sub/deep/d.ts"]),
    ("one", {"glob": "sub/**/*.t*"}, ["sub/top.txt", "sub/deep/d.ts"]),
    ("one", {"glob": "!*.py"}, [name for name in split_words(ALL_ONES) if ".py" not in name]),
    ("(?i)^ONE$", {}, ["b.txt"]),
    ("^one$", {"ignore_case": True}, ["b.txt"]),
    ("nowhere", {}, []),
    ("one", {"mode": "count", "glob": "*.txt"}, ["b.txt=1", "sub/top.txt=1"]),
    ("o", {"mode": "count", "glob": "a.py"}, ["a.py=3"]),
    ("def|return", IN_A, ["a.py:3:def one():", "a.py:4:    return os.sep"]),
    ("^def", {**IN_A, "before": 1, "after": 1}, AROUND),
    ("two", {"mode": "content", "glob": "*.txt"}, ["b.txt:2:two"]),
    ("end", CONTENT, ["last:1:no end one"]),
    (r"\{.*\}", {"mode": "content", "multiline": True}, BLOCK),
    ("(?<=return )os", CONTENT, ["a.py:4:    return os.sep"]),
    ("one = {", CONTENT, BLOCK[:1]),
    ("[[:upper:]]ne", CONTENT, ["b.txt:1:One"]),
    ("-one|^--", CONTENT, []),
])  # fmt: skip
async def test_both_engines_find_the_same(
    harness: CommandHarness,
    tree: Path,
    engine: str,
    pattern: str,
    query: dict[str, object],
    expected: list[str],
) -> None:
    found = await grep(harness.workspace, Query(str(tree), pattern, **query))  # type: ignore[arg-type]
    assert (told(found, tree), found.error, found.partial, found.more) == (expected, "", "", False)


@pytest.mark.parametrize(("pattern", "expected"), [
    ("*.py", ["a.py", "empty.py"]),
    ("**/*.py", ["a.py", ".hidden/c.py", "empty.py"]),
    ("**/*.{ts,log}", ["keep.log", "sub/lost.log", "sub/deep/d.ts"]),
    ("sub/**", ["sub/top.txt", "sub/.gitignore", "sub/lost.log", "sub/deep/d.ts"]),
    ("sub/*", ["sub/top.txt", "sub/.gitignore", "sub/lost.log"]),
    ("*/[!k-z]*.ts", []),
    ("s?b/**/d.ts", ["sub/deep/d.ts"]),
    ("**/.git/**", []),
    ("nothing*", []),
])  # fmt: skip
async def test_names_are_found_newest_first(
    harness: CommandHarness, tree: Path, engine: str, pattern: str, expected: list[str]
) -> None:
    assert told(await glob(harness.workspace, pattern, str(tree)), tree) == expected


async def test_a_limit_is_kept_and_told(harness: CommandHarness, tree: Path, engine: str) -> None:
    files = await grep(harness.workspace, Query(str(tree), "one", limit=2))
    assert (told(files, tree), files.more) == (["a.py", "b.txt"], True)
    lines = await grep(harness.workspace, Query(str(tree), "o", mode="content", limit=1))
    assert (len(lines.lines), lines.more) == (1, True)
    assert (await glob(harness.workspace, "**/*", str(tree), 3)).more


async def test_a_pattern_that_is_none_is_told(
    harness: CommandHarness, tree: Path, engine: str
) -> None:
    found = await grep(harness.workspace, Query(str(tree), "(unclosed"))
    assert "unclosed" in found.error or "unterminated" in found.error
    assert found.paths == ()


async def test_one_file_is_searched_even_if_ignored(
    harness: CommandHarness, tree: Path, engine: str
) -> None:
    found = await grep(harness.workspace, Query(str(tree / "lost.log"), "one", mode="content"))
    assert told(found, tree) == ["lost.log:1:one ignored"]


async def test_names_and_lines_that_are_no_utf8(harness: CommandHarness, engine: str) -> None:
    name = os.fsencode(harness.folder) + b"/odd \xff\n name.txt"
    with open(name, "wb") as file:
        file.write(b"caf\xe9 one\n")
    found = await grep(harness.workspace, Query(str(harness.folder), "é one", mode="content"))
    told = [(os.fsencode(one.path), one.text) for one in found.lines]
    assert told == [(name, "café one")]
    assert [
        os.fsencode(path)
        for path in (await grep(harness.workspace, Query(str(harness.folder), "one"))).paths
    ] == [name]
    counted = await grep(harness.workspace, Query(str(harness.folder), "one", mode="count"))
    assert [(os.fsencode(path), number) for path, number in counted.counts] == [(name, 1)]
    assert [
        os.fsencode(path)
        for path in (await glob(harness.workspace, "*", str(harness.folder))).paths
    ] == [name]


@pytest.mark.parametrize("content", [
    "# 配置文件\nint 函数 = 1;\n".encode("gbk"),
    "# 設定檔案\nint 函數 = 1;\n".encode("big5"),
    "# 設定ファイル\nint 函数 = 1;\n".encode("shift_jis"),
    "# 설정 파일\nint 함수 = 1;\n".encode("euc_kr"),
    "# réglage\nint fonctión = 1;\n".encode("latin-1"),
    "# réglage\nint “fonctión” = 1;\n".encode("cp1252"),
    "# 配置文件\nint 函数 = 1;\n".encode("utf-8-sig"),
    "# 配置文件\nint 函数 = 1;\n".encode("utf-16"),
    "# 配置文件\r\nint 函数 = 1;\r\n".encode("utf-16-le"),
    "# 配置文件\nint 函数 = 1;\n".encode("utf-16-be"),
])  # fmt: skip
async def test_text_of_every_encoding_is_found(
    harness: CommandHarness, engine: str, content: bytes
) -> None:
    for name in ("b/a.txt", "b.txt", "c.txt"):
        path = harness.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes("函数 函數 함수 fonctión\n".encode() if name == "b.txt" else content)
    query = Query(str(harness.folder), "函[数數]|함수|fonct.ón", mode="content", after=1)
    found = await grep(harness.workspace, query)
    places = [(line.path.removeprefix(f"{harness.folder}/"), line.number) for line in found.lines]
    assert places == [("b/a.txt", 2), ("b.txt", 1), ("c.txt", 2)]
    assert "\ufffd" not in str(found)
    assert (found.partial, found.skipped) == ("", ())
    for limit, offset in ((1, 0), (1, 1), (5, 2)):
        some = msgspec.structs.replace(query, limit=limit, offset=offset)
        part = await grep(harness.workspace, some)
        assert part.lines == found.lines[offset : offset + limit]
        assert part.more == (offset + limit < 3)


@given(st.lists(st.one_of(st.binary(max_size=6), st.text(max_size=2).map(str.encode))))
def test_the_list_of_files_that_are_not_utf8_is_exact(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    pattern = search_module.NOT_UTF8.removeprefix("(?-u)").encode()
    found = re.search(pattern, data, re.MULTILINE) is not None
    assert found == ("\0" in data.decode("utf-8", "replace") or not is_utf8(data))


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


LONG = b"." * 6_000_000 + b" the one word " + b"." * 5_000_000


@pytest.mark.parametrize("content", [
    LONG + b"\n",
    LONG + b"\nno\none word\n",
    "中".encode() * 2_000_000 + LONG,
    b"caf\xe9 " + LONG,
    ("é" * 300_000 + " one word " + "中" * 300_000).encode("utf-16"),
    b"one word " * 200_000,
])  # fmt: skip
@pytest.mark.parametrize("mode", ["content", "files", "count"])
async def test_long_lines_are_searched(
    harness: CommandHarness, engine: str, mode: str, content: bytes
) -> None:
    (harness.folder / "a.txt").write_bytes(content)
    (harness.folder / "b.txt").write_bytes(b"one word\n")
    query = Query(str(harness.folder), "one word", mode=mode)  # type: ignore[arg-type]
    found = await grep(harness.workspace, query)
    names = {os.path.basename(path) for path in found.paths}
    names |= {os.path.basename(path) for path, _ in found.counts}
    names |= {os.path.basename(line.path) for line in found.lines}
    assert names == {"a.txt", "b.txt"}
    assert (found.partial, found.skipped) == ("", ())
    for line in found.lines:
        assert line.text[line.at :].startswith("one word")
        assert len(line.text) < 20_000
    whole = [line for line in found.lines if line.chars]
    assert len(whole) == (mode == "content")
    for line in whole:
        text = content.decode("utf-16" if content[0] == 255 else "latin-1").partition("\n")[0]
        if not text.startswith("\xe4"):
            assert (line.left_out + line.at, line.chars) == (text.index("one word"), len(text))


async def test_what_was_not_searched_is_named(harness: CommandHarness, engine: str) -> None:
    big, binary = harness.folder / "big.txt", harness.folder / "x.bin"
    big.write_bytes(b"caf\xe9\n" + (b"x" * 79 + b"\n") * 850_000)
    binary.write_bytes(b"\0one\n")
    found = await grep(harness.workspace, Query(str(harness.folder), "é"))
    assert found.paths == ()
    assert [path for path, _ in found.skipped] == [str(big)]
    assert found.skipped[0][1].startswith("larger than 64 MB")
    found = await grep(harness.workspace, Query(str(binary), "nowhere"))
    assert found.skipped[0][1].startswith("a binary file")


async def test_what_cannot_be_read_is_named(harness: CommandHarness, engine: str) -> None:
    for name in ("a.txt", "sub/b.txt", "c.txt"):
        path = harness.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("one\n")
    (harness.folder / "a.txt").chmod(0)
    (harness.folder / "sub").chmod(0)
    if os.access(harness.folder / "a.txt", os.R_OK):
        pytest.skip("root reads every file")
    found = await grep(harness.workspace, Query(str(harness.folder), "one"))
    (harness.folder / "sub").chmod(0o700)
    assert told(found, harness.folder) == ["c.txt"]
    places = [(path.removeprefix(f"{harness.folder}/"), why) for path, why in found.skipped]
    assert sorted(places) == [("a.txt", "permission denied"), ("sub", "permission denied")]


async def test_R088_a_hopeless_pattern_costs_its_time_and_no_more(
    harness: CommandHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    (harness.folder / "a.txt").write_text("early\n")
    (harness.folder / "b.txt").write_text("a" * 60 + "b\n")
    monkeypatch.setattr(search_module, "_rg", lambda workspace: "")
    monkeypatch.setattr(search_module, "SEARCH_S", 0.4)
    found = await grep(
        harness.workspace, Query(str(harness.folder), "early|(a+)+$", mode="content")
    )
    assert found.partial == "time"


async def test_R088_too_much_is_partial(
    harness: CommandHarness, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (harness.folder / "a.txt").write_text("one line\n" * 20_000)
    monkeypatch.setattr(search_module, "CONTENT_BYTES_MAX", 100_000)
    found = await grep(
        harness.workspace, Query(str(harness.folder), "one", mode="content", limit=10**6)
    )
    assert found.partial == "size"
    assert 100 < len(found.lines) < 20_000


async def test_the_search_in_python_runs_nothing_of_the_folder(
    harness: CommandHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("re.py", "longrein.py", "sitecustomize.py", "usercustomize.py"):
        (harness.folder / name).write_text(f"open({str(harness.folder / 'tripped')!r}, 'w')\n")
    monkeypatch.setattr(search_module, "_rg", lambda workspace: "")
    monkeypatch.chdir(harness.folder)
    harness.reopen(PYTHONPATH=str(harness.folder))
    assert len((await glob(harness.workspace, "*.py", str(harness.folder))).paths) == 4
    assert not (harness.folder / "tripped").exists()


async def test_an_rg_of_the_repository_or_its_settings_are_never_used(
    harness: CommandHarness, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "rg").write_text(f"#!/bin/sh\ntouch {tree}/tripped\n")
    (tree / "rg").chmod(0o755)
    (tree / "ripgreprc").write_text("--pre=./rg\n")
    harness.reopen(PATH=f"{tree}:{os.environ['PATH']}", RIPGREP_CONFIG_PATH=str(tree / "ripgreprc"))
    assert (await grep(harness.workspace, Query(str(tree), "import os"))).paths
    assert not (tree / "tripped").exists()


@pytest.mark.parametrize(("pattern", "yes", "no"), [
    ("*.py", ["a.py", ".py"], ["a/b.py", "a.pyc"]),
    ("**/*.py", ["a.py", "a/b/c.py"], ["a.pyc"]),
    ("a/**", ["a/b", "a/b/c"], ["a", "b/a/c"]),
    ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
    ("**", ["a", "a/b"], []),
    ("a**b", ["ab", "axb"], ["a/b"]),
    ("?.c", ["a.c"], ["ab.c", "/.c"]),
    ("[a-c].c", ["b.c"], ["d.c"]),
    ("[!a-c].c", ["d.c"], ["a.c", "/.c"]),
    ("[]x].c", ["].c", "x.c"], ["a.c"]),
    ("{a,b/{c,d}}.x", ["a.x", "b/c.x", "b/d.x"], ["b.x"]),
    ("{a,**/b}.x", ["a.x", "b.x", "y/z/b.x"], ["y/a.x"]),
    (r"\*.c", ["*.c"], ["a.c"]),
    ("a+(b).c", ["a+(b).c"], ["aab.c"]),
    ("[z-a].c", ["[z-a].c"], ["b.c"]),
    ("[a.c", ["[a.c"], ["a.c"]),
    ("{a.c", ["{a.c"], ["a.c"]),
    ("./src/*", ["src/a"], ["a"]),
])  # fmt: skip
def test_glob_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    matcher = compile_glob(pattern)
    assert [path for path in yes if not matcher.match(path)] == []
    assert [path for path in no if matcher.match(path)] == []


@given(st.text(alphabet="ab/*?[]!{},\\.^-", max_size=12), st.text(alphabet="ab/.", max_size=6))
def test_every_text_is_a_glob_pattern(pattern: str, path: str) -> None:
    compile_glob(pattern).match(path)
    folder, rest = split_glob(pattern)
    assert len(folder) + len(rest) <= len(pattern)


@pytest.mark.parametrize(("pattern", "parts"), [
    ("src/a*/**", ("src", "a*/**")),
    ("*.py", ("", "*.py")),
    ("/abs/x/*.py", ("/abs/x", "*.py")),
    ("/*.py", ("/", "*.py")),
    ("../x/**/y", ("../x", "**/y")),
    ("plain/name", ("plain", "name")),
    ("{a,b}/c", ("", "{a,b}/c")),
])  # fmt: skip
def test_a_globs_plain_beginning_is_a_folder(pattern: str, parts: tuple[str, str]) -> None:
    assert split_glob(pattern) == parts


def test_walking_goes_in_order_past_what_is_ignored_and_along_no_link(
    harness: CommandHarness, tree: Path
) -> None:
    seen: list[str] = []

    def visit(path: str, is_folder: bool) -> bool:
        seen.append(path[len(str(tree)) + 1 :] + ("/" if is_folder else ""))
        return not path.endswith("deep")

    assert harness.workspace.walk(str(tree), visit)
    assert seen == split_words("""
        .gitignore .hidden/ .hidden/c.py a.py b.txt bin.dat empty.py keep.log last link.py sub/
        sub/.gitignore sub/deep/ sub/lost.log sub/top.txt sub/up
    """)


def test_the_ignores_of_folders_above_count_up_to_the_repository(
    harness: CommandHarness, tree: Path
) -> None:
    (tree.parent / ".gitignore").write_text("*\n")
    seen: list[str] = []
    harness.workspace.walk(
        str(tree / "sub"), lambda path, _: bool(seen.append(os.path.basename(path)))
    )
    assert seen == [".gitignore", "deep", "lost.log", "top.txt", "up"]


def test_R088_a_walk_ends_when_its_time_is_up(harness: CommandHarness, tree: Path) -> None:
    assert harness.workspace.walk(str(tree), lambda *_: True, limit_s=0.0) is False
    assert harness.workspace.walk(str(tree / "nowhere"), lambda *_: True) is True


def test_an_unreadable_folder_and_an_odd_gitignore_are_passed_over(
    harness: CommandHarness, tmp_path: Path
) -> None:
    folder = harness.folder
    (folder / ".gitignore").write_bytes(b"\xff\xfe[\n!!!\n\\\nx.txt\n")
    (folder / "x.txt").write_text("")
    os.mkfifo(folder / "pipe")
    (folder / "sub").mkdir()
    os.mkfifo(folder / "sub" / ".gitignore")
    seen: list[str] = []
    assert harness.workspace.walk(
        str(folder), lambda path, _: seen.append(os.path.basename(path)) or True
    )  # type: ignore[func-returns-value]
    assert {"pipe", "sub"} <= set(seen) - {"x.txt"} == set(seen)


# --- A file that is swapped while rg runs ---------------------------------------------------------


@pytest.mark.parametrize("content", [
    b"no\none\r\n",
    b"\xef\xbb\xbfno\none\n",
    b"\xef\xbb\xbfone\n",
    "no\none ü\n".encode("utf-16"),
    b"caf\xe9\none \xff\n",
    b"one without end",
    b"x" * 300_000 + b"\none\n",
])  # fmt: skip
async def test_lines_are_looked_at_again_in_every_encoding(
    harness: CommandHarness, engine: str, content: bytes
) -> None:
    (harness.folder / "file").write_bytes(content)
    for path in (harness.folder, harness.folder / "file"):
        found = await grep(harness.workspace, Query(str(path), "one", mode="content"))
        told = ([one.text.lstrip("\ufeff").split()[0] for one in found.lines], found.partial)
        assert told == (["one"], "")


@pytest.mark.parametrize("mode", ["content", "files", "count", "names"])
@pytest.mark.parametrize("swapped", ["sub", "sub/top.txt"])
async def test_S033_what_rg_found_behind_a_link_is_left_out(
    harness: CommandHarness, tree: Path, mode: str, swapped: str
) -> None:
    """The output of `rg` from the moment in which a link stood there; it is read when the folder
    is back.
    """
    words = search_module.find_program("rg", os.environ["PATH"], ())
    if not words:
        pytest.skip("no rg on this machine")
    outside = harness.folder.parent / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "sub" / "top.txt").write_text("first\none secret\n")
    (outside / "sub" / "only.txt").write_text("one secret\n")
    query = Query(str(tree / "sub"), "one", mode=mode)  # type: ignore[arg-type]
    printed = subprocess.run(  # noqa: ASYNC221 - nothing else runs
        search_module.rg_words(words, msgspec.structs.replace(query, path=str(outside / "sub"))),
        capture_output=True,
        check=True,
    ).stdout
    assert b"secret" in printed or mode == "names"
    printed = printed.replace(os.fsencode(outside), os.fsencode(tree))
    output = search_module.SearchOutput(printed, CommandExit(0))
    found = await search_module.read_output(query, output)
    assert "secret" not in str(found)
    assert "only.txt" not in str(found)
    (tree / swapped).rename(tree / "kept")
    (tree / swapped).symlink_to(outside / swapped)
    found = await search_module.read_output(query, output)
    assert (found.paths, found.lines, found.counts) == ((), (), ())
    assert found.partial == ("" if mode == "names" else "changed")
