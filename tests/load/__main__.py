"""Every campaign, one after the other: `python -m tests.load`, or `make load`. Takes an hour or two."""

import os
import subprocess
import sys

from tests.load import kills, notices, storm, writers

SLICED = (
    "tests/context/test_laws.py",
    "tests/context/test_fuzz.py",
    "tests/seed/test_laws.py",
    "tests/testing/test_simulation.py",
    "tests/testing/test_tree_simulation.py",
    "tests/agent/test_tasks_crash.py",
    "tests/e2e/test_kill.py",
    "tests/agent/test_secrets.py",
    "tests/agent/test_watching.py",
    "tests/context/test_audit.py",
    "tests/context/test_digest.py",
    "tests/permissions",
    "tests/terminal/test_blocks.py",
    "tests/tools/test_merge.py",
    "tests/workspace/test_spooling.py",
)
"""Tests whose seeds and examples in the suite are a slice: see `tests.seeds`."""
TIMES = 20


def sliced() -> int:
    """Play many more seeds of the tests that the suite plays a few of; 1 when one failed."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--timeout", "3600", *SLICED]
    return subprocess.run(command, env={**os.environ, "SEEDS_TIMES": str(TIMES)}, check=False).returncode


def main() -> int:
    """Run all; 1 when one of them found something."""
    found = [sliced(), storm.main([]), writers.main(["--agents", "8", "--edits", "200", "--files", "5"])]
    sys.argv[1:] = ["--scenarios", "1000", "--beside", "8"]
    found.append(kills.main())
    sys.argv[1:] = ["--seeds", "40", "--supervisor"]
    found.append(notices.main())
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
