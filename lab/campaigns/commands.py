"""Random command lines against a real Bash: what Bash runs must stand in the parts that the parser
reads.

    python -m lab.campaigns.commands 50000 1

Each line runs by `bash -x` inside bubblewrap, in a folder of its own, where all programs but the
wrappers (`env`, `xargs` …) are stubs. Three records are compared with the parts:

- The stubs record the exact arguments of every program that starts, whoever starts it: `xargs`,
  `find -exec`, a `sh -c`. They prove which programs run, but see no builtin.
- The trace of Bash (`set -x`, also in a nested Bash) holds every simple command that Bash itself
  runs: builtins, functions, `eval`, programs that do not exist. It sees nothing that another
  program starts.
- The folder of the line shows which files are new or changed, by redirects too.

Two things are errors: Bash runs a command that no part of a line without a problem names, and a
line that is allowed without any rule runs something that is not read-only, or changes a file. A
line that runs `rm` must also be denied by the rule `Bash(rm *)`. At the end, 3,000 harmless
commands are judged: at most 20 % may ask without a sandbox.
"""

import fnmatch
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from lab.campaigns.command_lines import Generator
from lab.campaigns.harmless_commands import harmless_commands
from longrein.permissions import Call, PartFacts, Rules, Touched, glob_base, judge, read_command
from longrein.permissions.bash_parser import (
    WRAPPERS,
    Word,
    WordPart,
    join_path,
    parse_command,
    word_set,
)
from longrein.permissions.command_rules import spelled
from longrein.permissions.program_table import effect_of

BATCH = 250
"""Lines of one bubblewrap."""
STUBS = word_set(
    "cat ls grep head wc sort uniq sed awk git rg jq rm touch tool mv cp tee make python3 ssh "
    "sudo curl"
)
REAL = word_set("env timeout nice nohup xargs find bash sh dash setsid stdbuf")
STUB = '#!/bin/sh\n{ printf \'%s\\0\' "$#" "${0##*/}" "$@"; } >&9\necho a.txt\n'
DRIVER = """
export PATH=/stubs LANG=C.UTF-8 HOME=/home/x SHELLOPTS=xtrace BASH_XTRACEFD=8 PS4=$'\\1 '
for i in "$@"; do
  cd /w/$i || exit
  unset OLDPWD
  IFS= read -r -d "" line </lines/$i
  timeout -s KILL 1 bash -c "$line" 9>>/log/$i 8>>/trace/$i </dev/null >/dev/null 2>&1
done
"""


class Ran(msgspec.Struct):
    """What Bash did with one line."""

    commands: list[list[str]]
    """Programs and arguments that the stubs recorded."""
    traced: list[list[str]]
    """Simple commands of the trace, wrappers included."""
    changed: list[str]
    """Files and folders that are new or have other contents."""


RUNS_TEXT = word_set(
    "bash sh eval coproc trap env xargs exec source . hash shopt set test printf read wait let"
)


# --- Real Bash ------------------------------------------------------------------------------------


