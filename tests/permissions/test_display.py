"""Text shown for approval, and problems of invalid rules. Cases S028, S077."""

import unicodedata

import pytest

from longrein.permissions import Call, check_rule, escape, unseen_note, visible
from tests.permissions.calls import bash, verdict

SHOWN = [
    ("ls -l", "ls -l"),
    ("ls" + " " * 3000 + "; X", "ls [3000 blanks] ; X"),  # S028
    ("ls\r; X", "ls\\x0d; X"),
    ("ls\x1b[2K; X", "ls\\x1b[2K; X"),
    ("ls" + "\n" * 200 + "X", "ls\n[200 line breaks]\nX"),
    ("ls" + "\n \t" * 50 + "\nX", "ls\n[51 line breaks]\nX"),
    ("a\n\nb", "a\n\nb"),
    ("\tif x:\n\t\ty", "\tif x:\n\t\ty"),
    # S077
    ("a\u202eb", "a\\u202eb"),
    ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
    ("a\U000e0041b", "a\\U000e0041b"),
    ("a\u00a0b", "a\\xa0b"),
    ("a\u2028b", "a\\u2028b"),
    ("a\x9bb", "a\\x9bb"),
    ("a\ud800b", "a\\ud800b"),
    ("a\u3164b", "a\\u3164b"),
    ("a\ufe01b", "a\\ufe01b"),
    ("a\u200db", "a\\u200db"),
    ("日本語\u3000テスト", "日本語\u3000テスト"),
    ("👩\u200d💻 ok ❤\ufe0f", "👩\u200d💻 ok ❤\ufe0f"),
    ("می\u200cخواهم", "می\u200cخواهم"),
]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_S028_S077_nothing_is_hidden(text: str, shown: str) -> None:
    assert visible(text) == shown
    note, _, command = verdict(bash(text), ask="Bash").shown.rpartition(
        "\n" if unseen_note({"": text}) else "\0"
    )
    assert (note, command) == (unseen_note({"": text}), shown) or (not note and command == shown)


def test_S077_an_approval_tells_how_many_characters_cannot_be_seen() -> None:
    assert unseen_note({"command": "ls"}) == ""
    found = unseen_note({"command": "a\u202eb"})
    assert found == "[1 character that cannot be seen, written out below]"
    found = unseen_note({"p\x1b": "\U000e0041" * 40})
    assert found == "[41 characters that cannot be seen, written out below]"


CHARACTERS = [
    chr(code)
    for code in (*range(0x20000), *range(0xE0000, 0xE2000), 0x2FFFF, 0xF0000, 0x10FFFF)
    if code != 10
]
"""Of the planes beyond, each holds ideographs, private characters or nothing."""


def test_what_is_shown_for_approval_moves_no_cursor() -> None:
    shown = visible("".join(CHARACTERS))
    assert {c for c in shown if not c.isprintable()} <= set("\n\t\u3000")


def test_approvals_write_out_what_every_screen_does_and_what_looks_like_a_blank_or_a_box() -> None:
    lines = "\n".join(CHARACTERS)
    rows = list(zip(CHARACTERS, escape(lines).split("\n"), visible(lines).split("\n"), strict=True))
    assert not [c for c, on_screen, approved in rows if on_screen not in (c, approved)]
    kept = [c for c, on_screen, _ in rows if on_screen == c]
    assert not [
        c for c in kept if unicodedata.category(c) in ("Cs", "Zl", "Zp") or c in "\r\x1b\x7f\x9b"
    ]
    odd = {unicodedata.category(c) for c, on_screen, approved in rows if on_screen == c != approved}
    assert odd == {"Cn", "Co", "Cf", "Zs"}
    # of the format characters only those stay that have a sign of their own, such as the Arabic
    # number sign
    assert [hex(ord(c)) for c in kept if unicodedata.category(c) == "Cf"] == SEEN_FORMATS


SEEN_FORMATS = [
    *(hex(code) for code in range(0x600, 0x606)),
    *("0x6dd", "0x70f", "0x890", "0x891", "0x8e2", "0x110bd", "0x110cd"),
]


@pytest.mark.parametrize(
    "text",
    ["Voici\u202f: «\xa0oui\xa0»", "10\u202fkB", "a\u2009b", "\ue0b0 main", "日本語\u3000テスト"],
)
def test_blanks_and_icons_of_prose_stay_on_the_screen(text: str) -> None:
    assert escape(text) == text


def test_other_calls_are_shown_argument_by_argument() -> None:
    call = Call(
        "Write", {"file_path": "a\u202eb", "content": "x\ny\n", "mode": 3, "none": None}, "write"
    )
    assert (
        verdict(call).shown
        == f"{unseen_note(call.arguments)}\nfile_path: a\\u202eb\ncontent:\nx\ny\n\nmode: 3"
    )
    assert (
        verdict(
            Call("Bash", {"command": "ls", "description": "safe", "timeout": 5}, "command")
        ).shown
        == "ls"
    )
    assert verdict(Call("Run", {"command": "ls", "host": "h"}, "command")).shown == "ls\nhost: h"


CHECKED = [
    ("Bash", None),
    ("Bash(npm test)", None),
    ("mcp__mem__*", None),
    ("*", None),
    ("Edit(src/**)", None),
    ("WebFetch(domain:*.a.com)", None),
    ("", "no tool is named: write Tool or Tool(what)"),
    ("(x)", "no tool is named: write Tool or Tool(what)"),
    ("npm test", "'npm test' is not a tool name: write Tool or Tool(what)"),
    ("Bash(rm", "the closing bracket is missing"),
    ("Bash(rm) x", "the closing bracket is missing"),
    ("Bash()", "nothing stands between the brackets: write Bash for all its calls"),
    ("Read(!x)", "a path that starts with ! cannot be excepted: name what is meant"),
    ("WebFetch(a.com)", "write WebFetch(domain:example.com)"),
    ("WebFetch(domain:)", "no domain is named: write WebFetch(domain:example.com)"),
]


@pytest.mark.parametrize(("rule", "problem"), CHECKED)
def test_a_rule_without_sense_says_why(rule: str, problem: str | None) -> None:
    assert check_rule(rule) == problem


def test_an_allow_rule_that_could_never_allow_says_why() -> None:
    assert check_rule("Bash(a | b)") is None
    found = check_rule("Bash(a | b)", "allow")
    assert found == "a rule covers one command of a line, so it cannot hold `|`"
