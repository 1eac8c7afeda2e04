"""Confine a process by Landlock and seccomp before it becomes a command. Standard library only.

`landlock_start` forks, so that it is for processes with one thread, as the supervisor.
"""

import os
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from longrein.workspace.supervisor.openat import open_real

TYPE_CHECKING = False  # `typing` is slow to import, and the supervisor starts with each session
if TYPE_CHECKING:
    from typing import Any, NoReturn

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
REMOVE = 0b11 << 4
MAKE = 0b1011110 << 6 | 1 << 8
MAKE_DEVICES = 1 << 6 | 1 << 11
REFER = 1 << 13
"""Rights of Landlock. `MAKE` has folders, files, sockets, FIFOs and links; devices are never
allowed.
"""
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = WRITE_FILE | TRUNCATE | REMOVE | MAKE | REFER
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule for a file may have."""
BIND_AND_CONNECT_TCP, ABSTRACT_SOCKETS_AND_SIGNALS = 0b11, 0b11
ABI_MIN = 3
ABI_DEVICES = 5
ABI_TCP = 4
ABI_SCOPES = 6
"""Versions of Landlock: the oldest that refuses to truncate files, and those that know devices,
TCP and scopes.
"""
IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; a command gets the default."""

_CREATE = 444
_ADD = 445
_RESTRICT = 446
"""System calls of Landlock; the numbers are the same on every machine."""
_NO_NEW_PRIVILEGES = 38
_SECCOMP = 22
_DROP_CAPABILITY = 24
_AMBIENT = 47


def abi() -> int:
    """Return the version of Landlock. Raises OSError where there is none."""
    return checked(c_library().syscall(_CREATE, None, 0, 1))


def open_ruleset(rules: Mapping[str, int]) -> int:
    """Return a descriptor of a ruleset. Raises OSError."""
    version = abi()
    handled = READ | WRITE | MAKE_DEVICES | (IOCTL_DEV if version >= ABI_DEVICES else 0)
    sizes = 1 + (version >= ABI_TCP) + (version >= ABI_SCOPES)
    attributes = struct.pack("=QQQ", handled, BIND_AND_CONNECT_TCP, ABSTRACT_SOCKETS_AND_SIGNALS)[
        : 8 * sizes
    ]
    libc = c_library()
    ruleset = checked(libc.syscall(_CREATE, attributes, len(attributes), 0))
    try:
        for path, rights in rules.items():
            _add_rule(libc, ruleset, path, rights & handled)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def _add_rule(libc: "Any", ruleset: int, path: str, rights: int) -> None:
    try:
        opened = open_real(path, os.O_PATH)  # a link may have come into it since the plan
    except OSError:
        return  # gone, or closed to this user as well
    try:
        is_folder = os.path.isdir(f"/proc/self/fd/{opened}")
        rule = struct.pack("=Qi", rights if is_folder else rights & OF_FILES, opened)
        checked(libc.syscall(_ADD, ruleset, 1, rule, 0))
    finally:
        os.close(opened)


def read_plan(plan: bytes) -> tuple[dict[str, int], bytes]:
    """Return the rules and the filter of a plan."""
    program, *parts = plan.split(b"\0")
    rules = {
        os.fsdecode(path): int(rights) for rights, path in zip(parts[::2], parts[1::2], strict=True)
    }
    return rules, bytes.fromhex(program.decode())


def confine(ruleset: int, program: bytes) -> None:
    """Apply an open ruleset and a seccomp filter to this process. Raises OSError."""
    import ctypes

    libc = c_library()
    libc.prctl(_AMBIENT, 4, 0, 0, 0)
    for number in range(64):
        libc.prctl(_DROP_CAPABILITY, number, 0, 0, 0)  # refused to others than root, who have none
    checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    checked(libc.syscall(_RESTRICT, ruleset, 0))
    steps = ctypes.create_string_buffer(program, len(program))
    checked(
        libc.prctl(
            _SECCOMP, 2, struct.pack("@HP", len(program) // 8, ctypes.addressof(steps)), 0, 0
        )
    )


def start_prepared(  # noqa: PLR0913 - what makes a process
    prepare: Callable[[], None],
    path: str | int,
    words: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    *,
    stdin: int,
    output: int,
    report: int = -1,
    stdout: int = -1,
    error: int = -1,
) -> int:
    """Start a program as leader of a new session and return its pid, after `prepare` has confined
    the new process. Only for a process with one thread.

    `path` may be a descriptor of the program. `report` is a descriptor that the program inherits;
    `stdout` and `error` stand for `output`. Raises OSError, also for what fails in the child; then
    nothing was run.
    """
    reading, writing = os.pipe()
    try:
        pid = os.fork()
        if not pid:
            ends = (stdin, output if stdout < 0 else stdout, output if error < 0 else error)
            _become(prepare, (path, words, env), cwd, ends, report, writing)
    finally:
        os.close(writing)
    with open(reading, "rb") as failure:
        number, _, name = failure.read().partition(b" ")
    if not number:
        return pid
    os.waitpid(pid, 0)
    raise OSError(int(number), os.strerror(int(number)), os.fsdecode(name) or path)


def _become(
    prepare: Callable[[], None],
    program: tuple[str | int, Sequence[str], Mapping[str, str]],
    cwd: str,
    ends: tuple[int, int, int],
    report: int,
    failure: int,
) -> "NoReturn":
    """Turn the forked child into the command; tell the parent what fails."""
    path, words, env = program
    try:
        os.setsid()
        for number in IGNORED_HERE:
            signal.signal(number, signal.SIG_DFL)
        for target, end in enumerate(ends):
            os.dup2(end, target)
        if report >= 0:
            os.set_inheritable(report, True)
        os.chdir(cwd)
        prepare()
        os.execve(path, list(words), env)
    except OSError as error:
        told = f"{error.errno or 1} {error.filename if isinstance(error.filename, str) else ''}"
        os.write(failure, os.fsencode(told))
    finally:
        os._exit(127)


def landlock_start(
    plan: bytes,
    path: str,
    words: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    trace: Callable[[], None] | None = None,
    **ends: int,
) -> int:
    """Start a program confined by a plan of `plan_of`, after `trace`; see `start_prepared`."""
    rules, program = read_plan(plan)
    ruleset = open_ruleset(rules)

    def prepare() -> None:
        confine(ruleset, program)
        if trace is not None:
            trace()

    try:
        return start_prepared(prepare, path, words, cwd, env, **ends)
    finally:
        os.close(ruleset)


@cache
def c_library() -> "Any":
    """Return the C library."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def checked(result: int) -> int:
    """Return the result of a call of the C library. Raises OSError if it is negative."""
    import ctypes

    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
