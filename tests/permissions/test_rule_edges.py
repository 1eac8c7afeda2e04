"""Edges of rules where one character decides: tool names, patterns in a text, options, names of
programs in front of a command.
"""

import string

import msgspec
import pytest

from longrein.permissions import PartFacts, Verdict, read_command, read_folders
from longrein.permissions.rule_evaluation import flag_rule, granted_rule, judge, suggest_rule
from longrein.permissions.rules import denies_every_call, obeyed_by
from longrein.permissions.types import Call, Rules, Touched
from tests.permissions.calls import HOME, ROOT, bash, read, verdict, write


def allowed(command: str, rule: str) -> Verdict:
    return verdict(bash(command), allow=rule)


@pytest.mark.parametrize(("command", "kind"), [
    ("env -i make test", "allow"),
    ("env -iu A make test", "allow"),
    ("nice -n 5 make test", "allow"),
    ("nice -- make test", "allow"),
    ("timeout -k 5 10 make test", "allow"),
    ("env -iz make test", "ask"),
    ("timeout --unknown 10 make test", "ask"),
])  # fmt: skip
def test_options_of_wrappers_are_counted(command: str, kind: str) -> None:
    assert allowed(command, "Bash(make *)").kind == kind


def test_a_file_rule_without_a_path_forbids_the_tool_and_no_command() -> None:
    assert verdict(bash("cat a.txt"), deny="Read").kind == "allow"
    assert verdict(write(f"{ROOT}/a.txt"), deny="Edit").kind == "deny"


@pytest.mark.parametrize(("command", "reached"), [
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
])  # fmt: skip
def test_a_deny_rule_for_a_verb_of_git_looks_behind_all_options(
    command: str, reached: bool
) -> None:
    kind = verdict(bash(command), deny="Bash(git push *)", mode="bypassPermissions").kind
    assert (kind == "deny") is reached


@pytest.mark.parametrize(("command", "folders"), [
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
])  # fmt: skip
def test_what_a_command_may_read_is_what_it_names_and_with_names_from_elsewhere_its_folder(
    command: str, folders: str
) -> None:
    above = ROOT.rpartition("/")[0]
    full = {".": ROOT, "../x": f"{above}/x"}
    expected = tuple(full.get(name, f"{ROOT}/{name}") for name in folders.split())
    assert read_folders(read_command(command, ROOT, HOME), ROOT) == expected


@pytest.mark.parametrize(
    ("program", "letters"), [("cat", "AbeEnstTuv"), ("head", "cnqvz"), ("mkdir", "mpv")]
)
def test_a_rule_with_a_star_covers_the_known_letters_alone(program: str, letters: str) -> None:
    for letter in string.ascii_letters:
        wanted = "allow" if letter in letters else "ask"
        call = bash(f"{program} -{letter} 1 a")
        assert verdict(call, allow=f"Bash({program} *)").kind == wanted, letter


@pytest.mark.parametrize(("tool", "arguments", "rule"), [
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
])  # fmt: skip
def test_always_stores_a_rule_that_a_person_can_read_or_none(
    tool: str, arguments: dict[str, str], rule: str
) -> None:
    assert suggest_rule(Call(tool, arguments, "none")) == rule


@pytest.mark.parametrize(("name", "kind"), [
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
])  # fmt: skip
def test_a_protected_folder_has_every_name_that_a_file_system_may_take_for_it(
    name: str, kind: str
) -> None:
    assert verdict(write(f"sub/{name}/config"), mode="acceptEdits").kind == kind


@pytest.mark.parametrize(("rule", "kind"), [
    ("Agent(plan)", "deny"),
    ("Agent(explore)", "deny"),
    ("Agent(synthesis)", "deny"),
    ("Agent(general)", "ask"),
])  # fmt: skip
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


# --- Rules and commands ---------------------------------------------------------------------------


def bypassed(command: str, rule: str) -> bool:
    """Return False if a deny rule stops a command that nothing else would stop."""
    return verdict(bash(command), deny=rule, mode="bypassPermissions").kind == "allow"


