"""Readings of command lines: their parts, and the files that these name to read and to write."""

import shlex
from collections.abc import Callable, Iterable

import pytest

from longrein.permissions import Effect, Part, Word, read_command
from longrein.permissions.bash_parser import parse_command
from tests.permissions.calls import HOME, ROOT

EFFECTS = r"""
cat a -n b                         => reads a b
cat -Q a                           => writes ?; the option -Q of cat
cat -- -n                          => reads -n
cat -                              => reads -
cat *.txt                          => reads **.txt
cat $x                             => writes ?; an argument of cat is not known
head -5 a                          => reads a
head -n 5 a                        => reads a
head -n5 a                         => reads a
head --lines=5 a                   => reads a
head --lines 5 a                   => reads a
head -n                            => writes ?; the option -n of head
head -n $x a                       => reads ? a
sort a                             => reads a
sort -k2 a                         => reads a
sort -k 2 -t: a                    => reads a
sort -o out a                      => writes ?; the option -o of sort
sort --output=out a                => writes ?; the option --output=out of sort
sort -T /x a                       => writes ?; the option -T of sort
uniq a                             => reads a
uniq a b                           => writes ?; uniq with so many arguments
uniq *                             => writes ?; an argument of uniq is not known
xxd a                              => reads a
xxd a b                            => writes ?; xxd with so many arguments
basename a/b                       =>
tr a b                             =>
grep x a b                         => reads a b
grep -e x a                        => reads a
grep --regexp=x a                  => reads a
grep -f p a                        => reads p a
grep --file p a                    => reads p a
grep --file=p a                    => reads p a
grep x                             =>
grep -r x                          => reads .
grep -rl x                         => reads .
grep -R x d                        => reads d; follows
grep --dereference-recursive x d   => reads d; follows
grep -A3 x a                       => reads a
grep -m 1 -in x a                  => reads a
grep -z- x a                       => writes ?; the option -z- of grep
rg x                               => reads .
rg x d                             => reads d
rg -f p d                          => reads p d
rg --pre cmd x                     => writes ?; the option --pre of rg
diff a b                           => reads a b
diff -r a b                        => reads a b; follows
diff -u a b                        => reads a b
diff --color=always a b            => reads a b
stat -c %n a                       => reads a
stat --format=%n a                 => reads a
ls                                 =>
ls -la d                           => reads d
ls --color d                       => reads d
ls --color=auto d                  => reads d
ls --block-size=1 d                => writes ?; the option --block-size=1 of ls
tee a                              => writes a
tee -a a b                         => writes a b
touch -r a b                       => reads a; writes b
touch --reference=a b              => reads a; writes b
touch --reference a b              => reads a; writes b
rm a                               => writes a
rm -rf *.o                         => writes ?; an argument of rm is not known
rm -rf .*                          => writes ?.; an argument of rm may be several
rm -rf */x                         => writes ?; an argument of rm is not known
rm --interactive a                 => writes ?; the option --interactive of rm
mkdir -p a/b                       => writes a/b
mkdir -m 700 a                     => writes a
cp a b                             => reads a; writes b b/a
cp -r a b d                        => reads a b; writes d d/a d/b
cp a d/                            => reads a; writes d/ d//a
cp a/b/ d                          => reads a/b/; writes d d/b
cp -t d a                          => writes ?; the option -t of cp
cp . d                             => reads .; writes d ?
cp *.c d                           => writes ?; an argument of cp is not known
cp a bin                           => reads a; writes bin ?
cp .x d                            => reads .x; writes d ?
mv a b                             => writes a b b/a
mv a b d                           => writes a b d d/a d/b
truncate -s 0 a                    => writes a
find                               => reads .
find . -name '*.py'                => reads .
find a b -type f                   => reads a b
find . -newer s                    => reads . s
find . -anewer s -print            => reads . s
find . -samefile s                 => reads . s
find . -delete                     => writes ?; the option -delete of find
find . -exec cat {} +              => reads *./** | reads .
find . -fprint x                   => writes ?; the option -fprint of find
find . -name *.py                  => writes ?; a file name may be an option of find
find . -name $x                    => writes ?; -name of find may get several values
find $x                            => writes ?; an argument of find is not known
find -name                         => writes ?; the option -name of find
find . \( -name a -o -name b \) -print0 => reads .
find . -newermt 2020               => writes ?; the option -newermt of find
tar -tf a.tar                      => reads a.tar
tar tzf a.tar                      => reads a.tar
tar -tf h:a.tar                    => writes ?; tar other than `tar -tf FILE`
tar -tf a.tar b                    => writes ?; tar other than `tar -tf FILE`
tar -xf a.tar                      => writes ?; tar other than `tar -tf FILE`
tar -tf $x                         => writes ?; tar other than `tar -tf FILE`
date                               =>
date +%s                           =>
date -d yesterday                  =>
date -s now                        => the option -s of date
date 01010000                      => date may set the clock
test -f a                          =>
test $x = y                        => test may evaluate an unknown value
[ -f a ]                           =>
printf x                           =>
printf -v PATH x                   => printf may set a variable
printf -v __v x                    => printf may set a variable
printf '%n' x                      => printf may set a variable
printf "$x"                        =>
printf "$x" y                      => printf may set a variable
read x                             =>
read PATH                          => read may set a variable of other programs
read -r x y                        =>
strings a                          => reads a
strings @a                         => strings may take names from a file
jq . a                             => reads a
jq -r .a b c                       => reads b c
jq 'input_filename' a              => the script of jq may open something
jq -f p a                          => the option -f of jq
ps aux                             =>
ps -ef                             =>
ps e                               => ps may print the environments of processes
ps -p 1                            =>
ps -p                              => ps may print the environments of processes
ps --pid=1                         =>
env                                =>
env a                              => a is not known to only read
hostname                           =>
hostname x                         => writes ?; hostname with so many arguments
set -e                             =>
set -o pipefail                    =>
set x                              => set with other arguments
sed p a                            => reads a
sed -n 1p a                        => reads a
sed -i s/a/b/ a                    => writes a
sed 'w out' a                      => the script of sed may run or write something
awk '{print}' a                    => reads a
awk 'BEGIN{system("x")}'           => the script of awk may run, write or open something
git                                =>
git status                         =>
git -C d status                    => in d
git -c a=b status                  => the option -c of git; lock git; history
git --no-pager log                 =>
git log -5                         =>
git log --format=%G?               => writes ?; an argument of git log is not known; history
git log -- a                       =>
git diff --no-index /etc/a b       => writes ?; the option --no-index of git diff; history
git diff ../x                      => reads ../x; history
git branch                         =>
git branch x                       => git may change the repository; lock git
git branch --list x                =>
git branch -- x                    => git may change the repository; lock git
git branch --contains=x            => writes ?; the option --contains=x of git branch
git tag -l v                       =>
git tag v1                         => git may change the repository; lock git
git stash list                     =>
git stash                          => git may change the repository; lock git
git stash show                     =>
git reflog                         =>
git reflog expire                  => git may change the repository; lock git
git reflog show                    =>
git worktree list                  =>
git worktree add x                 => git may change the repository; lock git
git config a.b                     =>
git config --get a.b               =>
git config a.b c                   => git config may change the configuration; lock git
git config --list                  =>
git config                         => git config may change the configuration; lock git
git config alias.x --list          => git config may change the configuration; lock git
git commit -m x                    => git commit is not known to only read; lock git
git push                           => git push is not known to only read; lock git
git $x                             => the subcommand of git is not known; lock git; history
git show HEAD:a                    => history
npm test                           => npm is not known to only read
npm install                        => npm is not known to only read; lock npm
npm i x                            => npm is not known to only read; lock npm
yarn                               => yarn is not known to only read; lock yarn
yarn run x                         => yarn is not known to only read
pip list                           => pip is not known to only read
pip install x                      => pip is not known to only read; lock pip
python -m pip install x            => pip is not known to only read; lock pip
python -m venv v                   => writes ?; venv is not known to only read
python -m pytest                   => python is not known to only read
python --version                   =>
node --version                     =>
make                               => make is not known to only read
make -V                            =>
curl -o a b                        => writes ?; curl is not known to only read
curl -sLo a b                      => writes ?; curl is not known to only read
curl --output a b                  => writes ?; curl is not known to only read
curl x                             => curl is not known to only read
perl -pi x                         => writes ?; perl is not known to only read
perl -e 1                          => perl is not known to only read
dd if=a                            => writes ?; dd is not known to only read
ln -s a b                          => writes ?; ln is not known to only read
sudo cat a                         => reads a; it runs as another user
./prog a                           => ./prog is not a program of the system
/usr/bin/cat a                     => reads a
/home/x/cat a                      => /home/x/cat is not a program of the system
$x a                               => an expansion stands in the place of the program
A=1 cat a                          => reads a; it sets A
PATH=x cat a                       => reads a; it sets PATH
IFS= read x                        =>
IFS= cat x                         => reads x; it sets IFS
cat <a                             => reads a |
cat >a                             => writes a |
cat >>a 2>/dev/null                => writes a |
cat <a >b                          => reads a | writes b |
echo -n x                          =>
echo -Z                            =>
echo $x                            =>
frob a                             => frob is not known to only read
cat a; rm b                        => reads a | writes b
xargs cat                          => writes ?; an argument of cat is not known
timeout 5 cat a                    => reads a
nice -n 5 cat a                    => reads a
env -i A=1 cat a                   => reads a; it sets A
env - cat a                        => reads a
cd d && cat a                      => reads d | reads a
find . -exec a {} \; -delete       => a is not known to only read | writes ?; the option -delete of find
sed -e p a                         => reads a
sed -n -e p -e d a                 => reads a
sed --expression p a               => reads a
sed -e                             => writes ?; the option -e of sed
sed -i.bak p a                     => writes a a.bak
sed --in-place=.bak p a            => writes a a.bak
sed -z p a                         => writes ?; the option -z of sed
sed *.c a                          => writes ?; an argument of sed is not known
sed $x a                           => writes ?; an argument of sed is not known
sed p *.c                          => writes ?; an argument of sed is not known
sed -E p -                         => reads -
awk -F: '{print}' a                => reads a
awk -F : '{print}' a               => reads a
awk -v a=1 '{print}' a             => reads a
awk -v A=1 '{print}' a             => awk gets a variable that is not known
awk -v OFS=, '{print}' a           => reads a
awk -f x a                         => the option -f of awk
awk -va=1 '{print}' a              => reads a
awk '{print}' a=1 b                => reads b
awk -v                             => the script of awk may run, write or open something
test *.c = x                       => test may evaluate an unknown value
[ -f $x ]                          =>
test "a[" = x                      => test may evaluate an unknown value
set -eux                           =>
set -o x y                         => set with other arguments
printf -v a x                      =>
printf -v a '%n' x                 => printf may set a variable
printf -v $x y                     => printf may set a variable
printf *.c                         => printf may set a variable
git config --                      => git config may change the configuration; lock git
git config -- a.b                  => git config may change the configuration; lock git
git config --global a.b            =>
git config --global a.b c          => git config may change the configuration; lock git
git config $x                      => git config may change the configuration; lock git; history
ps                                 =>
ps --forest                        =>
ps --pid 1                         =>
ps -o pid $x                       => ps may print the environments of processes
node -V                            =>
node version                       =>
node --version x                   => node is not known to only read
python -m venv                     => python is not known to only read
python -m pip                      => python is not known to only read
make --version                     =>
git submodule add x                => git submodule is not known to only read; lock git
git submodule foreach x            => git submodule is not known to only read; lock git
git submodule update               => git submodule is not known to only read; lock git
cp a                               => writes a
cp                                 =>
mv                                 =>
cp $x d                            => writes ?; an argument of cp is not known
head -n $x                         => reads ?
head -5c a                         => writes ?; the option -5c of head
head -c5 a                         => reads a
cat -#                             => writes ?; the option -# of cat
"""  # noqa: E501
"""Command => effects of its parts. `?` stands for an unknown file, `*` begins a pattern."""


