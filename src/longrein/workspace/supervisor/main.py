"""Where the supervisor begins: its socket, its signals, and the end of it."""

import os
import signal
import socket
import sys
import time

from longrein.workspace.processes import process
from longrein.workspace.supervisor.channel import VERSION
from longrein.workspace.supervisor.spooling import write_record
from longrein.workspace.supervisor.work import Supervisor

SOCKET = f"v{VERSION}.sock"
RECORD = f"v{VERSION}"
"""The record of the supervisor, as `v1.json`: who it is."""
ENDING = (signal.SIGTERM, signal.SIGINT)
IGNORED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2)
"""By a handler that does nothing: what is really ignored would be ignored by every command, too."""
SUB_REAPER = 36
"""`PR_SET_CHILD_SUBREAPER`."""
BACKLOG = 16


def main() -> None:
    """`argv`: the spool folder, the descriptor of a socket whose other end is longrein's. Never returns."""
    folder, first = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    first.set_inheritable(False)  # no command may hold it: its end is how longrein's death is known
    os.chdir(folder)
    become_reaper()
    supervisor = Supervisor(first, time.monotonic)
    woken = on_signals(supervisor)
    listening = listen(supervisor)
    own = process(os.getpid())
    write_record(".", RECORD, {"pid": os.getpid(), "start": own.start if own else 0, "version": VERSION})
    supervisor.run()
    for name in (SOCKET, f"{RECORD}.json"):  # before the socket closes: who is refused may begin another at once
        try:
            os.unlink(name)
        except OSError:
            continue
    listening.close()
    woken.close()
    os._exit(0)


def become_reaper() -> None:
    """Whoever loses its parent becomes this process's child. Elsewhere than on Linux the marks must do."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(SUB_REAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


def on_signals(supervisor: Supervisor) -> socket.socket:
    """Signals wake the loop as bytes. Gives the end that they are written to: it must stay open."""
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


def listen(supervisor: Supervisor) -> socket.socket:
    """The socket that others find it by. One that a dead supervisor left behind is replaced. Raises OSError."""
    listening = socket.socket(socket.AF_UNIX)
    listening.setblocking(False)
    new = f"{SOCKET}.{os.getpid()}"
    listening.bind(new)
    os.chmod(new, 0o600)
    listening.listen(BACKLOG)
    os.rename(new, SOCKET)
    supervisor.loop.watch(listening.fileno(), lambda: supervisor.accept(listening))
    return listening
