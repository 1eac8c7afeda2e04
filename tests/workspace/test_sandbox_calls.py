"""The filter of system calls, run step by step for machines that the suite does not run on too."""

import errno
import platform
import struct
from collections.abc import Sequence

import pytest

from longrein.workspace.sandbox import landlock
from longrein.workspace.sandbox.landlock import ALLOW, ERRNO, KILL, NAMESPACES, filter_bytes
from longrein.workspace.sandbox.policy import SandboxPolicy

REFUSED, MISSING = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
FAMILIES = (1, 2, 10, 16)
TCGETS, TIOCSTI, TIOCLINUX = 0x5401, 0x5412, 0x541C
HIGH = 1 << 32
"""A bit of an argument that the kernel does not look at."""
MACHINES = ("x86_64", "aarch64")

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CHECKED = ("clone", "unshare", "clone3", "socket", "ioctl")
"""Calls that are judged by their arguments."""


def numbers_of(table: str) -> dict[str, dict[str, int]]:
    """Return the number of each call by machine; `-` where a machine has no such call."""
    rows = [row.split() for row in table.split(",")]
    return {
        machine: {row[0]: int(row[at]) for row in rows if row[at] != "-"}
        for at, machine in enumerate(MACHINES, 1)
    }


# name and number on x86_64 and aarch64, as in the kernel's headers
REFUSED_CALLS = numbers_of("""
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, mount 165 40,
    umount2 166 39, pivot_root 155 41, add_key 248 217, request_key 249 218, keyctl 250 219,
    bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_uring_setup 425 425,
    io_uring_enter 426 426, io_uring_register 427 427, init_module 175 105, finit_module 313 273,
    delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294, reboot 169 142,
    swapon 167 224, swapoff 168 225, setns 308 268, open_by_handle_at 304 265, open_tree 428 428,
    move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433,
    mount_setattr 442 442, quotactl 179 60, acct 163 89, settimeofday 164 170,
    clock_settime 227 112, sethostname 170 161, setdomainname 171 162, iopl 172 -, ioperm 173 -,
    syslog 103 116, kcmp 312 272, pidfd_getfd 438 438, process_madvise 440 440,
    lookup_dcookie 212 18, vhangup 153 58, clone 56 220, unshare 272 97, clone3 435 435,
    socket 41 198, ioctl 16 29, personality 135 92, memfd_secret 447 447
""")
OUTSIDE_CALLS = numbers_of("""
    shmget 29 194, shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semctl 66 191,
    semtimedop 220 192, msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187,
    mq_open 240 180, mq_unlink 241 181, adjtimex 159 171, clock_adjtime 305 266,
    fanotify_init 300 262, prlimit64 302 261
""")
"""Calls that reach other processes."""


def judge(program: bytes, architecture: int, number: int, arguments: Sequence[int] = ()) -> int:
    """Return what the kernel does with a call, by seccomp(2) and its machine of BPF."""
    six = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *six)
    steps = list(struct.iter_unpack("=HBBI", program))
    at = loaded = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == landlock.RETURN:
            return int(value)
        if code == landlock.LOAD:
            [loaded] = struct.unpack_from("=I", data, value)
            continue
        holds = {
            landlock.JUMP_EQUAL: loaded == value,
            landlock.JUMP_GREATER_EQUAL: loaded >= value,
            landlock.JUMP_SET: bool(loaded & value),
        }[code]
        at += if_true if holds else if_false


