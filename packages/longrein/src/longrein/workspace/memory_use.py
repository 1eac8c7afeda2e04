"""Memory use of this process and its nearest limit: control group, resource limit, or setting.

Read from `/proc` in some microseconds; elsewhere from psutil.
"""

import os
import resource
import sys
from collections.abc import Iterator

import msgspec

UNLIMITED_BYTES = 1 << 60
"""Value that some systems write for no limit."""
CGROUP = "/sys/fs/cgroup"


class MemoryUse(msgspec.Struct, frozen=True):
    """Memory use at one moment, against the nearest limit."""

    used_bytes: int
    """Bytes that count against the limit."""
    limit_bytes: int
    """The limit; 0 when there is none."""
    limit: str = ""
    """Origin of the limit: `setting`, `control group`, `RLIMIT_AS` or `RLIMIT_DATA`."""

    @property
    def share(self) -> float:
        """Used part of the limit; 0 without one."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0


def memory_use(limit_bytes: int = 0) -> MemoryUse:
    """Return the use that is nearest to its limit.

    `limit_bytes` is the user's limit for resident memory, 0 for none.
    """
    resident, virtual, data = _process_bytes()
    uses = [*_own_limits(virtual, data), *_group_limits(resident)]
    if limit_bytes:
        uses.append(MemoryUse(resident, limit_bytes, "setting"))
    return max(uses, key=lambda use: use.share, default=MemoryUse(resident, 0))


def release_free_memory() -> None:
    """Return freed memory to the system where the C library can."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    trim = getattr(
        ctypes.CDLL(None), "malloc_trim", None
    )  # glibc only; other libraries do this themselves
    if trim is not None:
        trim(0)


def _process_bytes() -> tuple[int, int, int]:
    """Return resident, virtual and data bytes of this process."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = [int(number) for number in file.read().split()]
    except OSError:
        import psutil  # type: ignore[import-untyped]  # no stubs

        found = psutil.Process().memory_info()
        return found.rss, found.vms, found.rss
    size = os.sysconf("SC_PAGE_SIZE")
    return pages[1] * size, pages[0] * size, pages[5] * size


def _own_limits(virtual: int, data: int) -> Iterator[MemoryUse]:
    for name, used in (("RLIMIT_AS", virtual), ("RLIMIT_DATA", data)):
        limit = resource.getrlimit(getattr(resource, name))[0]
        if 0 < limit < UNLIMITED_BYTES:
            yield MemoryUse(used, limit, name)


def _group_limits(resident: int) -> Iterator[MemoryUse]:
    """Limits of the control groups above this process. Page cache does not count: the system
    takes it back.
    """
    for folder in _groups():
        limit = _number(os.path.join(folder, "memory.max"))
        if 0 < limit < UNLIMITED_BYTES:
            anonymous = _number(os.path.join(folder, "memory.stat"), "anon ")
            yield MemoryUse(max(resident, anonymous), limit, "control group")


def _groups() -> Iterator[str]:
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    path = next((line.split(":", 2)[2] for line in lines if line.startswith("0::")), "")
    while path not in ("", "/"):
        yield CGROUP + path
        path = os.path.dirname(path)
    if path:
        yield CGROUP  # inside a container its own group is the root


def _number(path: str, key: str = "") -> int:
    """Read the number in the first line of a file, after `key`; 0 when there is none."""
    try:
        with open(path, encoding="ascii") as file:
            text = file.readline().removeprefix(key).strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0
