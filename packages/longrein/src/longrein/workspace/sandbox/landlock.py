"""Rules of Landlock for a policy, for Linux without bubblewrap; `landlock_process` applies them.

Landlock can only allow: a folder that is readable is readable as a whole. Where a hidden path lies
in a readable folder, its siblings are allowed one by one. `unenforced` lists what stays open.
"""

import errno
import os
import platform
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from longrein.folder_trees import walk_folders
from longrein.workspace.files import is_inside
from longrein.workspace.sandbox.bubblewrap import RESOLVERS
from longrein.workspace.sandbox.masks import identity_of
from longrein.workspace.sandbox.policy import SandboxPolicy
from longrein.workspace.supervisor.landlock_process import (
    ABI_MIN,
    ABI_SCOPES,
    EXECUTE,
    IOCTL_DEV,
    READ,
    READ_DIR,
    READ_FILE,
    TRUNCATE,
    WRITE,
    WRITE_FILE,
    abi,
)
from longrein.workspace.supervisor.openat import open_folder

RULES_MAX = 20_000
"""Siblings of hidden paths that are allowed one by one; the rest stays closed."""
CLOSED = ("/tmp", "/var/tmp", "/run", "/dev", "/root", "/home", "/media", "/mnt")
"""Folders that commands cannot read, apart from roots and visible folders in them."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
HIDDEN_FILES_MAX = 5_000
"""Files of hidden folders that are remembered."""
_hidden_files: dict[bytes, str] = {}
"""Files in roots that were hidden once, with the folder they lay in: a command may have renamed
them since.
"""


# --- What the kernel can do -----------------------------------------------------------------------


def available() -> str:
    """Return '' if commands can be confined here, else the reason why not."""
    if sys.platform != "linux":
        return "Landlock exists on Linux only"
    try:
        found = abi()
        filter_bytes(())
    except OSError as error:
        return f"the kernel offers no Landlock ({error.strerror})"
    except LookupError:
        return f"no table of system calls for {os.uname().machine}"
    return (
        ""
        if found >= ABI_MIN
        else f"the kernel has version {found} of Landlock; version {ABI_MIN} is needed"
    )


def unenforced(policy: SandboxPolicy) -> tuple[str, ...]:
    """Return what commands can do although the policy says otherwise, one sentence each."""
    found = [
        "change mode, times and extended attributes of your files outside the project",
        "see names and sizes of all files",
        "see the command lines of other processes",
        "see which processes run and when they end (pidfd_open)",
    ]
    found += [
        f"change {path} until longrein puts it back"
        for path in policy.read_only
        if is_inside(path, policy.roots)
    ]
    found += [
        f"replace {path}, which is hidden"
        for path in policy.hidden
        if is_inside(path, policy.roots)
    ]
    if abi() < ABI_SCOPES:
        found.append("end other processes of yours")
    return tuple(found)


# --- From a policy to rules -----------------------------------------------------------------------


def rules_of(policy: SandboxPolicy) -> dict[str, int]:
    """Return the rights below each path. Reads folders that hold hidden paths."""
    hidden = {*policy.hidden, *_remember(policy)}
    home = (policy.home,) if policy.home else ()
    rules: dict[str, int] = {}
    _allow(rules, "/", READ, 0, {*CLOSED, *home, *hidden})
    for path in (*policy.home_visible, *(RESOLVERS if policy.network else ())):
        _allow(rules, path, READ, 0, hidden)
    if policy.private_home:  # a write there would not last
        _allow(rules, policy.private_home, READ, 0, hidden)
    own = [policy.private_tmp] if policy.private_tmp else []
    for path in (*policy.home_writable, *policy.roots, *own):
        _allow(rules, path, READ | WRITE, WRITE | EXECUTE | READ_DIR, hidden)
    for name in DEVICES:
        rules[f"/dev/{name}"] = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
    return rules


def environment(policy: SandboxPolicy) -> dict[str, str]:
    """Return the variables that lead a confined command to its own home folder and folder for
    temporary files.
    """
    found = (
        dict.fromkeys(("TMPDIR", "TMP", "TEMP"), policy.private_tmp) if policy.private_tmp else {}
    )
    return {**found, "HOME": policy.private_home} if policy.private_home else found


def link_visible(policy: SandboxPolicy) -> None:
    """Make links in the private home folder to what commands see of the real one. Raises
    OSError.
    """
    shown = [(path, path) for path in (*policy.home_visible, *policy.home_writable)]
    for path, real in sorted((*shown, *policy.links)):
        link = policy.private_home + path.removeprefix(policy.home)
        if policy.private_home and path.startswith(policy.home + "/") and not os.path.exists(link):
            os.makedirs(os.path.dirname(link), 0o700, exist_ok=True)
            os.symlink(real, link)


def _allow(rules: dict[str, int], path: str, rights: int, at_least: int, closed: set[str]) -> None:
    """Allow `rights` below a path but for the closed paths, in whose parents only `at_least` is
    allowed.
    """
    if path in closed:
        return
    inner = {one for one in closed if is_inside(one, (path,))}
    if not inner:
        rules[path] = rules.get(path, 0) | rights
        return
    if at_least:
        rules[path] = rules.get(path, 0) | at_least
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink() and len(rules) < RULES_MAX:
                _allow(rules, entry.path, rights, at_least, inner)


def _remember(policy: SandboxPolicy) -> Iterator[str]:
    """Remember the files that are hidden in the roots, and yield where those hidden before are now.

    A command can rename them in their folder, or move them out of a hidden folder into the one
    above.
    """
    for path in policy.hidden:
        with suppress(OSError):
            if (
                is_inside(path, policy.roots)
                and _hidden_files.setdefault(identity_of(path), path) == path
            ):
                for folder, _, names in (
                    walk_folders(path) if len(_hidden_files) < HIDDEN_FILES_MAX else ()
                ):
                    _hidden_files.update((identity_of(f"{folder}/{name}"), path) for name in names)
    for folder in {os.path.dirname(path) for path in _hidden_files.values()}:
        with suppress(OSError), open_folder(folder) as opened:
            paths = map(opened.path_of, opened.names())
            yield from (path for path in paths if identity_of(path) in _hidden_files)


def filter_of(policy: SandboxPolicy) -> bytes:
    """Return the seccomp filter for a policy.

    Without network no socket can be made: Landlock limits neither UDP nor sockets with a path, such
    as that of Docker. Pairs of connected sockets remain.
    """
    return filter_bytes((AF_INET, AF_INET6) if policy.network else (), namespaces=False)


def plan_of(policy: SandboxPolicy) -> bytes:
    """Return the filter and the rules for the process that confines itself. Reads folders that
    hold hidden paths.
    """
    parts = [filter_of(policy).hex().encode()]
    for path, rights in sorted(rules_of(policy).items()):
        parts += [b"%d" % rights, os.fsencode(path)]
    return b"\0".join(parts)


# --- Seccomp --------------------------------------------------------------------------------------
#
# Seccomp filters: system calls that no command of an agent needs and that lead out of a sandbox.
#
# A refused call fails with EPERM, so that programs report it like a missing permission. `clone3`
# fails with ENOSYS: its flags lie in memory, where a filter cannot see them, and the C libraries
# then use `clone`, whose flags are checked.

LOAD = 0x20
JUMP_EQUAL = 0x15
JUMP_GREATER_EQUAL = 0x35
JUMP_SET = 0x45
RETURN = 0x06
"""BPF operations: load a word, jump if equal, if greater or equal, if a bit is set, return."""
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
KILL = 0x80000000
NAMESPACES = 0x7E020000 | 0x02000000 | 0x00000080
"""Flags of `clone` and `unshare` that make a new namespace (mount, cgroup, UTS, IPC, user, PID,
network, time).
"""
AF_UNIX = 1
AF_INET = 2
AF_INET6 = 10

_X86_64 = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "mount": 165, "umount2": 166,
    "pivot_root": 155,
    "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298,
    "userfaultfd": 323,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "init_module": 175,
    "finit_module": 313,
    "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320, "reboot": 169, "swapon": 167,
    "swapoff": 168,
    "setns": 308, "open_by_handle_at": 304, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "mount_setattr": 442, "quotactl": 179, "acct": 163,
    "settimeofday": 164,
    "clock_settime": 227, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
    "syslog": 103,
    "kcmp": 312, "pidfd_getfd": 438, "process_madvise": 440, "lookup_dcookie": 212, "vhangup": 153,
    "clone": 56, "unshare": 272, "clone3": 435, "socket": 41, "ioctl": 16, "personality": 135,
    "memfd_secret": 447,
}  # fmt: skip
_AARCH64 = {
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "mount": 40, "umount2": 39,
    "pivot_root": 41,
    "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241,
    "userfaultfd": 282,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "init_module": 105,
    "finit_module": 273,
    "delete_module": 106, "kexec_load": 104, "kexec_file_load": 294, "reboot": 142, "swapon": 224,
    "swapoff": 225,
    "setns": 268, "open_by_handle_at": 265, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "mount_setattr": 442, "quotactl": 60, "acct": 89,
    "settimeofday": 170,
    "clock_settime": 112, "sethostname": 161, "setdomainname": 162, "syslog": 116, "kcmp": 272,
    "pidfd_getfd": 438,
    "process_madvise": 440, "lookup_dcookie": 18, "vhangup": 58,
    "clone": 220, "unshare": 97, "clone3": 435, "socket": 198, "ioctl": 29, "personality": 92,
    "memfd_secret": 447,
}  # fmt: skip
_OUTSIDE = {
    "x86_64": {"shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "semop": 65, "semctl": 66,
    "semtimedop": 220, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240,
    "mq_unlink": 241, "adjtimex": 159, "clock_adjtime": 305, "fanotify_init": 300,
    "prlimit64": 302},
    "aarch64": {"shmget": 194, "shmat": 196, "shmctl": 195, "semget": 190, "semop": 193,
    "semctl": 191, "semtimedop": 192, "msgget": 186, "msgsnd": 189, "msgrcv": 188, "msgctl": 187,
    "mq_open": 180, "mq_unlink": 181, "adjtimex": 171, "clock_adjtime": 266, "fanotify_init": 262,
    "prlimit64": 261},
}  # fmt: skip
"""Calls that reach other processes of the user where there is no IPC or PID namespace: also those
that take the number of what another has made, which can be guessed.
"""
_MACHINES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
"""Offsets in `struct seccomp_data`."""
Step = tuple[int, int, int, int]
"""BPF operation, steps to skip if it holds and if not, value."""
_CHECKED = ("clone", "unshare", "clone3", "socket", "ioctl")
"""Calls that are refused for some arguments only."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""Terminal requests that type into the terminal of another process."""


