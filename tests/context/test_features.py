"""Features of lines and calls: identifiers, paths, exact lines, and the effect of a call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.context.clearing.text_features import (
    call_content,
    features,
    identifiers,
    is_declaration,
    is_partial_read,
    kind_of_name,
    line_key,
    line_keys,
    names_by_line,
    tool_class,
    touched_paths,
)
from longrein.events import decode_object


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the plain words here", ()),
        ("call load_orders now", ("load_orders",)),
        ("camelCase and v2release", ("camelCase", "v2release")),
        ("see src/app/main_view.py", ("src/app/main_view.py", "main_view")),
        ("pkg.module.handle_it()", ("pkg.module.handle_it", "handle_it")),
        ("README.md", ("README.md",)),
        ("中文 und naïve", ()),
    ],
)
def test_identifiers(text: str, expected: tuple[str, ...]) -> None:
    assert identifiers(text) == expected


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("short", ""),
        ("    return compute_total(ledger)", "\nreturn compute_total(ledger)"),
        ("   412→    return compute_total(ledger),", "\nreturn compute_total(ledger)"),
        ("12: return compute_total(ledger)", "\nreturn compute_total(ledger)"),
        ("x" * 301, ""),
    ],
)
def test_two_equal_lines_have_one_key(line: str, key: str) -> None:
    assert line_key(line) == key


def test_features_are_identifiers_and_lines() -> None:
    assert list(features("def load_orders(path: str):\nok")) == [
        "load_orders",
        "\ndef load_orders(path: str):",
    ]


LINE = st.text(st.sampled_from("abXY_019./-→|:\t\r ,é\x1c中\ud800"), max_size=60)


@given(st.lists(LINE, min_size=1, max_size=6))
def test_many_lines_are_read_as_each_of_them_is(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert line_keys("\n" + text) == [line_key(line) for line in lines]
    assert names_by_line(text) == [identifiers(line) for line in lines]
    assert identifiers(text) == tuple(
        dict.fromkeys(name for line in lines for name in identifiers(line))
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "paths"),
    [
        ("Read", '{"file_path": "src/a.py"}', "read", ("src/a.py",)),
        (
            "Edit",
            '{"file_path": "src/a.py", "old_string": "a", "new_string": "b"}',
            "edit",
            ("src/a.py",),
        ),
        ("Bash", '{"command": "cat src/a.py"}', "read", ("src/a.py",)),
        ("Bash", '{"command": "cd x && rg needle"}', "search", ()),
        ("Bash", '{"command": "make test"}', "shell", ()),
        ("Agent", '{"prompt": "look"}', "agent", ()),
        ("mcp__x", '{"path": 3}', "other", ()),
        ("Read", "not json", "read", ()),
    ],
)
def test_what_a_call_does(tool: str, arguments: str, kind: str, paths: tuple[str, ...]) -> None:
    parsed = decode_object(arguments)
    assert (tool_class(kind_of_name(tool), parsed), touched_paths(parsed)) == (kind, paths)


def test_parts_and_contents() -> None:
    assert is_partial_read('{"file_path": "a", "offset": 3}')
    assert not is_partial_read('{"file_path": "a"}')
    assert call_content('{"a": "x", "b": ["y", {"c": "z"}], "d": 1}') == "x\ny\nz"
    assert call_content("raw text") == "raw text"


@pytest.mark.parametrize(
    ("line", "expected"),
    [("x = 1", False), ("def f():", True), ("  # def of why", False), ("     7→class Word:", True)],
)
def test_declarations(line: str, *, expected: bool) -> None:
    assert is_declaration(line) is expected
