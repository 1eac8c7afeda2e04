"""The words around a command: what is executed, what the shell reports, how an end is called. Standard library only:
the supervisor of processes uses them, too.
"""

import errno
import os
from collections.abc import Sequence

SIGKILL, SIGTERM = 9, 15
"""The same on every system."""
FOLDER_CHANGES = ("cd", "pushd", "popd", "eval", "source", ". ")
"""A line without any of these leaves the shell where it was, so it need not report."""
HELD_PIPE_S = 0.1
"""How long output is awaited after the exit while somebody else holds the pipe."""
LEFT_OPEN_MAX = 64
"""Pipes still read for processes that outlive their command; the oldest is closed."""
LEFT_OPEN_BYTES_MAX = 64 << 20
"""What such a process may print before its pipe is closed."""


def report_pipe(command: str | Sequence[str], shell: str) -> tuple[int, int]:
    """(our end, the shell's end) of the pipe in which it says its last folder; (-1, -1) when it cannot have moved."""
    if (
        not isinstance(command, str)
        or not shell.endswith("bash")
        or not any(word in command for word in FOLDER_CHANGES)
    ):
        return -1, -1
    report, theirs = os.pipe()
    os.set_blocking(report, False)
    return report, theirs


def command_words(command: str | Sequence[str], report: int) -> list[str]:
    """What is executed. `eval` keeps line numbers and errors as they would be; a trap of the user's own wins.

    Without a report the shell is the program itself where it can be (`bash -c` executes a single command in place).
    """
    if not isinstance(command, str):
        return list(command)
    if report < 0:
        return ["bash", "-c", command]
    # nobody may be left to hear the report (the command was kept, or longrein died): that must not end it by SIGPIPE
    said = f"trap '' PIPE; builtin pwd -P 2>/dev/null >&{report}"
    return ["bash", "-c", f'trap "{said}" EXIT; eval "$1"', "bash", command]


def close(*descriptors: int) -> None:
    """Close those that are open (-1 is not)."""
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)


def last_folder(report: int) -> str:
    """What the shell reported; '' when it did not come to it."""
    if report < 0:
        return ""
    try:
        told = os.read(report, 1 << 14)
    except OSError:
        return ""
    return os.fsdecode(told.removesuffix(b"\n")) if told.endswith(b"\n") else ""


def signal_name(number: int) -> str:
    """`SIGKILL`; a real-time signal by its number."""
    import signal  # names every number there is: a fifth of the supervisor's start

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def start_error_text(error: OSError | ValueError, command: str | Sequence[str], cwd: str) -> str:
    """Why a command could not start, in one line."""
    if isinstance(error, ValueError):
        return f"the command or its environment holds what cannot be started ({error})"
    if not os.path.isdir(cwd):
        return f"the folder {cwd} does not exist (any more)"
    if error.errno == errno.E2BIG:
        size = len(command) if isinstance(command, str) else sum(map(len, command))
        return f"the command is too long for the system ({size:,} characters): write it to a file and run that"
    name = "the shell" if isinstance(command, str) else next(iter(command), "an empty command")
    return f"{name}: {(error.strerror or str(error)).lower()}"
