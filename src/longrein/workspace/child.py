"""One child process: started in a session of its own, its output in one pipe, its end told by the kernel."""

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

import msgspec

from longrein.workspace.port import Ended

MOVES = ("cd", "pushd", "popd", "eval", "source", ". ")
"""A line without any of these leaves the shell where it was, so it need not report."""
POLL_FIRST_S = 0.002
POLL_LAST_S = 0.03
"""Where a process's end cannot be waited for as a file descriptor (macOS, old kernels)."""


class Child(msgspec.Struct):
    """A started process and our ends of its pipes."""

    process: subprocess.Popen[bytes]
    output: int
    """Read end, non-blocking."""
    report: int
    """Read end of the pipe in which the shell says its last folder; -1 when it was not asked to."""


def start(command: str | Sequence[str], shell: str, cwd: str, env: Mapping[str, str]) -> Child:
    """Start it. Raises OSError or ValueError (nothing to start, NUL, what cannot be encoded)."""
    if not command:
        raise ValueError("nothing")
    output, their_output = os.pipe()
    report, their_report = _report_pipe(command, shell)
    try:
        process = subprocess.Popen(
            command_words(command, their_report),
            executable=shell if isinstance(command, str) else None,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=their_output,
            stderr=their_output,
            start_new_session=True,
            pass_fds=() if their_report < 0 else (their_report,),
        )
    except BaseException:
        close(output, report)
        raise
    finally:
        close(their_output, their_report)
    os.set_blocking(output, False)
    return Child(process, output, report)


def _report_pipe(command: str | Sequence[str], shell: str) -> tuple[int, int]:
    if not isinstance(command, str) or not shell.endswith("bash") or not any(word in command for word in MOVES):
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
    return ["bash", "-c", f'trap "builtin pwd -P >&{report}" EXIT; eval "$1"', "bash", command]


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


def on_exit(process: subprocess.Popen[bytes], tell: Callable[[], None]) -> Callable[[], None]:
    """Call `tell` once when the process has exited and is reaped. Gives what stops the watching."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return _poll(loop, process, tell)

    def stop() -> None:
        nonlocal descriptor
        if descriptor >= 0:
            loop.remove_reader(descriptor)
            close(descriptor)
            descriptor = -1

    def look() -> None:
        if process.poll() is not None:
            stop()
            tell()

    loop.add_reader(descriptor, look)
    return stop


def _poll(
    loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], tell: Callable[[], None]
) -> Callable[[], None]:
    timer: asyncio.TimerHandle

    def look(pause_s: float) -> None:
        nonlocal timer
        if process.poll() is not None:
            tell()
        else:
            timer = loop.call_later(pause_s, look, min(pause_s * 1.5, POLL_LAST_S))

    timer = loop.call_later(POLL_FIRST_S, look, POLL_FIRST_S)

    def stop() -> None:
        timer.cancel()

    return stop


def ended(returncode: int, cause: str, elapsed_s: float, cwd: str) -> Ended:
    """How it ended, exactly: a code, or the name of the signal."""
    if returncode >= 0:
        return Ended(returncode, "", cause, "", elapsed_s, cwd)
    return Ended(None, signal_name(-returncode), cause, "", elapsed_s, cwd)


def signal_name(number: int) -> str:
    """`SIGKILL`; a real-time signal by its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def not_started(error: OSError | ValueError, command: str | Sequence[str], cwd: str) -> Ended:
    """Why it could not start, in one line. The code is what a shell would give: 127 not found, else 126."""
    found = not isinstance(error, FileNotFoundError)
    return Ended(126 if found else 127, "", "not_started", _why(error, command, cwd))


def _why(error: OSError | ValueError, command: str | Sequence[str], cwd: str) -> str:
    if isinstance(error, ValueError):
        return f"the command or its environment holds what cannot be started ({error})"
    if not os.path.isdir(cwd):
        return f"the folder {cwd} does not exist (any more)"
    if error.errno == errno.E2BIG:
        size = len(command) if isinstance(command, str) else sum(map(len, command))
        return f"the command is too long for the system ({size:,} characters): write it to a file and run that"
    name = "the shell" if isinstance(command, str) else next(iter(command), "an empty command")
    return f"{name}: {(error.strerror or str(error)).lower()}"
