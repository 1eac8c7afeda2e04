"""Seccomp filters: system calls that no command of an agent needs and that lead out of a sandbox.

A refused call fails with EPERM, so that programs report it like a missing permission. `clone3`
fails with ENOSYS: its flags lie in memory, where a filter cannot see them, and the C libraries then
use `clone`, whose flags are checked.
"""

import errno
import platform
import struct
from collections.abc import Mapping, Sequence

LOAD = 0x20
JUMP_EQUAL = 0x15
JUMP_GREATER_EQUAL = 0x35
JUMP_SET = 0x45
RETURN = 0x06
AND = 0x54
"""BPF operations: load a word, jump if equal, if greater or equal, if a bit is set, return, and."""
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
    "x86_64": {"shmget": 29, "msgget": 68, "semget": 64, "mq_open": 240, "adjtimex": 159,
    "clock_adjtime": 305,
               "fanotify_init": 300, "prlimit64": 302},
    "aarch64": {"shmget": 194, "msgget": 186, "semget": 190, "mq_open": 180, "adjtimex": 171,
    "clock_adjtime": 266,
                "fanotify_init": 262, "prlimit64": 261},
}  # fmt: skip
"""Calls that reach other processes of the user where there is no IPC or PID namespace."""
_MACHINES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
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
    refused = ERRNO | errno.EPERM
    program = [
        (LOAD, 0, 0, 4),
        (JUMP_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, 0),
    ]
    if architecture == 0xC000003E:  # the x32 calls have numbers of their own
        program += [(JUMP_GREATER_EQUAL, 0, 1, 0x40000000), (RETURN, 0, 0, refused)]
    for name, number in numbers.items():
        if name not in _CHECKED:
            program += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, refused)]
    program += [(JUMP_EQUAL, 0, 1, numbers["clone3"]), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    for name in ("clone", "unshare"):
        program += _argument(
            numbers[name], 0, [(JUMP_SET, 0, 1, NAMESPACES), (RETURN, 0, 0, refused)]
        )
    typing = [(JUMP_EQUAL, 1, 0, _TIOCSTI), (JUMP_EQUAL, 0, 1, _TIOCLINUX), (RETURN, 0, 0, refused)]
    program += _argument(numbers["ioctl"], 1, typing)
    if families is not None:
        allowed = [(JUMP_EQUAL, len(families) - i, 0, family) for i, family in enumerate(families)]
        program += _argument(numbers["socket"], 0, [*allowed, (RETURN, 0, 0, refused)])
    if not namespaces:
        program += _outside(_OUTSIDE[machine or platform.machine()])
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def _outside(numbers: Mapping[str, int]) -> list[tuple[int, int, int, int]]:
    """Return steps against shared memory, queues, the clock, and limits of other processes."""
    refused = (RETURN, 0, 0, ERRNO | errno.EPERM)
    steps = _argument(numbers["prlimit64"], 0, [(JUMP_EQUAL, 1, 0, 0), refused])
    for name, number in numbers.items():
        if name != "prlimit64":
            steps += [(JUMP_EQUAL, 0, 1, number), refused]
    return steps


def _argument(
    number: int, index: int, check: list[tuple[int, int, int, int]]
) -> list[tuple[int, int, int, int]]:
    """Return steps that run `check` on the low word of an argument of one system call, and load
    the number again.
    """
    body = [(LOAD, 0, 0, 16 + 8 * index), *check, (LOAD, 0, 0, 0)]
    return [(JUMP_EQUAL, 0, len(body), number), *body]
