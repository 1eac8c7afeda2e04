"""Rules for paths: roots, symlinks, protected names, patterns. Cases S031-S040; E23 plan mode
refuses by code.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.permissions import Call, Rules, Touched, is_read_denied, judge
from longrein.permissions.rule_evaluation import granted_rule
from longrein.permissions.rules import path_pattern
from tests.permissions.calls import HOME, ROOT, read, touched, verdict, write
from tests.tables import split_words

OUT = "/etc/passwd"

MODES = [
    # call, default, acceptEdits, plan, bypassPermissions
    (read("a.py"), "allow", "allow", "allow", "allow"),
    (read(OUT), "ask", "ask", "ask", "allow"),
    (read("link", OUT), "ask", "ask", "ask", "allow"),  # S033
    (read(".git/config"), "allow", "allow", "allow", "allow"),
    (write("a.py"), "ask", "allow", "deny", "allow"),
    (write(OUT), "ask", "ask", "deny", "allow"),
    (write("link", OUT), "ask", "ask", "deny", "allow"),
    (write(".git/hooks/x"), "ask", "ask", "deny", "ask"),  # S040
    (Call("Bash", {"command": "ls"}, "command"), "ask", "ask", "deny", "allow"),
    (Call("TodoWrite", {"todos": []}, "none"), "allow", "allow", "allow", "allow"),
    (Call("mcp__mem__get", {}, "read"), "ask", "ask", "ask", "allow"),
    (Call("WebFetch", {"url": "http://x"}, "read"), "ask", "ask", "ask", "allow"),
    (Call("Count", {}, "write"), "ask", "ask", "deny", "allow"),
    (read("/work/repo-evil/secret"), "ask", "ask", "ask", "allow"),  # S031
]


@pytest.mark.parametrize(("call", "default", "accept", "plan", "bypass"), MODES)
def test_E23_s03_what_each_mode_does(
    call: Call, default: str, accept: str, plan: str, bypass: str
) -> None:
    kinds = [
        verdict(call, mode=m).kind for m in ("default", "acceptEdits", "plan", "bypassPermissions")
    ]
    assert kinds == [default, accept, plan, bypass]


def test_E23_plan_refuses_by_code_whatever_the_rules_say() -> None:
    answer = verdict(write("a.py"), allow="Edit + Edit(**) + Write + *", mode="plan")
    assert answer.kind == "deny"
    assert answer.reason.startswith("plan mode changes nothing")


PROTECTED = [
    *split_words("""
        .git .git/hooks/pre-commit sub/.git/config .vscode/tasks.json .idea/x .husky/x .envrc
    """),
    *split_words("""
        .mcp.json .gitmodules .gitconfig .ripgreprc .bashrc sub/.zshrc .profile .longrein/x
    """),
    *split_words("""
        .claude .claude/settings.json .claude/agents/.git/config .config/longrein/config.toml
        .ssh/id
    """),
    *(".claude/agents/x.md", ".agents/agents/x.md", ".longrein/agents/x.md"),
    *split_words("""
        .claude/skills/a/SKILL.md .claude/commands/x.md .agents/skills/a/SKILL.md
        .github/skills/a/x
    """),
    # S038: whatever the case, and what a file system may not tell apart
    *(
        ".LongRein/config",
        ".GIT/hooks/x",
        ".Mcp.json",
        ".g\u200bit/x",
        "\ufeff.git/x",
        ".git./x",
        ".git /x",
        "git~1/x",
    ),
    *(
        ".gi\u00adt/x",
        ".\uff47it/x".replace("\uff47", "g"),
        ".mcp.js\u200don",
        ".git::$INDEX_ALLOCATION/x",
    ),
    ".vscode/\u212a",
    # other widths, letters that fold to others, characters that HFS+ and others ignore
    *split_words("．git/x .ｇｉｔ/x .𝐠𝐢𝐭/x .gıt/x .GİT/x"),
    *split_words("․git/x .ⓖⓘⓣ/x .ſsh/id .baſhrc .ᵍⁱt/x .mcp.ｊson"),
    *(
        ".g\u200ci\u200dt/x",
        ".g\u202ait\u202c/x",
        ".gi\u206at/x",
        ".g\u034fit/x",
        ".gi\U000e0101t/x",
        ".g\u115fit/x",
    ),
    *(
        ".git \u00a0/x",
        ".git.../x",
        ".git. ./x",
        ".git:stream",
        ".git\u200b./x",
        ".git\uff0e/x",
        ".claude\u3000/x",
    ),
    *split_words("""
        GIT~1/x git~2/x GITMOD~1 LONGRE~1/config CLAUDE~1/x VSCODE~1/x MCP~1.JSO gıt~1/x
    """),
]


@pytest.mark.parametrize("path", PROTECTED)
def test_S038_S040_protected_even_in_auto_edit_even_with_a_rule(path: str) -> None:
    for mode in ("acceptEdits", "bypassPermissions", "default"):
        answer = verdict(write(path), mode=mode, allow="Edit + Edit(**) + *")
        assert (answer.kind, answer.suggestions) == ("ask", ()), mode
    assert verdict(write("plain", f"{ROOT}/{path}"), mode="acceptEdits").kind == "ask"


def test_why_a_protected_path_asks() -> None:
    found = verdict(write(".GIT/x")).reason
    assert found == ".git is protected: what stands there runs or is obeyed later"


@pytest.mark.parametrize(
    "path",
    split_words("""
        .gitignore .github/x git/x git~/x gitign~1 a~1 gït/x .gît/x b:c .claude/worktrees/x
        .agents/x x.git
    """),
)
def test_ordinary_work_is_not_protected(path: str) -> None:
    assert verdict(write(path), mode="acceptEdits").kind == "allow"


def test_what_leads_to_the_first_root_does_not_protect() -> None:
    root = "/home/ann/.claude/worktrees/w/.git/x"
    call = Call(
        "Write", {}, "write", (Touched("a", f"{root}/a", f"{root}/a", inside=True, writes=True),)
    )
    assert judge(call, Rules(base=root), "acceptEdits", root).kind == "allow"
    assert judge(call, Rules(base="/other"), "acceptEdits", root).kind == "ask"


ALLOW = [
    ("Edit(src/**)", write("src/a.py"), "allow"),
    ("Edit(src/**)", write("src"), "ask"),
    ("Edit(src/**)", write("srcs/a.py"), "ask"),
    ("Edit(src/**)", write("sub/src/a.py"), "ask"),
    ("Edit(/src/**)", write("src/a.py"), "allow"),
    ("Edit(./src)", write("src/a.py"), "allow"),
    ("Edit(*.py)", write("deep/down/a.py"), "allow"),
    ("Edit(*.py)", write("a.pyc"), "ask"),
    ("Edit(*.py)", write("/etc/a.py"), "ask"),
    ("Edit(src/*.py)", write("src/a.py"), "allow"),
    ("Edit(src/*.py)", write("src/sub/a.py"), "ask"),
    ("Edit(src/**/t?st.py)", write("src/test.py"), "allow"),
    ("Edit(src/**/t?st.py)", write("src/a/b/tost.py"), "allow"),
    ("Edit(**/docs/**)", write("a/docs/b"), "allow"),
    ("Edit([ab].txt)", write("a.txt"), "allow"),
    ("Edit([!ab].txt)", write("a.txt"), "ask"),
    ("Edit([!ab].txt)", write("c.txt"), "allow"),
    ("Edit([a)", write("[a"), "allow"),
    ("Edit(a\\*b)", write("a*b"), "allow"),
    ("Edit(a\\*b)", write("axb"), "ask"),
    ("Edit(a.c)", write("abc"), "ask"),
    ("Edit(docs/)", write("docs/a"), "allow"),
    ("Edit(docs/)", write("docs"), "ask"),
    ("Edit(//tmp/**)", write("/tmp/a"), "allow"),
    ("Edit(//tmp/**)", write("/tmp/a", OUT), "ask"),  # both spellings must be allowed
    ("Edit(~/notes/**)", write(f"{HOME}/notes/a"), "allow"),
    ("Edit(../other/**)", write("/work/other/a"), "allow"),
    ("Edit", write("a"), "allow"),
    ("Edit", write("a", tool="Edit"), "allow"),
    ("Edit", write(OUT), "ask"),  # a bare rule ends at the roots
    ("Write", write("a"), "allow"),
    ("Write", write("a", tool="Edit"), "ask"),
    ("Edit", read(OUT), "ask"),
    ("Read", read(OUT), "ask"),
    ("Read(//etc/**)", read(OUT), "allow"),
    ("Read(//etc/**)", write(OUT), "ask"),
    ("Read(//ETC/**)", read(OUT), "ask"),
    ("Read(//etc/**)", Call("Grep", {}, "read", (touched(OUT),), "Read"), "allow"),
    ("Read(!x)", read(OUT), "ask"),
    ("Read()", read(OUT), "ask"),
]


@pytest.mark.parametrize(("rule", "call", "kind"), ALLOW)
def test_allow_patterns(rule: str, call: Call, kind: str) -> None:
    assert verdict(call, allow=rule).kind == kind


def test_each_path_of_a_call_needs_its_own_leave() -> None:
    call = Call("Copy", {}, "write", (touched(OUT), touched("a", writes=True)))
    assert verdict(call, mode="acceptEdits").kind == "ask"
    assert verdict(call, mode="acceptEdits", allow="Copy(//etc/**)").kind == "allow"
    assert verdict(call, allow="Copy(//etc/**)").kind == "ask"


DENY = [
    ("Read(.env)", read(".env"), "deny"),
    ("Read(.env)", read("sub/.env"), "deny"),
    ("Read(./.env)", read("sub/.env"), "allow"),
    ("Read(./.env)", read(".ENV"), "deny"),
    ("Read(./.env)", read("plain", f"{ROOT}/.env"), "deny"),  # S033: through the link
    ("Read(./.env)", read(".env", f"{ROOT}/plain"), "deny"),
    ("Read(caf\u00e9)", read("cafe\u0301"), "deny"),
    ("Read(secrets/**)", read("secrets/a/b"), "deny"),
    ("Read(secrets/**)", Call("Grep", {}, "read", (touched("secrets"),)), "deny"),
    ("Read(secrets/)", read("secrets"), "deny"),
    ("Read(//etc)", read(OUT), "deny"),
    ("Read(~)", read(f"{HOME}/x"), "deny"),
    ("Read", read("a"), "deny"),
    ("Read", Call("Glob", {}, "read", (), "Read"), "deny"),
    ("Read", write("a"), "ask"),
    ("Grep", read("a"), "allow"),
    ("Edit(src/**)", write("src/a"), "deny"),
    ("Edit(src/**)", write("src/a", tool="mcp__fs__put"), "deny"),
    ("Edit(src/**)", read("src/a"), "allow"),
    ("Write(src/**)", write("src/a", tool="Edit"), "deny"),
    ("Write", write("src/a", tool="Edit"), "ask"),
    ("Edit", write("a"), "deny"),
    ("Read(", read("a"), "deny"),
]


@pytest.mark.parametrize(("rule", "call", "kind"), DENY)
def test_S033_deny_patterns(rule: str, call: Call, kind: str) -> None:
    assert verdict(call, deny=rule, allow="*" if kind == "deny" else "").kind == kind


def test_a_relative_deny_rule_holds_after_a_cd() -> None:
    assert verdict(read(".env"), deny="Read(./.env)", cwd=f"{ROOT}/sub").kind == "deny"
    assert verdict(read("sub/.env"), deny="Read(./.env)", cwd=f"{ROOT}/sub").kind == "deny"


def test_a_relative_allow_rule_does_not_move_with_a_cd() -> None:
    assert verdict(write("sub/src/a"), allow="Edit(src/**)", cwd=f"{ROOT}/sub").kind == "ask"


def test_denied_files_are_hidden_from_searches() -> None:
    rules = Rules(deny=("Read(.env)", "Edit(x)"), base=ROOT, home=HOME)
    assert is_read_denied(f"{ROOT}/a/.env", f"{ROOT}/a/.env", rules, ROOT)
    assert is_read_denied(f"{ROOT}/x", f"{ROOT}/.env", rules, ROOT)
    assert not is_read_denied(f"{ROOT}/x", f"{ROOT}/x", rules, ROOT)


def use(tool: str, **arguments: str) -> Call:
    access = "read" if tool == "WebFetch" or tool.startswith("mcp") else "none"
    return Call(tool, dict(arguments), access)  # type: ignore[arg-type]


def fetch(host: str) -> Call:
    return use("WebFetch", url=f"https://{host}")


OTHERS = [
    # kind of rule, rule, call, verdict
    ("allow", "mcp__mem", use("mcp__mem__get"), "allow"),
    ("allow", "mcp__mem__*", use("mcp__mem__get"), "allow"),
    ("allow", "mcp__mem__get", use("mcp__mem__put"), "ask"),
    ("allow", "mcp__me", use("mcp__mem__get"), "ask"),
    ("deny", "mcp__mem", use("mcp__mem__get"), "deny"),
    ("allow", "WebFetch(domain:a.com)", fetch("a.com/x"), "allow"),
    ("allow", "WebFetch(domain:a.com)", fetch("A.com.:443"), "allow"),
    ("allow", "WebFetch(domain:a.com)", fetch("b.a.com"), "ask"),
    ("allow", "WebFetch(domain:*.a.com)", fetch("b.a.com"), "allow"),
    ("allow", "WebFetch(domain:*.a.com)", fetch("eva.com"), "ask"),
    ("allow", "WebFetch(domain:a.com)", fetch("a.com@evil.com"), "ask"),
    ("allow", "WebFetch(domain:a.com)", fetch("a.com\\@evil.com"), "ask"),
    ("allow", "WebFetch(domain:a.com)", fetch("u@a.com"), "ask"),
    ("allow", "WebFetch", fetch("a.com"), "allow"),
    ("deny", "WebFetch(domain:a.com)", fetch("b.A.com./x"), "deny"),
    ("deny", "WebFetch(domain:a.com)", fetch("u:p@a.com:80"), "deny"),
    ("deny", "WebFetch(domain:a.com)", fetch("eva.com"), "ask"),
    ("deny", "Agent(explore)", use("Agent", subagent_type="explore"), "deny"),
    ("deny", "Agent(explore)", use("Agent", subagent_type="other"), "allow"),
    ("ask", "Agent", use("Agent", subagent_type="other"), "ask"),
    ("ask", "Skill(deploy *)", use("Skill", skill="deploy prod"), "ask"),
    ("deny", "Send(to:ann*)", use("Send", to="ann@x"), "deny"),
    ("deny", "Send(to:ann*)", use("Send", to="bob"), "allow"),
]


@pytest.mark.parametrize(("kind", "rule", "call", "expected"), OTHERS)
def test_rules_about_other_tools(kind: str, rule: str, call: Call, expected: str) -> None:
    assert verdict(call, **{kind: rule}).kind == expected


@pytest.mark.parametrize(("deny", "ask", "allow", "kind"), [
    ("Edit(a)", "Edit(a)", "Edit(a)", "deny"),
    ("", "Edit(a)", "Edit(a)", "ask"),
    ("", "", "Edit(a)", "allow"),
    ("Edit(b)", "Edit(c)", "Edit(d)", "ask"),
])  # fmt: skip
def test_s03_deny_over_ask_over_allow(deny: str, ask: str, allow: str, kind: str) -> None:
    assert verdict(write("a"), deny=deny, ask=ask, allow=allow).kind == kind


SUGGESTIONS = [
    (write("a.py"), "Edit(//work/repo/a.py)"),
    (write("a.py", tool="Edit"), "Edit(//work/repo/a.py)"),
    (read(OUT), "Read(//etc/passwd)"),
    (write("src/a.py"), "Edit(src/**)"),
    (write("src/deep/er/a.py", tool="Edit"), "Edit(src/**)"),
    (write("my docs/a.md"), "Edit(my docs/**)"),
    (write("src/a*[0].py"), "Edit(src/**)"),
    (write("src/link", f"{ROOT}/src/real.py"), "Edit(src/**)"),
    (write("src/link", f"{ROOT}/other/real.py"), ""),
    (write("src/link", OUT), ""),
    (write("src/.env"), "Edit(//work/repo/src/.env)"),
    (write(".env"), "Edit(//work/repo/.env)"),
    (write(".config/a/b"), "Edit(//work/repo/.config/a/b)"),
    (write("src/.git/config"), ""),
    (write(".longrein/config.toml"), ""),
    (write("*/a.py"), ""),
    (write("!src/a.py"), ""),
    (write("#src/a.py"), ""),
    (write("src\u202e/a.py"), ""),
    (write("日本/a.py"), "Edit(//work/repo/日本/a.py)"),
    (write("/work/repo-evil/src/a.py"), "Edit(//work/repo-evil/src/a.py)"),
    (write("src/a.py", tool="mcp__x__put"), "mcp__x__put(//work/repo/src/a.py)"),
    (write("a*.py"), ""),
    (write("a b.py"), "Edit(//work/repo/a b.py)"),
    (write("link", OUT), ""),
    (write("a\u202eb"), ""),
    (Call("WebFetch", {"url": "https://A.com/x?y"}, "read"), "WebFetch(domain:a.com)"),
    (Call("WebFetch", {"url": "https://a.com@b.com"}, "read"), ""),
    (Call("mcp__mem__get", {}, "read"), "mcp__mem__get"),
]


@pytest.mark.parametrize(("call", "rule"), SUGGESTIONS)
def test_the_rule_that_always_would_store(call: Call, rule: str) -> None:
    assert verdict(call).suggestions == ((rule,) if rule else ())
    if rule:
        assert verdict(call, allow=rule).kind == "allow"


@pytest.mark.parametrize("base", ["", "/"])
def test_no_rule_for_a_folder_of_the_whole_file_system_is_offered(base: str) -> None:
    asked = judge(write("src/a.py"), Rules(base=base, home=HOME), "default", ROOT)
    assert asked.suggestions == ("Edit(//work/repo/src/a.py)",)


ALPHABET = (
    *("src", "tests", "a.py", "b.ts", ".env", ".envrc", ".git", ".github", "workflows"),
    *(".longrein", ".hidden", "node_modules", ".bin", "hooks", "SRC", "sub"),
    *("x.code-workspace", "Jenkinsfile"),
)
NAMES = st.sampled_from(ALPHABET)


@given(st.lists(NAMES, min_size=1, max_size=5), st.lists(NAMES, min_size=1, max_size=5))
def test_an_offered_rule_covers_its_call_and_never_what_is_hidden_protected_or_outside(
    asked: list[str], other: list[str]
) -> None:
    """The rule for the changes below one folder, granted, allows the call that it was offered for;
    no call elsewhere, on a dotfile or a protected file; and a deny rule still wins.
    """
    offered = verdict(write("/".join(asked))).suggestions
    if not offered:
        return
    rule = granted_rule(offered[0], ROOT)
    assert verdict(write("/".join(asked)), allow=rule).kind == "allow"
    assert verdict(write("/".join(asked)), allow=rule, mode="plan").kind == "deny"
    for deny in (f"Edit(/{'/'.join(asked)})", "Edit", f"Edit({asked[0]}/**)"):
        assert verdict(write("/".join(asked)), allow=rule, deny=deny).kind == "deny"
    assert verdict(write("/".join(asked)), allow=rule, ask="Edit").kind == "ask"
    if not offered[0].endswith("/**)"):
        return
    is_below = other[0] == asked[0] and len(other) > 1
    hidden = any(name.startswith(".") for name in other)
    covered = verdict(write("/".join(other)), allow=rule).kind == "allow"
    assert not covered or (is_below and not hidden)
    path = "/".join((*asked[:1], *other))
    assert verdict(write(f"/work/other/{path}"), allow=rule).kind == "ask"
    assert verdict(write(f"../{path}"), allow=rule).kind == "ask"
    assert verdict(write(path, OUT), allow=rule).kind == "ask"


DOTS = [
    ("Edit(src/[!.]*)", "src/.env", "ask"),
    ("Edit(src/[!.]*)", "src/a/.env", "ask"),
    ("Edit(src/[!.]*)", "src/.a/b", "ask"),
    ("Edit(src/[!.]*)", "src/a/b", "allow"),
    ("Edit(//work/repo/src/[!.]*)", "src/a/.env/b", "ask"),
    ("Edit(//work/repo/src/[!.]*)", "src/a/b", "allow"),
    ("Edit(.github/[!.]*)", ".github/notes.md", "allow"),
    ("Edit(.github/[!.]*)", ".github/.hidden", "ask"),
    ("Edit(src/**)", "src/.env", "allow"),
    ("Edit(.env)", "sub/.env", "allow"),
    ("Edit", "src/.env", "allow"),
]


@pytest.mark.parametrize(("rule", "path", "expected"), DOTS)
def test_a_pattern_may_leave_out_dotfiles_at_any_depth(rule: str, path: str, expected: str) -> None:
    assert verdict(write(path), allow=rule).kind == expected


@pytest.mark.parametrize(("rule", "stored"), [
    ("Edit(src/**)", "Edit(//work/repo/src/[!.]*)"),
    ("Edit(//x/src/**)", "Edit(//x/src/**)"),
    ("Edit(//work/repo/a.py)", "Edit(//work/repo/a.py)"),
    ("Edit(~/x/**)", "Edit(~/x/**)"),
    ("Read(//etc/passwd)", "Read(//etc/passwd)"),
    ("Bash(git commit:*)", "Bash(git commit:*)"),
    ("WebFetch(domain:a.com)", "WebFetch(domain:a.com)"),
    ("Edit", "Edit"),
])  # fmt: skip
def test_a_rule_that_is_stored_for_all_projects_holds_in_one_folder(rule: str, stored: str) -> None:
    assert granted_rule(rule, ROOT) == stored
    if rule.startswith("Edit(src"):
        assert verdict(write("src/a"), allow=stored).kind == "allow"
        elsewhere = Rules(allow=(stored,), base="/work/other", home=HOME)
        other = Call("Write", {}, "write", (touched("/work/other/src/a", writes=True),), "Edit")
        assert judge(other, elsewhere, "default", "/work/other").kind == "ask"


REASONS = [
    (write("a.py"), "it changes /work/repo/a.py"),
    (write(OUT), "it changes /etc/passwd, outside the session's folders"),
    (
        read("link", OUT),
        "it reads /work/repo/link (really /etc/passwd), outside the session's folders",
    ),
    (Call("mcp__mem__get", {}, "read"), "no rule allows mcp__mem__get"),
]


@pytest.mark.parametrize(("call", "reason"), REASONS)
def test_why_it_asks(call: Call, reason: str) -> None:
    assert verdict(call).reason == reason


@pytest.mark.parametrize(
    "given",
    ["../x", "a/../../x", "~/.ssh/id", "$HOME/x", "file:///etc/passwd", "%2e%2e/x", "a" * 5000],
)
def test_S032_odd_paths_never_crash(given: str) -> None:
    call = Call(
        "Read",
        {},
        "read",
        (Touched(given, f"/x/{given}", f"/x/{given}", inside=False, writes=False),),
    )
    assert verdict(call, deny="Read(**/.env) + Read(a*a*b)").kind == "ask"


names = st.lists(
    st.sampled_from(["a", "b", ".git", "*", "**", "?", "[a]", "..", ""]), max_size=5
).map("/".join)


@given(
    names,
    names,
    st.sampled_from(["Read", "Edit"]),
    st.sampled_from(["default", "acceptEdits", "bypassPermissions"]),
)
def test_a_deny_pattern_never_permits(pattern: str, path: str, tool: str, mode: str) -> None:
    order = {"deny": 0, "ask": 1, "allow": 2}
    for call in (read(path), write(path)):
        before, after = (
            verdict(call, mode=mode),
            verdict(call, mode=mode, deny=f"{tool}({pattern})"),
        )
        assert order[after.kind] <= order[before.kind]


@pytest.mark.parametrize(
    "pattern", ["**/a/**/a/**/a/**/b", "*a*a*a*a*b", "**/*a*a*a*b", "a/**/b/**", "[a]/?/**/**/**/b"]
)
@pytest.mark.parametrize("path", ["/a" * 2000, "/" + "a" * 4000])
def test_a_path_of_two_thousand_folders_is_judged_at_once(pattern: str, path: str) -> None:
    """Whatever the pattern: its time is linear in the path."""
    assert verdict(read(ROOT + path), deny=f"Read({pattern})").kind == "allow"
    assert verdict(read(f"{ROOT}{path}/b"), deny=f"Read({pattern})").kind in ("allow", "deny")


@given(st.text(alphabet="[]!^-\\az09*?/.&~|Z", max_size=12), st.booleans())
def test_any_text_is_a_pattern(text: str, loose: bool) -> None:
    assert path_pattern(text, "/w", "/home/x", loose) is not None


@pytest.mark.parametrize("name", ["body[6-0]", "a[!]", "x[^]", "[z-a]"])
def test_a_class_without_members_is_plain_text(name: str) -> None:
    found = path_pattern(name, "/w", "/home/x", False)
    assert found.match(f"/w/{name}")
