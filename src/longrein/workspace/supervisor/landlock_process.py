"""Confine a process by Landlock and seccomp before it becomes a command. Standard library only;
also a program.

There are two forms:

- `landlock_start` forks, for the supervisor, which has one thread.
- `helper_words` gives a command line, `python landlock_process.py PLAN -- command`, for a process
  with threads.
"""

import os
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = (
    1 << 0,
    1 << 1,
    1 << 2,
    1 << 3,
    1 << 14,
    1 << 15,
)
REMOVE, MAKE, MAKE_DEVICES, REFER = 0b11 << 4, 0b1011110 << 6 | 1 << 8, 1 << 6 | 1 << 11, 1 << 13
"""Rights of Landlock. `MAKE` has folders, files, sockets, FIFOs and links; devices are never
allowed.
"""
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = WRITE_FILE | TRUNCATE | REMOVE | MAKE | REFER
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule for a file may have."""
BIND_AND_CONNECT_TCP, ABSTRACT_SOCKETS_AND_SIGNALS = 0b11, 0b11
ABI_MIN, ABI_DEVICES, ABI_TCP, ABI_SCOPES = 3, 5, 4, 6
"""Versions of Landlock: the oldest that refuses to truncate files, and those that know devices,
TCP and scopes.
"""
IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; a command gets the default."""

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls of Landlock; the numbers are the same on every machine."""
_NO_NEW_PRIVILEGES, _SECCOMP, _DROP_CAPABILITY, _AMBIENT = 38, 22, 24, 47


def abi() -> int:
    """Return the version of Landlock. Raises OSError where there is none."""
    return _checked(c_library().syscall(_CREATE, None, 0, 1))


def open_ruleset(rules: Mapping[str, int]) -> int:
    """Return a descriptor of a ruleset. Raises OSError."""
    version = abi()
    handled = READ | WRITE | MAKE_DEVICES | (IOCTL_DEV if version >= ABI_DEVICES else 0)
    sizes = 1 + (version >= ABI_TCP) + (version >= ABI_SCOPES)
    attributes = struct.pack("=QQQ", handled, BIND_AND_CONNECT_TCP, ABSTRACT_SOCKETS_AND_SIGNALS)[
        : 8 * sizes
    ]
    libc = c_library()
    ruleset = _checked(libc.syscall(_CREATE, attributes, len(attributes), 0))
    try:
        for path, rights in rules.items():
            _add_rule(libc, ruleset, path, rights & handled)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def _add_rule(libc: Any, ruleset: int, path: str, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # gone, or closed to this user as well
    try:
        is_folder = os.path.isdir(f"/proc/self/fd/{opened}")
        rule = struct.pack("=Qi", rights if is_folder else rights & OF_FILES, opened)
        _checked(libc.syscall(_ADD, ruleset, 1, rule, 0))
    finally:
        os.close(opened)


def read_plan(plan: bytes) -> tuple[dict[str, int], bytes]:
    """Return the rules and the filter of a plan."""
    program, *parts = plan.split(b"\0")
    rules = {
        os.fsdecode(path): int(rights) for rights, path in zip(parts[::2], parts[1::2], strict=True)
    }
    return rules, bytes.fromhex(program.decode())


def apply_plan(plan: bytes) -> None:
    """Confine this process. Raises OSError."""
    rules, program = read_plan(plan)
    ruleset = open_ruleset(rules)
    try:
        confine(ruleset, program)
    finally:
        os.close(ruleset)


def confine(ruleset: int, program: bytes) -> None:
    """Apply an open ruleset and a seccomp filter to this process. Raises OSError."""
    import ctypes

    libc = c_library()
    libc.prctl(_AMBIENT, 4, 0, 0, 0)
    for number in range(64):
        libc.prctl(_DROP_CAPABILITY, number, 0, 0, 0)  # refused to others than root, who have none
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(libc.syscall(_RESTRICT, ruleset, 0))
    steps = ctypes.create_string_buffer(program, len(program))
    _checked(
        libc.prctl(
            _SECCOMP, 2, struct.pack("@HP", len(program) // 8, ctypes.addressof(steps)), 0, 0
        )
    )


def landlock_start(  # noqa: PLR0913 - what makes a process
    plan: bytes,
    path: str,
    words: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    *,
    stdin: int,
    output: int,
    report: int = -1,
    stdout: int = -1,
) -> int:
    """Start a confined program as leader of a new session and return its pid. Only for a process
    with one thread.

    `plan` comes from `plan_of`. `report` is a descriptor that the program inherits;
    with `stdout`, standard output goes there and not to `output`. Raises OSError, also for
    what fails in the child; then nothing was run.
    """
    rules, program = read_plan(plan)
    ruleset = open_ruleset(rules)
    reading, writing = os.pipe()
    try:
        pid = os.fork()
        if not pid:
            printed = output if stdout < 0 else stdout
            _become(
                path, words, cwd, env, (stdin, printed, output, report), (ruleset, program), writing
            )
    finally:
        os.close(ruleset)
        os.close(writing)
    with open(reading, "rb") as failure:
        number = failure.read()
    if not number:
        return pid
    os.waitpid(pid, 0)
    code = int(number)
    raise OSError(code, os.strerror(code), path)


def _become(
    path: str,
    words: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    descriptors: tuple[int, int, int, int],
    limits: tuple[int, bytes],
    failure: int,
) -> NoReturn:
    """Turn the forked child into the command; tell the parent the error number if that fails."""
    try:
        stdin, stdout, output, report = descriptors
        os.setsid()
        for number in IGNORED_HERE:
            signal.signal(number, signal.SIG_DFL)
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(output, 2)
        if report >= 0:
            os.set_inheritable(report, True)
        os.chdir(cwd)
        confine(*limits)
        os.execve(path, list(words), env)
    except OSError as error:
        os.write(failure, b"%d" % (error.errno or 1))
    finally:
        os._exit(127)


# --- As a program ---------------------------------------------------------------------------------


def helper_words(python: str, plan: str) -> list[str]:
    """Return the command line in front of a command. `plan` is the number of a descriptor that
    the helper inherits.
    """
    return [python, "-I", "-S", __file__, plan, "--"]


def main() -> NoReturn:
    """Confine this process by the plan in a descriptor and run the command behind `--`."""
    command = sys.argv[3:]
    try:
        with open(int(sys.argv[1]), "rb") as file:
            plan = file.read()
        for number in IGNORED_HERE:
            signal.signal(number, signal.SIG_DFL)
        apply_plan(plan)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"sandbox: {command[0]}: {error.strerror}\n".encode())
        os._exit(126)


def c_library() -> Any:
    """Return the C library."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _checked(result: int) -> int:
    """Return the result of a call of the C library. Raises OSError if it is negative."""
    import ctypes

    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main()
