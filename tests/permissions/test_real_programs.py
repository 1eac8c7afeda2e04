# ruff: noqa: E501 - tables of arguments
"""The table of read-only programs against the real ones: no listed option writes a file or
starts a program.
"""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.campaigns.allow_rules import campaign
from lab.campaigns.commands import system_folders
from longrein.permissions.bash_parser import Word, WordPart
from longrein.permissions.program_table import _tables, effect_of
from tests.seeds import TIMES

pytestmark = pytest.mark.skipif(
    not (shutil.which("bwrap") and shutil.which("strace")), reason="needs bubblewrap and strace"
)
BUILTINS = frozenset(
    (
        "cd",
        "exit",
        "return",
        "break",
        "continue",
        "shift",
        "wait",
        "times",
        "jobs",
        "read",
        "type",
        "hash",
        ":",
    )
)
SCRIPTS = ("egrep", "fgrep", "which")
"""Scripts of the system, which start their interpreter or the real program."""
SLOW = frozenset(("tail -f", "tail -F", "tail --follow", "tail --retry"))
VALUES = ("out",)
DRIVER = """
export PATH=/usr/bin:/bin LANG=C.UTF-8 HOME=/home GIT_CONFIG_NOSYSTEM=1
git config --global user.email a@b; git config --global user.name a
mkdir /tmp/t; cd /tmp/t; echo "b a" >a.txt; printf '#!/bin/sh\\necho >ran\\n' >x; chmod 755 x
git init -q -b main --template= .; git add .; git commit -qm one
state() { find .git -type f ! -name index -exec cksum {} +; git ls-files -s; }
while IFS= read -r -d "" line; do
  i=$((i+1)); cp -r /tmp/t /w/$i; cd /w/$i; case $line in git*|"'git'"*) state;; esac >/tmp/before
  eval "timeout -s KILL 1 strace -f -qq -e trace=execve -e signal=none -o /log/$i $line" </dev/null >/dev/null 2>&1
  [ -e /log/$i ] || : >/log/$i; case $line in git*|"'git'"*) state;; esac | diff /tmp/before - >/log/$i.git; chmod -R u+w /w/$i
done </log/lines
"""


def calls() -> list[list[str]]:
    """Return a call of every known option of every program that only reads and is installed."""
    found = []
    for name, program in _tables()[0].items():
        if (
            program.operands in ("writes", "copies", "moves")
            or name in BUILTINS
            or not shutil.which(name)
        ):
            continue
        options = [[f"-{c}"] for c in program.flags if c != "#"]
        options += [[f"-{c}", value] for c in program.valued for value in VALUES]
        for option in sorted(program.long):
            options += (
                [[option + value] for value in VALUES] if option.endswith("=") else [[option]]
            )
        found += [
            [name, *option, "a.txt"]
            for option in ([], *options)
            if " ".join([name, *option]) not in SLOW
        ]
    return [
        one for one in found if not effect_of(WordPart(tuple(map(Word, one)), "", ("/w",))).problem
    ]


NASTY = (
    "-o out", "-oout", "--output=out", "--output out", "--outp=out", "-O out", "-Oout", "-w out",
    "-wout", "-t out", "-T .",
    "--compress-program=./x", "--compress-prog ./x", "--files0-from=a.txt", "--pre=./x",
    "--pre ./x", "--hostname-bin=./x",
    "-z", "-S ./x", "-s 01010000", "--set=01010000", "--s=01010000", "-f a.txt", "--file=a.txt",
    "-r a.txt", "-C", "--compile",
    "-m a.txt", "-exec ./x ;", "-ok ./x ;", "-fprint out", "-fprintf out x", "-fls out", "-delete",
    "--exec=./x", "-x ./x",
    "-I ./x", "--use-compress-program=./x", "--to-command=./x", "-i", "-i.bak", "--in-place",
    "-n -i", "-ni", "-P ./x",
    "--pager=./x", "-H out", "--html=out", "--log-file=out", "--checkpoint-action=exec=./x",
    "-- out", "out", "- out", "-k out",
    "--debug", "--temporary-directory=.", "--random-source=a.txt", "--reference=a.txt", "-a out",
    "--append", "--backup",
    "--rawfile x a.txt", "--argfile x a.txt", "-L .", "-R", "--help", "--version", "-D skip",
    "--dump=out", "-e 1w\\ out",
    "-e 1e./x", "e./x", "1w\\ out", "s/b/./e", "s/b/x/w\\ out", "{print>\"out\"}",
    "{system(\"./x\")}", "{print|\"./x\"}",
    "{\"./x\"|getline}", "@load\\ x", "-cf out", "-xf a.txt", "--l", "--o=out", "--ou=out",
    "--c=./x",
)  # fmt: skip
"""Options and operands by which some program writes `out` or `a.txt`, or runs `./x`."""
GIT_NASTY = (
    "-c core.pager=./x", "-c core.fsmonitor=./x", "-c alias.y=!./x y", "--exec-path=.", "-p",
    "--paginate", "--config-env=a=b",
    "--output=out", "--output out", "--outp=out", "--ext-diff", "--textconv", "-Oa.txt", "-O ./x",
    "-O./x",
    "--open-files-in-pager=./x", "--open=./x", "-o out", "-f", "-d main", "-D main", "-m new",
    "new", "--edit-description",
    "--unset a.b", "a.b c", "--add a.b c", "-e", "--global a.b c", "drop", "pop", "clear",
    "expire --all", "delete",
    "--textconv HEAD:a.txt", "--filters HEAD:a.txt", "--path=a.txt", "--upload-pack=./x",
    "--refresh", "-w", "--stdin",
    "--gpg-sign", "--show-signature", "--format=%G?", "--no-index a.txt x", "HEAD out", "update",
    "--patch", "--set-upstream-to=x",
)  # fmt: skip