_MARKS = {"literal": "", "open": "?", "glob": "*"}


def told(effect: Effect) -> str:
    facts = {
        "reads": shown(effect.reads),
        "writes": shown(effect.writes),
        "": effect.problem,
        "lock": effect.lock,
        "in": effect.folder.text if effect.folder else "",
        "follows": effect.follows,
        "history": effect.history,
    }
    return "; ".join(
        f"{name} {fact if fact is not True else ''}".strip() for name, fact in facts.items() if fact
    )


def shown(words: Iterable[Word]) -> str:
    return " ".join(_MARKS[word.kind] + word.text for word in words)


def check(table: str, tell: Callable[[str], str]) -> None:
    """Compare each row `LINE => …` with what is told of the line; a `⏎` is a line break."""
    wrong = []
    for row in table.strip().splitlines():
        line, _, expected = row.partition(" =>")
        found = tell(line.rstrip().replace("⏎", "\n")).replace("\n", "⏎")
        if found.strip() != expected.strip():
            wrong.append(f"{line.rstrip()} => {found.strip()}")
    assert not wrong


def test_what_a_command_reads_and_writes() -> None:
    check(EFFECTS, lambda line: " | ".join(map(told, read_command(line, ROOT, HOME).effects)))


# --- Parts of a line ------------------------------------------------------------------------------

