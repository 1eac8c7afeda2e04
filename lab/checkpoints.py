"""Time of a checkpoint in a repository of 20,000 files with 10 changed: `python -m
lab.checkpoints`.

Printed are the space that checkpoints take, the median and the least wall time of the looks, and
the processor time of longrein and its git together, which other work on the machine delays less.
The verdict is on the least wall time.
"""

import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from longrein.workspace.root_copies import CheckpointStore

FILES, CHANGED, RUNS = 20_000, 10, 30
LIMIT_MS = 60.0


def make_tree(root: Path) -> list[Path]:
    """Make a git repository with so many files of a few hundred lines; return them."""
    rng, files = random.Random(1), []
    for n in range(FILES):
        path = root / f"d{n % 40}/s{n // 40 % 50}/f{n}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(f"line {rng.random()} of {n}\n" for _ in range(rng.randrange(5, 120)))
        )
        files.append(path)
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "all"],
    ):
        subprocess.run(["git", *words], cwd=root, check=True)
    return files


def processor_s() -> float:
    """Processor time of this process and the children it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def measure(store: CheckpointStore, root: Path) -> tuple[float, float]:
    """Take a checkpoint as around a call; return its milliseconds of wall and of processor time."""
    ran, began = processor_s(), time.perf_counter()
    store.take([str(root)], trusts_watch=True)
    return (time.perf_counter() - began) * 1000, (processor_s() - ran) * 1000


def on_disk(folder: str) -> tuple[int, int]:
    """Return the number of files below a folder, and the bytes of their blocks."""
    found = [path.lstat() for path in Path(folder).rglob("*") if path.is_file()]
    return len(found), sum(one.st_blocks * 512 for one in found)


def main() -> int:
    """Print the times; 0 when a checkpoint is within the limit."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        files = make_tree(root)
        store = CheckpointStore(os.path.join(folder, "checkpoints"), dict(os.environ))
        first = measure(store, root)
        print(f"first look: {first[0]:.0f} ms (processor {first[1]:.0f} ms)")
        time.sleep(2.1)  # the files are older than the whole seconds that git compares
        least = 0.0
        for name, count in (("nothing changed", 0), (f"{CHANGED} files changed", CHANGED)):
            times = []
            for run in range(RUNS):
                for path in files[run * count : (run + 1) * count]:
                    path.write_text(f"changed in run {run}\n")
                times.append(measure(store, root))
            walls, ran = zip(*times, strict=True)
            least = min(walls)
            median = statistics.median(walls)
            print(
                f"{name}: least {least:.0f} ms, median {median:.0f} ms (processor "
                f"{statistics.median(ran):.0f} ms)"
            )
        count, size = on_disk(store.folder)
        print(f"on the disk after {2 * RUNS} looks: {count} files, {size // 1024:,} kB")
        subprocess.run(["git", "checkout", "-q", "."], cwd=root, check=True)
        once = CheckpointStore(os.path.join(folder, "once"), dict(os.environ))
        once.take([str(root)])
        files[-1].write_text("changed by the one command\n")
        once.take([str(root)])
        once.forget_indexes()
        count, size = on_disk(once.folder)
        print(f"on the disk after a one-shot run with a command: {count} files, {size // 1024} kB")
    print(
        f"a checkpoint with {CHANGED} of {FILES:,} files changed: {least:.0f} ms, limit "
        f"{LIMIT_MS:.0f} ms"
    )
    return int(least > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
