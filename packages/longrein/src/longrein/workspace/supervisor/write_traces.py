"""The files that confined commands write, as their system calls tell.

A command with a trace has a seccomp filter that asks the supervisor before each call that opens a
file for writing, renames or links it, or sets its mode. The supervisor notes the path and lets the
kernel go on (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`, seccomp_unotify(2)). A trace decides nothing about
what a command may do: it tells afterwards whose change it was. Removals are not asked about: a
file that is gone is restored, whoever removed it, which loses nothing.

A signal that arrives before the supervisor has read the question interrupts the call. It starts
again, but fails with EINTR if the program's handler was set without `SA_RESTART`.

Standard library only. Linux 5.19 (`SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`) on the machines of
`_MACHINES`; elsewhere no command has a trace.
"""

import fcntl
import os
import select
import socket
import struct
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from longrein.workspace.supervisor.landlock_process import c_library, checked
from longrein.workspace.supervisor.pipes import Loop

PATHS_MAX = 50_000
"""Written paths of one command; beyond them its trace is incomplete."""
ROUND_MAX = 64
"""Calls of one command that are answered before others have their turn."""

SYSTEM = ("/dev/", "/proc/")
"""Files of the system, which mean another one here."""

_NO_NEW_PRIVILEGES = 38
_SET_FILTER = 1
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_RECEIVE, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_WAKE_SYNCHRONOUSLY = 1
_CONTINUE = 1
_LOAD, _RETURN = 0x20, 0x06
_JUMP_EQUAL, _JUMP_SET = 0x15, 0x45
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_HERE = -100 & 0xFFFFFFFF
_QUESTION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")


_Call = namedtuple("_Call", "paths flags moves follows", defaults=(-1, False, False))
"""A system call that writes.

paths: (argument with the folder, argument with the path) of each; -1 for the current folder, or for
the path of an open file. flags: argument with the flags of `open`; without one of `_WRITES` the
call only reads. follows: whether a link at the end of the path is followed.
"""


_PATH, _AT = ((-1, 0),), ((0, 1),)
_CALLS = {
    "open": _Call(_PATH, flags=1, follows=True),
    "openat": _Call(_AT, flags=2, follows=True),
    "openat2": _Call(_AT, follows=True),
    "creat": _Call(_PATH, follows=True),
    "truncate": _Call(_PATH, follows=True),
    "mknod": _Call(_PATH),
    "mknodat": _Call(_AT),
    "rename": _Call(((-1, 0), (-1, 1)), moves=True),
    "renameat": _Call(((0, 1), (2, 3)), moves=True),
    "renameat2": _Call(((0, 1), (2, 3)), moves=True),
    "link": _Call(((-1, 1),)),
    "linkat": _Call(((2, 3),)),
    "symlink": _Call(((-1, 1),)),
    "symlinkat": _Call(((1, 2),)),
    "chmod": _Call(_PATH, follows=True),
    "fchmod": _Call(((0, -1),)),
    "fchmodat": _Call(_AT, follows=True),
    "fchmodat2": _Call(_AT, follows=True),
}
_X86_64 = {
    "open": 2, "openat": 257, "openat2": 437, "creat": 85, "rename": 82, "renameat": 264,
    "renameat2": 316, "link": 86, "linkat": 265, "symlink": 88, "symlinkat": 266, "chmod": 90,
    "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "truncate": 76, "mknod": 133, "mknodat": 259,
}  # fmt: skip
_AARCH64 = {
    "openat": 56, "openat2": 437, "renameat": 38, "renameat2": 276, "linkat": 37, "symlinkat": 36,
    "fchmod": 52, "fchmodat": 53, "fchmodat2": 452, "truncate": 45, "mknodat": 33,
}  # fmt: skip
_MACHINES = {"x86_64": (0xC000003E, 317, _X86_64), "aarch64": (0xC00000B7, 277, _AARCH64)}
"""Machine -> its number in a filter, the number of `seccomp`, numbers of the calls that write."""


# --- In the command's process ---------------------------------------------------------------------