def attacks() -> list[list[str]]:
    """Return the calls that the table takes for reading, among all programs with all nasty
    arguments.
    """
    found = []
    for name, program in _tables()[0].items():
        if (
            program.operands in ("writes", "copies", "moves")
            or name in BUILTINS
            or not shutil.which(name)
        ):
            continue
        longs = [option.rstrip("=") for option in sorted(program.long)]
        short = [option[:at] for option in longs for at in (4, 6) if at < len(option)]
        bundles = [f"-{flag}{letter}out" for flag in program.flags[:3] for letter in "owO"]
        for nasty in (*NASTY, *short, *bundles):
            words = nasty.replace("\\ ", "\0").split()
            words = [word.replace("\0", " ") for word in words]
            found += [[name, *words, "a.txt"], [name, "a.txt", *words]]
    for verb in _tables()[1]:
        found += [["git", verb, *nasty.split()] for nasty in GIT_NASTY]
        found += [["git", *nasty.split(), verb] for nasty in GIT_NASTY[:7]]
    return [one for one in found if not _changes(one)]


def _changes(words: list[str]) -> bool:
    effect = effect_of(WordPart(tuple(map(Word, words)), "", ("/w",)))
    slow = any(f"{words[0]} {word}" in SLOW for word in words[1:])
    return bool(effect.problem or effect.writes) or slow


def test_S005_S013_no_attack_that_the_table_takes_for_reading_works(tmp_path: Path) -> None:
    lines = attacks()
    assert len(lines) > 1000
    wrong = run_calls(tmp_path, random.Random(7).sample(lines, min(40 * TIMES, len(lines))))
    assert not wrong, wrong[:40]


def test_no_option_of_the_table_writes_or_starts_anything(tmp_path: Path) -> None:
    lines = calls()
    assert len(lines) > 300
    wrong = run_calls(tmp_path, random.Random(8).sample(lines, min(60 * TIMES, len(lines))))
    assert not wrong, wrong[:40]


@pytest.mark.parametrize("name", ["find", "awk", "git"])
def test_what_an_allow_rule_covers_does_what_the_rule_says(name: str) -> None:
    """A slice of `lab/campaigns/allow_rules.py`."""
    allowed, wrong = campaign(name, 30, 5)
    assert allowed > 3
    assert wrong == []


def run_calls(tmp_path: Path, lines: list[list[str]]) -> list[tuple[str, list[str], int]]:
    """Run calls in a sandbox, each in a repository of its own; return those that changed or
    started something.
    """
    for folder in ("w", "log"):
        (tmp_path / folder).mkdir()
    (tmp_path / "log" / "lines").write_text(
        "".join(" ".join(f"'{w}'" for w in one) + "\0" for one in lines)
    )
    binds = ["--bind", str(tmp_path / "w"), "/w", "--bind", str(tmp_path / "log"), "/log"]
    command = [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        *system_folders(),
        "--tmpfs",
        "/tmp",
        "--tmpfs",
        "/home",
    ]
    command += ["--dev", "/dev", "--proc", "/proc", *binds, "/usr/bin/bash", "-c", DRIVER]
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=1200, check=False)
    wrong = []
    for i, line in enumerate(lines, 1):
        folder = tmp_path / "w" / str(i)
        names = sorted(path.name for path in folder.iterdir() if path.name != ".git")
        log = (tmp_path / "log" / str(i)).read_text(errors="replace")
        started = log.count(") = 0")
        most = 2 if line[0] in SCRIPTS else 1
        changed = (folder / "a.txt").read_text() != "b a\n" or (
            tmp_path / "log" / f"{i}.git"
        ).read_text() != ""
        foreign = started > most and (line[0] != "git" or '"./x"' in log)
        if names != ["a.txt", "x"] or changed or foreign:
            wrong.append((" ".join(line), names, started))
    return wrong