def test_a_deny_rule_reaches_what_a_line_may_run() -> None:
    reached = """
        test -v 'a[$(rm x)]' => rm *
        test -v 'a[`rm x`]' => rm *
        r$X a => rm *
        /usr/bin/git -p push => git push
        git --no-pager push -f x => git push x
        docker -D run x => docker run *
        docker run => docker run *
        eval $'rm x' => rm *
        eval $'r\\x6d x' => rm *
        eval "${x:-rm} a" => rm *
        eval {rm,a} => rm a
        eval ${x:+r}m a => rm *
        X=rm; eval $X a => rm *
        X='rm'; eval ${X} a => rm *
        eval rm$IFS-rf a => rm *
        eval r$(true)m a => rm *
        eval r`true`m a => rm *
        eval 2>&1 rm a => rm *
        eval /bin/rm a => rm *
        if x; then rm a; fi => rm *
        if x; then a/rm a; fi => rm *
    """
    spared = """
        test -v 'a[rm x]' => rm *
        test -v '$(rm x)' => rm *
        echo '[' rm x => rm *
        $X a => rm *
        q$X a => rm *
        r* a => rm *
        mygit push => git push
        if x; then arm a; fi => rm *
    """
    for rows, expected in ((reached, False), (spared, True)):
        for row in rows.strip().splitlines():
            command, rule = row.strip().split(" => ")
            assert bypassed(command, f"Bash({rule})") is expected, row


def test_a_question_says_what_else_a_line_does() -> None:
    def asked(command: str) -> str:
        found = verdict(bash(command))
        assert found.kind == "ask"
        return found.reason

    unknown = "is covered by no rule: frob is not known to only read"
    long = "x" * 100
    for command, reason in (
        ("frob a", f"`frob a` {unknown}"),
        ("frob a; frob b", f"`frob a` {unknown} (and 1 more part)"),
        ("frob a; frob b; frob c", f"`frob a` {unknown} (and 2 more parts)"),
        ("cat a; frob b", f"`frob b` {unknown} (the other part, `cat a`, is allowed)"),
        ("cat a; frob b; cat c", f"`frob b` {unknown}"),
        (f"frob {long}", f"`frob {long[:75]}` {unknown}"),
        (f"cat {long}; frob", f"`frob` {unknown} (the other part, `cat {long[:56]}`, is allowed)"),
        (f"cat ../{long}", f"`cat ../{long[:73]}`: it reads /work/{long}, outside the session's"),
    ):
        assert asked(command).startswith(reason)
        assert asked(command) == reason or command.startswith("cat ../")


def test_at_most_five_rules_are_offered_for_a_line() -> None:
    for count in (1, 5, 6):
        line = "; ".join(f"frob{n} a" for n in range(count))
        found = verdict(bash(line)).suggestions
        assert found == tuple(f"Bash(frob{n} a:*)" for n in range(count))[: 5 * (count < 6)]
    assert verdict(bash("; ".join(["frob a"] * 9))).suggestions == ("Bash(frob a:*)",)


MODE_ROWS = """
cat a           => allow allow allow allow allow | allow allow allow allow allow
rm a            => ask deny allow allow deny | ask deny allow allow deny
frob a          => ask deny ask ask deny | allow deny allow allow allow
echo x > a      => ask deny allow allow deny | ask deny allow allow deny
cat ../x        => ask deny ask ask deny | allow deny allow allow allow
git add a       => ask deny ask ask deny | ask deny allow allow deny
sed -i s/a/b/ f => ask deny allow allow deny | ask deny allow allow deny
find . -delete  => ask deny ask ask deny | ask deny allow allow deny
perl -pi x      => ask deny ask ask deny | ask deny allow allow deny
git log         => allow allow allow allow allow | allow allow allow allow allow
(               => ask deny ask ask deny | allow deny allow allow allow
$x a            => ask deny ask ask deny | allow deny allow allow allow
"""
"""Command => verdict in each mode, then the same in the sandbox."""
MODES = ("default", "plan", "acceptEdits", "auto", "dontAsk")


