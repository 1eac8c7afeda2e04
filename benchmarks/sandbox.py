"""Cost of the sandbox for one command: `python -m benchmarks.sandbox`.

Commands with and without it run in turn. The difference of the fastest tenth is printed: other work on the machine
delays the rest.
"""

import asyncio
import os
import sys
import tempfile
import time

from longrein.settings_schema import SandboxOptions
from longrein.workspace import CommandExit, Confinement, SupervisedSpawner, SupervisionOptions
from longrein.workspace.command import NullSink
from longrein.workspace.sandbox import SessionSandbox

RUNS = 200
LIMIT_MS = 6.0
"""Reach of the measure."""


async def fastest_tenths(base: str) -> tuple[float, float] | None:
    """Return the mean milliseconds of the fastest tenth without and with the sandbox; None where none works."""
    root, session = os.path.join(base, "project"), os.path.join(base, "state", "session")
    os.makedirs(root)
    os.makedirs(session)
    home = os.path.expanduser("~")
    sandbox = SessionSandbox(
        SandboxOptions(), folder=session, home=home, state_dir=f"{base}/state", environ=os.environ, roots=[root]
    )
    if not sandbox.rung.confines:
        return None
    environ = {"PATH": os.environ["PATH"], "HOME": home}
    spawner = SupervisedSpawner(
        os.path.join(session, "tasks"),
        SupervisionOptions(),
        wall_us=lambda: 0,
        notice=print,
        environ=environ,
        roots=[root],
    )

    async def run_ms(*, confined: bool) -> float:
        began = time.perf_counter()
        confinement: Confinement | None = sandbox.confine([root], root, ()) if confined else None
        ended: CommandExit = await spawner.run(
            ":", cwd=root, env=environ, sink=NullSink(), timeout_s=60, output_bytes_max=1, confinement=confinement
        )
        assert ended.code == 0
        return (time.perf_counter() - began) * 1000

    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        for confined in (False, True):
            took[confined].append(await run_ms(confined=confined))
    await spawner.drain()
    plain, inside = (sum(sorted(one)[: RUNS // 10]) / (RUNS // 10) for one in took)
    return plain, inside


def main() -> int:
    """Print one line; return 1 if a command costs more than the limit."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
        found = asyncio.run(fastest_tenths(base))
    if found is None:
        print("sandbox: none works here")
        return 1
    plain, inside = found
    print(f"sandbox: {plain:.1f} ms a command without, {inside:.1f} ms with, + {inside - plain:.1f} (<= {LIMIT_MS:g})")
    return 1 if inside - plain > LIMIT_MS else 0


if __name__ == "__main__":
    sys.exit(main())
