"""Keep commands of the same user from reading this process's environment and memory in /proc."""

from contextlib import suppress

SET_DUMPABLE = 4
"""`PR_SET_DUMPABLE`."""


def hide_memory() -> None:
    """Make this process not dumpable: /proc/PID/environ, mem and fd are closed to its user, and so
    is ptrace.

    Programs that it starts are not affected. A command that runs as root, or with CAP_SYS_PTRACE,
    can still read them; only a sandbox prevents that. Elsewhere than on Linux nothing happens.
    """
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(SET_DUMPABLE, 0, 0, 0, 0)
