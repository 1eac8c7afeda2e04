"""`longrein`, `python -m longrein`. Imports nothing from the current folder, also where
PYTHONPATH names it.
"""

import os
import sys

try:
    sys.path[:] = [entry for entry in sys.path if entry not in ("", ".", os.getcwd())]
except OSError:  # the current folder has been removed
    sys.path[:] = [entry for entry in sys.path if entry not in ("", ".")]

import gc

# imports make many objects and no garbage; looking for it would cost a tenth of the start
gc.disable()

import signal  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # Ctrl-C while importing: nothing has begun, so no traceback

from longrein.frontends import first_frame  # noqa: E402

first_frame.open_frame(sys.argv[1:], os.environ)

from longrein import cli, entry_points  # noqa: E402

GC_THRESHOLD = 50_000
"""Look for garbage after this many new containers (CPython's own: 700). The whole start makes
about 40,000.
"""


def main() -> None:
    """Run the command line and leave with its exit code."""
    if signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, first_frame.stop):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    first_frame.poll()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()
    cli.open_missing_streams()
    cli.ask_for_a_report()
    sys.exit(cli.main(sys.argv[1:], entry_points))


if __name__ == "__main__":
    main()
