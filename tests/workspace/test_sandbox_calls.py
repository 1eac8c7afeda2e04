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
    architecture, numbers = landlock._MACHINES[machine]
    number = {**landlock._OUTSIDE[machine], **numbers}[name]
    program = filter_bytes(families, machine, namespaces=namespaces)
    assert judge(program, architecture, number, arguments) == answer, (name, arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_each_listed_call_is_refused_and_no_other(machine: str) -> None:
    architecture, numbers = landlock._MACHINES[machine]
    program = filter_bytes(FAMILIES, machine)
    listed = {number for name, number in numbers.items() if name not in landlock._CHECKED}
    listed |= {numbers["socket"]}  # family 0
    answers = {number: judge(program, architecture, number) for number in range(600)}
    assert {number for number, answer in answers.items() if answer == REFUSED} == listed
    assert {number for number, answer in answers.items() if answer == MISSING} == {
        numbers["clone3"]
    }
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
    for name in landlock._OUTSIDE[machine]:
        own = ALLOW if name == "prlimit64" else REFUSED
        check(machine, name, [0], own, namespaces=False)
        check(machine, name, [1], REFUSED, namespaces=False)
        check(machine, name, [1], ALLOW)


def test_other_machines_and_numbers_are_refused() -> None:
    for machine, other in (MACHINES, MACHINES[::-1]):
        program = filter_bytes(FAMILIES, machine)
        assert judge(program, landlock._MACHINES[other][0], 0) == KILL
    program = filter_bytes(FAMILIES, "x86_64")
    assert judge(program, landlock._MACHINES["x86_64"][0], 0x40000000) == REFUSED
    assert judge(program, landlock._MACHINES["x86_64"][0], 0x3FFFFFFF) == ALLOW


@pytest.mark.parametrize("network", [True, False])
def test_the_filter_without_namespaces_follows_the_policy(network: bool) -> None:
    architecture, numbers = landlock._MACHINES[platform.machine()]
    program = landlock.filter_of(SandboxPolicy(("/work",), network=network))
    for number in landlock._OUTSIDE[platform.machine()].values():
        assert judge(program, architecture, number, [1]) == REFUSED
    for family in range(46):
        answer = ALLOW if network and family in (2, 10) else REFUSED
        assert judge(program, architecture, numbers["socket"], [family]) == answer


@pytest.mark.parametrize(
    ("abi", "machine", "reason"),
    [
        (landlock.ABI_MIN, "x86_64", ""),
        (landlock.ABI_MIN, "aarch64", ""),
        (2, "x86_64", "the kernel has version 2 of Landlock; version 3 is needed"),
        (OSError(38, "Function not implemented"), "x86_64", "the kernel offers no Landlock (Fun"),
        (landlock.ABI_MIN, "", "Landlock exists on Linux only"),
        (landlock.ABI_MIN, "vax", "no table of system calls for "),
    ],
)
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
