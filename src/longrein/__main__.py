"""`longrein`, `python -m longrein`."""

import gc

gc.disable()  # imports make many objects and no garbage; looking for it would cost a tenth of the start

import sys  # noqa: E402

from longrein import app, cli  # noqa: E402

GC_THRESHOLD = 50_000
"""Look for garbage after this many new containers (CPython's own: 700). The whole start makes about 40,000."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()
    cli.own_the_three()
    cli.blame_ourselves()
    sys.exit(cli.main(sys.argv[1:], app))


if __name__ == "__main__":
    main()
