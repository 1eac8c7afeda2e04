"""Shell command lines: what is executed, the shell's folder report, names of signals and errors.

Standard library only: the supervisor loads this module too.
"""

import errno
import os
import signal
from collections.abc import Mapping, Sequence

FOLDER_CHANGES = ("cd", "pushd", "popd", "eval", "source", ". ")
"""A line without any of these cannot change the shell's folder, so no report is needed."""
FILTER = "%FILTER%"
"""Word in front of a confined command that stands for the descriptor of its seccomp filter."""
ENDING_SIGNALS = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "SEGV", "PIPE", "TERM")
)
"""Signals that end a confined command although no script exits with such a code by itself."""
Confined = tuple[Sequence[str], str] | None
"""Words and filter file of a `Confinement`; None outside the sandbox."""
LANDLOCK = "%LANDLOCK%"
"""Word in front of a command that is confined by Landlock; the file then holds its plan."""
MOUNTS = "%MOUNTS%"
"""Word in front of a command with mounts of its own; the next word is the path of their plan."""
HELD_PIPE_S = 0.1
"""Wait for output after the exit while another process holds the pipe."""
LEFT_OPEN_MAX = 64
"""Most pipes that are read for processes that outlive their command; the oldest is closed."""
LEFT_OPEN_BYTES_MAX = 64 << 20
"""Most output of such a process before its pipe is closed."""


def reports_folder(command: str | Sequence[str], shell: str) -> bool:
    """Return True if the shell can change its folder, and tell the last one."""
    return (
        isinstance(command, str)
        and shell.endswith("bash")
        and any(word in command for word in FOLDER_CHANGES)
    )


def command_words(command: str | Sequence[str], report: int) -> list[str]:
    """Return the arguments to execute.

    `eval` keeps line numbers and errors unchanged; the user's own trap wins. Without a report, bash
    executes a single command in its own place (`bash -c`).
    """
    if not isinstance(command, str):
        return list(command)
    if report < 0:
        return ["bash", "-c", command]
    # the report may have no reader (the command was kept, or longrein died): SIGPIPE must not end
    # the shell
    said = f"trap '' PIPE; builtin pwd -P 2>/dev/null >&{report}"
    return ["bash", "-c", f'trap "{said}" EXIT; eval "$1"', "bash", command]


def open_filter(path: str) -> int:
    """Open the file with a seccomp filter for the sandbox's program; -1 for ''. Raises OSError."""
    if not path:
        return -1
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.set_inheritable(descriptor, True)
    return descriptor


def confined_words(
    prefix: Sequence[str],
    filter_descriptor: int,
    path: str,
    words: Sequence[str],
    env: Mapping[str, str],
) -> tuple[str, list[str]]:
    """Return (path, words) of a confined command: the sandbox's program, then the command's own
    program at `path`.

    The sandbox's program searches the PATH of `env`, so the name alone is given if it leads to
    `path`: messages of bash begin with it.
    """
    name = words[0] if find_on_path(words[0], env) == path else path
    front = [str(filter_descriptor) if word == FILTER else word for word in prefix]
    return prefix[0], [*front, name, *words[1:]]


def find_on_path(name: str, env: Mapping[str, str]) -> str:
    """Find a program by name on the command's own search path."""
    if "/" in name:
        return name
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return name


def sandbox_mark() -> str:
    """Return the value of `LONGREIN_SANDBOX` for confined commands: the PID namespace of the one
    who starts them.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def confined_returncode(code: int) -> int:
    """Return the exit code of a confined command, or minus the signal that ended it.

    The sandbox's program exits with 128 and the signal, as shells do.
    """
    return 128 - code if code - 128 in ENDING_SIGNALS else code


def close(*descriptors: int) -> None:
    """Close the open descriptors; -1 is skipped."""
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)


def last_folder(report: int) -> str:
    """Return the folder that the shell reported; '' for none."""
    if report < 0:
        return ""
    try:
        told = os.read(report, 1 << 14)
    except OSError:
        return ""
    return os.fsdecode(told.removesuffix(b"\n")) if told.endswith(b"\n") else ""


def signal_name(number: int) -> str:
    """Return a signal's name, such as `SIGKILL`; a real-time signal by its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def start_error_text(error: OSError | ValueError, command: str | Sequence[str], cwd: str) -> str:
    """Say in one line why a command could not start."""
    if isinstance(error, ValueError):
        return f"the command or its environment holds what cannot be started ({error})"
    if not os.path.isdir(cwd):
        return f"the folder {cwd} does not exist (any more)"
    if error.errno == errno.E2BIG:
        size = len(command) if isinstance(command, str) else sum(map(len, command))
        return (
            f"the command is too long for the system ({size:,} characters): write it to a file "
            "and run that"
        )
    name = "the shell" if isinstance(command, str) else next(iter(command), "an empty command")
    return f"{name}: {(error.strerror or str(error)).lower()}"
