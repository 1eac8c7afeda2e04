# ruff: noqa: E501 - tables of pieces of shell lines
"""Random command lines against a real Bash: what Bash runs must stand in the parts that the parser reads.

    python -m tests.load.commands 50000 1

Each line runs by Bash inside bubblewrap, in a folder of its own, where all programs but the wrappers (`env`, `xargs` …)
are stubs that record their arguments. Two things are errors: Bash runs a program that no part of a line without a
problem names, and a line that is allowed without any rule runs something that is not read-only or creates a file.
"""

import fnmatch
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from longrein.permissions import Call, PartFacts, Rules, Touched, glob_base, judge, read_command
from longrein.permissions.bash_parser import Part, Word, join_path, word_set
from longrein.permissions.program_table import effect_of

BATCH = 250
"""Lines of one bubblewrap."""
STUBS = word_set("cat ls grep head wc sort uniq sed awk git rg jq rm touch tool mv cp tee make python3 ssh sudo curl")
REAL = word_set("env timeout nice nohup xargs find bash sh dash setsid stdbuf")
STUB = '#!/bin/sh\n{ printf \'%s\\0\' "$#" "${0##*/}" "$@"; } >&9\necho a.txt\n'
DRIVER = """
export PATH=/stubs LANG=C.UTF-8 HOME=/home/x
for i in "$@"; do
  cd /w/$i || exit
  IFS= read -r -d "" line </lines/$i
  timeout -s KILL 1 bash -c "$line" 9>>/log/$i </dev/null >/dev/null 2>&1
done
"""


class Ran(msgspec.Struct):
    """What Bash did with one line."""

    commands: list[list[str]]
    """Programs and arguments."""
    changed: list[str]
    """Files and folders that are new or have other contents."""


# --- Random lines ----------------------------------------------------------------------------------------------------


SAFE = ["cat", "ls", "grep", "head", "wc", "sort", "echo", "printf", "true", "git", "test", "sed", "["]
UNSAFE = ["rm", "touch", "tool", "make", "tee", "python3"]
SPELLINGS = [
    "{0}{1}", "{0}''{1}", '"{0}{1}"', "\\{0}{1}", "{0}\\{1}", "{0}\\\n{1}", "$'{0}{1}'", "{0}$@{1}", "{0}${{V-}}{1}",
    '{0}"{1}"', "{0}${{V:+}}{1}", "/stubs/{0}{1}", "{0}$V{1}", "{{{0}{1},a}}", "{0}`true`{1}", "$V{0}{1}", "{0}{1}*",
    "{0}$(true){1}", "~/{0}{1}", "./{0}{1}", "$\"{0}{1}\"", "{0}{{{1},}}", "{0}[{1}]",
]  # fmt: skip
RUNS_TEXT = word_set("bash sh eval coproc trap env xargs exec source .")
OPTIONS = [
    "-n",
    "-r",
    "-i",
    "--color",
    "-e",
    "-la",
    "-o",
    "--output=o",
    "--",
    "-",
    "-c",
    "-exec",
    "-1",
    "-nr",
    "-o out",
]
ATOMS = [
    "a.txt", "b.txt", "sub/c.txt", "sub", ".", "..", "/etc/x", "'a b'", '"a b"', "*.txt", "?.txt", "[ab].txt", "*", ".*",
    "~", "~/x", "~x", "$V", '"$V"', "${V}", "${V:-d}", "${V:=rm}", "${V/a/b}", "${V%t}", "${#V}", "${!V}", "$W", "$1", "$@",
    '"$@"', "$#", "$?", "$$", "$HOME", "$PWD", "$IFS", "$RANDOM", "${V[0]}", "$((1+2))", "$((V))", "$[1+2]", "$'a\\tb'",
    "$'\\x72m'", "$'\\u0041'", '$"x"', "\\a", "\\$V", "'$V'", "a\\ b", "''", '""', "{a,b}", "{a,b}.txt", "{1..3}",
    "a{b,c{d,e}}", "{a}", "{,x}", "-{n,r}", "@(a|b).txt", "!(a).txt", "a=b", "V=rm", "'a[$(rm x)]'", "-v", "#x", "a#b", "!", "a!b", "=", "%",
    "s/a/b/", "p", "1p", "'s/a/b/e'", "'w out'", "a'b'c", 'a"b"c', 'x"$(true)"y', "if", "then", "}", "{", "é", "--", "a,b",
    "<", "2", "status", "log", "-c core.pager=rm", "diff", "$-", "$_", "${V@P}", "${V@Q}", "${V^^}", "${V:0:1}", "\\\n",
    "a\\\nb", "$", "a$", '"$"', '"a\\\nb"', '"\\a"', "'\\'", "`true`", "\\`", '"\\`"', "[a", "a]", "\\*", '"*"', "1>x",
]  # fmt: skip
REDIRECTS = [
    ">o", "> o", ">>o", "2>&1", "2>/dev/null", ">/dev/null", "&>o", "&>>o", ">|o", "<a.txt", "< a.txt", "<>o", ">&o", ">&2",
    "1>&2", "<&0", ">&-", "{fd}>o", "2>o", "12>o", ">$V", ">'o'", "<<<x", '<<<"$V"', ">o{a,b}", ">*", "&>/dev/null", ">(cat)",
    ">/dev/tcp/x/1", "3<a.txt", ">\\\no", "2>& 1", ">&$V", "<${V}", "2>&o",
]  # fmt: skip
ASSIGNMENTS = [
    "V=rm", "V=x", "V='rm x'", "V=", "V+=m", "V=$(echo rm)", "V=a.txt", "V=(rm x)", "V[0]=rm", "export V=rm", "declare V=rm",
    "W=$V", "readonly V=x", "PATH=.", "IFS=,", "local V=rm", "printf -v V rm", "read V <<<rm", "V=${W:-rm}", "unset V",
    "V='1 -o o'", "V='a[$(rm x)]'", "V='x --pre ./x'", "V=(['$(rm x)']=1)", "LINENO='a[$(rm x)]'",
    "V=*", "V=-n", "declare -n V=W", "mapfile V <<<rm", "set -- rm", "set -f", "shopt -s extglob", "alias cat=rm", "let V=1",
    "export PATH=.", "V='a b' W=x", "BASH_ENV=x", "getopts a V", "typeset -i V=1", "V=\"a b\"", "enable -n echo", "hash -r",
]  # fmt: skip
WRAPPERS = [
    "env ", "env -i ", "env V=rm ", "timeout 5 ", "timeout -s KILL 5 ", "nice ", "nice -n 1 ", "nohup ", "time ", "time -p ",
    "command ", "builtin ", "exec ", "eval ", "xargs ", "xargs -n 1 ", "xargs -I{} ", "xargs -I X ", "! ", "setsid ",
    "stdbuf -o0 ", "command -p ", "command -v ", "exec -a x ", "env -u V ", "env -S ", "timeout ", "xargs -0 ", "nice -1 ",
    "env - ", "xargs -a a.txt ", "exec -c ", "coproc ", "\\time ",
]  # fmt: skip
SEPARATORS = [
    ";", " ; ", "&&", " && ", "||", " || ", "|", " | ", " |& ", "&", " & ", "\n", "; \n", " &&\n", " |\n", "\n\n", " # c\n",
    "\\\n;", ";\\\n", "\n\\\n", " 2>o\n\\\n", ";\t", "& ", " 2>&1 | ",
]  # fmt: skip
NOISE = [
    *"'\"\\$`(){}[]<>|&;#*?!~= \t\n-,",
    "$(",
    "${",
    "<<",
    "((",
    "[[",
    "$'",
    "]]",
    "))",
    "\\\n",
    "&&",
    "in ",
    "do ",
]