def test_what_each_mode_makes_of_a_command() -> None:
    wrong = []
    for row in MODE_ROWS.strip().splitlines():
        command = row.partition(" =>")[0].rstrip()
        plain, confined = (
            " ".join(verdict(bash(command, confined=how), mode=mode).kind for mode in MODES)
            for how in (False, True)
        )
        if row != (found := f"{command:<15} => {plain} | {confined}"):
            wrong.append(found)
        assert verdict(bash(command), mode="bypassPermissions").kind == "allow"
    assert not wrong


@pytest.mark.parametrize(("command", "edits"), [
    ("rm a", True),
    ("echo x > a", True),
    ("cp a b", True),
    ("frob a", False),
    ("cat ../x", False),
])  # fmt: skip
def test_a_question_knows_whether_accepting_edits_would_answer_it(
    command: str, edits: bool
) -> None:
    assert verdict(bash(command)).edits is edits
    assert verdict(bash(command), mode="acceptEdits").edits is False


# --- Rules and paths ------------------------------------------------------------------------------


def test_a_deny_rule_for_a_file_reaches_the_words_that_may_name_it() -> None:
    for rows, expected in (
        (
            (
                "frob .env|frob -f.env|frob --file=.env|frob @.env|frob a:.env|frob ~/.env"
                "|frob ./.env|frob $HOME/.env|frob ${HOME}/.env|cat <.env|frob .e*|frob .en?"
                "|frob sub/**|frob -x.env|shopt -s dotglob; frob *|git show HEAD:.env|frob .e$X"
                "|if x; then cat .env; fi"
            ),
            "deny",
        ),
        ("frob *|frob e*|frob env|frob .environment|frob x.env|frob -fx.env", "allow"),
    ):
        for command in rows.split("|"):
            found = verdict(bash(command), deny="Read(.env) + Read(~/.env)")
            assert (found.kind == "deny") is (expected == "deny"), command


def test_a_path_that_a_rule_names_is_named_by_its_first_folder() -> None:
    def denied(rule: str, path: str, cwd: str = ROOT) -> bool:
        return verdict(read(path), deny=f"Read({rule})", cwd=cwd).kind == "deny"

    for rule, path, cwd, expected in (
        ("//etc/x", "/etc/x", ROOT, True),
        ("//etc/x", "/etc/x/below", ROOT, True),
        ("/x", f"{ROOT}/x", ROOT, True),
        ("/x", f"{ROOT}/sub/x", ROOT, False),
        ("x", f"{ROOT}/sub/x", ROOT, True),
        ("sub/x", f"{ROOT}/sub/x", ROOT, True),
        ("sub/x", f"{ROOT}/a/sub/x", ROOT, False),
        ("./x", f"{ROOT}/x", ROOT, True),
        ("./x", f"{ROOT}/sub/x", ROOT, False),
        ("../x", "/work/x", ROOT, True),
        ("../x", f"{ROOT}/x", ROOT, False),
        ("../../x", "/x", ROOT, True),
        ("../../../x", "/x", ROOT, True),
        ("../x", f"{ROOT}/x", f"{ROOT}/sub", True),
        ("~/x", f"{HOME}/x", ROOT, True),
        ("~", f"{HOME}/x", ROOT, True),
        ("~x", f"{HOME}/x", ROOT, False),
        ("a[bc]d", f"{ROOT}/abd", ROOT, True),
        ("a[!bc]d", f"{ROOT}/abd", ROOT, False),
        ("a[!bc]d", f"{ROOT}/axd", ROOT, True),
        ("a[^bc]d", f"{ROOT}/abd", ROOT, False),
        ("a[]]d", f"{ROOT}/a]d", ROOT, True),
        ("a[d", f"{ROOT}/a[d", ROOT, True),
        ("a]d", f"{ROOT}/a]d", ROOT, True),
        ("[ab]", f"{ROOT}/b", ROOT, True),
        ("[ab]x", f"{ROOT}/bx", ROOT, True),
        ("a[z-b]d", f"{ROOT}/axd", ROOT, True),
        ("a[z-b]d", f"{ROOT}/axxd", ROOT, False),
        ("a\\*d", f"{ROOT}/a*d", ROOT, True),
        ("a\\*d", f"{ROOT}/abd", ROOT, False),
        ("a\\", f"{ROOT}/a\\", ROOT, True),
        ("a?d", f"{ROOT}/abd", ROOT, True),
        ("a?d", f"{ROOT}/a/d", ROOT, False),
        ("a**d", f"{ROOT}/abcd", ROOT, True),
        ("a*b*c", f"{ROOT}/a1b2c", ROOT, True),
        ("a*b*c", f"{ROOT}/a1c2b", ROOT, False),
        ("s/**/x", f"{ROOT}/s/x", ROOT, True),
        ("s/**/x", f"{ROOT}/s/a/b/x", ROOT, True),
        ("s/**", f"{ROOT}/s", ROOT, True),
        ("s/", f"{ROOT}/s", ROOT, True),
        ("**", f"{ROOT}/a", ROOT, True),
        ("**", "/elsewhere/a", ROOT, False),
    ):
        assert denied(rule, path, cwd) is expected, (rule, path)