def run_lines(lines: Sequence[str]) -> list[Ran]:
    """Run lines by Bash inside bubblewrap; return what each of them did."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        for folder in ("w", "lines", "log", "trace", "stubs", "home"):
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
                (sub.parent / file).write_text("tool x\n")
            (base / "lines" / str(i)).write_text(line)
            (base / "log" / str(i)).touch()
            (base / "trace" / str(i)).touch()
        binds = [w for f in ("lines", "stubs") for w in ("--ro-bind", str(base / f), f"/{f}")]
        binds += [w for f in ("w", "log", "trace") for w in ("--bind", str(base / f), f"/{f}")]
        subprocess.run(
            ["bwrap", "--unshare-all", "--uid", "1000", "--die-with-parent", *system_folders(),
            "--tmpfs", "/tmp", "--tmpfs", "/home",
             "--dev", "/dev", "--proc", "/proc", *binds, "/usr/bin/bash", "-c", DRIVER, "driver",
             *map(str, range(len(lines)))],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            timeout=900, check=False,
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
        commands.append(
            [field.decode(errors="surrogateescape") for field in fields[at + 1 : at + 1 + count]]
        )
        at += 1 + count
    folder = base / "w" / str(index)
    known = {"a.txt": "tool x\n", "b.txt": "tool x\n", "sub/c.txt": "c\n"}
    found = {
        str(p.relative_to(folder)): p
        for p in folder.rglob("*")
        if p.is_file() or p.is_symlink() or p.name != "sub"
    }
    changed = [
        name
        for name, path in found.items()
        if path.is_dir() or path.read_text(errors="replace") != known.get(name)
    ]
    traced = traced_commands(
        (base / "trace" / str(index)).read_bytes().decode(errors="surrogateescape")
    )
    return Ran(commands, traced, changed + [name for name in known if name not in found])


_TRACED_WORD = re.compile(r"(?:\$'(?:[^'\\]|\\.)*'|'[^']*'|\\.|[^\s'\\])+", re.DOTALL)
_NO_COMMAND = re.compile(r"(?:for|case|select|function) |\(\(|\[\[ |[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")


def traced_commands(trace: str) -> list[list[str]]:
    """Return the simple commands of a trace. `case`, `[[ … ]]` and assignments are left out."""
    found = []
    for line in trace.split("\n"):
        text = line.lstrip("\1").removeprefix(" ")
        if line.startswith("\1") and text and not _NO_COMMAND.match(text):
            found.append([_unquoted(word) for word in _TRACED_WORD.findall(text)])
    return found


def _unquoted(text: str) -> str:
    """Remove the quotes that Bash puts around a word of the trace."""

    def piece(match: re.Match[str]) -> str:
        text = match[0]
        if text.startswith("$'"):
            return text[2:-1].replace("\\E", "\x1b").encode().decode("unicode_escape")
        return text[1:-1] if text.startswith("'") else text[1:]

    return re.sub(r"(?s)\$'(?:[^'\\]|\\.)*'|'[^']*'|\\.", piece, text)


# --- Comparison -----------------------------------------------------------------------------------


def make_call(line: str, cwd: str, home: str) -> Call:
    """Return the call of a line, its files looked up without following links."""
    command = read_command(line, cwd, home)
    facts = []
    for part, effect in zip(command.script.parts, command.effects, strict=True):
        found = []
        for word, writes in (
            (w, x) for words, x in ((effect.reads, False), (effect.writes, True)) for w in words
        ):
            path = glob_base(word.text) if word.kind == "glob" else word.text
            for folder in part.folders or ("/?",):
                full = join_path(folder, path) if word.kind != "open" else "/?"
                found.append(
                    Touched(path, full, full, full == cwd or full.startswith(cwd + "/"), writes)
                )
        facts.append(PartFacts(tuple(found)))
    return Call("Bash", {"command": line}, "command", (), "", command, tuple(facts))


def explains(part: WordPart, argv: Sequence[str]) -> bool:
    """True if the words of a part can become these arguments."""
    return (
        bool(part.words)
        and part.program.rpartition("/")[2] == argv[0]
        and _fits(part.words[1:], argv[1:])
    )


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
    plain = re.sub(r"\[:\w+:\]", "a-zA-Z0-9", pattern.replace("\\", ""))
    argv = [
        f"{a}/" if pattern.startswith(f"{a}/") else a for a in argv
    ]  # `find` also gives the folder itself
    if pattern.endswith("/**") and _fits(rest, argv):
        return True
    for n in range(1, len(argv) + 1):
        if argv[n - 1] != pattern and not fnmatch.fnmatchcase(argv[n - 1], plain):
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
    known = not script.problem and not any(
        part.problem or (part.program in RUNS_TEXT and effect.problem)
        for part, effect in zip(script.parts, call.command.effects, strict=True)
    )
    traced = [argv for words in ran.traced for argv in without_wrappers(words)]
    for argv in (*ran.commands, *traced):
        part = WordPart(tuple(map(Word, argv)), "", (cwd,))
        bare = WordPart(
            (*part.words, Word("1")), "", (cwd,)
        )  # the value of the last option may be missing
        if allowed and all(
            (effect := effect_of(one)).problem or effect.writes for one in (part, bare)
        ):
            return f"allowed, but it ran {argv}"
        if known and not any(explains(part, argv) for part in script.parts):
            return f"read without {argv}"
    denied = (
        judge(call, Rules(deny=("Bash(rm *)",), base=cwd), "bypassPermissions", cwd).kind == "deny"
    )
    removing = [argv for argv in ran.commands if argv[0] == "rm" and len(argv) > 1]
    return f"not denied by Bash(rm *), but it ran {removing[0]}" if removing and not denied else ""


def without_wrappers(words: list[str]) -> list[list[str]]:
    """Return a traced command without its wrappers; none where the stubs or the trace show the
    command itself.
    """
    if words[0] in RUNS_TEXT - WRAPPERS.keys():
        return []
    if words[0].rpartition("/")[2] not in WRAPPERS:
        return [[words[0].rpartition("/")[2], *words[1:]]]
    if words[0].rpartition("/")[2] in ("xargs", "env", "find"):
        return []  # the stubs show what they start
    parts = parse_command(spelled(words), "/w", "/home/x").parts
    inner = [
        [word.text for word in part.words] for part in parts if not part.problem and part.program
    ]
    return [argv for argv in inner if argv[0] not in RUNS_TEXT and argv[0] not in WRAPPERS]


def campaign(count: int, seed: int, workers: int = 1) -> Iterator[tuple[str, str, bool]]:
    """Yield (line, error, True if it is allowed) for `count` random lines."""
    generator = Generator(seed)
    lines = [generator.line() for _ in range(count)]
    batches = [lines[start : start + BATCH] for start in range(0, count, BATCH)]
    with ThreadPoolExecutor(workers) as pool:
        for batch, results in zip(batches, pool.map(run_lines, batches), strict=True):
            for i, (line, ran) in enumerate(zip(batch, results, strict=True)):
                cwd = f"/w/{i}"
                allowed = (
                    judge(make_call(line, cwd, "/home/x"), Rules(base=cwd), "default", cwd).kind
                    == "allow"
                )
                yield line, find_error(line, cwd, ran), allowed


HARMLESS = 3_000
"""Harmless commands that are judged at the end of a campaign."""
FALSE_ASKS_MAX = 0.2
"""Share that may ask without a sandbox: loops and conditions are not read."""


def needless_asks(count: int, seed: int) -> list[str]:
    """Return those of `count` harmless commands that ask, in the mode `default` and without
    rules.
    """
    calls = {text: make_call(text, "/w", "/home/x") for text in harmless_commands(count, seed)}
    rules = Rules(base="/w", home="/home/x")
    return [
        text
        for text in harmless_commands(count, seed)
        if judge(calls[text], rules, "default", "/w").kind != "allow"
    ]


def main() -> int:
    """Run the campaign; print its figure and the first errors."""
    count, seed = (
        (int(sys.argv[1]) if len(sys.argv) > 1 else 50_000),
        (int(sys.argv[2]) if len(sys.argv) > 2 else 1),
    )
    errors, allowed = [], 0
    for line, error, is_allowed in campaign(count, seed, workers=2):
        allowed += is_allowed
        if error:
            errors.append((line, error))
            print(f"{line!r}\n    {error}", file=sys.stderr)
    asking = len(needless_asks(HARMLESS, seed)) / HARMLESS
    print(
        f"{count:,} fuzzed commands against Bash: {len(errors)} errors, {allowed:,} allowed; "
        f"{asking:.1%} of {HARMLESS:,} harmless commands ask (goal: {FALSE_ASKS_MAX:.0%})"
    )
    return 1 if errors or asking > FALSE_ASKS_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
