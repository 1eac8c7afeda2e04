"""Edges of rules where one character decides: tool names, patterns in a text, options, names of
programs in front of a command.
"""

import pytest

from longrein.permissions import Verdict
from longrein.permissions.bash_parser import Word
from longrein.permissions.command_rules import exact_rule
from longrein.permissions.rules import Glob, PathPattern, names, parse_rule
from tests.permissions.calls import ROOT, bash, verdict, write


@pytest.mark.parametrize(
    ("rule", "tool", "named"),
    [
        ("mcp__shop", "mcp__shop__buy", True),
        ("mcp__shop", "mcp__shop", True),
        ("mcp__shop", "mcp__shopping__buy", False),
        ("mcp__shop", "mcp__other__buy", False),
        ("mcp__shop", "Bash", False),
        ("Web*", "WebFetch", True),
        ("Web", "Web__x", False),
        ("Web", "WebFetch", False),
    ],
)
def test_a_rule_names_its_tool_and_the_tools_of_its_server(
    rule: str, tool: str, named: bool
) -> None:
    assert names(parse_rule(rule), tool) is named


@pytest.mark.parametrize(
    ("pieces", "text", "starts", "found"),
    [
        (["make", ""], "make test", {0}, True),
        (["make", ""], "cmake test", {0}, False),
        (["make", ""], "cmake test make x", {11}, True),
        (["make", ""], "cmake test make x", {3}, False),
        (["", "a", "b"], "ab", {0}, True),
        (["", "a", "b"], "ba", {0}, False),
        (["x", "a", "b"], "xb", {0}, False),
    ],
)
def test_a_pattern_is_found_only_where_it_may_begin(
    pieces: list[str], text: str, starts: set[int], found: bool
) -> None:
    glob = Glob(pieces, open_end=False, loose=False)
    assert glob.search(text, frozenset(starts)) is found
    assert glob.match(text, starts) is found


@pytest.mark.parametrize(("path", "with_root"), [("/w", True), ("/w/a", True), ("/other", False)])
def test_a_pattern_for_what_is_below_leaves_the_folder_itself_out(
    path: str, with_root: bool
) -> None:
    assert PathPattern("/w", (), below=False).match(path) is with_root
    assert PathPattern("/w", (), below=True).match(path) is (with_root and path != "/w")


@pytest.mark.parametrize(
    ("word", "may_be"),
    [
        (Word("-x"), True),
        (Word("x"), False),
        (Word(""), False),
        (Word("", "open"), True),
        (Word("-", "open"), True),
        (Word("x", "open"), False),
        (Word("*.py", "glob"), True),
        (Word("src/*", "glob"), False),
    ],
)
def test_a_word_that_may_be_an_option_is_known(word: Word, may_be: bool) -> None:
    assert word.may_be_option is may_be


def allowed(command: str, rule: str) -> Verdict:
    return verdict(bash(command), allow=rule)


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git -C sub log", "Bash(git log *)"),
        ("git -C sub", "Bash(git log *)"),
        ("git -c", "Bash(git *)"),
        ("git", "Bash(git log *)"),
    ],
)
def test_options_of_git_before_its_verb_never_stumble(command: str, rule: str) -> None:
    assert allowed(command, rule).kind in ("allow", "ask")


def test_no_rule_is_offered_that_more_than_the_command_matches() -> None:
    def exact(command: str) -> str:
        call = bash(command)
        assert call.command is not None
        return exact_rule(call.command.script.parts)

    assert exact("rm -r build") == "Bash(rm -r build)"
    assert exact("rm -r 'build\n2'") == ""
    assert exact("rm -r 'b*'") == ""
    assert exact("sh") == ""


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("env -i make test", "allow"),
        ("env -iu A make test", "allow"),
        ("nice -n 5 make test", "allow"),
        ("timeout -k 5 10 make test", "allow"),
        ("env -iz make test", "ask"),
        ("timeout --unknown 10 make test", "ask"),
    ],
)
def test_options_of_wrappers_are_counted(command: str, kind: str) -> None:
    assert allowed(command, "Bash(make *)").kind == kind


def test_a_deny_rule_reaches_what_xargs_may_read() -> None:
    assert verdict(bash("echo .env | xargs cat"), deny="Read(.env)").kind != "allow"


def test_a_file_rule_without_a_path_forbids_the_tool_and_no_command() -> None:
    assert verdict(bash("cat a.txt"), deny="Read").kind == "allow"
    assert verdict(write(f"{ROOT}/a.txt"), deny="Edit").kind == "deny"
