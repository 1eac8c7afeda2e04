# ruff: noqa: E501 - tables of arguments
"""Allow rules against the real programs: what a rule allows must do what the rule says.

    python -m lab.campaigns.allow_rules [LINES] [SEED] [CLASS …]

For each class of rules, LINES command lines (300) are made of harmless and of hostile words: options
that run, write or open, texts of awk, sed and jq, patterns that expand to names such as `-delete`,
assignments, wrappers. What the rules of the class allow runs inside bubblewrap under strace, in a
folder of its own full of traps. A false allow is a line that

- starts a program of the project or of `/outside` (every trap program is one),
- changes a file that its class may not change, or anything in `/outside`,
- connects to an address,
- prints the secret of `/outside` or of the environment, where its class may not read them.
"""

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lab.campaigns.commands import make_call, system_folders
from longrein.permissions import Rules, judge


class RuleClass(msgspec.Struct, frozen=True):
    """Lines of one class of allow rules, as pieces that are combined at random."""

    rules: tuple[str, ...]
    programs: tuple[str, ...]
    """Beginnings of a line, such as `git log`."""
    words: tuple[str, ...]
    """Arguments of everyday work."""
    hostile: tuple[str, ...]
    """Arguments that make one of the programs run, write or open something."""
    may_change: str = "(?!)"
    """Files that the rule lets its programs change, as a regular expression."""
    reads_anything: bool = False
    """True if the rule lets its programs read any path or print the environment."""


