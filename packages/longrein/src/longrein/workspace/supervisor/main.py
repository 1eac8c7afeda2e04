"""Entry point of the supervisor: its socket, its signals and its exit."""

import os
import signal
import socket
import sys
import time
from contextlib import suppress

from longrein.workspace.supervisor.channel import RECORD, SOCKET, VERSION
from longrein.workspace.supervisor.mount_process import open_user_namespace
from longrein.workspace.supervisor.process_privacy import hide_memory
from longrein.workspace.supervisor.spool_writer import write_record
from longrein.workspace.supervisor.supervisor import Supervisor

ENDING = (signal.SIGTERM, signal.SIGINT)
IGNORED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2)
"""Handled by a function that does nothing: really ignored signals would be ignored by every
command too.
"""
SUB_REAPER = 36
"""`PR_SET_CHILD_SUBREAPER`."""
BACKLOG = 16


def main() -> None:
    """Run the supervisor and exit.

    `argv` holds the spool folder and the descriptor of a socket whose other end is longrein's.
    """
    folder, first = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    os.set_inheritable(
        first.fileno(), False
    )  # no command may hold it: its end reports longrein's death
    os.chdir(folder)
    become_subreaper()
    user_namespace = open_user_namespace()
    hide_memory()
    supervisor = Supervisor(first, time.monotonic, user_namespace)
    woken = on_signals(supervisor)
    inode = listen(supervisor)
    with suppress(OSError):  # on a full disk only each task's record tells of its supervisor
        write_record(
            ".",
            RECORD,
            f'{{"pid": {os.getpid()}, "start": {supervisor.start}, "version": {VERSION}}}',
        )
    supervisor.run()
    if inode == inode_of(
        SOCKET
    ):  # before the socket closes: a refused client may start a new supervisor at once
        for name in (SOCKET, f"{RECORD}.json"):
            with suppress(OSError):
                os.unlink(name)
    woken.close()
    os._exit(0)


def become_subreaper() -> None:
    """Become the parent of orphaned descendants. Elsewhere than on Linux the marks must do."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(SUB_REAPER, 1, 0, 0, 0)


def on_signals(supervisor: Supervisor) -> socket.socket:
    """Deliver signals to the loop as bytes. The returned socket must stay open."""
    waking, written = socket.socketpair()
    for end in (waking, written):
        end.setblocking(False)
    signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
    for number in (*ENDING, *IGNORED):
        signal.signal(number, lambda *_: None)

    def wake() -> None:
        numbers = waking.recv(1 << 12)
        if signal.SIGCHLD in numbers:
            supervisor.reap()
        for number in ENDING:
            if number in numbers:
                supervisor.stop_all(f"its supervisor was told to end ({number.name})")

    supervisor.loop.watch(waking.fileno(), wake)
    return written


def listen(supervisor: Supervisor) -> int:
    """Open the supervisor's socket in the spool and return its inode; -1 where the folder cannot
    hold one.

    A dead supervisor's socket is replaced. Without a socket, tasks are still read from the spool
    and stopped by their marks.
    """
    listening = socket.socket(socket.AF_UNIX)
    listening.setblocking(False)
    new = f"{SOCKET}.{os.getpid()}"
    try:
        listening.bind(new)
        os.chmod(new, 0o600)
        listening.listen(BACKLOG)
        os.rename(new, SOCKET)
    except OSError:
        listening.close()
        return -1
    supervisor.loop.watch(listening.fileno(), lambda: supervisor.accept(listening))
    return inode_of(SOCKET)


def inode_of(path: str) -> int:
    """Return a file's inode; 0 when it does not exist."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