def test_an_allow_rule_matches_exactly() -> None:
    def allows(rule: str, path: str, real: str = "") -> bool:
        return verdict(read(path, real), allow=f"Read({rule})").kind == "allow"

    for rule, path, expected in (
        ("//etc/x", "/etc/x", True),
        ("//etc/x", "/etc/X", False),
        ("//etc/", "/etc/x", True),
        ("//etc/", "/etc", False),
        ("//etc/**", "/etc/x", True),
        ("//etc/**", "/etc", False),
        ("//etc/[z-b]", "/etc/[z-b]", True),
        ("//etc/[z-b]", "/etc/x", False),
        ("//etc/[!.]*", "/etc/x/y", True),
        ("//etc/[!.]*", "/etc/.x", False),
        ("//etc/[!.]*", "/etc/x/.y", False),
        ("//.etc/[!.]*", "/.etc/x/y", True),
        ("~/[!.]*", f"{HOME}/x", True),
        ("~/[!.]*", f"{HOME}/x/.y", False),
        ("../.d/[!.]*", "/work/.d/x", True),
        ("../.d/[!.]*", "/work/.d/x/.y", False),
        ("~", f"{HOME}/x", True),
    ):
        assert allows(rule, path) is expected, (rule, path)
    assert not allows("//etc/x", "/etc/x", "/etc/y")


def test_a_tool_is_not_offered_if_every_call_of_it_is_denied() -> None:
    for deny, tool, rule_name, expected in (
        ("Bash", "Bash", "", True),
        ("Bash(*)", "Bash", "", True),
        ("Bash(rm *)", "Bash", "", False),
        ("Bash(", "Bash", "", True),
        ("Read(*)", "Read", "", False),
        ("Edit", "Write", "Edit", True),
        ("Edit(x)", "Write", "Edit", False),
        ("Edit(", "Write", "Edit", False),
        ("mcp__s", "mcp__s__x", "", True),
        ("mcp__s", "Bash", "", False),
    ):
        assert denies_every_call([deny], tool, rule_name) is expected, deny


def test_files_that_agents_obey_are_told_of() -> None:
    for path in ("/w/CLAUDE.md", "CLAUDE.md", "/w/.github/copilot-instructions.md"):
        assert obeyed_by(path) == "coding agents"
    for path in ("/w/claude.md", "/w/x/copilot-instructions.md", "/w/CLAUDE.md/x", "/w/x"):
        assert obeyed_by(path) == ""