class Generator:
    """Random lines; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def line(self) -> str:
        text = self.script(self.random.choice((1, 2, 2, 3)))
        for _ in range(self.random.choice((0, 0, 0, 1, 2))):
            text = self.mutated(text)
        return text.replace("\0", "")[:400]

    def mutated(self, text: str) -> str:
        at = self.random.randrange(len(text) + 1)
        end = min(len(text), at + self.random.choice((0, 1, 1, 2, 5)))
        return text[:at] + self.random.choice((self.random.choice(NOISE), "", text[at:end] * 2)) + text[end:]

    def script(self, depth: int) -> str:
        count = self.random.choice((1, 1, 1, 2, 2, 3))
        pieces = [self.statement(depth) for _ in range(count)]
        text = pieces[0]
        for piece in pieces[1:]:
            text += self.random.choice(SEPARATORS) + piece
        return text + self.random.choice(("",) * 12 + ("\n", ";", " # end", "&", " "))

    def statement(self, depth: int) -> str:
        if depth > 0 and self.random.random() < 0.3:
            return self.compound(depth - 1)
        if self.random.random() < 0.15:
            return self.random.choice(ASSIGNMENTS)
        return self.simple(depth)

    def compound(self, depth: int) -> str:
        a, b, c = self.script(depth), self.script(depth), self.simple(depth)
        word, redirect = self.word(depth), self.random.choice(REDIRECTS)
        quoted = "'" + c.replace("'", "'\\''") + "'"
        forms = [
            f"if {a}; then {b}; fi", f"if {c}; then {a}; else {b}; fi", f"while {a}; do {b}; break; done",
            f"until {c}; do {b}; break; done", f"for V in {word} {self.word(depth)}; do {a}; done", "for V in rm; do $V x; done",
            f"for ((i=0;i<1;i++)); do {a}; done", f"case {word} in {self.word(depth)}) {a};; *) {b};; esac", f"{{ {a}; }}",
            f"( {a} )", f"({a})", f"[[ {word} == {self.word(depth)} ]] && {a}", f"((V++)); {a}", f"f() {{ {a}; }}; f",
            f"function f {{ {a}; }}; f", f"bash -c {quoted}", f"sh -c {quoted} x y", f"bash -ec {quoted}", f"eval {quoted}",
            f"find . -name a.txt -exec {c} \\;", f"find sub -exec {c} {{}} +", f"cat <<E\n{word} $(rm x)\nE\n{a}",
            f"cat <<'E'\n$(rm x)\nE\n{a}", f"cat <<-E | {c}\n\t{word}\n\tE\n{b}", f"{{ {a}; }} {redirect}", f"( {a} ) {redirect}",
            f"trap {quoted} EXIT", f"echo $({a})", f'echo "$({a})"', f"echo `{c}`", f"cat <({a})", f"V=$({a}); $V {word}",
            f"V={word}; {c} $V", f"cd {word} && {a}", f"cd sub; {c}", f"select V in {word}; do {a}; break; done", f"time {{ {a}; }}",
            f"bash -c {quoted} x rm", f"bash <<< {quoted}", f"echo {quoted} | bash", f"{a} | while read V; do {c}; done",
            f"[ {word} = x ] || {a}", f"coproc {{ {a}; }}", f"cat <<E > o\n{word}\nE", f"cat <<\\E\n$(rm x)\nE\n{c}", f"! {a}",
            f"if [[ $V =~ {word} ]]; then {a}; fi", f"echo ${{V:-$({a})}}", f"echo ${{V:-`{c}`}}", f"cat << E E2\nx\nE\n{c}",
            f"[[ -v {word} ]]; {a}", f"(( {word} )); {a}", f"echo $(( {word} ))", f"V=({word} {word}); ${{V[0]}} {word}",
        ]  # fmt: skip
        return self.random.choice(forms)

    def simple(self, depth: int) -> str:
        words = [self.program()]
        if self.random.random() < 0.25:
            words[0] = self.random.choice(WRAPPERS) + words[0]
        if self.random.random() < 0.1:
            words.insert(0, self.random.choice(ASSIGNMENTS))
        for _ in range(self.random.choice((0, 1, 1, 2, 2, 3))):
            words.append(self.random.choice(OPTIONS) if self.random.random() < 0.2 else self.word(depth))
        for _ in range(self.random.choice((0, 0, 0, 1))):
            words.insert(self.random.randrange(len(words) + 1), self.random.choice(REDIRECTS))
        return self.random.choice((" ",) * 9 + ("  ", "\t", " \\\n")).join(words)

    def program(self) -> str:
        name = self.random.choice(SAFE if self.random.random() < 0.6 else UNSAFE)
        if self.random.random() < 0.85:
            return name
        return self.random.choice(SPELLINGS).format(name[:1], name[1:])

    def word(self, depth: int) -> str:
        if depth > 0 and self.random.random() < 0.1:
            inner = self.script(depth - 1)
            return self.random.choice((f"$({inner})", f'"$({inner})"', f"`{inner}`", f"<({inner})", f"x$({inner})"))
        atom = self.random.choice(ATOMS)
        return atom + self.random.choice(ATOMS) if self.random.random() < 0.12 else atom


# --- Real Bash -------------------------------------------------------------------------------------------------------


def run_lines(lines: Sequence[str]) -> list[Ran]:
    """Run lines by Bash inside bubblewrap; return what each of them did."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        for folder in ("w", "lines", "log", "stubs", "home"):
            (base / folder).mkdir()
        for stub in STUBS:
            (base / "stubs" / stub).write_text(STUB)
            (base / "stubs" / stub).chmod(0o755)
        for program in REAL:
            if path := shutil.which(program, path="/usr/bin:/bin"):
                (base / "stubs" / program).symlink_to(path)
        for i, line in enumerate(lines):
            sub = base / "w" / str(i) / "sub"
            sub.mkdir(parents=True)
            (sub / "c.txt").write_text("c\n")
            for file in ("a.txt", "b.txt"):
                (sub.parent / file).write_text("rm x\n")
            (base / "lines" / str(i)).write_text(line)
            (base / "log" / str(i)).touch()
        binds = [w for f in ("lines", "stubs") for w in ("--ro-bind", str(base / f), f"/{f}")]
        binds += [w for f in ("w", "log") for w in ("--bind", str(base / f), f"/{f}")]
        subprocess.run(
            ["bwrap", "--unshare-all", "--die-with-parent", *system_folders(), "--tmpfs", "/tmp", "--tmpfs", "/home",
             "--dev", "/dev", "--proc", "/proc", *binds, "/usr/bin/bash", "-c", DRIVER, "driver",
             *map(str, range(len(lines)))],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=900, check=False,
        )  # fmt: skip
        return [_ran(base, i) for i in range(len(lines))]