def filter_bytes(
    families: Sequence[int] | None, machine: str = "", *, namespaces: bool = True
) -> bytes:
    """Return the BPF program as `struct sock_filter` records.

    `families` are the address families that `socket` may use; None for all. Without `namespaces`
    around the command, the calls that would need them are refused too. Raises LookupError for a
    machine without a table of system calls.
    """
    architecture, numbers = _MACHINES[machine or platform.machine()]
    refused = _answer(ERRNO | errno.EPERM)
    program = [
        _load(ARCHITECTURE_AT),
        (JUMP_EQUAL, 1, 0, architecture),
        _answer(KILL),
        _load(NUMBER_AT),
    ]
    if architecture == 0xC000003E:  # the x32 calls have numbers of their own
        program += [(JUMP_GREATER_EQUAL, 0, 1, 0x40000000), refused]
    for name, number in numbers.items():
        if name not in _CHECKED:
            program += [(JUMP_EQUAL, 0, 1, number), refused]
    program += [(JUMP_EQUAL, 0, 1, numbers["clone3"]), _answer(ERRNO | errno.ENOSYS)]
    for name in ("clone", "unshare"):
        program += _argument(numbers[name], 0, [(JUMP_SET, 0, 1, NAMESPACES), refused])
    typing = [(JUMP_EQUAL, 1, 0, _TIOCSTI), (JUMP_EQUAL, 0, 1, _TIOCLINUX), refused]
    program += _argument(numbers["ioctl"], 1, typing)
    if families is not None:
        allowed = [(JUMP_EQUAL, len(families) - i, 0, family) for i, family in enumerate(families)]
        program += _argument(numbers["socket"], 0, [*allowed, refused])
    if not namespaces:
        program += _outside(_OUTSIDE[machine or platform.machine()])
    program.append(_answer(ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def _load(offset: int) -> Step:
    return LOAD, 0, 0, offset


def _answer(answer: int) -> Step:
    return RETURN, 0, 0, answer


def _outside(numbers: Mapping[str, int]) -> list[Step]:
    """Return steps against shared memory, queues, the clock, and limits of other processes."""
    refused = _answer(ERRNO | errno.EPERM)
    steps = _argument(numbers["prlimit64"], 0, [(JUMP_EQUAL, 1, 0, 0), refused])
    for name, number in numbers.items():
        if name != "prlimit64":
            steps += [(JUMP_EQUAL, 0, 1, number), refused]
    return steps


def _argument(number: int, index: int, check: list[Step]) -> list[Step]:
    """Return steps that run `check` on the low word of an argument of one system call, and load
    the number again.
    """
    body = [_load(ARGUMENTS_AT + 8 * index), *check, _load(NUMBER_AT)]
    return [(JUMP_EQUAL, 0, len(body), number), *body]