def check(
    machine: str,
    name: str,
    arguments: Sequence[int],
    answer: int,
    *,
    families: Sequence[int] | None = FAMILIES,
    namespaces: bool = True,
) -> None:
    architecture = ARCHITECTURES[machine]
    number = {**OUTSIDE_CALLS[machine], **REFUSED_CALLS[machine]}[name]
    program = filter_bytes(families, machine, namespaces=namespaces)
    assert judge(program, architecture, number, arguments) == answer, (name, arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_each_listed_call_is_refused_and_no_other(machine: str) -> None:
    architecture, numbers = ARCHITECTURES[machine], REFUSED_CALLS[machine]
    program = filter_bytes(FAMILIES, machine)
    listed = {number for name, number in numbers.items() if name not in CHECKED}
    listed |= {numbers["socket"]}  # family 0
    answers = {number: judge(program, architecture, number) for number in range(600)}
    assert {number for number, answer in answers.items() if answer == REFUSED} == listed
    found = {number for number, answer in answers.items() if answer == MISSING}
    assert found == {numbers["clone3"]}
    assert set(answers.values()) == {REFUSED, MISSING, ALLOW}


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_are_judged_by_their_arguments(machine: str) -> None:
    check(machine, "clone", [17], ALLOW)
    for bit in (1 << n for n in range(32) if NAMESPACES >> n & 1):
        check(machine, "clone", [bit | 17], REFUSED)
        check(machine, "unshare", [bit], REFUSED)
    check(machine, "unshare", [0x400], ALLOW)  # CLONE_FILES
    for request, answer in ((TCGETS, ALLOW), (TIOCSTI, REFUSED), (TIOCLINUX, REFUSED)):
        check(machine, "ioctl", [0, request], answer)
        check(machine, "ioctl", [TIOCSTI, request | HIGH], answer)
    for family in range(46):
        check(machine, "socket", [family], ALLOW if family in FAMILIES else REFUSED)
        check(machine, "socket", [family], ALLOW, families=None)


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_calls_that_reach_other_processes_are_refused(machine: str) -> None:
    for name in OUTSIDE_CALLS[machine]:
        own = ALLOW if name == "prlimit64" else REFUSED
        check(machine, name, [0], own, namespaces=False)
        check(machine, name, [1], REFUSED, namespaces=False)
        check(machine, name, [1], ALLOW)


def test_other_machines_and_numbers_are_refused() -> None:
    for machine, other in (MACHINES, MACHINES[::-1]):
        program = filter_bytes(FAMILIES, machine)
        assert judge(program, ARCHITECTURES[other], 0) == KILL
    program = filter_bytes(FAMILIES, "x86_64")
    assert judge(program, ARCHITECTURES["x86_64"], 0x40000000) == REFUSED
    assert judge(program, ARCHITECTURES["x86_64"], 0x3FFFFFFF) == ALLOW


@pytest.mark.parametrize("network", [True, False])
def test_the_filter_without_namespaces_follows_the_policy(network: bool) -> None:
    machine = platform.machine()
    architecture, numbers = ARCHITECTURES[machine], REFUSED_CALLS[machine]
    program = landlock.filter_of(SandboxPolicy(("/work",), network=network))
    for number in OUTSIDE_CALLS[machine].values():
        assert judge(program, architecture, number, [1]) == REFUSED
    for family in range(46):
        answer = ALLOW if network and family in (2, 10) else REFUSED
        assert judge(program, architecture, numbers["socket"], [family]) == answer


@pytest.mark.parametrize(("abi", "machine", "reason"), [
    (landlock.ABI_MIN, "x86_64", ""),
    (landlock.ABI_MIN, "aarch64", ""),
    (2, "x86_64", "the kernel has version 2 of Landlock; version 3 is needed"),
    (OSError(38, "Function not implemented"), "x86_64", "the kernel offers no Landlock (Fun"),
    (landlock.ABI_MIN, "", "Landlock exists on Linux only"),
    (landlock.ABI_MIN, "vax", "no table of system calls for "),
])  # fmt: skip
def test_why_commands_cannot_be_confined_here(
    monkeypatch: pytest.MonkeyPatch, abi: int | OSError, machine: str, reason: str
) -> None:
    def found() -> int:
        if isinstance(abi, OSError):
            raise abi
        return abi

    monkeypatch.setattr(landlock, "abi", found)
    monkeypatch.setattr(landlock.sys, "platform", "linux" if machine else "darwin")
    monkeypatch.setattr(landlock.platform, "machine", lambda: machine)
    assert landlock.available()[: len(reason) or None] == reason
