# ruff: noqa: E501 - a table of commands
"""Ways to read `.env` although `Read(.env)` denies it, run for real: `python -m
lab.campaigns.denied_reads bubblewrap`.

The argument is the rung: `bubblewrap`, `landlock` or `none`. In a sandbox every way runs, as after
a yes of the user, and leaks if the canary of the file stands in its output or in another file
afterwards. Without a sandbox a way leaks if the verdict lets it run unasked and it prints the
canary.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from longrein.settings_schema import SandboxOptions
from longrein.workspace import CommandSpec, temporary_spawner
from longrein.workspace.command_output import CollectingSink
from longrein.workspace.sandbox import SessionSandbox
from longrein.workspace.sandbox.rung import Rung
from tests.permissions.calls import ROOT
from tests.permissions.test_denied_reads import ELSEWHERE, WAYS, outcome

CANARY = "canary-5d0c9be2"
LIMIT_S = 3.0
MORE = (
    "cat /proc/self/root{root}/.env", "cat /proc/self/cwd/.env", "cat /proc/$$/cwd/.env",
    "cat hard", "cat sub/link",
    "cat sub/folder/.env", "ln hard other; cat other", "(sleep 0.1; cat .env) & wait",
    "setsid cat .env & wait",
    "exec 9< .env; cat <&9", "cp hard copy; cat copy", "mv sub/.. x; cat x/.env",
    "mv .env x; cat x", "cat < hard",
    "ln .env other; cat other",
    "python3 -c 'import os; print(os.open(\".env\", os.O_PATH)); print(open(\".env\").read())'",
    "python3 -c 'import os; f = os.open(\".\", 0); print(os.read(os.open(\".env\", 0, dir_fd=f), 99))'", "tar c . | strings",
    "find . -type f -exec cat {{}} +", "find / -xdev -name .env -exec cat {{}} + 2>/dev/null",
    "grep -r canary {root}/..",
)  # fmt: skip
"""Ways around the mask of a sandbox, besides those that the parser sees."""


def make_tree(base: Path) -> Path:
    """Make a project with a denied file, a second name of it, links to it, and a copy in no
    other place.
    """
    root = base / "repo"
    (root / "sub").mkdir(parents=True)
    (root / ".env").write_text(f"KEY={CANARY}\n")
    os.link(root / ".env", root / "hard")
    (root / "sub/link").symlink_to("../.env")
    (root / "sub/folder").symlink_to("..")
    (root / "a").write_text("text\n")
    return root


def leaks(root: Path, printed: bytes) -> Iterator[str]:
    """Yield where the canary stands that is not the denied file itself."""
    if CANARY.encode() in printed:
        yield "printed"
    for path in root.rglob("*"):
        is_copy = path.is_file() and not path.is_symlink() and path.name not in (".env", "hard")
        if is_copy and not path.samefile(root / "hard") and CANARY.encode() in path.read_bytes():
            yield f"copied to {path.name}"


async def attempt(base: Path, rung: str, way: str) -> list[str]:
    """Run one way in a new project; return its leaks."""
    root = make_tree(base)
    sandbox = SessionSandbox(
        SandboxOptions("auto" if rung != "none" else "off"),
        folder=str(base / "session"),
        home=str(base / "home"),
        state_dir=str(base / "state"),
        environ=os.environ,
        roots=[str(root)],
    )
    if rung not in ("none", sandbox.rung.name):
        sandbox.rung = Rung(rung, "chosen by the test")
    for name in ("session", "home", "state"):
        (base / name).mkdir(exist_ok=True)
    output = CollectingSink()
    hidden = [str(root / name) for name in (".env", "hard")]
    async with temporary_spawner(os.environ, [str(root)]) as spawner:
        await spawner.run(
            CommandSpec(
                way,
                str(root),
                {"PATH": os.environ["PATH"], "HOME": str(base / "home")},
                sandbox.confine([str(root)], str(root), hidden) if rung != "none" else None,
            ),
            sink=output,
            timeout_s=LIMIT_S,
            output_bytes_max=1 << 20,
        )
    return list(leaks(root, bytes(output.data)))


async def run_all(base: Path, rung: str) -> tuple[dict[str, list[str]], int]:
    """Run all ways; return those that leaked, and how many were tried."""
    found, ways = {}, (*WAYS, *MORE) if rung != "none" else WAYS
    for number, way in enumerate(ways):
        folder = base / str(number)
        folder.mkdir()
        line = (
            way.replace("{{", "{").replace("}}", "}")
            if way in MORE
            else way.replace(ROOT, "{root}")
        )
        line = line.replace("{root}", str(folder / "repo"))
        if rung == "none" and (outcome(way) != "allowed" or way in ELSEWHERE):
            continue
        if there := await attempt(folder, rung, line):
            found[way] = there
        shutil.rmtree(folder, ignore_errors=True)
    return found, len(ways)


def main(words: Sequence[str] = ()) -> int:
    """Run the ways in one rung, print one line, return 1 if one leaked."""
    rung = words[0] if words else "bubblewrap"
    base = Path(tempfile.mkdtemp(prefix="denied", dir="/var/tmp"))
    try:
        found, tried = asyncio.run(run_all(base, rung))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    for way, there in found.items():
        print(f"  {way!r}: {', '.join(there)}")
    print(f"denied reads ({rung}): {len(found)} of {tried} ways leaked")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
