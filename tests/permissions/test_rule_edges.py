"""Edges of rules where one character decides: tool names, patterns in a text, options, names of
programs in front of a command.
"""

import string

import msgspec
import pytest

from longrein.permissions import PartFacts, Verdict, read_command, read_folders
from longrein.permissions.bash_parser import Word
from longrein.permissions.command_rules import exact_rule
from longrein.permissions.rule_evaluation import suggest_rule
from longrein.permissions.rules import Glob, PathPattern, names, parse_rule
from longrein.permissions.types import Call
from tests.permissions.calls import HOME, ROOT, bash, read, verdict, write


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


@pytest.mark.parametrize(
    ("command", "reached"),
    [
        ("git push x", True),
        ("/usr/bin/git push x", True),
        ("git -C a push x", True),
        ("git -c a=b --no-pager push x", True),
        ("git --git-dir a --work-tree b -p push x", True),
        ("git log push x", False),
        ("git -C", False),
        ("git -p --bare", False),
        ("git --version", False),
        ("git", False),
    ],
)
def test_a_deny_rule_for_a_verb_of_git_looks_behind_all_options(
    command: str, reached: bool
) -> None:
    kind = verdict(bash(command), deny="Bash(git push *)", mode="bypassPermissions").kind
    assert (kind == "deny") is reached


@pytest.mark.parametrize(
    ("command", "folders"),
    [
        ("cat a sub/b", "a sub/b"),
        ("cat a*", "."),
        ("cat sub/a*", "sub"),
        ("cd sub; cat a", "sub/a a"),
        ("touch a", ""),
        ("ls", ""),
        ("grep -r x", "."),
        ("cat $X", ""),
        ("unknown a -b", "a"),
        ("xargs cat b", "b ."),
        ("echo a | xargs cat", "."),
        ("git log", ""),
        ("git diff ../x", "../x"),
        ("git grep --no-index x", "grep x ."),
    ],
)
def test_what_a_command_may_read_is_what_it_names_and_with_names_from_elsewhere_its_folder(
    command: str, folders: str
) -> None:
    above = ROOT.rpartition("/")[0]
    full = {".": ROOT, "../x": f"{above}/x"}
    expected = tuple(full.get(name, f"{ROOT}/{name}") for name in folders.split())
    assert read_folders(read_command(command, ROOT, HOME), ROOT) == expected


@pytest.mark.parametrize(
    ("operand", "is_read"),
    [("/x", True), ("../x", True), ("a/../b", True), ("..", True), ("a..b", False), ("a", False)],
)
def test_git_reads_outside_its_repository_what_leads_there_alone(
    operand: str, is_read: bool
) -> None:
    [effect] = read_command(f"git diff {operand}", ROOT, HOME).effects
    assert effect.reads == ((Word(operand),) if is_read else ())


@pytest.mark.parametrize(
    ("program", "letters"), [("cat", "AbeEnstTuv"), ("head", "cnqvz"), ("mkdir", "mpv")]
)
def test_a_rule_with_a_star_covers_the_known_letters_alone(program: str, letters: str) -> None:
    for letter in string.ascii_letters:
        wanted = "allow" if letter in letters else "ask"
        call = bash(f"{program} -{letter} 1 a")
        assert verdict(call, allow=f"Bash({program} *)").kind == wanted, letter


@pytest.mark.parametrize(
    ("word", "may_split"),
    [
        ("a", False),
        ("$x", True),
        ('"$x"', False),
        ('a"$x"', False),
        ('"$x"a', False),
        ('"$x""$y"', False),
        ('"$x"$y', True),
        ('$x"$y"', True),
        ("a$x", True),
        ("$x*", True),
        ('"$x"*', True),
        ('a*"$x"', True),
        ('"$@"b', True),
        ('b"$@"', True),
    ],
)
def test_a_word_may_be_several_if_one_of_its_pieces_may(word: str, may_split: bool) -> None:
    [part] = read_command(f"cat {word}", ROOT, HOME).script.parts
    assert part.words[1].may_split is may_split


def test_a_call_whose_facts_leave_out_a_part_is_not_judged() -> None:
    call = bash("cat a; rm -rf b")
    cut = msgspec.structs.replace(call, parts=(PartFacts(),))
    with pytest.raises(ValueError, match="argument"):
        verdict(cut, allow="Bash")


@pytest.mark.parametrize(
    ("tool", "arguments", "rule"),
    [
        ("Skill", {"skill": "deploy"}, "Skill(deploy)"),
        ("Skill", {"skill": "deploy*"}, ""),
        ("Skill", {"skill": "deploy\u202e"}, ""),
        ("Skill", {"skill": "x" * 193}, f"Skill({'x' * 193})"),  # 200 characters
        ("Skill", {"skill": "x" * 194}, ""),
        ("Skill", {}, "Skill"),
        ("WebFetch", {"url": "HTTPS://Shop.Example.:8443/cart?x"}, "WebFetch(domain:shop.example)"),
        ("WebFetch", {"url": "https://shop.example"}, "WebFetch(domain:shop.example)"),
        ("WebFetch", {"url": "https://user@shop.example/"}, ""),
        ("WebFetch", {"url": f"https://{'x' * 200}.example/"}, ""),
    ],
)
def test_always_stores_a_rule_that_a_person_can_read_or_none(
    tool: str, arguments: dict[str, str], rule: str
) -> None:
    assert suggest_rule(Call(tool, arguments, "none")) == rule


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (".git", "ask"),
        (".GIT", "ask"),
        (".git.", "ask"),
        (".git:stream", "ask"),
        ("GIT~1", "ask"),
        ("git~12", "ask"),
        ("git~x", "allow"),
        ("git~", "allow"),
        ("git", "allow"),
        ("gitco~1", "allow"),
    ],
)
def test_a_protected_folder_has_every_name_that_a_file_system_may_take_for_it(
    name: str, kind: str
) -> None:
    assert verdict(write(f"sub/{name}/config"), mode="acceptEdits").kind == kind


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("Agent(plan)", "deny"),
        ("Agent(explore)", "deny"),
        ("Agent(synthesis)", "deny"),
        ("Agent(general)", "ask"),
    ],
)
def test_a_rule_reaches_each_type_that_a_call_starts(rule: str, kind: str) -> None:
    tasks = [{"subagent_type": "explore"}, {"prompt": "as the call says"}]
    arguments = {"subagent_type": "plan", "tasks": tasks, "synthesis": "goal"}
    assert verdict(Call("Agent", arguments, "other", (), "Agent"), deny=rule).kind == kind
    assert verdict(Call("Agent", {}, "other", (), "Agent"), deny=rule).kind == (
        "deny" if rule == "Agent(general)" else "ask"
    )


@pytest.mark.parametrize("path", ["geheim/é.txt", "GEHEIM/É.TXT", "Geheim/É.txt"])
def test_a_deny_rule_is_blind_to_case_beyond_ascii(path: str) -> None:
    assert verdict(read(path), deny="Read(geheim/É.txt)").kind == "deny"
    assert verdict(read(path), deny="Read(geheim/e.txt)").kind == "allow"
