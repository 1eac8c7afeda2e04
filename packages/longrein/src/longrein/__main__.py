"""`longrein`, `python -m longrein`. Imports nothing from the current folder, also where
PYTHONPATH names it.
"""

import os
import sys

try:
    sys.path[:] = [entry for entry in sys.path if entry not in ("", ".", os.getcwd())]
except OSError:  # the current folder has been removed
    sys.path[:] = [entry for entry in sys.path if entry not in ("", ".")]

from longrein import __version__

if sys.argv[1:] in (["--version"], ["-v"]):  # the parser would take three times as long as Python
    try:
        os.write(1, f"longrein {__version__}\n".encode())
        sys.exit()
    except OSError:  # said below, as for other output
        pass

import gc

# imports make many objects and no garbage; looking for it would cost a tenth of the start
gc.disable()

import signal  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # Ctrl-C while importing: nothing has begun, so no traceback

from longrein import cli  # noqa: E402

GC_THRESHOLD = 50_000
"""Look for garbage after this many new containers (CPython's own: 700). The whole start makes
about 40,000.
"""


def load_app() -> cli.App:
    """Import what all commands need but help, version and usage errors."""
    on_interrupt = signal.getsignal(signal.SIGINT)
    if on_interrupt is signal.default_int_handler:
        # an exception within the import of msgspec would crash Python
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # msgspec takes `get_type_hints` from typing where there is no typing_extensions, which costs
    # three times as much as msgspec itself; a second one beside one that is imported already would
    # have other types
    typing_extensions = sys.modules.setdefault("typing_extensions", None)  # type: ignore[arg-type]
    import msgspec  # noqa: F401

    if not typing_extensions:
        del sys.modules["typing_extensions"]
    import longrein.entry_points

    if on_interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, on_interrupt)
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()
    return longrein.entry_points


def main() -> None:
    """Run the command line and leave with its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.open_missing_streams()
    cli.ask_for_a_report()
    code = cli.main(sys.argv[1:], load_app)
    if "longrein.entry_points" in sys.modules:
        sys.exit(code)
    # nothing was begun and all is written: freeing memory would take a sixth of the time
    os._exit(code)


if __name__ == "__main__":
    main()
