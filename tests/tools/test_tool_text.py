"""Text from outside: safe for wires and terminals (R061), cut between lines or characters."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.tools import clean
from longrein.tools.arguments import nearest
from longrein.tools.registry import read_docstring
from longrein.tools.text_encoding import cut_head, cut_tail, decode, visible


@pytest.mark.parametrize(("data", "expected"), [
    (b"plain\n\ttext\n", "plain\n\ttext\n"),
    ("中é😀\n".encode(), "中é😀\n"),
    (b"a\0b\x07c\x7fd", "abcd"),
    (b"caf\xe9", "caf\ufffd"),
    (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
    (b"\x1b[1;31mbold\x1b[0m\x1b[K", "bold"),
    (b"\x1b]0;title\x07x\x1b]52;c;aGk=\x1b\\y", "xy"),
    (b"\x1b]never ends\nnext", "\nnext"),
    (b"\x1bPq#0\x1b\\sixel", "sixel"),
    (b"\x1b(B\x1b=\x1bMx\x1b", "x"),
    ("\x9b31mred\x9d0;t\x9cx\x85y".encode(), "redxy"),
    (b"a\r\nb\r\n", "a\nb\n"),
    (b"10%\r20%\r\n", "20%\n"),
    (b"10%\r20%\r", "20%"),
    (b"h\0i\0 \0t\0h\0e\0r\0e\0", "hi there"),
    (b"\xff\xfeh\0i\0", "hi"),
    (b"alpha\0beta\0gamma\0", "alphabetagamma"),
    (b"", ""),
])  # fmt: skip
def test_clean(data: bytes, expected: str) -> None:
    assert clean(data) == expected


@given(st.binary(max_size=200))
def test_clean_text_is_safe(data: bytes) -> None:
    text = clean(data)
    msgspec.json.encode(text)
    assert not any(ord(char) < 32 and char not in "\n\t" for char in text)
    assert not any(0x7F <= ord(char) < 0xA0 for char in text)


@given(st.binary(max_size=200))
def test_shown_files_are_safe(data: bytes) -> None:
    found = decode(data)
    if found is not None:
        msgspec.json.encode(visible(found.text) if found.odd else found.text)


LEGACY = ("gbk", "gb18030", "big5", "shift_jis", "euc_kr", "euc_jp", "cp1252", "utf-16-le")


@given(
    st.binary(max_size=200)
    | st.builds(
        lambda text, name, tail: text.encode(name, "ignore") + tail,
        st.text(alphabet="ab \n\r中文函数函數返回テスト테스트éñ€“”ㄱｱ髙①"),
        st.sampled_from(LEGACY),
        st.binary(max_size=2),
    )
)
def test_decoding_loses_no_byte(data: bytes) -> None:
    found = decode(data)
    if found is not None:
        assert found.style.encode(found.text) == data


@pytest.mark.parametrize(("text", "encoding"), [
    ("函数返回值", "gbk"),
    ("函數返回值", "cp950"),
    ("テストです", "cp932"),
    ("테스트 파일", "cp949"),
    ("“Größe”", "cp1252"),
])  # fmt: skip
def test_an_encoding_is_seen_behind_a_long_beginning(text: str, encoding: str) -> None:
    data = b"# license\n" * 40_000 + text.encode(encoding)
    found = decode(data)
    assert found is not None
    assert (found.text[-len(text) :], found.style.encoding) == (text, encoding)


@pytest.mark.parametrize("data", [
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0",
    b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\0>\0\x01\0\0\0",
    bytes(range(1, 256)) * 4,
    b"\xa7\r\r\n\0\0\0\0\xd0\xc6\x1cd\x11\x01\0\0",
    b"\x1f\x8b\x08\0\xb1\xb2\xb3\xb4",
    b"alpha\0beta\0gamma\0delta\0" * 40,
    "中文\0文件\0函数\0".encode() * 40,
    "中文\0文件\0函数\0".encode("gbk") * 40,
    b"\x03\0\0\0\x05\0\0\0names\0values\0",
])  # fmt: skip
def test_no_binary_becomes_text(data: bytes) -> None:
    assert decode(data) is None


@given(st.text(alphabet="ab\n中😀", max_size=60).map(str.encode), st.integers(4, 40))
def test_cuts_break_no_character(data: bytes, limit: int) -> None:
    head, tail = cut_head(data, limit), cut_tail(data, limit)
    assert data.startswith(head)
    assert data.endswith(tail)
    assert len(head) <= limit
    assert len(tail) <= limit
    assert head.decode() + tail.decode() is not None
    assert head or not data
    assert tail or not data


def test_cuts_prefer_lines() -> None:
    assert cut_head(b"one\ntwo\nthree\n", 10) == b"one\ntwo\n"
    assert cut_tail(b"one\ntwo\nthree\n", 11) == b"two\nthree\n"
    assert cut_tail(b"one\ntwo\nthree\n", 10) == b"two\nthree\n"
    assert cut_tail(b"one\ntwo\nthree\n", 9) == b"three\n"
    assert cut_tail(b"x" * 20 + b"\n", 10) == b"x" * 9 + b"\n"


def test_nearest() -> None:
    assert nearest("path", ["file_path", "offset"]) == "file_path"
    assert nearest("Grpe", ["Read", "Grep"]) == "Grep"
    assert nearest("zzz", ["Read", "Grep"]) == ""


def test_docstrings() -> None:
    assert read_docstring(
        "One.\n\n    Two\n    three.\n\n    a: First.\n    b: Second:\n        more.\n    ",
        ["a", "b"],
    ) == ("One.\n\nTwo three.", {"a": "First.", "b": "Second: more."})
    assert read_docstring("a: is said.", ["a"]) == ("", {"a": "is said."})
    assert read_docstring("", []) == ("", {})
    found = read_docstring("One.\n\nnote: this is no parameter.", ["a"])
    assert found == ("One.\n\nnote: this is no parameter.", {})
