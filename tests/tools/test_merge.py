"""Three-way merge: both changes or a conflict; no conflict markers, no lost text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.tools.diff import hunks_of, merge

BASE = b"one\ntwo\nthree\nfour\nfive\n"
BOM = b"\xef\xbb\xbf"
BROKEN = b"a\nb\n\xff\xfe\nd\ne\n" + "字字字".encode()


def check(base: bytes, ours: bytes, theirs: bytes, expected: bytes | None) -> None:
    """The merge, whichever side is called ours."""
    assert merge(base, ours, theirs) == expected
    assert merge(base, theirs, ours) == expected


@pytest.mark.parametrize(("ours", "theirs", "expected"), [
    (b"1\ntwo\nthree\nfour\nfive\n", b"one\ntwo\nthree\nfour\n5\n", b"1\ntwo\nthree\nfour\n5\n"),
    (b"one\n2\nthree\nfour\nfive\n", b"one\ntwo\nthree\n4\nfive\n", b"one\n2\nthree\n4\nfive\n"),
    (b"zero\none\ntwo\nthree\nfour\nfive\n", BASE + b"six\n", b"zero\n" + BASE + b"six\n"),
    (b"two\nthree\nfour\nfive\n", b"one\ntwo\nthree\nfour\n", b"two\nthree\nfour\n"),
    (b"one\n2\nthree\nfour\nfive\n", b"one\n2\nthree\nfour\nV\n", b"one\n2\nthree\nfour\nV\n"),
    (b"1\ntwo\nthree\nfour\nfive\n", b"one\ntwo\nthree\nfour\nfive", b"1\ntwo\nthree\nfour\nfive"),
    (b"one\n2\nthree\nfour\nfive\n", b"one\nII\nthree\nfour\nfive\n", None),
    (b"one\n2\nthree\nfour\nfive\n", b"one\ntwo\n3\nfour\nfive\n", None),
    (BASE + b"six\n", BASE + b"sechs\n", None),
    (b"one\n2\nthree\nfour\nfive\n", b"", None),
    (BASE, b"x\0y", b"x\0y"),
    (b"1\ntwo\nthree\nfour\nfive\n", b"x\0y", None),
])  # fmt: skip
def test_lines(ours: bytes, theirs: bytes, expected: bytes | None) -> None:
    check(BASE, ours, theirs, expected)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        (b"a\r\nb\r\nc\r\n", b"A\r\nb\r\nc\r\n", b"a\r\nb\r\nC\r\n", b"A\r\nb\r\nC\r\n"),  # R081
        (b"a\nb\nc\n", b"A\nb\nc\n", b"a\r\nb\r\nc\r\n", b"A\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", b"a\nb\nc\n", b"a\r\nb\r\nC\r\n", b"a\nb\nC\n"),
        (b"a\nb\nc\n", b"a\rb\rc\r", b"a\r\nb\r\nc\r\n", None),
        (b"a\rb\rc", b"A\rb\rc", b"a\rb\rC", b"A\rb\rC"),
        (b"a\r\nb\nc\r\n", b"A\r\nb\nc\r\n", b"a\r\nb\nC\r\n", b"A\r\nb\nC\r\n"),
        (b"a\nb\nc\n", BOM + b"a\nb\nc\n", b"a\nb\nC\n", BOM + b"a\nb\nC\n"),
        (BOM + b"a\nb\nc\n", BOM + b"A\nb\nc\n", b"a\nb\nc\n", b"A\nb\nc\n"),
        ("é\nb\nc\n".encode(), "É\nb\nc\n".encode(), "é\nb\nç\n".encode(), "É\nb\nç\n".encode()),
        ("é\nb\nc\n".encode("latin-1"), "è\nb\nc\n".encode("latin-1"), "é\nb\nç\n".encode("latin-1"),  # noqa: E501
         "è\nb\nç\n".encode("latin-1")),
        (BROKEN, BROKEN.replace(b"a", b"A"), BROKEN.replace(b"e", b"E"),
         BROKEN.replace(b"a", b"A").replace(b"e", b"E")),
        ("\ufeffa\nb\nc\n".encode("utf-16-le"), "\ufeffA\nb\nc\n".encode("utf-16-le"),
         "\ufeffa\nb\nC\n".encode("utf-16-le"), "\ufeffA\nb\nC\n".encode("utf-16-le")),
        ("\ufeffa\nb\nc\n".encode("utf-16-le"), "\ufeffA\nb\nc\n".encode("utf-16-le"), b"a\nb\nC\n", None),  # noqa: E501
    ],
)  # fmt: skip
def test_line_ends_marks_and_encodings(
    base: bytes, ours: bytes, theirs: bytes, expected: bytes | None
) -> None:
    check(base, ours, theirs, expected)


LINES = st.lists(st.sampled_from(["a", "b", "", "}", "x = 1", "中"]), max_size=12)
EOLS = st.sampled_from(["\n", "\r\n", "\r"])


def text(lines: list[str], eol: str, *, end: bool) -> bytes:
    return (eol.join(lines) + eol * (end and bool(lines))).encode()


def lines_of(data: bytes) -> list[bytes]:
    return data.removeprefix(BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


@given(LINES, LINES, LINES, EOLS, st.booleans(), st.booleans())
def test_symmetric_and_made_of_what_was_written(
    base: list[str], ours: list[str], theirs: list[str], eol: str, end: bool, marked: bool
) -> None:
    """Either a conflict, or a text all of whose lines somebody wrote, without marks."""
    one, two, three = (BOM * marked + text(lines, eol, end=end) for lines in (base, ours, theirs))
    merged = merge(one, two, three)
    assert merged == merge(one, three, two)
    assert merge(one, two, one) == two
    assert merge(one, two, two) == two
    if merged is not None:
        assert merged.startswith(BOM) == marked
        assert set(lines_of(merged)) <= {*lines_of(one), *lines_of(two), *lines_of(three)}


@given(st.data(), EOLS)
def test_changes_of_different_places_are_both_there(data: Any, eol: str) -> None:
    """A base of different lines, changed at places with an unchanged line between: the merge has
    every change.
    """
    size = data.draw(st.integers(3, 20))
    places = data.draw(st.lists(st.integers(0, size - 1), unique=True, max_size=6).map(sorted))
    places = [place for n, place in enumerate(places) if n == 0 or place > places[n - 1] + 1]
    base = [f"line {n}" for n in range(size)]
    ours, theirs, both = ([[line] for line in base] for _ in range(3))
    for place in places:
        new = data.draw(st.lists(st.integers(100, 999).map(lambda n: f"new {n}"), max_size=3))
        mine, yours = data.draw(st.sampled_from([(True, False), (False, True), (True, True)]))
        both[place] = new
        if mine:
            ours[place] = new
        if yours:
            theirs[place] = new
    flat = [
        text([line for lines in side for line in lines], eol, end=True)
        for side in (ours, theirs, both)
    ]
    check(text(base, eol, end=True), *flat)


@given(LINES, LINES)
def test_hunks_give_the_new_lines(old: list[str], new: list[str]) -> None:
    made: list[str] = []
    at = 0
    for first, end, start, stop in hunks_of(old, new):
        assert (first, start) == (0, 0) or first > at or not made
        made += old[at:first] + new[start:stop]
        at = end
    assert made + old[at:] == new


def test_texts_that_have_nothing_in_common_are_one_hunk() -> None:
    old, new = [f"a{n}" for n in range(5_000)], [f"b{n}" for n in range(4_000)]
    assert hunks_of(["x", *old, "y"], ["x", *new, "y"]) == [(1, 5_001, 1, 4_001)]
