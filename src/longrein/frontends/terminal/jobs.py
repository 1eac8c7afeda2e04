"""Job control: stopped, the terminal is the shell's again; continued, it is ours, and what stood there is drawn anew.

Only this process stops. Commands go on: they and their supervisor are in sessions of their own.
"""

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from prompt_toolkit.application import run_in_terminal

from longrein.frontends.terminal.talk import Talk


def suspend(talk: Talk) -> None:
    """Give the terminal back as it was and stop, with whatever was started beside us in one job, until `fg`."""
    app = talk.screen.app
    if os.getsid(0) == os.getpid():
        talk.warn("Ctrl-Z: longrein was not started from a shell that could bring it back")
    elif app.is_running and app.context is not None:
        app.context.copy().run(run_in_terminal, _stop)


def _stop() -> None:
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.kill(0, signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)


def _resume(talk: Talk) -> None:
    """Continued after a stop that could not be caught: the shell has had the terminal and leaves it as it likes it."""
    app = talk.screen.app
    with suppress(termios.error, OSError):  # the terminal is gone
        if app.is_running and termios.tcgetattr(sys.stdin.fileno())[3] & termios.ICANON:
            app.input.raw_mode().__enter__()  # left by the one that `app` has entered
            app.renderer.reset()
            talk.kick()


@contextmanager
def job_control(loop: asyncio.AbstractEventLoop, talk: Talk) -> Iterator[None]:
    """Obey stops from outside like Ctrl-Z."""
    loop.add_signal_handler(signal.SIGTSTP, suspend, talk)
    loop.add_signal_handler(signal.SIGCONT, _resume, talk)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTSTP)
        loop.remove_signal_handler(signal.SIGCONT)