def filter_bytes(machine: str) -> bytes:
    """Return the BPF program as `struct sock_filter` records. Raises KeyError for another
    machine.
    """
    architecture, _, numbers = _MACHINES[machine]
    program = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, 0),
    ]
    for name, number in numbers.items():
        flags = _CALLS[name].flags
        if flags < 0:
            program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ASK)]
        else:
            program += [
                (_JUMP_EQUAL, 0, 4, number),
                (_LOAD, 0, 0, 16 + 8 * flags),
                (_JUMP_SET, 0, 1, _WRITES),
                (_RETURN, 0, 0, _ASK),
                (_RETURN, 0, 0, _ALLOW),
            ]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in program)


class Listener:
    """Hands the listener of a filter from a new process to the supervisor."""

    def __init__(self) -> None:
        """Raises OSError where no command can have a trace."""
        machine = os.uname().machine
        if machine not in _MACHINES:
            raise OSError(38, "no table of system calls")
        c_library()  # loaded here, it costs the new process nothing
        self._program, self._number = filter_bytes(machine), _MACHINES[machine][1]
        self._ours, self._theirs = socket.socketpair()

    def install(self) -> None:
        """Put the filter on this new process, just before it becomes the command."""
        import ctypes

        libc = c_library()
        steps = ctypes.create_string_buffer(self._program, len(self._program))
        program = struct.pack("@HP", len(self._program) // 8, ctypes.addressof(steps))
        with suppress(OSError):  # an older kernel: the command has no trace
            checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
            flags = _NEW_LISTENER | _WAIT_KILLABLE
            opened = checked(libc.syscall(self._number, _SET_FILTER, flags, program))
            socket.send_fds(self._theirs, [b"1"], [int(opened)])

    def take(self) -> int:
        """Return the listener of the started process; -1 for none. Once."""
        self._theirs.close()
        with self._ours:
            _, found, _, _ = socket.recv_fds(self._ours, 1, 1)
        for descriptor in found:
            os.set_inheritable(descriptor, False)
            with suppress(OSError):  # Linux 6.6: the two processes wait for one another only
                fcntl.ioctl(descriptor, _SET_FLAGS, _WAKE_SYNCHRONOUSLY)
        return found[0] if found else -1


# --- In the supervisor ----------------------------------------------------------------------------


class WriteTrace:
    """Paths that the processes of one command have written, or were about to."""

    def __init__(self, listener: int) -> None:
        """`listener`: what `Listener.take` returned."""
        self.listener = listener
        self.is_complete = listener >= 0
        """False once something was not noted."""
        self.is_recording = True
        """False when nobody will ask any more; calls are still answered."""
        self.asked = 0
        """Questions since the command was over or in the background."""
        self._poll = select.poll()
        if listener >= 0:
            self._poll.register(listener, select.POLLIN)
        self._paths: set[str] = set()
        self._moved: set[str] = set()
        """Renamed files and folders."""
        self._folders: dict[str, str] = {}
        """Folder as a command names it -> its real path."""

    def has(self, path: str) -> bool:
        """Return True if the command wrote the file at this real path, or renamed a folder above
        it.
        """
        if path in self._paths:
            return True
        while len(path) > 1:
            if path in self._moved:
                return True
            path = os.path.dirname(path)
        return False

    def stop_recording(self) -> None:
        """Forget the paths."""
        self.is_recording = self.is_complete = False
        self._paths, self._moved, self._folders = set(), set(), {}

    def answer(self) -> bool:
        """Note and answer the waiting calls; return False when no process is left."""
        questions: list[bytearray] = []
        ready = self._poll.poll(0)
        while ready and ready[0][1] & select.POLLIN and len(questions) < ROUND_MAX:
            question = bytearray(_QUESTION.size)
            with suppress(OSError):  # the process has died meanwhile
                fcntl.ioctl(self.listener, _RECEIVE, question)
                questions.append(question)  # all first: until then a signal interrupts the call
            ready = self._poll.poll(0)
        for question in questions:
            self._answer(question)
        return not ready or bool(ready[0][1] & select.POLLIN)

    def _answer(self, question: bytearray) -> None:
        number, pid, _, call, _, _, *arguments = _QUESTION.unpack(question)
        try:
            if self.is_recording:
                self._note(pid, call, arguments)
        except (OSError, ValueError):
            self.is_complete = self.is_complete and not os.path.exists(f"/proc/{pid}")
        finally:
            with suppress(OSError):
                fcntl.ioctl(self.listener, _SEND, _ANSWER.pack(number, 0, 0, _CONTINUE))

    def _note(self, pid: int, number: int, arguments: Sequence[int]) -> None:
        name = _NAMES[number]
        call = _CALLS[name]
        if name == "openat2" and not _word(pid, arguments[2]) & _WRITES:
            return
        for folder, at in call.paths:
            path = _path(pid, arguments, folder, at)
            if not path.startswith(SYSTEM):
                self._add(path, follows=call.follows, moves=call.moves)
        if call.moves:
            self._folders.clear()
        if len(self._paths) > PATHS_MAX:
            self.stop_recording()

    def _add(self, path: str, *, follows: bool, moves: bool) -> None:
        above, _, name = path.rstrip("/").rpartition("/")
        folder = self._folders.get(above)
        if folder is None:
            folder = self._folders[above] = os.path.realpath(above or "/")
        real = os.path.join(folder, name) if name not in (".", "..", "") else os.path.realpath(path)
        self._paths.add(real)
        if follows and os.path.islink(real):
            self._paths.add(os.path.realpath(real))
        if moves:
            self._moved.add(real)


_MACHINE = _MACHINES.get(os.uname().machine, (0, 0, dict[str, int]()))
_NAMES = {number: name for name, number in _MACHINE[2].items()}
"""Number of a call -> its name, on this machine."""
PATH_BYTES_MAX = 4096


def _path(pid: int, arguments: Sequence[int], folder: int, at: int) -> str:
    """Return the absolute path that a call names. Raises OSError."""
    told = _text(pid, arguments[at]) if at >= 0 else ""
    if told.startswith("/"):
        return told
    if folder < 0 or arguments[folder] & 0xFFFFFFFF == _HERE:
        base = os.readlink(f"/proc/{pid}/cwd")
    else:
        base = os.readlink(f"/proc/{pid}/fd/{arguments[folder] & 0xFFFFFFFF}")
    return f"{base}/{told}" if told else base


def _text(pid: int, address: int) -> str:
    return os.fsdecode(_memory(pid, address, PATH_BYTES_MAX).partition(b"\0")[0])


def _word(pid: int, address: int) -> int:
    return int.from_bytes(_memory(pid, address, 8), "little")


def _memory(pid: int, address: int, size_bytes: int) -> bytes:
    opened = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(opened, size_bytes, address)
    finally:
        os.close(opened)


class WriteTraces:
    """The traces of the commands whose changes are still asked about."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._traces: list[tuple[WriteTrace, Callable[[], bool]]] = []

    def add(self, listener: int, is_running: Callable[[], bool]) -> None:
        """Trace a command. `listener` may be -1: then nothing is known of it. `is_running` tells
        whether it runs in the foreground.
        """
        trace = WriteTrace(listener)
        self._traces.append((trace, is_running))
        if listener >= 0:
            self._loop.watch(listener, lambda: self._answer(trace))

    def _answer(self, trace: WriteTrace) -> None:
        """Answer waiting calls; stop when no process of the command is left."""
        if not trace.answer():
            self._loop.unwatch(trace.listener)
            os.close(trace.listener)

    def unwritten(self, paths: Iterable[str]) -> tuple[list[str], bool]:
        """Return the real paths that no command has written, and whether the traces are complete.

        Counted are the commands that ran in the foreground at the last question or since.
        """
        found = [path for path in paths if not any(one.has(path) for one, _ in self._traces)]
        is_complete = all(one.is_complete for one, _ in self._traces)
        kept = []
        for trace, is_running in self._traces:
            trace.asked += not is_running()
            if trace.asked > 1:
                trace.stop_recording()
            else:
                kept.append((trace, is_running))
        self._traces = kept
        return found, is_complete