def test_a_yes_to_a_folder_leaves_dotfiles_out() -> None:
    assert granted_rule("Edit(src/**)", ROOT) == f"Edit(/{ROOT}/src/[!.]*)"
    for text in ("Edit(src/sub/**)", "Edit(~/**)", "Edit(src)", "Read(src/**)", "Edit(/**)"):
        assert granted_rule(text, ROOT) == text
    for path, rule in (
        ("src/a.py", "Edit(src/**)"),
        ("a.py", f"Edit(/{ROOT}/a.py)"),
        ("src/.x/a", f"Edit(/{ROOT}/src/.x/a)"),
        ("/other/a", "Edit(//other/a)"),
        ("a#b", ""),
        ("a*", ""),
    ):
        assert suggest_rule(write(path), ROOT) == rule
    linked = write("src/a.py", f"{ROOT}/lib/a.py")
    assert suggest_rule(linked, ROOT) == ""
    assert suggest_rule(write("src/a.py"), "") == f"Edit(/{ROOT}/src/a.py)"
    assert suggest_rule(write("src/.git/config"), ROOT) == f"Edit(/{ROOT}/src/.git/config)"
    assert suggest_rule(read("src/a.py"), ROOT) == f"Read(/{ROOT}/src/a.py)"
    assert suggest_rule(write(ROOT), ROOT) == ""
    assert suggest_rule(write("/work"), ROOT) == ""
    both = msgspec.structs.replace(
        write("src/a"), touched=(*write("src/a").touched, *write("lib/b").touched)
    )
    assert suggest_rule(both, ROOT) == ""


def test_a_file_of_no_known_path_is_not_covered() -> None:
    unknown = Touched("x", "an unknown file", "an unknown file", False, False)
    assert verdict(Call("Read", {}, "read", (unknown,), "Read"), allow="Read(**)").kind == "ask"


# --- Edges of one rule ----------------------------------------------------------------------------


def test_hidden_folders_around_a_project_hide_nothing_in_it() -> None:
    """`[!.]*` leaves dotfiles out, whatever the names of the folders above are."""
    rules = Rules(("Read(~/[!.]*)", "Read(//etc/[!.]*)", "Read(/[!.]*)"), base="/w/.b", home="/.h")
    for path, kind in (
        ("/etc/x", "allow"),
        ("/etc/.x", "ask"),
        ("/etc/x/.y", "ask"),
        ("/.h/x", "allow"),
        ("/.h/x/.y", "ask"),
        ("/w/.b/x", "allow"),
        ("/w/.b/x/.y", "ask"),
    ):
        touching = Touched(path, path, path, False, False)
        call = Call("Read", {}, "read", (touching,), "Read")
        assert judge(call, rules, "default", "/w/.b").kind == kind, path
    plain = msgspec.structs.replace(rules, base="/w/b")
    touching = Touched("/.h/x/.y", "/.h/x/.y", "/.h/x/.y", False, False)
    call = Call("Read", {}, "read", (touching,), "Read")
    assert judge(call, plain, "default", "/w/b").kind == "ask"


@pytest.mark.parametrize(("tool", "arguments", "deny", "kind"), [
    ("Skill", {"skill": "deploy"}, "Skill(DEPLOY)", "deny"),
    ("Skill", {"skill": "deploy"}, "Skill(dep*)", "deny"),
    ("Skill", {"skill": "deploy"}, "Skill(dep)", "ask"),
    ("Skill", {"skill": "a", "name": "b"}, "Skill(b)", "ask"),
    ("Skill", {"name": "b"}, "Skill(b)", "deny"),
    ("Skill", {"skill": 5, "name": "b"}, "Skill(b)", "deny"),
    ("Skill", {"key": "v"}, "Skill(key:v)", "deny"),
    ("Skill", {"key": "v"}, "Skill(other:v)", "ask"),
    ("Agent", {"tasks": []}, "Agent(general)", "deny"),
    ("Agent", {"tasks": "x"}, "Agent(general)", "deny"),
    ("Agent", {"tasks": ["x"]}, "Agent(general)", "ask"),
    ("WebFetch", {"url": "https://a.b/x"}, "WebFetch(domain:b)", "deny"),
    ("WebFetch", {"url": "https://u@a.b:80/x"}, "WebFetch(domain:A.B.)", "deny"),
    ("WebFetch", {"url": "a.b"}, "WebFetch(domain:*.b)", "deny"),
    ("WebFetch", {"url": "https://xb/"}, "WebFetch(domain:b)", "ask"),
    ("WebFetch", {"url": "https://c/?a.b"}, "WebFetch(domain:a.b)", "ask"),
])  # fmt: skip
def test_a_deny_rule_for_an_argument(
    tool: str, arguments: dict[str, object], deny: str, kind: str
) -> None:
    assert verdict(Call(tool, arguments, "other"), deny=deny).kind == kind


@pytest.mark.parametrize(("command", "deny", "reached"), [
    ("cat a", "Bash(", True),
    ("cat a", "Read(", False),
    ("a" * 30_001, "Read(x)", True),
    ("a" * 30_001, "Bash(x)", True),
    ("( " + " ".join(f"a{n}" for n in range(900)), "Read(x)", False),
    ("( " + " ".join(f"a{n}" for n in range(2_001)), "Read(x)", True),
    ("cd $X; cat .env", "Read(.env)", True),
    ("cat >.env", "Edit(.env)", True),
    ("cat <.env", "Edit(.env)", False),
    ("cat >.env", "Read(.env)", False),
    ("frob .e*", "Read(.ENV)", True),
    ("frob --file=~/.env", "Read(~/.env)", True),
    ("frob --file=~", f"Read(/{HOME})", True),
    ("frob '--file=$HOME/.env'", "Read(~/.env)", True),
    ("frob --file=~x", f"Read(/{HOME})", False),
    ("rm É", "Bash(RM é)", True),
    ("rm ß", "Bash(rm ß)", True),
    ("rm ẞ", "Bash(rm ss)", False),
    ("frob a", "Grep(a)", False),
])  # fmt: skip
def test_a_deny_rule_for_a_line(command: str, deny: str, reached: bool) -> None:
    assert bypassed(command, deny) is not reached


def test_a_deny_rule_for_a_tool_with_a_path_is_about_that_tool_alone() -> None:
    search = Call("Grep", {}, "read", read("sub/a").touched, "Read")
    for deny, kind in (
        ("Grep(sub/**)", "deny"),
        ("Grep(other/**)", "allow"),
        ("Grep", "deny"),
        ("Read(sub/**)", "deny"),
        ("Read", "deny"),
        ("Glob(sub/**)", "allow"),
        ("Edit(sub/**)", "allow"),
        ("Write(sub/**)", "allow"),
    ):
        assert verdict(search, deny=deny).kind == kind, deny
    for deny, kind in (
        ("Write(sub/**)", "deny"),
        ("Edit(sub/**)", "deny"),
        ("Edit", "deny"),
        ("MultiEdit(sub/**)", "deny"),
        ("Read(sub/**)", "allow"),
        ("Write", "allow"),
    ):
        edit = write("sub/a", tool="MultiEdit")
        assert verdict(edit, deny=deny, mode="acceptEdits").kind == kind, deny


def test_the_sandbox_hides_files_so_that_a_line_need_not_be_read() -> None:
    for command, kind in (("a" * 30_001, "allow"), ("frob .e*", "allow"), ("frob .env", "deny")):
        call = msgspec.structs.replace(bash(command, confined=True), masked=True)
        assert verdict(call, deny="Read(.env)").kind == kind, command[:10]


def test_a_rule_of_another_kind_covers_no_command() -> None:
    assert verdict(bash("frob a"), allow="Skill(frob a)").kind == "ask"
    assert verdict(bash("frob a"), allow="Bash").kind == "allow"
    for mode, kind in (("default", "allow"), ("plan", "deny")):
        assert verdict(bash("cat ../x"), allow="Read(//work/x)", mode=mode).kind == kind
        assert verdict(bash("frob a"), allow="Bash(frob a)", mode=mode).kind == kind


