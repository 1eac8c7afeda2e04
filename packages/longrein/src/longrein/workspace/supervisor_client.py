"""Connection to a supervisor: find or start one, send requests, notice its end."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import longrein
import longrein_context
from longrein.workspace.supervisor.channel import SOCKET, VERSION, Channel
from longrein.workspace.supervisor.process_tree import (
    LINUX,
    SPOOL_MARK,
    owner_process,
    process,
    send,
)

LOG_NAME = f"v{VERSION}.log"
"""Error output of a failing supervisor; almost always empty."""
PASSED_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LONGREIN_SESSION",
    "LONGREIN_COMMAND",
    "LONGREIN_TEST_TAG",
)
"""The whole environment of a supervisor: commands are its children and could read more."""
PYTHON_FLAGS = ("-S", "-I") if LINUX else ("-I",)
"""Options of the supervisor's Python. `-I`: it imports nothing from the current folder and obeys
no variable. `-S`: no installed packages, except where psutil reads the processes.
"""
EXIT_POLL_S = 0.002
GONE = "the supervisor of processes is gone"
UNRESPONSIVE = "the supervisor of processes does not answer"
HELLO_S = 3.0
"""Longest wait for the first answer; after it the supervisor counts as dead."""
ANSWER_S = 5.0
"""Longest wait for any other answer."""
PATH_BYTES_MAX = 100
"""Longest path of a socket, on every system."""
BOOTSTRAP = (
    "import sys, types\n"
    "folders = {'longrein': sys.argv.pop(1), 'longrein_context': sys.argv.pop(1)}\n"
    "for name in (*folders, 'longrein.workspace', 'longrein_context.events'):\n"
    "    top, _, below = name.partition('.')\n"
    "    sys.modules[name] = types.ModuleType(name)\n"
    "    sys.modules[name].__path__ = [folders[top] + '/' + below]\n"
    "from longrein.workspace.supervisor.main import main\n"
    "main()\n"
)
"""Program of the supervisor. It puts empty packages in place of the parents, whose own imports
are missing without installed packages (`-S`).
"""

_left_running: list[subprocess.Popen[bytes]] = []
"""Supervisors started by this process that outlived their session; reaped when they have ended."""


def start_supervisor(
    folder: str, environ: Mapping[str, str]
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a supervisor for this spool: (socket, process). Raises OSError.

    Messages sent to the socket wait until the supervisor is up.
    """
    _left_running[:] = [one for one in _left_running if one.poll() is None]
    ours, theirs = socket.socketpair()
    roots = [os.path.abspath(one.__path__[0]) for one in (longrein, longrein_context)]
    try:
        with open(
            os.open(os.path.join(folder, LOG_NAME), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            "wb",
        ) as log:
            words = [sys.executable or "python3", *PYTHON_FLAGS, "-c", BOOTSTRAP]
            popen = subprocess.Popen(
                [*words, *roots, folder, str(theirs.fileno())],
                env={name: environ[name] for name in PASSED_VARIABLES if name in environ}
                | {SPOOL_MARK: folder},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours, popen


def connect(folder: str) -> socket.socket | None:
    """Connect to the supervisor of this spool; None when none listens. Never waits."""
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    try:
        with _short_path(folder) as short:
            sock.connect(f"{short}/{SOCKET}")
    except OSError:
        sock.close()
        return None
    return sock


@contextmanager
def _short_path(folder: str) -> Iterator[str]:
    """Give a path of the folder that is short enough for a socket: itself, or a symlink to it."""
    if len(os.fsencode(os.path.join(folder, SOCKET))) <= PATH_BYTES_MAX:
        yield folder
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="lr", dir="/tmp") as short:
        os.symlink(folder, f"{short}/t")
        yield f"{short}/t"


class SupervisorConnection:
    """An open connection to a supervisor. Belongs to one event loop."""

    def __init__(
        self,
        sock: socket.socket,
        popen: subprocess.Popen[bytes] | None,
        hear: Callable[[dict[str, Any]], None],
        lost: Callable[["SupervisorConnection"], None],
    ) -> None:
        """`hear` gets messages that are not answers; `lost` is called once if the supervisor
        disappears.
        """
        self._loop = asyncio.get_running_loop()
        self._channel = Channel(sock)
        self._popen = popen
        self._receive = hear
        self._lost = lost
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = count(1)
        self.gone = False
        """True once the connection is over."""
        self.has_answered = False
        """True once the supervisor has sent something, so it is up."""
        self.unresponsive = False
        """True after a missed answer until the next message: stopped, or stuck in the kernel."""
        self.owner = ""
        """`/<pid>.<start>`, the beginning of its processes' marks; '' until it is known."""
        if popen is not None:
            self.set_owner(popen.pid)
        self._loop.add_reader(sock.fileno(), self._read)

    def set_owner(self, pid: int, start: int = -1) -> None:
        """Set the supervisor's process."""
        own = process(pid) if start < 0 else None
        self.owner = f"/{pid}.{own.start if own else start}"

    def send(self, descriptors: Sequence[int] = (), **message: Any) -> None:
        """Send a message; the descriptors are closed here once they are sent."""
        if self.gone:
            for descriptor in descriptors:
                os.close(descriptor)
            return
        if descriptors:
            message["fds"] = len(descriptors)
        if not self._channel.send(message, descriptors):
            self._loop.add_writer(self._channel.socket.fileno(), self._flush)

    async def ask(self, *, limit_s: float = ANSWER_S, **message: Any) -> dict[str, Any]:
        """Send a message and wait for the answer.

        Raises `ConnectionError` when the supervisor is gone or does not answer within `limit_s`.
        """
        if self.gone:
            raise ConnectionError(GONE)
        ref = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._answers[ref] = answer
        self.send(ref=ref, **message)
        try:
            await asyncio.wait([answer], timeout=limit_s)
            if not answer.done():
                self.unresponsive = True
                raise ConnectionError(UNRESPONSIVE)
            return answer.result()
        finally:
            self._answers.pop(ref, None)

    def _flush(self) -> None:
        if self._channel.flush():
            self._loop.remove_writer(self._channel.socket.fileno())

    def _read(self) -> None:
        for message in self._channel.receive():
            self.has_answered, self.unresponsive = True, False
            if message.get("do") != "answer":
                self._receive(message)
                continue
            answer = self._answers.get(int(str(message["ref"])))
            if answer is not None and not answer.done():
                answer.set_result(message)
        if self._channel.closed and not self.gone:
            self._hang_up()
            self._lost(self)

    def _hang_up(self) -> None:
        self.gone = True
        self._loop.remove_reader(self._channel.socket.fileno())
        self._loop.remove_writer(self._channel.socket.fileno())
        self._channel.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError(GONE))
        if self._popen is not None:
            _left_running.append(self._popen)

    def close(self) -> None:
        """Disconnect. Background tasks go on."""
        if not self.gone:
            self._hang_up()

    def wake(self) -> None:
        """Resume a stopped supervisor (SIGSTOP), so that it can handle an end."""
        if (one := owner_process(self.owner)) is not None:
            send(one, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the supervisor, which does not answer."""
        if (one := owner_process(self.owner)) is not None:
            send(one, signal.SIGKILL)

    async def wait_exit(self, limit_s: float) -> None:
        """Wait until the process has exited, at most `limit_s`. After `close`."""
        until = self._loop.time() + limit_s
        while self._lives() and self._loop.time() < until:  # noqa: ASYNC110  # it may not be our child
            await asyncio.sleep(EXIT_POLL_S)

    def _lives(self) -> bool:
        if self._popen is not None:
            return self._popen.poll() is None
        return owner_process(self.owner) is not None