PARTS = r"""
echo a b                       => [echo] [a] [b]
echo 'a b' "c d"               => [echo] [a b] [c d]
echo a\ b                      => [echo] [a b]
echo "a$HOME"                  => [echo] [a/home/ann]
echo $PWD/x                    => [echo] [/work/repo/x]
echo ${PWD}                    => [echo] [/work/repo]
echo ${x:-y}                   => [echo] [?] || `${x:-y}` is not read (expansion)
echo "$x" "$@"                 => [echo] [?!] [?]
echo ~/a                       => [echo] [/home/ann/a]
echo ~bob                      => [echo] [?]
echo a=~/b                     => [echo] [?a=] || `a=~/b` is not read
echo {a,b}                     => [echo] [?] || `{a,b}` is not read
echo a{                        => [echo] [a{]
echo *.c                       => [echo] [**.c]
echo a2>x                      => to x | [echo] [a2] || it is not read
echo a >x 2>&1                 => to x | [echo] [a]
echo a &>x                     => to x | [echo] [a]
echo a >&2                     => [echo] [a]
echo a 2>/dev/null             => [echo] [a]
cat <x                         => from x | [cat]
cat <<<x                       => [cat]
cat <<E                        => [cat] || it does not read as Bash
a|b                            => [a] | [b]
a | b |& c                     => [a] | [b] | [c]
a && b || c                    => [a] | [b] | [c]
a; b & c                       => [a] | [b] | [c]
! a                            => [a]
( a; b )                       => [a] | [b]
{ a; }                         => [a] || it is not read (compound statement)
if a; then b; else c; fi       => [a] | [b] | [c] || it is not read (if statement)
for i in x y; do a $i; done    => [a] [?] || it is not read (for statement)
for ((i=0;i<3;i++)); do a; done =>  | [a] || it is not read (c style for statement)
while a; do b; done            => [a] | [b] || it is not read (while statement)
until a; do b; done            => [a] | [b] || it is not read (while statement)
case x in x) a;; y) b;; esac   => [a] | [b] || it is not read (case statement)
f() { a; }                     => [a] || it is not read (function definition)
function f { a; }              => [a] || it is not read (function definition)
a $(b c)                       => [b] [c] | [a] [?]
a "$(b)"                       => [b] | [a] [?!]
a `b`                          => [b] | [a] [?]
a <(b)                         => [b] | [a] [?] || `<(b)` is not read (process substitution)
a ${x:-$(b)}                   => [b] | [a] [?] || `${x:-$(b)}` is not read (expansion)
A=1 b                          => [b]; set A=1
A=$(c) b                       => [c] | [b]; set A=$
A=1                            =>
export A=1                     =>  || it is not read (declaration command)
A[0]=1 b                       => [b]; set A[0]=$ || `A[0]=1` is not read (variable assignment)
declare x=1                    =>  || it is not read (declaration command)
time a                         => [a]; by time
time -p a                      => [a]; by time
command a                      => [a]; by command
command -v a                   => [type] [a]
exec a                         => [a]; by exec
builtin a                      => [a]; by builtin
eval 'a b'                     => [a] [b] | [eval] [a b]
eval "a $x"                    => [eval] [?a !]
env A=1 a                      => [a]; set A=1; by env
env -u X a                     => [a]; by env
env - a                        => [a]; by env
env -S 'a b'                   => [env] [-S] [a b]; by env; an unknown use of env
nohup a                        => [a]; by nohup
nice -n 5 a                    => [a]; by nice
timeout 5 a                    => [a]; by timeout
timeout -s KILL 5 a            => [a]; by timeout
stdbuf -oL a                   => [a]; by stdbuf
sudo a                         => [a]; by sudo
sudo -u bob a                  => [a]; by sudo
xargs a                        => [a] [?]; by xargs
xargs -n 1 a b                 => [a] [b] [?]; by xargs
xargs -I{} a {}                => [xargs] [-I{}] [a] [{}]; by xargs; an unknown use of xargs
bash -c 'a b'                  => [a] [b]
bash -c "$x"                   => [bash] [-c] [?!]
sh -c 'a; b' c                 => [a] | [b] | [sh] [-c] [a; b] [c]
bash x.sh                      => [bash] [x.sh]
find . -exec a {} \;           => [a] [*./**]; by find | [find] [.] [-exec] [a] [{}] [;]
find . -exec a {} +            => [a] [*./**]; by find | [find] [.] [-exec] [a] [{}] [+]
trap 'a' EXIT                  => [trap] [a] [EXIT]
cd d && a                      => [cd] [d] | [a]; in /work/repo/d
cd d; cd e; a                  => [cd] [d] | [cd] [e]; in /work/repo/d /work/repo | [a]; in /work/repo/d/e /work/repo/e /work/repo/d /work/repo
cd "$x" && a                   => [cd] [?!] | [a]; anywhere
cd - && a                      => [cd] [-] | [a]; anywhere
pushd d && a                   => [pushd] [d] | [a]; anywhere
(cd d && a); b                 => [cd] [d] | [a]; in /work/repo/d | [b]
cd d | a                       => [cd] [d] | [a]
a # comment                    => [a]
a \                            => [a] || it does not read as Bash
coproc a                       => [coproc] [a] || `coproc` is not read here
a[1]=2                         => it sets a[1] || it is not read (variable assignment)
"a" b                          => [a] [b]
'' a                           => [?] [a]; an expansion stands in the place of the program
*.sh a                         => [?] [a]; an expansion stands in the place of the program
$x a                           => [?] [a]; an expansion stands in the place of the program
./a b                          => [./a] [b]
a/b c                          => [a/b] [c]
[[ -f a ]]                     =>  || it is not read (test command)
[ -f a ]                       =>  || it is not read (test command)
(( x = 1 ))                    =>  || it is not read (compound statement)
let x=1                        => [let] [x=1]
select i in a; do b; done      => [b] || it is not read (for statement)
echo $"a"                      => [echo] [?] [a] || `$` is not read ($)
echo a;;                       => [echo] [a] || `;;` is not read (;;)
echo "a                        => [echo] || it does not read as Bash
echo a$                        => [echo] [?a] || `$` is not read ($)
echo \                         => [echo] || it does not read as Bash
a>x                            => to x | [a]
>x                             => to x
2>x a                          => to x | [a]
a <>x                          => to x | [a] || it does not read as Bash
a >|x                          => to x | [a]
a >>x                          => to x | [a]
a >$x                          => to ? | [a]
a >*.c                         => to **.c | [a]
time                           => [time]
{ a; } >x                      => to x | [a] || `{ a; }` is not read (compound statement)
if a                           =>  || it does not read as Bash
history -c                     => [history] [-c]
source x                       => [source] [x]
. x                            => [.] [x]
unset x                        =>  || it is not read (unset command)
wait                           => [wait]
true                           => [true]
echo $'a\tb' $'\x41' $'\101'   => [echo] [a	b] [A] [A]
echo $'\401'                   => [echo] []
echo $'a\'b'                   => [echo] [a'b]
echo $'\x'                     => [echo] [?] || `$'\x'` is not read (ansi c string)
echo $'\q'                     => [echo] [?] || `$'\q'` is not read (ansi c string)
echo $'\xe9'                   => [echo] [?] || `$'\xe9'` is not read (ansi c string)
echo $'\0'                     => [echo] [?] || `$'\0'` is not read (ansi c string)
echo $'\u00e9'                 => [echo] [?] || `$'\u00e9'` is not read (ansi c string)
echo a⏎\⏎b                     => [echo] [a] [b] || a line holds nothing but a backslash
timeout -- 5 a                 => [a]; by timeout
timeout --signal KILL 5 a      => [a]; by timeout
timeout --signal=KILL 5 a      => [a]; by timeout
timeout --foreground=x 5 a     => [timeout] [--foreground=x] [5] [a]; by timeout; an unknown use of timeout
timeout 5                      => [timeout]
timeout $x a                   => [timeout] [?] [a]; by timeout; an unknown use of timeout
timeout *.c a                  => [timeout] [**.c] [a]; by timeout; an unknown use of timeout
timeout 5 *.c a                => [**.c] [a]; by timeout; an expansion stands in the place of the program
find . -exec a {} + -exec b {} \; => [a] [*./**]; by find | [b] [*./**]; by find | [find] [.] [-exec] [a] [{}] [+] [-exec] [b] [{}] [;]
find . -exec a {} \; -print    => [a] [*./**]; by find | [find] [.] [-exec] [a] [{}] [;] [-print]
find . -execdir a {} \;        => [a] [*./**]; by find; anywhere | [find] [.] [-execdir] [a] [{}] [;]
find a b -exec c {} x{}y \;    => [c] [?] [?x]; by find | [find] [a] [b] [-exec] [c] [{}] [x{}y] [;]
find -exec a {} \;             => [a] [?]; by find | [find] [-exec] [a] [{}] [;]
find ! -name x -exec a {} \;   => [a] [?]; by find | [find] [!] [-name] [x] [-exec] [a] [{}] [;]
cd a; cd b; cd c; cd d; p      => [cd] [a] | [cd] [b]; in /work/repo/a /work/repo | [cd] [c]; in /work/repo/a/b /work/repo/b /work/repo/a /work/repo | [cd] [d]; in /work/repo/a/b/c /work/repo/b/c /work/repo/a/c /work/repo/c /work/repo/a/b /work/repo/b /work/repo/a /work/repo | [p]; in /work/repo/a/b/c/d /work/repo/b/c/d /work/repo/a/c/d /work/repo/c/d /work/repo/a/b/d /work/repo/b/d /work/repo/a/d /work/repo/d /work/repo/a/b/c /work/repo/b/c /work/repo/a/c /work/repo/c /work/repo/a/b /work/repo/b /work/repo/a /work/repo
cd a; cd b; cd c; cd d; cd e; p => [cd] [a] | [cd] [b]; in /work/repo/a /work/repo | [cd] [c]; in /work/repo/a/b /work/repo/b /work/repo/a /work/repo | [cd] [d]; in /work/repo/a/b/c /work/repo/b/c /work/repo/a/c /work/repo/c /work/repo/a/b /work/repo/b /work/repo/a /work/repo | [cd] [e]; in /work/repo/a/b/c/d /work/repo/b/c/d /work/repo/a/c/d /work/repo/c/d /work/repo/a/b/d /work/repo/b/d /work/repo/a/d /work/repo/d /work/repo/a/b/c /work/repo/b/c /work/repo/a/c /work/repo/c /work/repo/a/b /work/repo/b /work/repo/a /work/repo | [p]; anywhere
echo {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,b} => [echo] [?] || `{aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa` is not read
echo "a"#b                     => [echo] [a#b]
(a)#b                          => [a]
a #b                           => [a]
a;#b                           => [a]
a&#b                           => [a]
echo $(a)#b                    => [a] | [echo] [?]
a 2 >x                         => to x | [a] [2]
a 2>&1 b                       => [a] [b]
a 2>&- b                       => to b | [a] || `2>&- b` is not read
a >&x                          => to x | [a] || `>&x` is not read
a >& x                         => to x | [a] || `>& x` is not read
a &>>x                         => to x | [a]
a <&x                          => to x | [a] || `<&x` is not read
a <&0 b                        => [a] [b]
a {fd}>x                       => to x | [a] [?] || `{fd}` is not read
{ a; } >x b                    => to x | [a] || words after a redirect
(a) >x b                       => to x | [a] || words after a redirect
cat <<E b⏎x⏎E                  => [cat] || `b` is not read (word)
cat <<E && cd d⏎x⏎E            => [cd] [d] | [cat] || a change of the folder behind a here-document
cat <<E | b⏎x⏎E                => [b] | [cat]
cat <<E && b⏎x⏎E               => [b] | [cat]
cat <<'E'⏎$x `y` \z⏎E          => [cat]
cat <<E⏎$x⏎E                   => [cat] || `$x⏎` is not read (heredoc body)
cat <<E⏎a `b`⏎E                => [cat] || `a `b`⏎` is not read (heredoc body)
cat <<E⏎a\⏎E                   => [cat] || `a\⏎` is not read (heredoc body)
cat <<E⏎plain⏎E                => [cat]
cat <<E-X⏎plain⏎E-X            => [cat] || `E-X` is not read (heredoc start)
cat <<"E"⏎$x⏎E                 => [cat]
echo ~/~/a                     => [echo] [/home/ann/~/a]
echo "a"~/b                    => [echo] [?a] || `"a"~/b` is not read
echo ~"a"/b                    => [echo] [?/home/anna/b] || `~"a"/b` is not read
echo ~/"a b"                   => [echo] [/home/ann/a b]
echo a="~"/b                   => [echo] [?]
echo "a="~/b                   => [echo] [?a=] || `"a="~/b` is not read
echo "a":~/b                   => [echo] [?] || `:~/b` is not read
echo "a"{b,c}                  => [echo] [?a] || `"a"{b,c}` is not read
echo "a$\⏎b"                   => [echo] [?a!] || a line is continued inside a word
echo "a\"b\\c\$d\e"            => [echo] [a"b\c$d\e]
echo "a $x b"                  => [echo] [?a !]
echo "a$HOME b"                => [echo] [a/home/ann b]
echo ${?} $? $# $$ $! $1 $@    => [echo] [?!] [?!] [?!] [?!] [?] [?] [?]
echo $HOME ${PWD} "$PWD" $PWDX => [echo] [/home/ann] [/work/repo] [/work/repo] [?]
cd d; echo $PWD                => [cd] [d] | [echo] [?]; in /work/repo/d /work/repo
>x a b                         => to x | [a] [b]
>x a <y b                      => from y | to x | [a] [b]
then a                         => [then] [a] || `then` is not read here
thenaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa => [thenaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]
alias                          => [alias]
alias a=b                      => [alias] [a=b] || alias changes what later words mean
enable x                       => [enable] [x] || enable changes what later words mean
command -v                     => [type]
command -V a b                 => [type] [a] [b]
command                        => [command]
command a -v                   => [a] [-v]; by command
env A=$x B=1 a                 => [a]; set A=$ B=1; by env
env A=*.c a                    => [a]; set A=*.c$; by env
time A=1 a                     => [a]; set A=1; by time
nohup                          => [nohup]
xargs                          => [echo] [?]; by xargs
sudo -u                        => [sudo] [-u]; by sudo; an unknown use of sudo
bash -c "a b" x                => [a] [b] | [bash] [-c] [a b] [x]
sh -c 'a <<<b'                 => [a] | [sh] [-c] [a <<<b]
bash -c 'a <<<b'               => [a]
sh -c 'a &>x'                  => to x | [a] | [sh] [-c] [a &>x]
A=1 bash -c 'a b'              => [a] [b] | [bash] [-c] [a b]; set A=1
sudo bash -c 'a b'             => [a] [b] | [bash] [-c] [a b]; by sudo
timeout 5 bash -c 'a b'        => [a] [b]
bash -lc 'a;b'                 => [a] | [b]
bash -c 'for i in a; do b; done' => [b] | [bash] [-c] [for i in a; do b; done] || `for i in a; do b; done` is not read (for statement)
bash -c 'a'                    => [bash] [-c] [a]
zsh -c 'a b'                   => [a] [b] | [zsh] [-c] [a b]
cd -P d && a                   => [cd] [-P] [d] | [a]; in /work/repo/d
cd -L -- d && a                => [cd] [-L] [--] [d] | [a]; in /work/repo/d
cd -e && a                     => [cd] [-e] | [a]; in /home/ann
cd a b && c                    => [cd] [a] [b] | [c]; anywhere
cd && a                        => [cd] | [a]; in /home/ann
cd / && a                      => [cd] [/] | [a]; in /
cd /x; a                       => [cd] [/x] | [a]; in /x /work/repo
command cd d && a              => [cd] [d]; by command | [a]; anywhere
cd "" && a                     => [cd] [] | [a]; anywhere
cd *.d && a                    => [cd] [**.d] | [a]; anywhere
! cd d && a                    => [cd] [d] | [a]
! cd d || a                    => [cd] [d] | [a]; in /work/repo/d
cd d || a                      => [cd] [d] | [a]
cd d && cd e || a              => [cd] [d] | [cd] [e]; in /work/repo/d | [a]; in /work/repo /work/repo/d
cd d & a                       => [cd] [d] | [a]
a & cd d; b                    => [a] | [cd] [d] | [b]; in /work/repo/d /work/repo
A=1 A2=$x                      => it sets A2
PATH=x                         => it sets PATH
http_proxy=x y=1               => it sets http_proxy
a=1 PATH=2                     => it sets PATH
A=(1 2) b                      => [b]; set A=$ || `A=(1 2)` is not read (variable assignment)
A+=1 b                         => [b]; set A=$ || `A+=1` is not read (variable assignment)
A= b                           => [b]; set A=
A="x y" b                      => [b]; set A=x y
A=*.c b                        => [b]; set A=$
echo a$x*                      => [echo] [?a]
echo .*                        => [echo] [?.]
echo .[ab]                     => [echo] [?.]
echo a\*b                      => [echo] [a*b]
echo \~                        => [echo] [~]
echo a\⏎b                      => [echo] [a] [b] || it is not read
echo "$(cat <<'E'⏎a⏎b⏎E⏎)"     => [echo] [a⏎b]
echo $(cat <<'E'⏎a⏎E⏎)         => [cat] | [echo] [?]
echo "$(a "$(b)")"             => [b] | [a] [?!] | [echo] [?!]
echo `a \`b\``                 => [a] [`b`] | [echo] [?] || ``a \`b\``` is not read (command substitution)
echo $((1+2))                  => [echo] [?] || `$((1+2))` is not read (arithmetic expansion)
echo <<<x                      => [echo]
a <<<"$(b)"                    => [b] | [a]
a | cd d; b                    => [a] | [cd] [d] | [b]
a && cd d | b; c               => [a] | [cd] [d] | [b] | [c]
a; (cd d); b                   => [a] | [cd] [d] | [b]
$(cd d) a                      => [cd] [d] | [?] [a]; an expansion stands in the place of the program
echo $(cd d; a); b             => [cd] [d] | [a]; in /work/repo/d /work/repo | [echo] [?] | [b]
eval cd d; a                   => [eval] [cd] [d] | [a]; anywhere
source x; a                    => [source] [x] | [a]; anywhere
. x && a                       => [.] [x] | [a]; anywhere
(a)⏎b                          => [a] | [b]
a; # b                         => [a]
a #b⏎c                         => [a] | [c]
echo "a"{bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb,c} => [echo] [?a] || `"a"{bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb` is not read
f() { bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb; } => [bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb] || `f() { bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb` is not read (function definition)
a >&bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb => to bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb | [a] || `>&bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb` is not read
a 2>&- bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb => to bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb | [a] || `2>&- bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb` is not read
ifbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb => [ifbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb]
$(bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb)x bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb => [bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb] | [?] [bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb]; an expansion stands in the place of the program
time -- a                      => [a]; by time
nice -n5 a                     => [a]; by nice
a | b &                        => [a] | [b]
trap 'a; b' EXIT x             => [a] | [b] | [trap] [a; b] [EXIT] [x]
! a | b                        => [a] | [b]
"""  # noqa: E501
"""Line => its parts, `|` between them: words in brackets (`!` for one that stays a single word),
what it sets, wrappers, redirects, folders other than the first, problem; then that of the line,
which is called it.
"""


