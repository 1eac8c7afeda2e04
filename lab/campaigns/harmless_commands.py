"""Harmless commands of everyday work, for the share that asks needlessly."""

import random
import re
from collections.abc import Iterator

SLOTS = {
    "F": ["src/app.py", "README.md", "lib/util.ts", "'docs/my notes.md'", "tests/test_a.py",
    "pyproject.toml", "cmd/main.go", "\"src/a b.py\"", "Makefile", ".github/workflows/ci.yml",
    "./package.json", "$PWD/src/app.py", '"$PWD/README.md"'],
    "D": ["src", "tests", ".", "lib", "docs/", "./src", "cmd/cli"],
    "G": ["*.py", "src/*.ts", "**/*.md", "tests/test_*.py", "{a,b}.json", "src/[a-z]*.py",
    "docs/*/index.html"],
    "P": ["TODO", "'def main'", '"class Foo"', "'import (os|sys)'", "-i error", "-w name",
    "'func.*Test'", '"foo\\.bar"', "'[A-Z]+_KEY'", "'$HOME'", '"a b c"'],
    "N": ["5", "20", "100"],
    "R": ["HEAD", "main", "HEAD~1", "v1.2.0", "origin/main", "main..HEAD", "HEAD^"],
    "V": ["f", "name", "file", "i"],
    "E": ["2>/dev/null", "2>&1", "", "", ""],
    "T": ["| head", "| head -n 20", "| wc -l", "| sort | uniq -c | sort -rn", "| tail -5", "| cat",
    "| grep -v node_modules", "| cut -d: -f1", "| sort -u", "| tr a-z A-Z", "| sed -n '1,20p'",
    "| awk '{print $1}'", "", "", "|| true", "&& echo ok", "; echo $?", "| sed 's/^/  /'",
    "| column -t", "| nl"],
}  # fmt: skip
TEMPLATES = r"""
ls -la @D @E @T
ls @D
ls -1 @G @E @T
ls -lt @D | head -@N
cat @F @E @T
cat @F @F
cat -n @F | sed -n '10,40p'
head -@N @F
head -n @N @F @E
tail -n @N @F
tail -@N @F @T
wc -l @F @T
wc -l @G
grep -rn @P @D @E @T
grep -n @P @F @T
grep -rn --include='*.py' @P @D @T
grep -c @P @F
grep -l @P @G @E @T
grep -A3 -B3 @P @F
grep -E @P @F @T
grep -rnE @P @D --exclude-dir=node_modules @T
rg @P @D @T
rg -n @P @F @E @T
rg -l @P @T
rg -n -g '*.py' @P @D @T
rg --files @D @T
rg -uu @P @D
find @D -name '*.py' @T
find @D -type f -name '*.md' -not -path '*/node_modules/*' @E @T
find @D -maxdepth 2 -type d @T
find @D -name '*.py' -exec grep -l @P {} + @T
find @D -name '*.go' -exec wc -l {} \;
find @D -type f | xargs wc -l @T
find @D -name '*.py' -print0 | xargs -0 grep -n @P @T
find @D -newer @F -type f
find @D -size +1M -o -mtime -1
git status @T
git status --short
git status -sb @E
git log --oneline -@N @T
git log --oneline @R @E @T
git log -@N --format='%h %s (%an)' @T
git log --stat -@N
git log -p -@N -- @F
git log --since='2 weeks ago' --author=me --oneline @T
git diff @E @T
git diff --stat @R
git diff @R -- @F @T
git diff --cached
git diff --name-only @R @T
git show @R @E @T
git show --stat @R
git show @R:README.md @T
git branch -a @T
git branch --show-current
git branch -vv
git rev-parse HEAD
git rev-parse --abbrev-ref HEAD @E
git remote -v
git blame -L 10,20 @F
git ls-files @T
git ls-files @D | grep @P @T
git stash list
git tag -l @T
git describe --tags @E
git merge-base main HEAD
git grep -n @P @T
git config --get user.name
git log --graph --oneline --all @T
git shortlog -sn @T
git reflog -@N
git -C @D log --oneline -@N
git --no-pager diff @R
git rev-list --count @R
pwd
pwd; ls
whoami; date
date +%F
date -u +%Y-%m-%dT%H:%M:%SZ
uname -a
echo hello
echo "branch: $(git branch --show-current)"
echo "$USER in $PWD"
echo $PATH | tr ':' '\n' @T
echo "== name =="; cat @F
echo "lines: $(wc -l < @F)"
printf '%s\n' a b c @T
printf '%s: %d\n' "$USER" @N
cd @D && ls @T
cd @D && git status
cd @D && grep -rn @P . @T
(cd @D; ls -la)
cd @D && cat ../README.md
test -f @F && echo yes || echo no
[ -d @D ] && ls @D
[[ -f @F ]] && head -@N @F
if [ -f @F ]; then cat @F; fi
if grep -q @P @F; then echo found; else echo missing; fi
for @V in @G; do echo "$@V"; done
for @V in a b c; do echo $@V; done @T
for @V in @G; do echo "== $@V"; head -@N "$@V"; done
for @V in src/app.py README.md; do wc -l "$@V"; done @T
for @V in 1 2 3; do echo "run $@V"; done
ls @D | while read @V; do echo "- $@V"; done
while read -r @V; do echo "$@V"; done < @F
cat @F | while IFS= read -r line; do echo "$line"; done
sed -n '@N,40p' @F @T
sed -n '/start/,/end/p' @F
sed 's/foo/bar/g' @F @T
sed -e 's/a/b/' -e 's/c/d/' @F
awk '{print $1}' @F @T
awk -F: '{print $1, $3}' @F
awk 'NR>=10 && NR<=20' @F
awk '/TODO/ {print FILENAME ": " $0}' @F
awk '{s+=$1} END {print s}' @F
sort @F | uniq -c | sort -rn | head -@N
sort -t, -k2 -n @F
sort -u @F | wc -l
cut -d, -f1,3 @F @T
tr -d '\r' < @F @T
diff @F @F
diff -u @F README.md @T
diff <(sort @F) <(sort README.md)
comm -12 <(sort @F) <(sort README.md)
jq . @F
jq '.scripts' package.json
jq -r '.dependencies | keys[]' package.json @T
cat package.json | jq -r '.version'
tree -L 2 @D
du -sh @D @T
du -sh * @E | sort -h @T
df -h
file @F
stat @F
md5sum @F @T
sha256sum @F
which python3 node @E
type -a git
command -v node
python3 --version; node --version
node --version 2>&1
go version
cargo --version
ps aux @T
ps aux | grep node | grep -v grep
env @T
env | grep -i path
id
hostname
uptime
free -m
nproc
basename @F
dirname @F
realpath @F
readlink -f @F
cat <<EOF@_plain text@_EOF
cat <<'EOF'@_use `make` and $HOME here@_EOF
cat <<EOF@_branch $(git branch --show-current)@_EOF
cat <<'EOF' | wc -l@_- run `npm test`@_- see $(docs)@_EOF
cat <<EOF@_the user is $USER and the \`code\` is quoted@_EOF
cat <<EOF | head@_$(ls @D)@_EOF
grep @P @F <<< text
wc -w <<< "a b c"
cat @F 2>/dev/null | grep @P
ls @D 2>&1 | grep -v total @T
ls 2>/dev/null @D | head
grep @P 2>/dev/null @F @T
grep @P @F 2>/dev/null | sort > /dev/null
cat @F >/dev/null && echo readable
git log --oneline 2>/dev/null | head -@N
ls @D/ && echo '---' && cat @F
set -e; ls @D; cat @F
set -euo pipefail; grep -c @P @F
export LC_ALL=C; sort @F
LC_ALL=C sort @F @T
TZ=UTC date
NO_COLOR=1 git status
@V=@F; cat "$@V"
@V=src; ls "$@V" @T
@V=@D && grep -rn @P "$@V" @T
n=$(wc -l < @F); echo "$n lines"
count=$(grep -c @P @F || true); echo "count: $count"
root=$(git rev-parse --show-toplevel); echo "$root"
timeout 10 grep -rn @P @D @T
time grep -rn @P @D
time ls @D
nice -n 10 find @D -name '*.py' @T
tac @F | head -@N
rev @F
nl @F | head -@N
od -c @F | head
xxd @F | head -@N
hexdump -C @F @T
strings @F @T
base64 @F @T
column -t @F
fold -w 80 @F
seq 1 @N
seq @N | tail -1
sleep 1; echo done
true
:
! grep -q @P @F
ls @D; ls tests; git status
cat @F & wait
{ cat @F; echo; cat README.md; } @T
(grep -n @P @F; grep -n @P README.md) @T
# look around@_ls @D@_cat @F
ls \@_  @D \\@_  @T
case $(uname) in Linux) echo linux;; Darwin) echo mac;; esac
echo "${@V:-none}"
echo "${PWD##*/}"
echo "version: ${1:-0}"
echo $((@N * 2))
echo "$((1 + 2)) files"
tar -tf archive.tar @T
tar tzf dist.tgz @T
env | sort @T
cat @F | base64 -d @E
paste -d, @F README.md
join @F README.md
expr 1 + 2
test -x @F; echo $?
grep -oP '(?<=version = ")[^"]+' @F
grep -rn "$USER" @D @T
grep -rn -e @P -e foo @D @T
find . -path ./node_modules -prune -o -name '*.js' -print @T
xargs -n1 echo < @F
cat @F | xargs -I{} echo "item {}" @T
ls -d */ @T
ls *.{md,toml} @E
tail -n +@N @F @T
head -c 200 @F
git diff --word-diff @R -- @F
git log -S'foo' --oneline @T
git log --follow --oneline -- @F
git ls-tree -r --name-only HEAD @T
git cat-file -p HEAD @T
git for-each-ref --sort=-committerdate --format='%(refname:short)' refs/heads @T
git show --name-only --format= HEAD @T
git worktree list
""".strip().split("\n")
"""Commands with slots such as `@F`, a file; `@_` is a line break."""


def harmless_commands(count: int, seed: int) -> Iterator[str]:
    """Yield random harmless commands; all templates have the same share."""
    source = random.Random(seed)
    for at in range(count):
        template = TEMPLATES[at % len(TEMPLATES)].replace("@_", "\n")
        template = template.replace("@V", source.choice(SLOTS["V"]))  # the same variable everywhere
        yield re.sub("@([A-Z])", lambda slot: source.choice(SLOTS[slot[1]]), template).strip()
