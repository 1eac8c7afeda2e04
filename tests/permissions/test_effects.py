"""Readings of command lines: their parts, and the files that these name to read and to write."""

import shlex
from collections.abc import Callable, Iterable

import pytest

from longrein.permissions import Effect, Word, read_command
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

"""Line => its parts, `|` between them: words in brackets (`!` for one that stays a single word),
what it sets, wrappers, redirects, folders other than the first, problem; then that of the line,
which is called it.
"""


# --- Limits ---------------------------------------------------------------------------------------


def nested(count: int) -> str:
    return "( " * count + "a b" + " )" * count


def shells(count: int) -> str:
    line = "a b"
    for _ in range(count):
        line = f"bash -c {shlex.quote(line)}"
    return line


@pytest.mark.parametrize(("line", "most", "problem"), [
    (lambda n: "a" * n, 30_000, "it has more than 30,000 characters"),
    (lambda n: "a;" * n, 400, "it has too many commands"),
    (lambda n: "echo" + " a" * n, 5_996, "it has too many words"),
    (nested, 97, "it is nested too deeply"),
    (lambda n: f"bash -c {nested(n)!r}", 47, "it is nested too deeply"),
    (shells, 4, "it has too many scripts inside each other"),
    (lambda n: "nice " * n + "a", 10, "an unknown use of nice"),
])  # fmt: skip
def test_a_line_is_read_up_to_a_limit(line: Callable[[int], str], most: int, problem: str) -> None:
    def read(count: int) -> str:
        script = parse_command(line(count), ROOT, HOME)
        return script.problem or next((part.problem for part in script.parts if part.problem), "")

    assert (read(most), read(most + 1)) == ("", problem)
