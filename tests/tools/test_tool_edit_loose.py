"""Loose matching of `Edit`: accepts a unique match with other spelling or indentation, changes
nothing else.
"""

import re
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from longrein.tools.find_replace import apply_replacements, find_replacements
from longrein.tools.loose_match import find_loose_matches, plain

pytestmark = pytest.mark.anyio


def taken(text: str, old: str, new: str) -> tuple[str, str]:
    """The text afterwards, and what is said of it; `refused` and at how many places it stands."""
    assert find_replacements(text, old, new, "\n") == []
    found = find_loose_matches(text, old, new, "\n")
    if len(found) != 1:
        return "refused", str(len(found))
    return apply_replacements(text, [found[0].replacement]), " and ".join(found[0].forgiven)


NFC, NFD = "caf\u00e9", "cafe\u0301"
ENDS, QUOTES, DASHES = "blanks at the end of lines", "quotes", "dashes"
DEEPER = "its indentation (4 blanks more in the file)"
SPACES, LETTERS = "no-break or typographic spaces", "composed and decomposed letters"

TAKEN: dict[str, tuple[str, str, str, str, str]] = {
    # file, old, new, file afterwards, what is said
    "blanks at the end in the file": ("a  \nb\t\nc\n", "a\nb\nc\n", "a\nB\nc\n", "a  \nB\t\nc\n",
    ENDS),
    "blanks at the end in the text": ("a\nb\nc\n", "a \nb  \n", "a \nB  \n", "a\nB\nc\n", ENDS),
    "blanks at its very end": ("x = 1\ny = 1\n", "x = 1 ", "x = 2 ", "x = 2\ny = 1\n", ENDS),
    "a line of blanks between": ("a\n    \nb\n", "a\n\nb\n", "a\n\nB\n", "a\n    \nB\n", ENDS),
    "new blanks at the end are wanted": ("a \nb\n", "a\nb", "a  \nb", "a  \nb\n", ENDS),
    "typographic quotes": ("say(\u201chi\u201d)\n", 'say("hi")', 'say("ho")',
    "say(\u201cho\u201d)\n", QUOTES),
    "an apostrophe": ("It\u2019s on.\n", "It's on", "It's off", "It\u2019s off.\n", QUOTES),
    "quotes the other way round": ('say("hi")\n', "say(\u201chi\u201d)", "say(\u201cho\u201d)",
    'say("ho")\n', QUOTES),
    "a dash": ("1914\u20131918 was\n", "1914-1918 was", "1914-1918 is", "1914\u20131918 is\n",
    DASHES),
    "a no-break space": ("10\u00a0km far\n", "10 km far", "10 km near", "10\u00a0km near\n",
    SPACES),
    "decomposed in the file": (f"le {NFD} noir\n", f"le {NFC} noir", f"le {NFC} vert",
    f"le {NFD} vert\n", LETTERS),
    "composed in the file": (f"le {NFC} noir\n", f"le {NFD} noir", f"le {NFD} vert",
    f"le {NFC} vert\n", LETTERS),
    "Hangul": (normalize("NFD", "한국 a\n"), "한국 a", "한국 b", normalize("NFD", "한국 ") + "b\n",
    LETTERS),
    "several ways at once": (
        f"{NFD} \u2014 \u201cx\u201d  \nend\n", f'{NFC} - "x"\nend', f'{NFC} - "x"\nEND',
        f"{NFD} \u2014 \u201cx\u201d  \nEND\n",
        f"{ENDS} and {QUOTES} and {DASHES} and {LETTERS}",
    ),
    "indented deeper in the file": (
        "if x:\n    a()\n    b()\n", "a()\nb()\n", "a()\nc()\nb()\n",
        "if x:\n    a()\n    c()\n    b()\n", DEEPER,
    ),
    "indented less in the file": (
        "a()\nif y:\n    b()\n", "    a()\n    if y:\n        b()\n",
        "    a()\n    if z:\n        b()\n        c()\n",
        "a()\nif z:\n    b()\n    c()\n", "its indentation (4 blanks less in the file)",
    ),
    "by a tab": (
        "{\n\ta;\n\t\tb;\n}\n", "a;\n\tb;\n", "a;\n\tc;\n\n", "{\n\ta;\n\t\tc;\n\n}\n",
        "its indentation (1 tab more in the file)",
    ),
    "one line too deep": ("  f()\n", "    f()", "    g()", "  g()\n",
    "its indentation (2 blanks less in the file)"),
    "indentation and an empty line": (
        "def f():\n    a = 1\n\n    b = 2\n", "a = 1\n\nb = 2\n", "a = 1\n\nb = 3\n\nc = 4\n",
        "def f():\n    a = 1\n\n    b = 3\n\n    c = 4\n", DEEPER,
    ),
    "indentation and quotes": (
        "  x = \u2018a\u2019\n  y = 1\n", "x = 'a'\ny = 1\n", "x = 'b'\ny = 1\n",
        "  x = \u2018b\u2019\n  y = 1\n",
        f"its indentation (2 blanks more in the file) and {QUOTES}",
    ),
    "line ends of the file": ("a \r\nb\r\nc\r\n", "a\nb\n", "a\nx\nb\n", "a \r\nx\r\nb\r\nc\r\n",
    ENDS),
    "all of it goes": ("a \nb\nc\n", "a\nb\n", "", "c\n", ENDS),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(name: str) -> None:
    text, old, new, after, said = TAKEN[name]
    assert taken(text, old, new) == (after, said)


REFUSED: dict[str, tuple[str, str, str, str]] = {
    # file, old, new, places
    "quotes at two places": ("\u201ca\u201d\n\u2018a\u2019 \u201ea\u201f\n", '"a"', '"b"', "2"),
    "blanks at two places": ("a \nb\na  \nb\n", "a\nb\n", "a\nc\n", "2"),
    "two depths": (
        "if x:\n    a()\n    b()\nif y:\n        a()\n        b()\n",
        "  a()\n  b()\n",
        "  a()\n  c()\n",
        "2",
    ),
    "overlapping": ("\u2013\u2013\u2013\n", "--", "++", "2"),
    "lines shifted each otherwise": ("  a\n    b\n", "a\nb\n", "a\nc\n", "0"),
    "tabs for blanks": ("\ta\n\t\tb\n", "    a\n        b\n", "    a\n        c\n", "0"),
    "new text less indented than what the file has less": (
        "a\nb\n",
        "    a\n    b\n",
        "    a\n  c\n",
        "0",
    ),
    "other words": ("a  \nb\n", "a\nc\n", "a\nd\n", "0"),
    "other case": ("It\u2019s\n", "it's", "x", "0"),
    "blanks inside a line": ("a  =  1 \n", "a = 1\n", "a = 2\n", "0"),
    "the beginning of a word": ("food\n", "foo ", "bar ", "0"),
    "a half of a letter": (f"{NFD}\n", "cafe\u0300", "x", "0"),
    "only blanks": ("a\n\n\nb\n", " \n \n", "\n", "0"),
    "an end that the file lacks": ("a ", "a\n", "b\n", "0"),
    "the indentation of a next line that is not there": ("a \nb\n", "a\n  ", "c\n  ", "0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    text, old, new, places = REFUSED[name]
    assert taken(text, old, new) == ("refused", places)


async def test_it_is_said_what_was_taken_and_ambiguity_names_the_lines(harness: Any) -> None:
    path = harness.file("a.py", "def f():\n    s = \u201cone\u201d  \n    return s\n")
    await harness.call("Read", file_path="a.py")
    old, new = 's = "one"\nreturn s\n', 's = "two"\nreturn s\n'
    assert await harness.call("Edit", file_path="a.py", old_string=old, new_string=new) == (
        f"Edited {path}.\nold_string stands there but for {DEEPER} and {ENDS} and {QUOTES}; what "
        "you left alone stays as it is there.\n1 \tdef f():\n2-\t    s = \u201cone\u201d\n2+\t    "
        "s = \u201ctwo\u201d\n3 \t    return s"
    )
    assert path.read_text() == "def f():\n    s = \u201ctwo\u201d  \n    return s\n"
    path.write_text("\u201ca\u201d\n\u2018a\u2019 \u201ea\u201f\n")
    await harness.call("Read", file_path="a.py")
    assert await harness.call("Edit", file_path="a.py", old_string='"a"', new_string='"b"') == (
        f"[no-match] old_string is not in {path}. It stands at several places but for how it is "
        "written, at lines 1, 2: give it as one of them is."
    )
    assert harness.last.status == "failed"
    assert path.read_text() == "\u201ca\u201d\n\u2018a\u2019 \u201ea\u201f\n"


# --- never a wrong change -------------------------------------------------------------------------

WORDS = [
    "a",
    "b()",
    "x = 1",
    '"q"',
    "\u201cq\u201d",
    "it's",
    "it\u2019s",
    "1-2",
    "1\u20132",
    "a\u00a0b",
    NFC,
    NFD,
    "",
    " ",
]
LEADS = ["", "  ", "    ", "\t", "\t  "]
LINES = st.tuples(
    st.sampled_from(LEADS),
    st.lists(st.sampled_from(WORDS), max_size=3),
    st.sampled_from(["", "", " ", "\t"]),
)
FILES = st.lists(
    LINES.map(lambda line: line[0] + " ".join(line[1]) + line[2]), min_size=1, max_size=8
)
FORMS = {
    "\u201c": '"', "\u201d": '"', "\u2019": "'", "\u2013": "-", "\u00a0": " ",
    '"': "\u201c", "'": "\u2019", "-": "\u2014",
}  # fmt: skip


def misremembered(line: str, draw: Any) -> str:
    """`line` as somebody might write it down who has seen it."""
    line = "".join(FORMS.get(c, c) if draw(st.booleans()) else c for c in line)
    line = normalize(draw(st.sampled_from(["NFC", "NFD"])), line)
    return line.rstrip(" \t") + draw(st.sampled_from(["", " ", "\t"]))


def key(line: str) -> str:
    return re.sub(r"\s+", " ", plain(line)).strip()


@given(st.data(), FILES, st.sampled_from(["\n", "\r\n"]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_change_of_one_line_changes_that_line_and_no_other_byte(
    data: Any, rows: list[str], eol: str, ended: bool
) -> None:
    """Some lines of the file are written down from memory, shifted or not; one of them is to get
    a mark at its end. If that is done, then there; if it is not clear where, or not the same
    text, nothing is done.
    """
    first = data.draw(st.integers(0, len(rows) - 1))
    last = data.draw(st.integers(first, len(rows) - 1))
    span = rows[first : last + 1]
    assume(any(row.strip() for row in span))
    target = data.draw(st.sampled_from([n for n, row in enumerate(span) if row.strip()]))
    shift = data.draw(st.sampled_from(["", "", "  ", "\t"]))
    old_rows = [(shift if row.strip() else "") + misremembered(row, data.draw) for row in span]
    new_rows = list(old_rows)
    new_rows[target] = (
        new_rows[target].rstrip(" \t")
        + "MARK"
        + new_rows[target][len(new_rows[target].rstrip(" \t")) :]
    )
    text = eol.join(rows) + (eol if ended else "")
    old, new = "\n".join(old_rows), "\n".join(new_rows)
    assume(not find_replacements(text, old, new, eol))
    found = find_loose_matches(text, old, new, eol)
    if len(found) != 1:
        return
    after = apply_replacements(text, [found[0].replacement])
    changed = after.split(eol)
    places = [n for n, row in enumerate(changed) if "MARK" in row]
    assert len(places) == 1
    [n] = places
    marked = changed[n]
    changed[n] = marked.replace("MARK", "")
    was = text.split(eol)
    assert changed == was, "no byte but the mark has changed"
    assert key(marked.partition("MARK")[0]).endswith(key(old_rows[target])), (
        "and it stands in the line that was meant"
    )


@given(st.data(), FILES)
@settings(max_examples=50, deadline=None)
def test_lines_that_stand_twice_are_never_chosen_between(data: Any, rows: list[str]) -> None:
    first = data.draw(st.integers(0, len(rows) - 1))
    span = rows[first : data.draw(st.integers(first, len(rows) - 1)) + 1]
    assume(any(row.strip() for row in span))
    text = "\n".join([*rows, "between", *(misremembered(row, data.draw) for row in span), ""])
    old = "\n".join(misremembered(row, data.draw) for row in span)
    assume(not find_replacements(text, old, "x", "\n"))
    assert len(find_loose_matches(text, old, "x", "\n")) != 1


@given(
    st.text("ab \t\n\r\"'\u201c\u2019-\u2013\u00a0e\u0301\u00e9", max_size=40),
    st.text("ab \n\"'-e\u00e9", min_size=1, max_size=12),
    st.text("ab \n\"'-e\u00e9X", max_size=12),
)
@settings(max_examples=150, deadline=None)
def test_what_stands_there_afterwards_is_the_new_text_and_all_around_is_untouched(
    text: str, old: str, new: str
) -> None:
    for one in (
        find_loose_matches(text, old, new, "\n")
        if not find_replacements(text, old, new, "\n")
        else []
    ):
        if len(find_loose_matches(text, old, new, "\n")) > 1:
            return
        replacement = one.replacement
        found = text[replacement.start : replacement.end]
        assert [key(row) for row in plainly(found)] == [key(row) for row in plainly(old)]
        assert [key(row) for row in plainly(replacement.new)] == [key(row) for row in plainly(new)]


def plainly(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


LARGE: dict[str, tuple[str, str]] = {
    "many lines with quotes": (
        "".join(f"  v_{n % 97} = \u201c{n}\u201d  \n" for n in range(20_000)),
        'v_1 = "no"\n',
    ),
    "one long line": ("a" * 3_000_000 + "\n", "a" * 50_000 + " "),
    "one long line of dashes": ("\u2013" * 100_000 + "\n", "-" * 20_000),
    "the same line again and again": ("a \n" * 300_000, "a\n" * 1_999 + "b"),
    "the same line, each time indented otherwise": (" a\na\n" * 100_000, "  a\n" * 1_999),
}


@pytest.mark.parametrize("name", LARGE)
def test_the_search_in_a_large_file_comes_to_an_end(name: str) -> None:
    """Where each place was compared with the whole text, these took hours."""
    text, old = LARGE[name]
    assert len(find_loose_matches(text, old, "x", "\n")) <= 5
