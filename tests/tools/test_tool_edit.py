"""`Edit` tool: each refusal with its code, and nothing but the requested change."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longrein.tools import FileVersion
from longrein.tools.diff import shown_change
from longrein.tools.find_replace import apply_replacements, find_replacements
from longrein.tools.text_encoding import decode
from longrein.workspace import atomic_write as replacing
from longrein_context.events import FileChanged, FileSeen, marker

pytestmark = pytest.mark.anyio

CODE = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"


async def refused(harness: Any, name: str, old: str, new: str, expected: str, **more: Any) -> None:
    """The edit is refused with this text, which may show the file, and the disk is as it was."""
    path = harness.root / name
    before = path.read_bytes() if path.is_file() else None
    text = await harness.call("Edit", file_path=name, old_string=old, new_string=new, **more)
    assert text.replace(str(harness.root), "ROOT") == expected
    assert harness.last.status == "failed"
    assert bool(harness.last.facts) == ("Go by this" in text)
    assert (path.read_bytes() if path.is_file() else None) == before


async def edited(harness: Any, content: bytes, old: str, new: str, **more: Any) -> bytes:
    """The bytes of a file after it was read and edited."""
    path = harness.file("a.txt", content)
    await harness.call("Read", file_path="a.txt")
    text = await harness.call("Edit", file_path="a.txt", old_string=old, new_string=new, **more)
    assert harness.last.status == "ok", text
    return path.read_bytes()


# --- E22: nine checks, nine code words ------------------------------------------------------------


NO_MATCH = "[no-match] old_string is not in ROOT/"
NOT_UNIQUE = "nothing was changed. Take in more of the lines around it, or set replace_all."

REFUSALS: list[tuple[str, str | bytes, str, str, str]] = [
    # file, content, old, new, refusal
    ("a.py", CODE, "def f()", "def f()",
     "[same] old_string and new_string are equal; nothing to do. Give the new text as new_string, or go on."),  # noqa: E501
    ("a.py", CODE, "", "x",
     "[exists] ROOT/a.py exists and is not empty; give the text to replace as old_string; nothing was written. Go by this and call again:\n"  # noqa: E501
     + "\n".join(f"{n}\t{line}" for n, line in enumerate(CODE.split("\n")[:-1], 1))),
    (".git/config", "[core]\n", "[core]", "[x]",
     "[ignored-path] ROOT/.git/config lies in .git, which only version control may change; use git."),  # noqa: E501
    ("a.ipynb", "{}", "{}", "[]",
     ("[notebook] ROOT/a.ipynb is a notebook: its cells are JSON, which text edits break. "
      "Change it with Bash and a few lines of Python (json), or Write the whole file.")),
    ("a.py", CODE, "def ff():\n    return 1", "x",
    f"{NO_MATCH}a.py. The closest match is at line 1: `def f():`"),
    ("a.py", CODE, "def f():\n\treturn 1", "x",
     f"{NO_MATCH}a.py. Lines 1-2 differ from it only in blanks or tabs. Line 1 is `def f():`"),
    ("a.py", CODE, "1\tdef f():\n2\t    return 1", "x",
     f"{NO_MATCH}a.py. It is there without the line numbers of Read: leave out the numbers and tabs."),  # noqa: E501
    ("a.py", CODE, "class Zebra(Animal): ...", "x",
    f"{NO_MATCH}a.py. No line is like it. Read the file again."),
    ("empty", "", "E", "F", f"{NO_MATCH}empty. No line is like it. Read the file again."),
    ("a.txt", "a\r\nb\r\n", "a\n\nb", "x", f"{NO_MATCH}a.txt. The closest match is at line 1: `a`"),
    ("a.py", CODE, "return 1", "return 2",
     f"[not-unique] old_string stands 2 times, at lines 2, 6 of ROOT/a.py; {NOT_UNIQUE}"),
    ("b.py", "aaa\n", "aa", "b",
    f"[not-unique] old_string overlaps itself at line 1 of ROOT/b.py; {NOT_UNIQUE}"),
    ("l1.txt", "caf\xe9 und \xfc\n".encode("latin-1"), "und", "\u4e2d",
     ("[encoding] ROOT/l1.txt is Latin-1 or unknown 8-bit encoding, which has no '\\u4e2d'; nothing was written. "  # noqa: E501
      "Leave the character out, or convert the file with Bash (iconv) first.")),
    ("gbk.txt", "第一行：函数返回值\n".encode("gbk"), "函数", "\U0001f600",
     ("[encoding] ROOT/gbk.txt is GBK, which has no '\\U0001f600'; nothing was written. "
      "Leave the character out, or convert the file with Bash (iconv) first.")),
    ("sjis.txt", "これはテストです\n".encode("shift_jis"), "テスト", "¥100",
     ("[encoding] ROOT/sjis.txt is Shift-JIS, which has no '\\xa5'; nothing was written. "
      "Leave the character out, or convert the file with Bash (iconv) first.")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "old", "new", "expected"), REFUSALS)
async def test_E22_R085_refusals(
    harness: Any, name: str, content: str | bytes, old: str, new: str, expected: str
) -> None:
    harness.file(name, content)
    await harness.call("Read", file_path=name)
    await refused(harness, name, old, new, expected)


async def test_E22_not_read(harness: Any) -> None:
    harness.file("a.py", CODE)
    head = "[not-read] ROOT/a.py exists and you have not read it; nothing was written."
    shown = "".join(f"\n{n}\t{line}" for n, line in enumerate(CODE.split("\n")[:-1], 1))
    await refused(harness, "a.py", "def f", "def h", f"{head} Go by this and call again:{shown}")
    await harness.call("Edit", file_path="a.py", old_string="def f", new_string="def h")
    assert harness.last.status == "ok", "it was shown, so it is read"
    for content in ("x\n" * 201, "x" * 8_001, "\0\1"):
        harness.file("b.py", content)
        told = f'{head} Next: call Read with file_path "b.py".'.replace("a.py", "b.py")
        await refused(harness, "b.py", "x", "y", told)
        assert harness.last.facts == ()


async def test_E22_create(harness: Any) -> None:
    text = await harness.call("Edit", file_path="new/b.py", old_string="", new_string="x = 1\n")
    assert text == f"Created {harness.root}/new/b.py (1 line, 6 bytes)."
    assert (harness.root / "new/b.py").read_text() == "x = 1\n"
    await harness.call("Edit", file_path="new/b.py", old_string="1", new_string="2")
    assert (harness.root / "new/b.py").read_text() == "x = 2\n"


async def test_E22_not_found_with_suggestion(harness: Any) -> None:
    harness.file("parser.py", CODE)
    expected = (
        "[not-found] No such file: ROOT/parsr.py. Here: parser.py. Did you mean parser.py? Next: "
        'call Read with file_path "parser.py".'
    )
    await refused(harness, "parsr.py", "a", "b", expected)


async def test_E22_changed_since_read(harness: Any) -> None:
    """R079: also by a command of ours, and within the same second with the same size and time."""
    path = harness.file("a.py", CODE)
    await harness.call("Read", file_path="a.py")
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    await harness.call("Bash", command="sed -i s/1/2/ a.py")
    os.utime(path, ns=times)
    diff = "".join(f" {n}\t{line}\n" for n, line in enumerate(CODE.split("\n")[:-1], 1))
    diff = diff.replace(" 2\t    return 1", "-2\t    return 1\n+2\t    return 2")
    diff = diff.replace(" 6\t    return 1\n", "-6\t    return 1\n+6\t    return 2")
    expected = (
        "[changed] ROOT/a.py has changed since you read it; nothing was written. Go by this and "
        f"call again; it is all that somebody else changed:\n{diff}"
    )
    found = await harness.call("Edit", file_path="a.py", old_string="def f", new_string="def h")
    assert found == expected.replace("ROOT", str(harness.root))
    assert path.read_text() == CODE.replace("1", "2")
    digest = harness.workspace.hash(str(path))
    assert harness.last.facts == (FileSeen(str(path), digest, digest),)
    await harness.call("Edit", file_path="a.py", old_string="def f", new_string="def h")
    assert harness.last.status == "ok", "the whole change was shown, so it is known"


async def test_E22_changed_from_what_is_not_known_any_more(harness: Any) -> None:
    """Without the content that was read there is nothing to merge from."""
    path = harness.file("a.py", CODE)
    harness.limit(keep_bytes_max=3)
    await harness.call("Read", file_path="a.py")
    await harness.call("Bash", command="sed -i s/def.g/def_h/ a.py")
    known = dict(harness.versions)
    shown = path.read_text().split("\n")[:-1]
    expected = (
        "[changed] ROOT/a.py has changed since you read it; nothing was written. Go by this and "
        "call again:" + "".join(f"\n{n}\t{line}" for n, line in enumerate(shown, 1))
    )
    await refused(harness, "a.py", "def f", "def h", expected)
    harness.versions = known
    harness.wrote[str(path), harness.workspace.hash(str(path))] = "subagent a7"
    expected = expected.replace("; nothing was", ": subagent a7 wrote it; nothing was")
    await refused(harness, "a.py", "def f", "def h", expected)
    await harness.call("Edit", file_path="a.py", old_string="def f", new_string="def h")
    assert harness.last.status == "ok"


async def test_E22_changed_elsewhere_is_merged_and_told(harness: Any) -> None:
    path = harness.file("a.py", CODE)
    await harness.call("Read", file_path="a.py")
    await harness.call("Bash", command="sed -i '1i import os' a.py && echo '# end' >> a.py")
    theirs = harness.workspace.hash(str(path))
    harness.wrote[str(path), theirs] = "your command `sed -i …`"
    text = await harness.call("Edit", file_path="a.py", old_string="g():", new_string="h():")
    assert text == (
        f"Edited {path}.\n …\n 3\t    return 1\n 4\t\n 5\t\n-6\tdef g():\n+6\tdef h():\n 7\t    "
        "return 1\n 8\t# end\nSince you read it your command `sed -i …` changed it too, "
        "elsewhere; both changes stand. Theirs:\n+1\timport os\n 2\tdef f():\n 3\t    return 1\n "
        "4\t\n 5\t\n 6\tdef h():\n 7\t    return 1\n+8\t# end"
    )
    digest = harness.workspace.hash(str(path))
    found = harness.last.facts
    assert found == (FileChanged(str(path), digest, "agent", digest, theirs, over=theirs),)
    assert path.read_text() == "import os\n" + CODE.replace("g():", "h():") + "# end\n"


async def test_E22_what_was_read_is_not_there_any_more(harness: Any) -> None:
    """The text to replace is in neither: it is the change that the model has to hear of."""
    harness.file("a.py", CODE)
    await harness.call("Read", file_path="a.py")
    await harness.call("Bash", command="echo x = 1 > a.py")
    text = await harness.call("Edit", file_path="a.py", old_string="def x", new_string="def y")
    assert text.startswith(
        f"[changed] {harness.root}/a.py has changed since you read it; nothing was written."
    )
    assert text.endswith("it is all that somebody else changed:\n" + "-1\tdef f():\n-2\t    return 1\n-3\t\n"  # noqa: E501
                         "-4\t\n-5\tdef g():\n-6\t    return 1\n+1\tx = 1")  # fmt: skip


async def test_E22_touched_but_equal_is_fine(harness: Any) -> None:
    """Identity is the content, not the time."""
    path = harness.file("a.py", CODE)
    await harness.call("Read", file_path="a.py")
    os.utime(path, ns=(1, 1))
    await harness.call("Edit", file_path="a.py", old_string="def f", new_string="def h")
    assert harness.last.status == "ok"


# --- the other refusals ---------------------------------------------------------------------------


async def test_law_4_markers_are_refused(harness: Any) -> None:
    harness.file("a.py", CODE)
    await harness.call("Read", file_path="a.py")
    text = "x = " + marker("5e1f0c", "cleared", "r12")
    for name, arguments in [
        ("Edit", {"file_path": "a.py", "old_string": "def f", "new_string": text}),
        ("Edit", {"file_path": "a.py", "old_string": text, "new_string": "x"}),
        ("Write", {"file_path": "b.py", "content": text}),
        ("Bash", {"command": f"cat > b.py <<X\n{text}\nX"}),
    ]:
        said = await harness.call(name, **arguments)
        assert said == (
            "[marker] The text holds a longrein marker, which stands for content that was cut, "
            "cleared or secret. Nothing was done. Get the real bytes with Recall (the handle is in "
            "or beside the marker) or Read, and send the call again with them."
        )
    assert sorted(os.listdir(harness.root)) == ["a.py"]
    other = marker("another", "cleared", "r12")
    await harness.call("Write", file_path="b.py", content=other)
    assert (harness.root / "b.py").read_text() == other


async def test_refusals_of_places(harness: Any) -> None:
    harness.file("bin", b"\x7fELF\0\0")
    harness.versions[f"{harness.root}/bin"] = FileVersion(
        harness.workspace.hash(f"{harness.root}/bin"), True
    )
    await refused(
        harness, "bin", "E", "F", "[binary] ROOT/bin is not text: ELF program. Change it with Bash."
    )
    await refused(harness, ".", "E", "F", "[not-a-file] ROOT is a folder. Name a file.")
    await refused(
        harness, "a\0b", "E", "F", "[bad-path] ab is no usable path; give the path of a file."
    )
    await refused(
        harness,
        "no/such",
        "E",
        "F",
        '[not-found] No such file: ROOT/no/such. Here: bin. Next: call Read with file_path "bin".',
    )


@pytest.mark.parametrize(
    ("theirs", "merged"),
    [("theirs\n", ""), (CODE + "# end\n", CODE.replace("f()", "h()") + "# end\n")],
)
async def test_changed_between_check_and_exchange(
    harness: Any, monkeypatch: pytest.MonkeyPatch, theirs: str, merged: str
) -> None:
    """R079: somebody else writes in the last instant; both versions are safe."""
    path = harness.file("a.py", CODE)
    await harness.call("Read", file_path="a.py")
    exchange = replacing.exchange

    def late(*args: Any) -> bool:
        monkeypatch.setattr(replacing, "exchange", exchange)
        path.write_text(theirs)
        return exchange(*args)

    monkeypatch.setattr(replacing, "exchange", late)
    text = await harness.call("Edit", file_path="a.py", old_string="def f", new_string="def h")
    assert path.read_text() == (merged or theirs)
    found = ("both changes stand" in text, text.startswith("[changed]"))
    assert found == (bool(merged), not merged)
    (fact,) = harness.last.facts
    assert harness.blobs.read_blob(fact.over if merged else fact.blob) == theirs.encode()


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "b", "B", b"a\r\nB\r\nc\r\n"),  # R081
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "a\nx\ny\n", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\nc\r\n", "b", "b\nb2", b"a\r\nb\nb2\nc\r\n"),
        (b"a\rb\rc", "a\nb", "x\ny", b"x\ry\rc"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"no end", "end", "stop", b"no stop"),
        (b"\xef\xbb\xbfa = 1\n", "a = 1", "b = 2", b"\xef\xbb\xbfb = 2\n"),
        ("\ufeffa = 中\r\n".encode("utf-16-le"), "中", "文", "\ufeffa = 文\r\n".encode("utf-16-le")),  # noqa: E501
        ("a = b\n".encode("utf-16-be"), "b", "é", "a = é\n".encode("utf-16-be")),
        ("né à côté, café\n".encode("latin-1"), "côté", "ombré", "né à ombré, café\n".encode("latin-1")),  # noqa: E501
        ("中文 \xff 字\n".encode().replace(b"\xc3\xbf", b"\xff"), "字", "word", "中文 ".encode() + b"\xff "  # noqa: E501
                                                                                             b"word\n"),
        (b"tab\tx\x0c\x1b[0m\n", "x", "y", b"tab\ty\x0c\x1b[0m\n"),
        *(
            (line.encode(name), old, new, line.replace(old, new).encode(name))
            for name, line, old, new in (
                ("gbk", "# 函数返回值\nname = '测试'\n", "测试", "配置"),
                ("gb18030", "# 函数返回值 ㊣\u0180\nname = '测试'\n", "测试", "配置"),
                ("big5", "# 函數返回值\nname = '測試'\n", "測試", "設定"),
                ("shift_jis", "# 戻り値の型\nname = 'テスト'\n", "テスト", "表示"),
                ("euc_kr", "# 설정 파일\nname = '테스트'\n", "테스트", "값"),
                ("euc_jp", "# これはテストです\nname = '設定'\n", "設定", "表示"),
                ("cp1252", "# “prix” en €\nname = 'été'\n", "été", "œuf"),
                ("utf-16-be", "\ufeff# 函数\nname = '测试'\n", "测试", "配置"),
                ("utf-16-le", "# 函数\r\nname = '测试'\r\n", "测试", "配置"),
            )
        ),
        ("第一行：函数返回值\n".encode("gbk") * 20 + b"\xb0 \xff\nx = 1\n", "x = 1", "x = 二",
         "第一行：函数返回值\n".encode("gbk") * 20 + b"\xb0 \xff\nx = \xb6\xfe\n"),
    ],
)  # fmt: skip
async def test_only_the_change_changes(
    harness: Any, before: bytes, old: str, new: str, after: bytes
) -> None:
    assert await edited(harness, before, old, new) == after


async def test_several_edits_in_a_row_need_one_read(harness: Any) -> None:
    path = harness.file("a.py", CODE)
    await harness.call("Read", file_path="a.py")
    await harness.call("Edit", file_path="a.py", old_string="def f", new_string="def h")
    before = harness.versions[str(path)].hash
    await harness.call(
        "Edit", file_path="a.py", old_string="return 1", new_string="return 3", replace_all=True
    )
    fact = harness.last.facts[0]
    found = FileChanged(str(path), harness.workspace.hash(str(path)), "agent", fact.hash, before)
    assert fact == found
    found = harness.blobs.read_blob(fact.blob).decode()
    assert found == CODE.replace("def f", "def h").replace("1", "3")


@given(data=st.data())
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_replacing_equals_the_reference(data: Any) -> None:
    """With line ends of one kind, replacing is what `str.replace` does with the same line ends;
    bytes round-trip.
    """
    letters = st.text(alphabet="ab\n é中", max_size=30)
    eol = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text, new = data.draw(letters) + "\n", data.draw(letters)
    start = data.draw(st.integers(0, len(text)))
    old = text[start : data.draw(st.integers(start, len(text)))] or "a"
    ours = text.replace("\n", eol)
    found = decode(ours.encode())
    assert found.style.encode(found.text) == ours.encode()
    sites = find_replacements(found.text, old, new, eol)
    assert apply_replacements(found.text, sites) == text.replace(old, new).replace("\n", eol)
    assert len(sites) == text.count(old)
    for site in sites:
        assert shown_change(found.text, site)


@given(st.binary(max_size=60))
def test_decoding_is_lossless(data: bytes) -> None:
    found = decode(data)
    if found is not None:
        assert found.style.encode(found.text) == data


# --- what the model is shown ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("three", "3", " 1\tone\n 2\ttwo\n-3\tthree\n+3\t3\n 4\tfour\n 5\tfive"),
        ("three\n", "", " 1\tone\n 2\ttwo\n-3\tthree\n 3\tfour\n 4\tfive"),
        ("three\n", "3\n3b\n", " 1\tone\n 2\ttwo\n-3\tthree\n+3\t3\n+4\t3b\n 5\tfour\n 6\tfive"),
        ("one\ntwo\nthree", "one\n2\nthree", " 1\tone\n-2\ttwo\n+2\t2\n 3\tthree\n 4\tfour"),
        ("three\nfour", "three and four", (" 1\tone\n 2\ttwo\n-3\tthree\n-4\tfour\n+3\tthree and "
                                          "four\n 4\tfive")),
        ("three\nfour\n", "34", " 1\tone\n 2\ttwo\n-3\tthree\n-4\tfour\n-5\tfive\n+3\t34five"),
    ],
)  # fmt: skip
async def test_a_confirmation_shows_the_lines(harness: Any, old: str, new: str, shown: str) -> None:
    path = harness.file("n.txt", "one\ntwo\nthree\nfour\nfive\n")
    await harness.call("Read", file_path="n.txt")
    text = await harness.call("Edit", file_path="n.txt", old_string=old, new_string=new)
    rows = [f"{row[0]}{row[1:]}" for row in shown.split("\n")]
    expected = "\n".join(
        f"{row[1:].split(chr(9))[0]}{row[0]}\t{row.split(chr(9))[1]}" for row in rows
    )
    assert text == f"Edited {path}.\n{expected}"


async def test_many_places(harness: Any) -> None:
    path = harness.file("n.txt", "x\na\nb\nc\nd\n" * 5)
    await harness.call("Read", file_path="n.txt")
    text = await harness.call(
        "Edit", file_path="n.txt", old_string="x\n", new_string="y\nz\n", replace_all=True
    )
    assert text.startswith(
        f"Edited {path} in 5 places.\n1-\tx\n1+\ty\n2+\tz\n3 \ta\n4 \tb\n5 \tc\n6 \td\n7-\tx\n"
    )
    assert text.endswith("… and 2 more")
    assert path.read_text() == "y\nz\na\nb\nc\nd\n" * 5


@pytest.mark.parametrize(("content", "old", "new", "shown"), [
    ("x x x\n", "x", "y", "1-\tx x x\n1+\ty y y"),
    ("x\na\nx\n", "x", "y", "1-\tx\n2-\ta\n3-\tx\n1+\ty\n2+\ta\n3+\ty"),
    ("x\n" * 3, "x\n", "", "1-\tx\n2-\tx\n3-\tx"),
    ("x\r" * 2, "x", "y", "1-\tx\n2-\tx\n1+\ty\n2+\ty"),
])  # fmt: skip
async def test_places_beside_each_other_are_shown_as_they_are_now(
    harness: Any, content: str, old: str, new: str, shown: str
) -> None:
    path = harness.file("n.txt", content)
    await harness.call("Read", file_path="n.txt")
    text = await harness.call(
        "Edit", file_path="n.txt", old_string=old, new_string=new, replace_all=True
    )
    assert text.partition("\n")[2] == shown
    assert path.read_bytes().decode() == content.replace(old, new)