PATTERNS = (
    "*",
    "?*",
    "-*",
    "[!a]*",
    "*.txt",
    "./*",
    "-- *",
    "$X",
    '"$X"',
    "{-delete,x}",
    "sub/*",
    "**",
)
FILES = ("a.txt", "b.txt", "sub/c.txt", "data.json", "./a.txt")
OUTSIDE = ("/outside/secret", "../../outside/secret", "@/outside/secret")
CLASSES = {
    "reading, no rule": RuleClass(
        (),
        ("cat", "head", "tail -n 2", "wc -l", "cut -c1", "nl", "od -c", "uniq", "paste", "comm", "diff", "cmp",
         "md5sum", "stat", "ls -la", "du", "tree", "file", "strings", "date", "ps", "tar", "xxd", "base64", "tac",
         "readlink", "basename", "column", "fold", "tr a b", "id", "uname", "hostname", "test", "printf", "echo",
         "sha256sum", "cksum", "join", "fmt", "expand", "rev", "tsort", "type", "hash", "read"),
        (*FILES, "-n", "-l", "-a", "-c", "-z", "-s", "--", "-", "5", "aux", "-ef", "-tf a.tar", "-d yesterday", "+%F"),
        (*PATTERNS, *OUTSIDE, "-l b.txt", "-c list", "--check list", "--files0-from=list", "--files0-from list",
         "@opts", "auxe", "e", "-auxe", "axewww", "-E", "-tf h:x", "-tf a.tar --to-command=./x", "-xf a.tar",
         "-tf a.tar -I ./x", "--use-compress-program=./x -tf a.tar", "--checkpoint-action=exec=./x",
         "-r -d 01010000", "-s 01010000", "-f list", "-o out", "--output=out", "-v PATH", "-v 'a[$(./x)]' 1",
         "'a[$(./x)]'", "-p", "-C out", "-m magic", "-r a.txt out", "out", "a.txt out", "--log=out", "-X list",
         "--from-file=list", "-z", "-Z", "-i", "-w", "-0", "--version", "--help", "-k", "x", "'./x|'"),
    ),
    "find": RuleClass(
        ("Bash(find:*)", "Bash(cat:*)"),
        ("find .", "find", "find sub", "find . -name '*.txt'"),
        ("-name a.txt", "-type f", "-maxdepth 1", "-print", "-size +0", "! -empty", "-newer a.txt", "-mtime -1",
         "-o -true", "\\( -name b.txt \\)", "-exec cat {} \\;", "-exec cat {} +", "-print0", "-ls"),
        (*PATTERNS, "-name *", "-delete", "-exec ./x \\;", "-exec ./x {} +", "-execdir ./x \\;", "-ok ./x \\;",
         "-fprint out", "-fprintf out x", "-fls out", "-fprint0 out", "-exec tee + out \\;", "-exec cat + \\;",
         "-exec tee {} \\;", "-exec sh -c ./x \\;", "-exec cat {} + out", "-print$X", "-exec cat * \\;", "-ok tee {} + out \\;",
         "-exec cat \\; -delete", "-exec echo {} + -delete", "-files0-from list", "-name a -o -delete", "-D exec",
         "-exec env ./x \\;", "-exec awk 'BEGIN{system(\"./x\")}' \\;", "-exec touch out \\;", "-path $X"),
        reads_anything=True,
    ),
    "grep and rg": RuleClass(
        ("Bash(grep:*)", "Bash(rg:*)"),
        ("grep", "grep -n", "grep -r", "rg", "rg -n", "egrep", "fgrep"),
        ("a", "'a b'", *FILES, ".", "-i", "-l", "-e a", "-A1", "--include=*.txt", "-c", "-w", "--color=never"),
        (*PATTERNS, *OUTSIDE, "--pre ./x", "--pre=./x", "--pr=./x", "--hostname-bin=./x", "-z", "--search-zip",
         "-f /outside/secret", "--file=list", "--hyperlink-format x", "--ignore-file x", "-nz", "-R", "--follow",
         "--pre-glob '*'", "--debug", "--generate man", "-P '(?{`./x`})'", "-e$X", "--output=out", "-o out"),
        reads_anything=True,
    ),
    "sed": RuleClass(
        ("Bash(sed:*)",),
        ("sed", "sed -n", "sed -E", "sed -i", "sed -n -e 1p"),
        ("1p", "'s/b/c/'", "'1,2p'", "-e 's/a/b/g'", "'/a/d'", *FILES, "'$p'", "'s|a|b|;2q'"),
        (*PATTERNS, "'1e ./x'", "'e ./x'", "'s/b/.\\/x/e'", "'w out'", "'1w out'", "'s/b/c/w out'", "'r /outside/secret'",
         "'R /outside/secret'", "'W out'", "-f script", "--file=script", "-s", "--expression='w out'", "-e 'w out'",
         "-e p -e 'e ./x'", "'1!e ./x'", "'{e ./x\n}'", "'p;e ./x'", "'p}w out'", "-ni", "-i.bak", "--in-place=x", "'a\\\n;w out'",
         "'s/a/b/m;w out'", "\"$X\"", "'s,a,b,;w out'", "'0~1w out'", "'/a/I,/b/w out'", "'y/a/b/;w out'", "'s/b/./x/e'"),
        may_change=r"(?!.*(?:out|ran)).*",
    ),
    "awk": RuleClass(
        ("Bash(awk:*)",),
        ("awk", "awk -F:", "awk -v n=1"),
        ("'{print $1}'", "'NR>1'", "'{s+=$1} END {print s}'", "'/a/ {print NR \": \" $0}'", "'length>2'", *FILES,
         "'BEGIN{FS=\" \"} {print $NF}'", "'{gsub(/a/,\"b\"); print}'", "'NR==1{print; exit}'", "'$1 > 2 {print}'"),
        (*PATTERNS, "'BEGIN{ARGV[1]=\"/outside/secret\";ARGC=2} {print}'", "'{print > \"out\"}'", "'{print $1 >\"out\"}'",
         "'{print>>\"out\"}'", "'BEGIN{system(\"./x\")}'", "'{print | \"./x\"}'", "'BEGIN{\"./x\" | getline}'",
         "'{print NR>5}'", "'{print 1 / 2 | \"./x\" / 3}'", "'{print a,\nNR>5}'", "-f script.awk", "-fscript.awk",
         "'BEGIN{while((getline l < \"/outside/secret\")>0) print l}'", "'{print ENVIRON[\"TOKEN\"]}'", "-v ARGV=x",
         "-v 'FS=`./x`'", "-v n=$X", "'{print(1)NR>5}'", "'}{print>5'", "'{x=1/2;print|\"./x\"/3}'", "'{printf \"a\" > \"out\"}'",
         "'BEGIN{system (\"./x\")}'", "'{print -1>2}'", "'{print $1,$2>3}'", "'{if(1)print 1>2}'", "'{print /a/>2}'",
         "'{print \"a\">2}'", "'{print 1}NR>1{print 1>4}'", "'{print (1)>5}'", "'{a[1]=2;print a[1]>3}'", "'{print(NR>5)>6}'",
         "'{print(NR>5) NR>6}'", "'/[/]/{print|\"./x\"}'", "'{print a/b|\"./x\"/c}'", "'{print a++/b|\"./x\"/c}'", "-W exec=script.awk",
         "'{printf \"(\" NR>5}'", "'{print \"}\" NR > 5}'", "'{print x[1]/2|\"./x\"/3}'", "-i x", "-E script.awk", "-- '{print>\"out\"}'"),
    ),
    "jq": RuleClass(
        ("Bash(jq:*)",),
        ("jq", "jq -r", "jq -c", "jq -n", "jq -e"),
        (".", ".a", "'.a[0]'", "'{a, b: .c}'", "'.a | length'", "'keys[]'", "data.json", "data.json", "'.[\"a\"]'", "'map(.)'"),
        (*PATTERNS, "'import \"secret\" as s {search:\"/outside\"}; s::x'", "'import \"secret\" as $s {search:\"/outside\"}; $s'",
         "'include \"secret\" {search:\"/outside\"}; x'", "env.TOKEN", "'env|.TOKEN'", "'$ENV.TOKEN'", "'\"\\(env)\"'", "'\"\\($ENV)\"'",
         "-L /outside", "--rawfile x /outside/secret '$x'", "--slurpfile x /outside/secret '$x'", "-f prog.jq", "--from-file prog.jq",
         "'\"secret\"|modulemeta'", "'{(env.TOKEN):1}'", "'{a:env}'", "'[{a},env]'", "'{a}|env'", "'input_filename'",
         "--arg x y", "'get_search_list'", "'{a,b}|$ENV'", "'. as {a:$x} | env'", "'@text \"\\(env)\"'", "'{\"a\\(env)\":1}'", "'$__prog_args'",
         "'# x\nenv'", "'{env} | env'", "'[.[]|{a,b:(env)}]'", "'def f: env; f'", "--seq env", "-nr env"),
    ),
    "sort and text": RuleClass(
        ("Bash(sort:*)", "Bash(uniq:*)", "Bash(xargs:*)", "Bash(diff:*)", "Bash(tar:*)"),
        ("sort", "sort -u", "uniq", "uniq -c", "diff", "tar -tf", "cat a.txt | sort", "ls | xargs cat"),
        (*FILES, "-r", "-n", "-k 1", "-t ,", "-c", "--", "-i", "-u"),
        (*PATTERNS, "-o out", "-oout", "--output=out", "--outp=out", "--output out", "--compress-program=./x -S 1k", "--compress-prog=./x",
         "-T .", "--files0-from=list", "a.txt out", "b.txt out", "-k$X", "-k 1 -o out", "-ro out", "-uo out", "-l b.txt", "--to-file=x",
         "--checkpoint=1 --checkpoint-action=exec=./x", "h:x", "--rsh-command=./x", "-I ./x", "--to-command=./x", "--random-source=list",
         "a.tar --to-command=./x", "a.tar -x", "--debug", "--parallel=2", "--batch-size=2", "| ./x", "| xargs ./x", "| xargs -I{} ./x {}"),
    ),
    "git reading": RuleClass(
        ("Bash(git log:*)", "Bash(git diff:*)", "Bash(git show:*)", "Bash(git status:*)", "Bash(git config:*)", "Bash(git branch:*)"),
        ("git log", "git diff", "git show", "git status", "git config", "git branch", "git tag", "git for-each-ref", "git reflog", "git stash list",
         "git blame a.txt", "git grep a", "git ls-files", "git cat-file -p HEAD", "git describe", "git remote", "git worktree list"),
        ("--oneline", "-n 1", "--stat", "HEAD", "-- a.txt", "--name-only", "--format=%h", "--list", "-v", "--get user.name", "user.name", "-a", "--short"),
        (*PATTERNS, "--format=%G?", "--format='%G?'", "--pretty='%h %GG'", "--pretty=tformat:%GK", "--format='%(signature)'", "--format='%-GS'",
         "--output=out", "--output out", "--outpu=out", "-O./x", "--open-files-in-pager=./x", "--ext-diff", "--textconv", "--no-index /outside/secret a.txt",
         "-- /outside/secret", "-c core.pager=./x", "--exec-path=.", "-- core.pager --list", "core.pager ./x", "alias.y '!./x' --get", "core.pager --list",
         "--global core.pager ./x", "--unset user.name", "--add a.b c", "-e", "new", "-D main", "-m new", "-f new", "--edit-description", "-- new --list",
         "expire --all", "--all expire --expire=now", "drop", "clear", "--show-signature", "-S ./x", "--upload-pack=./x", "add . ./x", "-d", "--contents=/outside/secret",
         "--ignore-revs-file=/outside/secret", "--file=/outside/secret --list", "-f /outside/secret --list", "--blob=HEAD:a.txt --list", "--path=a.txt --filters HEAD:a.txt",
         "--sort=x new", "--format='%(trailers:key=x)'", "-G./x", "--submodule=diff", "--paginate", "-p", "--recurse-submodules", "get --unset user.name"),
        may_change=r"\.git/index",
    ),
    "git": RuleClass(
        ("Bash(git:*)",),
        ("git commit", "git add", "git push", "git fetch", "git pull", "git checkout", "git merge", "git rebase", "git stash", "git submodule", "git config",
         "git remote", "git clone", "git worktree", "git notes", "git bisect", "git tag", "git reset", "git restore", "git clean", "git init", "git"),
        ("-m one", "a.txt", "-q", "--all", "HEAD", "main", "origin", "list", "--abort", "status", "-- a.txt", "--dry-run", "-v", "."),
        ("foreach ./x", "foreach --recursive ./x", "foreach './x'", "run ./x", "-c core.pager=./x log", "-c alias.y=!./x y", "./evil.git HEAD:y", "evil.git HEAD:y", "ext::./x",
         "'ext::sh -c ./x'", "file:///outside/evil.git", "--receive-pack=./x origin", "--upload-pack=./x ./evil.git", "--exec=./x .", "-x ./x HEAD", "-i HEAD",
         "--exec ./x HEAD", "alias.y '!./x'", "core.editor ./x", "core.fsmonitor ./x", "core.hooksPath evil.git/hooks", "--global core.pager ./x", "--template=evil.git x",
         "--edit", "-e", "-S", "-s t", "--gpg-sign", "add /outside/w", "add y ext::./x", "--config core.pager=./x ./evil.git y", "-u ./x ./evil.git y", "-F /outside/secret",
         "--exec-path=. status", "--git-dir=evil.git log", "--work-tree=/outside reset --hard", "-C evil.git log", "-p log", "--paginate log", "difftool -x ./x", "mergetool",
         "grep -O./x a", "grep --open-files-in-pager=./x a", "archive -o out HEAD", "format-patch -o out HEAD", "bundle create out HEAD", "filter-branch --tree-filter ./x",
         "help -w x", "web--browse x", "daemon", "instaweb", "send-email a.txt", "credential fill", "log --output=out", "hook run x", "update-index --add x", "submodule foreach ./x"),
        may_change=r"\.git/.*|a\.txt|b\.txt|sub/.*|.*",
        reads_anything=True,
    ),
    "npm run test": RuleClass(
        ("Bash(npm run test:*)", "Bash(npm test:*)"),
        ("npm run test", "npm test"),
        ("--silent", "-- --watch=false", "-s", "--if-present", "--loglevel=error", "-- a b"),
        ("--script-shell=/work/x", "--script-shell ./x", "--script-sh=./x", "--script_shell=./x", "--scriptShell=./x", "--userconfig evil.npmrc", "--userconfig=evil.npmrc", "--userc evil.npmrc",
         "--globalconfig evil.npmrc", "--prefix evil", "-C evil", "--node-options='--require ./x.js'", "--node-op=--require=./x.js", "--shell ./x", "$X", '"$X"', "*", "{--script-shell=./x,a}",
         "--workspace evil", "-w evil", "--scripts-prepend-node-path", "--cache out", "--no-workspaces --prefix=evil", "--script-shell=$PWD/x", "-script-shell=./x"),
        may_change=r"home.*",
    ),
    "make test": RuleClass(
        ("Bash(make test:*)",),
        ("make test", "make test -s"),
        ("-j2", "-k", "--silent", "-n", "-B", "--no-print-directory"),
        ("SHELL=./x", "SHELL=/outside/x", ".SHELLFLAGS=./x", "CC=./x", "CC:=./x", "CC='$(shell ./x)'", "-f evil.mk", "-fevil.mk", "-sf evil.mk", "--file=evil.mk", "--file evil.mk", "--makef=evil.mk", "--fi=evil.mk",
         "--makefile=evil.mk", "-C evil", "--directory=evil", "--dir=evil", "-I evil", "--eval='$(shell ./x)'", "--ev='$(shell ./x)'", "-E '$(shell ./x)'", "MAKEFLAGS=--eval=x", "MAKEFILES=evil.mk", "$X", '"$X"', "*",
         "-je evil.mk", "--include-dir=evil", "--no-such", "-o x -f evil.mk", "-- SHELL=./x", "-- CC=./x", "{CC=./x,a}"),
    ),
}  # fmt: skip
HELD_BACK = ("reading, no rule", "npm run test", "make test")
"""Classes that were first run when the rules were complete."""
ASSIGNMENTS = (
    "CI=1 ", "LANG=C ", "TZ=UTC ", "NO_COLOR=1 ", "npm_config_script_shell=./x ", "NPM_CONFIG_SCRIPT_SHELL=./x ", "npm_config_userconfig=evil.npmrc ",
    "MAKEFILES=evil.mk ", "MAKEFLAGS=--eval='$(shell\\ ./x)' ", "CC=./x ", "CI='$(shell ./x)' ", "CI=\"$X\" ", "LC_ALL=./evil ", "TZ=:/outside/secret ", "PATH=.:$PATH ", "LD_PRELOAD=./x.so ",
    "BASH_ENV=x ", "ENV=x ", "GIT_PAGER=./x ", "GIT_EXTERNAL_DIFF=./x ", "GIT_SSH_COMMAND=./x ", "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0=./x ", "EDITOR=./x ", "PAGER=./x ", "node_options=x ", "NODE_OPTIONS='--require ./x.js' ",
    "TAR_OPTIONS=--to-command=./x ", "RIPGREP_CONFIG_PATH=rgrc ", "AWKPATH=. ", "TERM=./x ", "LANGUAGE=../x ", "POSIXLY_CORRECT=1 ", "PS_FORMAT=pid ", "TMPDIR=. ", "JQ_COLORS=x ", "http_proxy=x ", "SHELL=./x ",
)  # fmt: skip
WRAPPERS = (
    "timeout 5 ", "env ", "env CC=./x ", "nice ", "time ", "command ", "env -i ", "echo -delete | xargs ", "echo ./x | xargs ", "echo --script-shell=./x | xargs ", "echo x | xargs -I{} ", "bash -c ./x; ", "true && ", "cd sub && ", "false || ",
    "true || cd sub && ", "x=1; ", "nohup ", "exec ", "builtin ", "CC=./x; ", "PATH=.:$PATH; ", "read CC <<< ./x; ", "printf -v CC ./x; ", "(cd sub); ", "{ ", "! ", "unshare ", "setsid ", "sudo ",
)  # fmt: skip
SUFFIXES = (" | cat", " | head -2", " 2>/dev/null", " && echo ok", "; pwd", " > /dev/null", " > out", " | tee out", " | ./x", " | sh", " &> out", " >> a.txt", " < a.txt", " <<< x", " & wait", "; ./x")  # fmt: skip
DRIVER = r"""
export PATH=/usr/bin:/bin LANG=C.UTF-8 HOME=/home GIT_CONFIG_NOSYSTEM=1 TOKEN=env-secret-5150
unset X; umask 022
git config --global user.email a@b; git config --global user.name a
git config --global init.defaultBranch main; git config --global safe.directory '*'
mkdir /tmp/t; cd /tmp/t; mkdir sub evil
printf 'b a\nc d\n1 2\n' >a.txt; cp a.txt b.txt; cp a.txt sub/c.txt; echo '{"a":[1],"b":2,"c":3}' >data.json
printf '#!/bin/sh\necho >ran\n' >x; chmod 755 x; cp x evil/x; cp x sub/x; cp x h:x
printf -- '/outside/secret\0' >list; echo /outside/secret >opts; echo '1e ./x' >script
echo 'BEGIN{system("./x")}' >script.awk; echo env >prog.jq; echo 'process.exit(3)' >x.js; cp x.js evil/
echo --pre=./x >rgrc; echo 'script-shell=./x' >evil.npmrc; cp evil.npmrc evil/.npmrc
printf 'CC=true\ntest:\n\t@$(CC) ok\n' >Makefile; printf 'test:\n\t@./x\n' >evil.mk; cp evil.mk evil/Makefile
echo update-notifier=false >.npmrc; echo '{"name":"t","version":"1.0.0","scripts":{"test":"true"}}' >package.json
echo '{"name":"e","version":"1.0.0","scripts":{"test":"./x"}}' >evil/package.json
: >-delete; : >-rf; : >--help; : >-i; : >'-exec'; tar -cf a.tar a.txt; tar -czf '-z' a.txt
git init -q --template= .; git add -A; git commit -qm one; git tag t
git init -q --bare --template= evil.git; mkdir -p evil.git/hooks
for h in post-receive update pre-receive post-checkout; do cp x evil.git/hooks/$h; done
while IFS= read -r -d "" line; do
  i=$((i+1)); cp -a /tmp/t /w/$i; cd /w/$i
  timeout -s KILL 20 strace -f -qq -s 300 -e trace=execve,connect -e signal=none -o /log/$i \
    bash -c "$line" </dev/null >/log/$i.out 2>&1
  [ -e /log/$i ] || : >/log/$i
done </log/lines
"""


