"""Run every load campaign: `python -m lab.campaigns`, or `make load`. Takes one to two hours."""

import os
import subprocess
import sys

from lab.campaigns import (
    allow_rules,
    builds,
    harmless_verdicts,
    kills,
    mcp,
    planted,
    storm,
    typed_questions,
    writers,
)
from tests.tables import split_words

SEEDED_TESTS = tuple(
    split_words("""
    tests/context/test_laws.py tests/context/test_fuzz.py tests/seed/test_laws.py
    tests/testing/test_simulation.py tests/testing/test_tree_simulation.py
    tests/agent/test_tasks_crash.py tests/e2e/test_kill.py tests/store/test_crash.py
    tests/store/test_children_crash.py tests/agent/test_secrets.py
    tests/agent/test_file_watcher.py tests/context/test_audit.py tests/context/test_digest.py
    tests/permissions tests/terminal/test_blocks.py tests/tools/test_merge.py
    tests/workspace/test_sandbox_planted.py tests/workspace/test_spooling.py
""")
)
"""Tests whose seeds and examples are a small slice in the suite; see `tests.seeds`."""
TIMES = 20


def run_more_seeds() -> int:
    """Run tests with many more seeds than the suite does; return 1 when one failed."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--timeout", "3600", *SEEDED_TESTS]
    return subprocess.run(
        command, env={**os.environ, "SEEDS_TIMES": str(TIMES)}, check=False
    ).returncode


def main() -> int:
    """Run all campaigns; return 1 when one of them found a fault."""
    found = [
        run_more_seeds(),
        allow_rules.main(["300"]),
        harmless_verdicts.main(),
        builds.main([]),
        planted.main([]),
        storm.main([]),
        typed_questions.main([]),
        writers.main(["--agents", "8", "--edits", "200", "--files", "5"]),
    ]
    sys.argv[1:] = ["--scenarios", "1000", "--parallel", "8"]
    found.append(kills.main())
    sys.argv[1:] = ["--kills", "100"]
    found.append(mcp.main())
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
