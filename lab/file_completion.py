"""Print what a key costs while a file name is completed after `@`: `python -m
lab.file_completion`.
"""

import argparse
import random
import time

from longrein.app.file_matching import FileMatcher

WORDS = (
    "src",
    "lib",
    "core",
    "parser",
    "lexer",
    "token",
    "stream",
    "server",
    "client",
    "view",
    "model",
    "tests",
)
SEARCHES = (
    "server_9",
    "prsrlxr",
    "src/lib/core",
    "tttttt",
    "e_e_e_1",
    "zzz",
    "model_77777",
    "serverstreamtoken",
)
SHOWN = 50


def tree(files: int, folders: int, seed: int = 1) -> list[str]:
    """Return the paths of a made-up tree."""
    source = random.Random(seed)
    above = [
        "/".join(source.choices(WORDS, k=source.randint(1, 6))) + f"/part{n}"
        for n in range(folders)
    ]
    return [f"{source.choice(above)}/{source.choice(WORDS)}_{n}.py" for n in range(files)]


def main() -> None:
    """Measure every key of some searches in CPU milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--folders", type=int, default=10_000)
    options = parser.parse_args()
    begun = time.process_time()
    matcher = FileMatcher(tree(options.files, options.folders))
    print(
        f"{len(matcher.paths):,} files and folders, read in {time.process_time() - begun:.2f} s "
        "(in a thread)"
    )
    costs = []
    for typed in SEARCHES:
        for end in range(1, len(typed) + 1):
            begun = time.process_time()
            matcher.find(typed[:end], SHOWN)
            costs.append(((time.process_time() - begun) * 1_000, typed[:end]))
    costs.sort()
    worst, search = costs[-1]
    print(f"a key: median {costs[len(costs) // 2][0]:.1f} ms, worst {worst:.1f} ms (@{search})")


if __name__ == "__main__":
    main()