def system_folders() -> list[str]:
    """Return the options that show the programs and libraries of the system, read-only."""
    options = []
    for name in ("usr", "bin", "lib", "lib64", "etc"):
        if (path := Path("/", name)).is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            options += ["--ro-bind", str(path), str(path)]
    return options


def _ran(base: Path, index: int) -> Ran:
    fields = (base / "log" / str(index)).read_bytes().split(b"\0")[:-1]
    commands, at = [], 0
    while at < len(fields) and fields[at].isdigit():
        count = int(fields[at]) + 1
        commands.append([field.decode(errors="surrogateescape") for field in fields[at + 1 : at + 1 + count]])
        at += 1 + count
    folder = base / "w" / str(index)
    known = {"a.txt": "rm x\n", "b.txt": "rm x\n", "sub/c.txt": "c\n"}
    found = {
        str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file() or p.is_symlink() or p.name != "sub"
    }
    changed = [
        name for name, path in found.items() if path.is_dir() or path.read_text(errors="replace") != known.get(name)
    ]
    return Ran(commands, changed + [name for name in known if name not in found])


# --- Comparison ------------------------------------------------------------------------------------------------------


def make_call(line: str, cwd: str, home: str) -> Call:
    """Return the call of a line, its files looked up without following links."""
    command = read_command(line, cwd, home)
    facts = []
    for part, effect in zip(command.script.parts, command.effects, strict=True):
        found = []
        for word, writes in ((w, x) for words, x in ((effect.reads, False), (effect.writes, True)) for w in words):
            path = glob_base(word.text) if word.kind == "glob" else word.text
            for folder in part.folders or ("/?",):
                full = join_path(folder, path) if word.kind != "open" else "/?"
                found.append(Touched(path, full, full, full == cwd or full.startswith(cwd + "/"), writes))
        facts.append(PartFacts(tuple(found)))
    return Call("Bash", {"command": line}, "command", (), "", command, tuple(facts))


