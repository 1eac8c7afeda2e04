"""Names of keys, the check of the `[keys]` settings, and keys of keyboard protocols."""

import pytest

from longrein.frontends.terminal.keymap import ACTIONS, key_rows, keymap, parse_key
from longrein.frontends.terminal.terminal_input import KeyParser, legacy_keys


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ctrl-g", ("c-g",)),
        ("Ctrl-G", ("c-g",)),
        ("alt-enter", ("escape", "enter")),
        ("shift-enter", ("escape", "enter")),
        ("shift-tab", ("s-tab",)),
        ("alt-x", ("escape", "x")),
        ("ctrl-alt-x", ("escape", "c-x")),
        ("f5", ("f5",)),
        ("ctrl-x ctrl-e", ("c-x", "c-e")),
        ("ctrl-left", ("c-left",)),
        ("ctrl-space", ("c-@",)),
        ("pagedown", ("pagedown",)),
    ],
)
def test_a_key_is_named_as_people_write_it(text: str, names: tuple[str, ...]) -> None:
    assert parse_key(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("x", "types or moves"),
        ("up", "types or moves"),
        ("x y", "types or moves"),
        ("enter", "meaning of its own"),
        ("ctrl-c", "meaning of its own"),
        ("ctrl-m", "meaning of its own"),
        ("hyper-x", "is no key"),
        ("ctrl-nope", "is no key"),
        ("shift-a", "type the letter"),
        ("ctrl-1", "terminals can tell"),
    ],
)
def test_a_key_that_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_key(text)


def test_the_usual_keys_have_no_conflict() -> None:
    found, problems = keymap({})
    assert not problems
    assert [*found] == [action.name for action in ACTIONS]
    assert found["new_line"] == (("escape", "enter"), ("c-j",))


def test_mistakes_are_lines_and_leave_the_usual_keys() -> None:
    found, problems = keymap({"editor": ("ctrl-e", "c")})
    assert problems == [
        (
            "keys.editor: `c` types or moves; use it with ctrl or alt, or take a function key; "
            "Ctrl-G "
            "stays"
        )
    ]
    assert found["editor"] == (("c-g",),)


def test_a_key_that_is_chosen_is_taken_from_its_usual_action() -> None:
    found, problems = keymap({"editor": ("ctrl-r",), "redraw": ()})
    assert (found["editor"], found["history_search"], found["redraw"], problems) == (
        (("c-r",),),
        (),
        (),
        [],
    )
    found, problems = keymap({"editor": ("f5",), "redraw": ("f5",)})
    assert problems == ["keys.redraw: the key is that of keys.editor already; left out"]
    assert found["redraw"] == ()


def test_the_rows_of_the_help_show_the_keys_that_hold() -> None:
    rows = key_rows({"editor": ("ctrl-x ctrl-e",), "redraw": ()})
    assert ("Ctrl-X Ctrl-E", "edit the input in $VISUAL or $EDITOR", "keys.editor") in rows
    assert ("no key", "redraw", "keys.redraw") in rows


@pytest.mark.parametrize(
    ("sent", "plain"),
    [
        ("plain text\r", "plain text\r"),
        ("\x1b[A\x1b[1;5C\x1b[3~", "\x1b[A\x1b[1;5C\x1b[3~"),
        ("\x1b[97;5u", "\x01"),
        ("\x1b[97;6u", "\x01"),
        ("\x1b[99;69u", "\x03"),  # with Caps Lock
        (
            "\x1b[1089::99;5u",
            "\u0441",
        ),  # a layout without the letter: types, as no control key is known
        ("\x1b[27u\x1b[27;1u", "\x1b\x1b"),
        ("\x1b[13;2u", "\x1b\r"),
        ("\x1b[13;3u", "\x1b\r"),
        ("\x1b[13;5u", "\n"),
        ("\x1b[27;2;13~", "\x1b\r"),
        ("\x1b[27;5;103~", "\x07"),
        ("\x1b[9;2u", "\x1b[Z"),
        ("\x1b[98;3u", "\x1bb"),
        ("\x1b[127;3u\x1b[127;5u", "\x1b\x7f\x17"),
        ("\x1b[32;5u", "\0"),
        ("\x1b[97;2u", "A"),
        ("\x1b[97;5:3u", ""),  # released
        ("\x1b[57441;2u", ""),  # Shift alone
        ("\x1b[99999999u", ""),
        ("\x1b[1;129A\x1b[3;133~\x1b[3;129~", "\x1b[A\x1b[3;5~\x1b[3~"),
    ],
)
def test_keys_of_both_protocols_become_those_of_plain_terminals(sent: str, plain: str) -> None:
    assert legacy_keys(sent) == plain


def test_a_key_that_comes_in_pieces_is_one_key_and_a_paste_is_left_alone() -> None:
    keys: list[str] = []
    answers: list[bool] = []
    parser = KeyParser(lambda press: keys.append(f"{press.data}"), lambda: answers.append(True))
    for piece in "x\x1b[13;2uy\x1b[?1u":
        parser.feed(piece)
    assert (keys, answers) == (["x", "\x1b", "\r", "y"], [True])
    keys.clear()
    parser.feed("\x1b[200~a\x1b[97;5ub")
    parser.feed("\x1b[97;5u\x1b[201~")
    assert keys[-1].endswith("\x1b[97;5u")
    keys.clear()
    parser.feed("\x1b[1")
    assert keys == []
    parser.flush()
    assert "".join(keys).endswith("[1")
