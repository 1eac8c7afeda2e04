"""One child process of longrein's own: its end told by the kernel, what became of it in words."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from subprocess import Popen

import msgspec

from longrein.workspace.launch import launch
from longrein.workspace.port import Ended
from longrein.workspace.words import close, report_pipe, signal_name, why_not

POLL_FIRST_S = 0.002
POLL_LAST_S = 0.03
"""Where a process's end cannot be waited for as a file descriptor (macOS, old kernels)."""


class Child(msgspec.Struct):
    """A started process and our ends of its pipes."""

    process: Popen[bytes]
    output: int
    """Read end, non-blocking."""
    report: int
    """Read end of the pipe in which the shell says its last folder; -1 when it was not asked to."""


def start(command: str | Sequence[str], shell: str, cwd: str, env: Mapping[str, str]) -> Child:
    """Start it. Raises OSError or ValueError (nothing to start, NUL, what cannot be encoded)."""
    output, their_output = os.pipe()
    report, their_report = report_pipe(command, shell)
    try:
        process = launch(command, shell, cwd, env, output=their_output, report=their_report)
    except BaseException:
        close(output, report)
        raise
    finally:
        close(their_output, their_report)
    os.set_blocking(output, False)
    return Child(process, output, report)


def on_exit(process: Popen[bytes], tell: Callable[[], None]) -> Callable[[], None]:
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


def _poll(loop: asyncio.AbstractEventLoop, process: Popen[bytes], tell: Callable[[], None]) -> Callable[[], None]:
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


def not_started(error: OSError | ValueError, command: str | Sequence[str], cwd: str) -> Ended:
    """Why it could not start, in one line. The code is what a shell would give: 127 not found, else 126."""
    return Ended(127 if isinstance(error, FileNotFoundError) else 126, "", "not_started", why_not(error, command, cwd))
