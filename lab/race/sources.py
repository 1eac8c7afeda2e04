"""Real source files for the sessions: modules of the packages that `make library` pins."""

import random
import sysconfig
from functools import cache
from pathlib import Path

PACKAGES = (
    "agents",
    "anyio",
    "deepagents",
    "httpx",
    "langchain",
    "langchain_core",
    "langchain_openai",
    "langgraph",
    "mcp",
    "openai",
    "opentelemetry",
    "pydantic",
    "pydantic_ai",
    "requests",
    "starlette",
    "tenacity",
)
BYTES_MIN, BYTES_MAX = 1_500, 90_000


@cache
def source_files() -> tuple[tuple[str, int], ...]:
    """Return path (below site-packages) and size of each module that a session may read, sorted
    by path.
    """
    home = _home()
    found = []
    for package in PACKAGES:
        for path in sorted((home / package).rglob("*.py")):
            size = path.stat().st_size
            if BYTES_MIN <= size <= BYTES_MAX:
                found.append((path.relative_to(home).as_posix(), size))
    return tuple(found)


def choose_files(
    rng: random.Random, count: int, bytes_total: int, bytes_max: int
) -> dict[str, list[str]]:
    """Choose `count` files of about `bytes_total` together, none much larger than `bytes_max`;
    return path -> lines.
    """
    pool = list(source_files())
    rng.shuffle(pool)
    mean = bytes_total / count
    chosen: dict[str, list[str]] = {}
    for _ in range(count):
        goal = min(max(mean * rng.lognormvariate(-0.2, 0.65), BYTES_MIN), bytes_max)
        at = min(range(min(len(pool), 400)), key=lambda n: abs(pool[n][1] - goal))
        path, _ = pool.pop(at)
        chosen[path] = (_home() / path).read_text(encoding="utf-8", errors="replace").splitlines()
    return chosen


def _home() -> Path:
    return Path(sysconfig.get_paths()["purelib"])
