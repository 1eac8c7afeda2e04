"""Sandbox of Landlock and seccomp, for Linux without bubblewrap. Standard library only; also a program.

A process restricts itself before it becomes the command. There are two forms:

- `landlock_start` forks, for the supervisor, which has one thread.
- `helper_words` gives a command line, `python landlock.py PLAN -- command`, for a process with threads.

Landlock can only allow: a folder that is readable is readable as a whole. Where a hidden path lies in a readable
folder, its siblings are allowed one by one. `unenforced` lists what stays open.
"""

import os
import signal
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from longrein.workspace.sandbox.policy import SandboxPolicy

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
REMOVE, MAKE, MAKE_DEVICES, REFER = 0b11 << 4, 0b1011110 << 6 | 1 << 8, 1 << 6 | 1 << 11, 1 << 13
"""Rights of Landlock. `MAKE` has folders, files, sockets, FIFOs and links; devices are never allowed."""
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = WRITE_FILE | TRUNCATE | REMOVE | MAKE | REFER
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule for a file may have."""
BIND_AND_CONNECT_TCP, ABSTRACT_SOCKETS_AND_SIGNALS = 0b11, 0b11
ABI_MIN, ABI_DEVICES, ABI_TCP, ABI_SCOPES = 3, 5, 4, 6
"""Versions of Landlock: the oldest that refuses to truncate files, and those that know devices, TCP and scopes."""
RULES_MAX = 20_000
"""Siblings of hidden paths that are allowed one by one; the rest stays closed."""
RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")
"""Folders that hold the file behind /etc/resolv.conf; readable where commands have the network."""
CLOSED = ("/tmp", "/var/tmp", "/run", "/dev", "/root", "/home", "/media", "/mnt")
"""Folders that commands cannot read, apart from roots and visible folders in them."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; a command gets the default."""

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls of Landlock; the numbers are the same on every machine."""
_NO_NEW_PRIVILEGES, _SECCOMP, _DROP_CAPABILITY, _AMBIENT = 38, 22, 24, 47
_HANDLE_BYTES = 128
HIDDEN_FILES_MAX = 5_000
"""Files of hidden folders that are remembered."""
_hidden_files: dict[bytes, str] = {}
"""Files in roots that were hidden once, with the folder they lay in: a command may have renamed them since."""


# --- What the kernel can do ------------------------------------------------------------------------------------------


def abi() -> int:
    """Return the version of Landlock. Raises OSError where there is none."""
    return _checked(_libc().syscall(_CREATE, None, 0, 1))


def available() -> str:
    """Return '' if commands can be confined here, else the reason why not."""
    from longrein.workspace.sandbox.seccomp import filter_bytes

    if sys.platform != "linux":
        return "Landlock exists on Linux only"
    try:
        found = abi()
        filter_bytes(())
    except OSError as error:
        return f"the kernel offers no Landlock ({error.strerror})"
    except LookupError:
        return f"no table of system calls for {os.uname().machine}"
    return "" if found >= ABI_MIN else f"the kernel has version {found} of Landlock; version {ABI_MIN} is needed"


def unenforced(policy: "SandboxPolicy") -> tuple[str, ...]:
    """Return what commands can do although the policy says otherwise, one sentence each."""
    found = ["change mode, owner and times of your files outside the project", "see names and sizes of all files"]
    found += [f"change {path} until longrein puts it back" for path in policy.read_only if _within(path, policy.roots)]
    found += [f"replace {path}, which is hidden" for path in policy.hidden if _within(path, policy.roots)]
    if abi() < ABI_SCOPES:
        found.append("end other processes of yours")
    return tuple(found)


# --- From a policy to rules ------------------------------------------------------------------------------------------


def rules_of(policy: "SandboxPolicy") -> dict[str, int]:
    """Return the rights below each path. Reads folders that hold hidden paths."""
    hidden = {*policy.hidden, *_remember(policy)}
    home = (policy.home,) if policy.home else ()
    rules: dict[str, int] = {}
    _allow(rules, "/", READ, 0, {*CLOSED, *home, *hidden})
    for path in (*policy.home_visible, *(RESOLVERS if policy.network else ())):
        _allow(rules, path, READ, 0, hidden)
    own = [path for path in (policy.private_tmp, policy.private_home) if path]
    for path in (*policy.home_writable, *policy.roots, *own):
        _allow(rules, path, READ | WRITE, WRITE | EXECUTE | READ_DIR, hidden)
    for name in DEVICES:
        rules[f"/dev/{name}"] = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
    return rules


def environment(policy: "SandboxPolicy") -> dict[str, str]:
    """Return the variables that lead a confined command to its own home folder and folder for temporary files."""
    found = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), policy.private_tmp) if policy.private_tmp else {}
    return {**found, "HOME": policy.private_home} if policy.private_home else found


def link_visible(policy: "SandboxPolicy") -> None:
    """Make links in the private home folder to what commands see of the real one. Raises OSError."""
    for path in sorted((*policy.home_visible, *policy.home_writable)):
        link = policy.private_home + path.removeprefix(policy.home)
        if policy.private_home and path.startswith(policy.home + "/") and not os.path.lexists(link):
            os.makedirs(os.path.dirname(link), 0o700, exist_ok=True)
            os.symlink(path, link)


def _allow(rules: dict[str, int], path: str, rights: int, at_least: int, closed: set[str]) -> None:
    """Allow `rights` below a path but for the closed paths, in whose parents only `at_least` is allowed."""
    if path in closed:
        return
    inner = {one for one in closed if _within(one, (path,))}
    if not inner:
        rules[path] = rules.get(path, 0) | rights
        return
    if at_least:
        rules[path] = rules.get(path, 0) | at_least
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink() and len(rules) < RULES_MAX:
                _allow(rules, entry.path, rights, at_least, inner)


def _within(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _identity(path: str) -> bytes:
    """Return the handle of a file: its inode with the generation, so that a later file does not count as the same.

    The inode alone where the file system has no handles.
    """
    import ctypes

    found, mounted = os.lstat(path), ctypes.c_int()
    handle = ctypes.create_string_buffer(struct.pack("=Ii", _HANDLE_BYTES, 0) + bytes(_HANDLE_BYTES))
    inode = struct.pack("=QQ", found.st_dev, found.st_ino)
    called = _libc().name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(mounted), 0)
    return inode if called < 0 else inode + handle.raw


def _remember(policy: "SandboxPolicy") -> Iterator[str]:
    """Remember the files that are hidden in the roots, and yield where those hidden before are now.

    A command can rename them in their folder, or move them out of a hidden folder into the one above.
    """
    for path in policy.hidden:
        with suppress(OSError):
            if _within(path, policy.roots) and _hidden_files.setdefault(_identity(path), path) == path:
                for folder, _, names in os.walk(path) if len(_hidden_files) < HIDDEN_FILES_MAX else ():
                    _hidden_files.update((_identity(f"{folder}/{name}"), path) for name in names)
    for folder in {os.path.dirname(path) for path in _hidden_files.values()}:
        with suppress(OSError), os.scandir(folder) as entries:
            yield from (entry.path for entry in entries if _identity(entry.path) in _hidden_files)


def open_ruleset(rules: Mapping[str, int]) -> int:
    """Return a descriptor of a ruleset. Raises OSError."""
    version = abi()
    handled = READ | WRITE | MAKE_DEVICES | (IOCTL_DEV if version >= ABI_DEVICES else 0)
    sizes = 1 + (version >= ABI_TCP) + (version >= ABI_SCOPES)
    attributes = struct.pack("=QQQ", handled, BIND_AND_CONNECT_TCP, ABSTRACT_SOCKETS_AND_SIGNALS)[: 8 * sizes]
    libc = _libc()
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


# --- In the process that becomes the command -------------------------------------------------------------------------


def filter_of(policy: "SandboxPolicy") -> bytes:
    """Return the seccomp filter for a policy.

    Without network no socket can be made: Landlock limits neither UDP nor sockets with a path, such as that of Docker.
    Pairs of connected sockets remain.
    """
    from longrein.workspace.sandbox.seccomp import AF_INET, AF_INET6, filter_bytes

    return filter_bytes((AF_INET, AF_INET6) if policy.network else (), namespaces=False)


def plan_of(policy: "SandboxPolicy") -> bytes:
    """Return the filter and the rules for the process that confines itself. Reads folders that hold hidden paths."""
    parts = [filter_of(policy).hex().encode()]
    for path, rights in sorted(rules_of(policy).items()):
        parts += [b"%d" % rights, os.fsencode(path)]
    return b"\0".join(parts)


def read_plan(plan: bytes) -> tuple[dict[str, int], bytes]:
    """Return the rules and the filter of a plan."""
    program, *parts = plan.split(b"\0")
    rules = {os.fsdecode(path): int(rights) for rights, path in zip(parts[::2], parts[1::2], strict=True)}
    return rules, bytes.fromhex(program.decode())


def restrict(policy: "SandboxPolicy") -> None:
    """Confine this process and all that it starts, for good. Raises OSError."""
    apply_plan(plan_of(policy))


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

    libc = _libc()
    libc.prctl(_AMBIENT, 4, 0, 0, 0)
    for number in range(64):
        libc.prctl(_DROP_CAPABILITY, number, 0, 0, 0)  # refused to others than root, who have none
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(libc.syscall(_RESTRICT, ruleset, 0))
    steps = ctypes.create_string_buffer(program, len(program))
    _checked(libc.prctl(_SECCOMP, 2, struct.pack("@HP", len(program) // 8, ctypes.addressof(steps)), 0, 0))


def landlock_start(
    plan: bytes,
    path: str,
    words: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    *,
    stdin: int,
    output: int,
    report: int = -1,
) -> int:
    """Start a confined program as leader of a new session and return its pid. Only for a process with one thread.

    `plan` comes from `plan_of`. `report` is a descriptor that the program inherits. Raises OSError, also for
    what fails in the child; then nothing was run.
    """
    rules, program = read_plan(plan)
    ruleset = open_ruleset(rules)
    reading, writing = os.pipe()
    try:
        pid = os.fork()
        if not pid:
            _become(path, words, cwd, env, (stdin, output, report), (ruleset, program), writing)
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
    descriptors: tuple[int, int, int],
    limits: tuple[int, bytes],
    failure: int,
) -> NoReturn:
    """Turn the forked child into the command; tell the parent the error number if that fails."""
    try:
        stdin, output, report = descriptors
        os.setsid()
        for number in IGNORED_HERE:
            signal.signal(number, signal.SIG_DFL)
        os.dup2(stdin, 0)
        os.dup2(output, 1)
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


# --- As a program ----------------------------------------------------------------------------------------------------


def helper_words(python: str, plan: str) -> list[str]:
    """Return the command line in front of a command. `plan` is the number of a descriptor that the helper inherits."""
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


def _libc() -> Any:
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
