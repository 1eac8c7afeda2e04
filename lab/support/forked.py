"""`longrein` as a fork of a process that has imported it: a start costs a fifth of the CPU of a new
interpreter, which is most of what the suite would spend.

Each worker of the suite has one such process, and one for each extension whose SDK takes as long to
import. They start at their first use and end with the worker. What they fork is a process of its
own, with the arguments, environment, folder, streams and session of a real start; its command line
in `/proc` is that of the process it comes from.
"""

import array
import atexit
import fcntl
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from pkgutil import iter_modules, walk_packages
from typing import Any, NoReturn

import psutil

ROOT = Path(__file__).parent.parent.parent
NOT_PRELOADED = ("__main__", "extensions", "integrations", "testing")
"""Parts of longrein that few runs import, and the program itself."""
LIBRARIES = ("ctypes", "tomllib", "tree_sitter_bash")
"""Libraries that longrein imports inside functions."""
FORKING = __file__.encode()
"""Part of the command line of the process that forks, and of its forks."""
REQUEST_BYTES_MAX = 100_000
USUAL = {"LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
"""Variables as a fork obeys them."""


def can_fork(argv: Sequence[str | bytes], env: Mapping[str, str]) -> bool:
    """Return False for what only a new interpreter does: other locales, variables of Python,
    modules that a PYTHONPATH brings to the start.
    """
    size = sum(map(len, argv)) + sum(map(len, env.values()))
    odd = [
        name
        for name, value in env.items()
        if name.startswith(("PYTHON", "LC_", "LANG")) and USUAL.get(name) != value
    ]
    return not odd and size < REQUEST_BYTES_MAX


class ForkedProcess(subprocess.Popen[bytes]):
    """`python -m MODULE ARGUMENTS` as a fork; used like the `Popen` that it is.

    `terminal`: a descriptor of a terminal, which becomes its streams and controls it.
    `extensions`: extensions that it finds imported, with their SDKs, such as `mcp`.
    """

    def __init__(
        self,
        module: str,
        argv: Sequence[str | bytes],
        *,
        terminal: int | None = None,
        extensions: tuple[str, ...] = (),
        **more: Any,
    ) -> None:
        self._module, self._terminal, self._extensions = module, terminal, extensions
        self._status_fd, self._said = -1, b""
        streams = {} if terminal is None else dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
        super().__init__(list(argv), **streams, **more)

    def _execute_child(self, args: Sequence[str | bytes], *rest: Any) -> None:  # type: ignore[override]
        cwd, env = rest[4], rest[5]
        read_in, write_in, read_out, write_out, read_err, write_err = rest[9:15]
        request = {
            "module": self._module,
            "argv": list(map(os.fsdecode, args)),
            "env": {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()},
            "cwd": os.fsdecode(cwd or os.getcwd()),
            "terminal": self._terminal is not None,
        }
        self._status_fd, theirs = os.pipe()
        streams = [
            own if fd == -1 else fd for own, fd in enumerate((read_in, write_out, write_err))
        ]
        with _starting:  # threads may be the first at once
            parent = _parent(self._extensions)
        socket.send_fds(parent, [json.dumps(request).encode()], [*streams, theirs])
        os.close(theirs)
        self.pid = int(self._line())
        self._child_created = True
        self._close_pipe_fds(read_in, write_in, read_out, write_out, read_err, write_err)

    def _line(self) -> bytes:
        while b"\n" not in self._said:
            more = os.read(self._status_fd, 64)
            if not more:
                raise RuntimeError("the process that forks `longrein` has ended")
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        block = None if not wait_flags & os.WNOHANG else 0
        if not self._said and not select.select([self._status_fd], [], [], block)[0]:
            return 0, 0
        status = int(self._line())
        os.close(self._status_fd)
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:  # type: ignore[override]
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def forked_cpu_s() -> float:
    """Return the CPU seconds of the forks that have ended."""
    with suppress(psutil.Error):  # it has ended
        return sum(sum(psutil.Process(pid).cpu_times()[2:4]) for pid in _forking)
    return 0.0


_forking: list[int] = []
"""The processes that fork, once they were started."""
_starting = threading.Lock()


@cache
def _parent(extensions: tuple[str, ...]) -> socket.socket:
    """Start the process that forks with these extensions imported; it ends when this one closes
    the socket.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for one in (ours, theirs):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * REQUEST_BYTES_MAX)
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/nonexistent"}
    forking = subprocess.Popen(
        [sys.executable, str(Path(__file__)), str(theirs.fileno()), *extensions],
        env=env,
        cwd="/",
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    _forking.append(forking.pid)
    theirs.close()
    return ours


# --- The process that forks -----------------------------------------------------------------------


def preloaded(extensions: Sequence[str]) -> Iterator[str]:
    """Yield the modules that a fork finds imported."""
    yield from LIBRARIES
    for package in ("longrein", "longrein_context"):
        folders = importlib.import_module(package).__path__
        for module in iter_modules(folders):
            if module.name not in NOT_PRELOADED:
                yield (name := f"{package}.{module.name}")
                below = [f"{folder}/{module.name}" for folder in folders]
                yield from (one.name for one in walk_packages(below, f"{name}."))
    for extension in extensions:
        package = f"longrein.extensions.{extension}"
        folders = importlib.import_module(package).__path__
        yield from (one.name for one in walk_packages(folders, f"{package}."))


def serve(requests: socket.socket, extensions: Sequence[str]) -> None:
    """Fork for each request, and tell the end of each fork."""
    for name in preloaded(extensions):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all that it has from here
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            _tell_ends(running)
        if requests in ready:
            data, fds, _, _ = socket.recv_fds(requests, 8 * REQUEST_BYTES_MAX, 4)
            if not data:
                return
            pid = os.fork()
            if pid == 0:
                _become(json.loads(data), fds)
            running[pid] = fds.pop()
            os.write(running[pid], b"%d\n" % pid)
            for fd in fds:
                os.close(fd)


def _tell_ends(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        fd = running.pop(pid)
        with suppress(BrokenPipeError):  # nobody waits for it
            os.write(fd, b"%d\n" % status)
        os.close(fd)


def _become(request: dict[str, Any], fds: Sequence[int]) -> NoReturn:
    """Run the module as a new interpreter would, and exit."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.closerange(3, 64)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, array.array("i", [0]))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    random.seed()
    sys.path[:0] = [entry for entry in os.environ.get("PYTHONPATH", "").split(":") if entry]
    sys.argv[:] = request["argv"]
    how: dict[str, Any] = {"encoding": "utf-8", "closefd": False}
    sys.stdin = sys.__stdin__ = open(0, **how)  # noqa: SIM115 - they stay open
    sys.stdout = sys.__stdout__ = open(1, "w", **how)  # noqa: SIM115
    how["errors"] = "backslashreplace"
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, **how)  # noqa: SIM115
    os._exit(_run(request["module"]))


def _run(module: str) -> int:
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException as error:
        code = 1
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):  # nobody reads, as where the interpreter ends
        code = code or 120
    except BaseException:
        traceback.print_exc()
    return code & 0xFF


if __name__ == "__main__":
    sys.path[0] = ""
    sys.path.pop(0)
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
