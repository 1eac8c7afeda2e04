"""Tell that all that a test has started sleeps, so that a wait ends when nothing can happen."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

LOOK_EVERY_S = 0.25
LOOKS = 20
"""Looks in a row that must find everything asleep: 5 s, and more where looks come late."""
PROC = Path("/proc")
ASLEEP = "SITZX"
"""States of threads that wait, are stopped, or have ended. A thread that waits for a CPU or for
the disk has another one.
"""


class IdleWatch:
    """Whether the processes of this test have slept for `looks` looks, without CPU time.

    Says no where there is no `/proc`.
    """

    def __init__(self, looks: int = LOOKS) -> None:
        self._looks = looks
        self._seen: object = None
        self._alike = 0
        self._next_s = time.monotonic() + LOOK_EVERY_S

    def is_idle(self, state: object = None) -> bool:
        """Look, at most each `LOOK_EVERY_S`. `state`: what else must not have changed."""
        if time.monotonic() < self._next_s:
            return False
        times = cpu_times()
        seen = None if times is None else (times, state)
        self._alike = self._alike + 1 if seen is not None and seen == self._seen else 0
        self._seen = seen
        self._next_s = time.monotonic() + LOOK_EVERY_S
        return self._alike >= self._looks


def cpu_times(root: int = 0) -> dict[int, int] | None:
    """Return the CPU time of each thread of `root` and of all that it has started; None if one of
    them runs or wants to. `root`: a process, without those whose parents have ended; 0: this test
    with them, without the thread that asks.
    """
    found: dict[int, int] = {}
    first = root or os.getpid()
    for pid in [first, *_processes_of(first, with_orphans=not root)]:
        for task in _numbers(PROC / str(pid) / "task"):
            if task == threading.get_native_id():
                continue
            state, ticks = _state_and_ticks(PROC / f"{pid}/task/{task}/stat")
            if state not in ASLEEP:
                return None
            found[task] = ticks
    return found if PROC.is_dir() else None


def _processes_of(me: int, *, with_orphans: bool) -> Iterator[int]:
    """Yield the processes that descend from `me`. Those whose parents have ended cannot be told
    from others that `adopter` has, such as another run of the suite: all that began after `me` are
    orphans.
    """
    parents, starts = {}, {}
    for pid in _numbers(PROC):
        fields = _fields(PROC / f"{pid}/stat")
        if fields:
            parents[pid], starts[pid] = int(fields[1]), int(fields[19])
    ours = {me}
    for pid in sorted(starts, key=lambda pid: (starts[pid], pid)):
        is_orphan = parents[pid] == adopter() and starts[pid] > starts.get(me, 0)
        if pid != me and (parents[pid] in ours or (with_orphans and is_orphan)):
            ours.add(pid)
            yield pid


@cache
def adopter() -> int:
    """Return the process that becomes the parent of one whose parent ends."""
    line = "sleep 60 > /dev/null 2>&1 & echo $!"
    orphan = int(subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, check=True).stdout)
    parent = _fields(PROC / f"{orphan}/stat")[1]
    os.kill(orphan, signal.SIGKILL)
    return int(parent)


def _state_and_ticks(stat: Path) -> tuple[str, int]:
    fields = _fields(stat)
    return (fields[0], int(fields[11]) + int(fields[12])) if fields else ("X", 0)


def _fields(stat: Path) -> list[str]:
    """Return the fields of a `stat` file after the name; none if the process has ended."""
    try:
        return stat.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []
