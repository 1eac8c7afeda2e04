"""Colours of shell commands, in lines of calls and in questions; no character is changed."""

from hypothesis import given
from hypothesis import strategies as st

from longrein.frontends.terminal.approvals import Question, content_lines
from longrein.frontends.terminal.call_lines import call_line
from longrein.frontends.terminal.event_lines import plain
from longrein.frontends.terminal.shell_syntax import CHARS_MAX, shell_lines
from longrein_context.events import PermissionAsked

COMMAND = "for f in *; do echo \"$f\" | grep 'a b'; done  # all\ngit push"


@given(st.text("ab$\"'`{}()|&;<>#\\\n 日=", max_size=60))
def test_no_character_is_changed(text: str) -> None:
    assert "\n".join(plain(row) for row in shell_lines(text)) == text


def test_words_of_the_shell_strings_and_comments_have_styles_of_their_own() -> None:
    first, second = shell_lines(COMMAND)
    styles = {text: style for style, text in first}
    shown = {part: styles[part] for part in ("for", "echo", "$f", "'a b'", "|", "# all")}
    assert shown == {
        "for": "bold",
        "echo": "bold",
        "$f": "run",
        "'a b'": "ok",
        "|": "warn",
        "# all": "dim",
    }
    assert plain(second) == "git push"
    assert len(shell_lines("echo " * CHARS_MAX)[0]) == 1


def test_a_call_and_a_question_show_the_same_colours() -> None:
    asked = PermissionAsked("c1", "Bash", COMMAND, "no rule allows it")
    assert content_lines(Question(asked)) == list(shell_lines(COMMAND))
    assert call_line("Bash", "echo 'a b'", "ok", "")[-1] == ("ok", "'a b'")
    assert call_line("Read", "echo 'a b'", "ok", "")[-1] == ("", "echo 'a b'")