def told_part(part: Part) -> str:
    words = (f"[{shown((word,))}{'!' if word.single else ''}]" for word in part.words)
    folders = " ".join(part.folders) or "anywhere"
    facts = {
        "": " ".join(words),
        "set ": " ".join(part.assigned),
        "by ": " ".join(part.wrappers),
        "from ": shown(part.reads),
        "to ": shown(part.writes),
        "in ": folders if folders != ROOT else "",
    }
    told = [
        f"{name}{fact}".replace("in anywhere", "anywhere") for name, fact in facts.items() if fact
    ]
    return "; ".join([*told, part.problem] if part.problem else told)


def told_line(line: str) -> str:
    script = parse_command(line, ROOT, HOME)
    found = " | ".join(map(told_part, script.parts))
    problem = script.problem.replace(f"`{line}`", "it")
    return f"{found} || {problem}" if problem else found


def test_how_a_line_is_read() -> None:
    check(PARTS, told_line)


# --- Limits ---------------------------------------------------------------------------------------


def nested(count: int) -> str:
    return "( " * count + "a b" + " )" * count


def shells(count: int) -> str:
    line = "a b"
    for _ in range(count):
        line = f"bash -c {shlex.quote(line)}"
    return line


@pytest.mark.parametrize(
    ("line", "most", "problem"),
    [
        (lambda n: "a" * n, 30_000, "it has more than 30,000 characters"),
        (lambda n: "a;" * n, 400, "it has too many commands"),
        (lambda n: "echo" + " a" * n, 5_996, "it has too many words"),
        (nested, 97, "it is nested too deeply"),
        (lambda n: f"bash -c {nested(n)!r}", 47, "it is nested too deeply"),
        (shells, 4, "it has too many scripts inside each other"),
        (lambda n: "nice " * n + "a", 10, "an unknown use of nice"),
    ],
)
def test_a_line_is_read_up_to_a_limit(line: Callable[[int], str], most: int, problem: str) -> None:
    def read(count: int) -> str:
        script = parse_command(line(count), ROOT, HOME)
        return script.problem or next((part.problem for part in script.parts if part.problem), "")

    assert (read(most), read(most + 1)) == ("", problem)
