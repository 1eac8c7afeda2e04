"""Bytes that sessions leave in the state folder: `python -m lab.state_folder`.

longrein runs as a user starts it, with its defaults, in a git repository of 20,000 files: one
session of 300 turns whose commands append to a file each, and a hundred one-shot runs with one
command that edits a file, one after another. A session copies what the user's last commit does not
hold, so the changes are committed in between; one run shows what it takes where they are not.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lab.bench import LONGREIN, Bench, bash, say
from lab.checkpoints import make_tree, on_disk

LIMIT_MB = 30.0


def run(bench: Bench, tree: Path, turns: list[dict[str, Any]], times: int) -> tuple[int, int]:
    """Run longrein so often with a new state folder; return its files, and the bytes of their
    blocks. Raises subprocess.CalledProcessError.
    """
    server, url = bench.serve({"turns": turns})
    try:
        _, environment = bench.command("longrein", url)
        for _ in range(times):
            subprocess.run(
                [str(LONGREIN), "-p", "go", "--permission-mode", "bypassPermissions"],
                cwd=tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                check=True,
            )
        return on_disk(environment["LONGREIN_STATE_DIR"])
    finally:
        server.terminate()
        server.wait()


def main() -> int:
    """Print the sizes; 0 when both limits are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--runs", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench, tree = Bench(Path(folder), 1), Path(folder) / "repository"
        files = [os.path.relpath(path, tree) for path in make_tree(tree)]

        def edit(n: int) -> dict[str, Any]:
            return bash(f"echo changed >> {files[n * 61 % len(files)]}")

        def commit() -> None:
            words = ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qam", "more"]
            subprocess.run(["git", *words], cwd=tree, check=True)

        def told(what: str, turns: list[dict[str, Any]], times: int) -> int:
            count, size = run(bench, tree, turns, times)
            print(f"{what}: {count} files, {size / 1e6:.1f} MB", flush=True)
            return size

        turns = [*map(edit, range(given.turns)), say()]
        runs = [turn for n in range(given.runs) for turn in (edit(n), say())]
        sizes = [told(f"a session of {given.turns} turns", turns, 1)]
        told("a one-shot run where these changes are not committed", runs, 1)
        commit()
        sizes.append(told(f"{given.runs} one-shot runs", runs, given.runs))
        print(f"the largest: {max(sizes) / 1e6:.1f} MB, limit {LIMIT_MB:.0f} MB")
    return int(max(sizes) > LIMIT_MB * 1e6)


if __name__ == "__main__":
    sys.exit(main())