def test_a_verdict_names_the_rule_that_decides() -> None:
    found = verdict(read("/etc/x"), allow="Read(//etc/y) + Read(//etc/x)")
    assert (found.kind, found.rule, found.reason) == (
        "allow", "Read(//etc/x)", "rule Read(//etc/x)",
    )  # fmt: skip
    found = verdict(read("x"), allow="Read(//etc/x)")
    assert (found.rule, found.reason) == ("", "mode default: inside the roots")
    two = msgspec.structs.replace(
        read("/etc/x"), touched=(*read("/etc/x").touched, *read("x").touched)
    )
    assert verdict(two, allow="Read(//etc/x)").rule == "Read(//etc/x)"
    assert verdict(read("x"), deny="Read(y) + Read(x)").rule == "Read(x)"
    asked = msgspec.structs.replace(read("x"), asks="it is odd")
    assert (verdict(asked).kind, verdict(asked).reason) == ("ask", "it is odd")
    long = verdict(bash("a" * 30_001), deny="Bash(x)").reason
    assert "more than 30,000 characters, too many to see whether" in long
    assert "too many" not in verdict(bash("x"), deny="Bash(x)").reason


def test_what_git_keeps_of_a_denied_file_is_asked_about() -> None:
    for deny, kind in (("Read(.env)", "ask"), ("Edit(.env)", "allow"), ("Read", "allow")):
        for confined in (False, True):
            assert verdict(bash("git log -p", confined=confined), deny=deny).kind == kind, deny
    found = verdict(bash("git log -p"), deny="Read(.env)").reason
    assert found == "`git log -p` may print from git's history what the rule Read(.env) forbids"


def test_a_protected_file_is_asked_about_in_every_mode() -> None:
    for path, kind in (
        ("a.code-workspace", "ask"),
        ("sub/a.CODE-WORKSPACE", "ask"),
        (".github/workflows/x.yml", "ask"),
        (".github/x.yml", "allow"),
        ("workflows/x.yml", "allow"),
        ("node_modules/.bin/x", "ask"),
        ("node_modules/x", "allow"),
        (".claude/worktrees/x", "allow"),
        (".claude/x", "ask"),
    ):
        for mode in ("acceptEdits", "bypassPermissions"):
            assert verdict(write(path), mode=mode).kind == kind, path
    outside = verdict(write("/other/.git/x"), mode="bypassPermissions")
    assert outside.reason.startswith(".git is protected")
    inside = Rules(base="/w/.git/sub", home=HOME)
    for path, kind in (("/w/.git/sub/x", "allow"), ("/w/.git/subx", "ask"), ("/w/.git/x", "ask")):
        touching = Touched(path, path, path, True, True)
        call = Call("Write", {}, "write", (touching,), "Edit")
        assert judge(call, inside, "acceptEdits", "/w").kind == kind, path


def test_a_gated_command_is_free_in_the_sandbox_only_in_auto_mode() -> None:
    for gated, mode, kind in (
        (False, "default", "allow"),
        (True, "default", "ask"),
        (True, "acceptEdits", "ask"),
        (True, "auto", "allow"),
    ):
        call = msgspec.structs.replace(bash("frob a", confined=True), gated=gated)
        assert verdict(call, mode=mode).kind == kind
    scratch = msgspec.structs.replace(write("/tmp/x").touched[0], inside=True, is_scratch=True)
    for gated, kind in ((False, "allow"), (True, "ask")):
        call = Call("Write", {}, "write", (scratch,), "Edit", gated=gated)
        assert verdict(call).kind == kind


def test_a_command_that_would_run_what_was_left_for_it_is_asked_about() -> None:
    call = bash("cat a")
    armed = msgspec.structs.replace(call, parts=(PartFacts(armed="git would run x"),))
    assert verdict(armed, allow="Bash(cat *)").reason == "`cat a`: git would run x"
    foreign = msgspec.structs.replace(call, parts=(PartFacts(foreign="it is not cat"),))
    assert verdict(foreign).reason == "`cat a` is covered by no rule: it is not cat"


def test_a_flag_grants_what_a_yes_grants() -> None:
    assert flag_rule("Edit(src/**)") == "Edit(src/[!.]*)"
    assert flag_rule("Bash(make *)") == "Bash(make *)"
