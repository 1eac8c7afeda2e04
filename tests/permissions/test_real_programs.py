"""The table of read-only programs against the real ones: no listed option writes a file or starts a program."""

import shutil
import subprocess
from pathlib import Path

import pytest

from longrein.permissions.bash_parser import Part, Word
from longrein.permissions.program_table import _tables, effect_of
from tests.load.commands import system_folders

pytestmark = pytest.mark.skipif(
    not (shutil.which("bwrap") and shutil.which("strace")), reason="needs bubblewrap and strace"
)
BUILTINS = frozenset(
    ("cd", "exit", "return", "break", "continue", "shift", "wait", "times", "jobs", "read", "type", "hash", ":")
)
SCRIPTS = ("egrep", "fgrep", "which", "shasum")
"""Scripts of the system, which start their interpreter or the real program."""
SLOW = frozenset(("tail -f", "tail -F", "tail --follow", "tail --retry"))
VALUES = ("out",)
DRIVER = """
export PATH=/usr/bin:/bin LANG=C.UTF-8 HOME=/home
while IFS= read -r -d "" line; do
  i=$((i+1)); mkdir -p /w/$i; cd /w/$i; echo "b a" >a.txt
  eval "timeout -s KILL 1 strace -f -qq -e trace=execve -e signal=none -o /log/$i $line" </dev/null >/dev/null 2>&1
done </log/lines
"""


def calls() -> list[list[str]]:
    """Return a call of every known option of every program that only reads and is installed."""
    found = []
    for name, program in _tables()[0].items():
        if program.operands in ("writes", "copies", "moves") or name in BUILTINS or not shutil.which(name):
            continue
        options = [[f"-{c}"] for c in program.flags if c != "#"]
        options += [[f"-{c}", value] for c in program.valued for value in VALUES]
        for option in sorted(program.long):
            options += [[option + value] for value in VALUES] if option.endswith("=") else [[option]]
        found += [[name, *option, "a.txt"] for option in ([], *options) if " ".join([name, *option]) not in SLOW]
    return [one for one in found if not effect_of(Part(tuple(map(Word, one)), "", ("/w",))).problem]


def test_no_option_of_the_table_writes_or_starts_anything(tmp_path: Path) -> None:
    lines = calls()
    assert len(lines) > 300
    for folder in ("w", "log"):
        (tmp_path / folder).mkdir()
    (tmp_path / "log" / "lines").write_text("".join(" ".join(f"'{w}'" for w in one) + "\0" for one in lines))
    binds = ["--bind", str(tmp_path / "w"), "/w", "--bind", str(tmp_path / "log"), "/log"]
    command = ["bwrap", "--unshare-all", "--die-with-parent", *system_folders(), "--tmpfs", "/tmp", "--tmpfs", "/home"]
    command += ["--dev", "/dev", "--proc", "/proc", *binds, "/usr/bin/bash", "-c", DRIVER]
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=1200, check=False)
    wrong = []
    for i, line in enumerate(lines, 1):
        folder = tmp_path / "w" / str(i)
        names = sorted(path.name for path in folder.iterdir())
        started = (tmp_path / "log" / str(i)).read_text(errors="replace").count(") = 0")
        most = 2 if line[0] in SCRIPTS else 1
        if names != ["a.txt"] or (folder / "a.txt").read_text() != "b a\n" or started > most:
            wrong.append((" ".join(line), names, started))
    assert not wrong, wrong[:40]