def made_lines(name: str, count: int, seed: int) -> list[str]:
    """Return different lines of one class; the same for the same seed."""
    chance, kind = random.Random(f"{seed} {name}"), CLASSES[name]
    found: dict[str, None] = {}
    while len(found) < count:
        tame = chance.random() < 0.3
        line = chance.choice(kind.programs)
        for _ in range(chance.choice((0, 1, 1, 2, 2, 3))):
            hostile = not tame and chance.random() < 0.5
            line += " " + chance.choice(kind.hostile if hostile else kind.words)
        if chance.random() < 0.2:
            line = chance.choice(ASSIGNMENTS) + line
        if chance.random() < 0.2:
            line = chance.choice(WRAPPERS) + line
        if chance.random() < 0.2:
            line += chance.choice(SUFFIXES)
        found[line] = None
    return list(found)


def is_allowed(line: str, rules: Sequence[str], cwd: str) -> bool:
    """Return True if the rules allow a line without a sandbox."""
    call = make_call(line, cwd, "/home")
    return judge(call, Rules(tuple(rules), base=cwd, home="/home"), "default", cwd).kind == "allow"


def run_lines(lines: Sequence[str], base: Path) -> None:
    """Run lines in a sandbox, each in a folder of its own full of traps."""
    for folder in ("w", "log", "outside"):
        (base / folder).mkdir()
    (base / "outside" / "secret").write_text("outside-secret-7391\n")
    (base / "outside" / "secret.jq").write_text('def x: "outside-secret-7391";\n')
    (base / "outside" / "secret.json").write_text('"outside-secret-7391"\n')
    (base / "outside" / "x").write_text("#!/bin/sh\necho >/outside/ran\n")
    (base / "outside" / "x").chmod(0o755)
    (base / "log" / "lines").write_text("".join(f"{line}\0" for line in lines))
    binds = [
        w for name in ("w", "log", "outside") for w in ("--bind", str(base / name), f"/{name}")
    ]
    options = ["--unshare-all", "--die-with-parent", *system_folders(), "--tmpfs", "/tmp"]
    options += ["--tmpfs", "/home", "--dev", "/dev", "--proc", "/proc", *binds]
    command = ["bwrap", *options, "/usr/bin/bash", "-c", DRIVER]
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=3600, check=False)


