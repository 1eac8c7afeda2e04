"""Substitutions in skills and commands (A2, A3): the placeholders of each agent, in one pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.tools import Style, substitute

VARIABLES = {"CLAUDE_SKILL_DIR": "/s/a", "CLAUDE_SESSION_ID": "id"}


def shown(style: Style, body: str, arguments: str, names: tuple[str, ...] = ()) -> str:
    """The text with commands as `<!command>` and files as `<@path>`."""
    marks = {"text": "{}", "command": "<!{}>", "file": "<@{}>"}
    return "".join(
        marks[piece.kind].replace("{}", piece.text)
        for piece in substitute(style, body, arguments, VARIABLES, names)
    )


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("$ARGUMENTS|$0|$1", '"x y" z', '"x y" z|x y|z'),
        ("$ARGUMENTS[1]-$ARGUMENTS[0]-$ARGUMENTS[9]", "a b", "b-a-"),
        ("no place", "a b", "no place\n\nARGUMENTS: a b"),
        ("no place", "", "no place"),
        ("$ARGUMENTS.", "", "."),
        ("it costs $5 and $1.50", "", "it costs $5 and $1.50"),
        ("awk '{print $NF}' $HOME $unknown", "", "awk '{print $NF}' $HOME $unknown"),
        (r"\$ARGUMENTS \$0 \$HOME \\n", "a", "$ARGUMENTS $0 \\$HOME \\\\n\n\nARGUMENTS: a"),
        ("${CLAUDE_SKILL_DIR}/x ${CLAUDE_SESSION_ID} ${OTHER}", "", "/s/a/x id ${OTHER}"),
        ("${CLAUDE_SKILL_DIR}", "a", "/s/a\n\nARGUMENTS: a"),
        ("$0", "it's broken", "it's"),
        ("$0", "$1 !`ls`", "$1"),
        (
            "$ARGUMENTS",
            "$ARGUMENTS ${CLAUDE_SKILL_DIR} !`ls` @x",
            "$ARGUMENTS ${CLAUDE_SKILL_DIR} !`ls` @x",
        ),
        ("!`git log $0`", "main", "<!git log main>"),
        ("a !`ls` b", "", "a <!ls> b"),
        ("a!`ls` `!`x", "", "a!`ls` `!`x"),
        ("(!`ls`)", "", "(!`ls`)"),
        ("x\n```!\nls $0\npwd\n```\ny", "d", "x\n<!ls d\npwd>\ny"),
        ("```!bash\nls\n```", "", "<!ls>"),
        ("```\n!x\n```", "", "```\n!x\n```"),
        ("```!\nnever closed", "", "```!\nnever closed"),
        ("!``", "", "!``"),
    ],
)
def test_A18_4_placeholders_of_claude_code(body: str, arguments: str, expected: str) -> None:
    assert shown("claude", body, arguments) == expected


def test_A2_declared_names() -> None:
    found = shown("claude", "$pr at $level, $pr_id", "7 high", ("pr", "level"))
    assert found == "7 at high, $pr_id"


@pytest.mark.parametrize(
    ("style", "body", "arguments", "expected"),
    [
        ("opencode", "$1|$2", "a b c d", "a|b c d"),
        ("opencode", "$1|$2|$3", '"a b" c', "a b|c|"),
        ("opencode", "$ARGUMENTS !`ls $1`", "a b", "a b <!ls a b>"),
        ("codex", "$1 $2 $ARGUMENTS $$1", "a b", "a b a b $1"),
        ("codex", "fix $FILE at $LINE, $OTHER", "FILE=a.py LINE='3 4'", "fix a.py at 3 4, $OTHER"),
        ("gemini", "do {{args}} !{grep {{args}} x | awk '{print $1}'} @{a b.txt}", "it's",
         "do it's <!grep 'it'\"'\"'s' x | awk '{print $1}'> <@a b.txt>"),
        ("gemini", "no place", "a b", "no place\n\nARGUMENTS: a b"),
        ("gemini", "!{never closed {{args}}", "a", "!{never closed a"),
        ("gemini", "$1 $ARGUMENTS !`ls`", "", "$1 $ARGUMENTS !`ls`"),
    ],
)  # fmt: skip
def test_A3_the_first_argument_is_decided_by_the_source(
    style: Style, body: str, arguments: str, expected: str
) -> None:
    assert shown(style, body, arguments) == expected


@given(
    style=st.sampled_from(("claude", "opencode", "codex", "gemini")),
    body=st.text(st.sampled_from("$0{}!`@\\AR[1]\n a"), max_size=60),
    arguments=st.text(st.sampled_from("$0'\" ab"), max_size=10),
)
def test_any_text_is_read_without_an_error(style: Style, body: str, arguments: str) -> None:
    pieces = substitute(style, body, arguments, VARIABLES)
    assert all(piece.text for piece in pieces)
    if not any(mark in body for mark in ("$", "!", "@", "{", "\\")) and not arguments.strip():
        assert "".join(piece.text for piece in pieces) == body


def test_a_huge_text_of_braces_is_read_in_linear_time() -> None:
    found = "".join(piece.text for piece in substitute("gemini", "!{" * 5_000, "", {}))
    assert found == "!{" * 5_000
    assert substitute("claude", "```!\n" * 5_000, "", {})
    assert substitute("claude", "!`" * 50_000, "", {})