def explains(part: Part, argv: Sequence[str]) -> bool:
    """True if the words of a part can become these arguments."""
    return bool(part.words) and part.program.rpartition("/")[2] == argv[0] and _fits(part.words[1:], argv[1:])


def _fits(words: Sequence[Word], argv: Sequence[str]) -> bool:
    if not words:
        return not argv
    first, rest = words[0], words[1:]
    if first.kind == "literal":
        return bool(argv) and argv[0] == first.text and _fits(rest, argv[1:])
    if first.kind == "open":
        fits = [True, *(i > 0 or a.startswith(first.text) for i, a in enumerate(argv))]
        lengths = range(0 if not first.text else 1, len(argv) + 1)
        return any(all(fits[: n + 1]) and _fits(rest, argv[n:]) for n in lengths)
    pattern = first.text
    argv = [f"{a}/" if pattern.startswith(f"{a}/") else a for a in argv]  # `find` also gives the folder itself
    if pattern.endswith("/**") and _fits(rest, argv):
        return True
    for n in range(1, len(argv) + 1):
        if argv[n - 1] != pattern and not fnmatch.fnmatchcase(argv[n - 1], pattern.replace("\\", "")):
            return False
        if _fits(rest, argv[n:]):
            return True
    return False


def find_error(line: str, cwd: str, ran: Ran) -> str:
    """Return what is wrong with the reading of a line; '' if nothing."""
    call = make_call(line, cwd, "/home/x")
    assert call.command is not None
    script = call.command.script
    allowed = judge(call, Rules(base=cwd, home="/home/x"), "default", cwd).kind == "allow"
    if allowed and ran.changed:
        return f"allowed, but it changed {ran.changed[:3]}"
    for argv in ran.commands:
        part = Part(tuple(map(Word, argv)), "", (cwd,))
        if allowed and ((effect := effect_of(part)).problem or effect.writes):
            return f"allowed, but it ran {argv}"
        known = script.problem or any(
            part.problem or (part.program in RUNS_TEXT and effect.problem)
            for part, effect in zip(script.parts, call.command.effects, strict=True)
        )
        if not known and not any(explains(part, argv) for part in script.parts):
            return f"read without {argv}"
        denied = judge(call, Rules(deny=("Bash(rm *)",), base=cwd), "bypassPermissions", cwd).kind == "deny"
        if argv[0] == "rm" and len(argv) > 1 and not denied:
            return f"not denied by Bash(rm *), but it ran {argv}"
    return ""


def campaign(count: int, seed: int) -> Iterator[tuple[str, str, bool]]:
    """Yield (line, error, True if it is allowed) for `count` random lines."""
    generator = Generator(seed)
    for start in range(0, count, BATCH):
        lines = [generator.line() for _ in range(min(BATCH, count - start))]
        for i, (line, ran) in enumerate(zip(lines, run_lines(lines), strict=True)):
            cwd = f"/w/{i}"
            allowed = judge(make_call(line, cwd, "/home/x"), Rules(base=cwd), "default", cwd).kind == "allow"
            yield line, find_error(line, cwd, ran), allowed


def main() -> int:
    """Run the campaign; print its figure and the first errors."""
    count, seed = (int(sys.argv[1]) if len(sys.argv) > 1 else 50_000), (int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    errors, allowed = [], 0
    for line, error, is_allowed in campaign(count, seed):
        allowed += is_allowed
        if error:
            errors.append((line, error))
            print(f"{line!r}\n    {error}", file=sys.stderr)
    print(f"{count:,} fuzzed commands against Bash: {len(errors)} errors, {allowed:,} allowed")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
