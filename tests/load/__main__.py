"""Every campaign, one after the other: `python -m tests.load`, or `make load`. Takes a quarter of an hour or two."""

import sys

from tests.load import kills, storm, writers


def main() -> int:
    """Run all; 1 when one of them found something."""
    found = [storm.main([]), writers.main(["--agents", "8", "--edits", "200", "--files", "5"])]
    sys.argv[1:] = ["--scenarios", "1000", "--beside", "8"]
    found.append(kills.main())
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