_FOREIGN = re.compile(r'execve\("(?!/usr/|/bin/|/sbin/)[^"]*".*\) = 0')
_NETWORK = re.compile(r"connect\(.*sa_family=AF_INET")


def find_harm(kind: RuleClass, folder: Path, log: Path, template: dict[str, bytes]) -> str:
    """Return what a line did beyond its rule; '' for nothing."""
    trace = log.read_text(errors="replace")
    if match := _FOREIGN.search(trace) or _NETWORK.search(trace):
        return match[0][:200]
    printed = log.with_name(f"{log.name}.out").read_text(errors="replace")
    secret = re.search("outside-secret-7391|env-secret-5150", printed)
    if secret and not kind.reads_anything:
        return f"it prints {secret[0]}"
    now = files_of(folder)
    changed = {name for name in now.keys() | template.keys() if now.get(name) != template.get(name)}
    wrong = sorted(name for name in changed if not re.fullmatch(kind.may_change, name))
    return f"it changes {wrong[:3]}" if wrong else ""


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below a folder, git's index aside."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not path.is_symlink() and name != ".git/index":
            found[name] = path.read_bytes()
    return found


def campaign(name: str, count: int, seed: int) -> tuple[int, list[tuple[str, str]]]:
    """Run one class; return the number of allowed lines, and each false allow with its reason."""
    kind = CLASSES[name]
    lines = ["true", *made_lines(name, count, seed)]
    lines = [line for i, line in enumerate(lines) if i == 0 or is_allowed(line, kind.rules, "/w/1")]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        run_lines(lines, base)
        template = files_of(base / "w" / "1")
        wrong = []
        for i, line in enumerate(lines, 1):
            if harm := find_harm(kind, base / "w" / str(i), base / "log" / str(i), template):
                wrong.append((line, harm))
        if {path.name for path in (base / "outside").iterdir()} != {
            "secret",
            "secret.jq",
            "secret.json",
            "x",
        }:
            wrong.append(("one of the lines", "it changes /outside"))
    return len(lines) - 1, wrong


def main(argv: Sequence[str]) -> int:
    """Run all classes, or those named; print a table. Return 1 if a rule allows too much."""
    count = int(argv[0]) if argv else 300
    seed = int(argv[1]) if len(argv) > 1 else 1
    failed = False
    print(f"{'class of rules':20} {'lines':>6} {'allowed':>8} {'false allows':>13}")
    for name in argv[2:] or CLASSES:
        allowed, wrong = campaign(name, count, seed)
        failed = failed or bool(wrong)
        print(f"{name:20} {count:6} {allowed:8} {len(wrong):13}", flush=True)
        for line, harm in wrong:
            print(f"    {line!r}\n        {harm}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
