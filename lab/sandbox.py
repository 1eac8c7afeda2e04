"""Cost of the sandbox for one command: `python -m lab.sandbox`.

Commands without it, with it, and with a network of single hosts run in turn. The differences of the
fastest tenth are printed: other work on the machine delays the rest. Without hosts in
`sandbox.network` nothing of the proxy is loaded.
"""

import asyncio
import os
import sys
import tempfile
import time

from longrein.permissions.network_hosts import Target
from longrein.settings_schema import SandboxOptions
from longrein.workspace import (
    CommandExit,
    CommandSpec,
    Confinement,
    SupervisedSpawner,
    SupervisionOptions,
)
from longrein.workspace.command_output import NullSink
from longrein.workspace.sandbox import SessionSandbox

RUNS = 200
LIMIT_MS = 6.0
"""Reach of the measure."""


async def refuse(_: Target) -> str:
    """Refuse each host."""
    return "not here"


def open_sandbox(base: str, name: str, *network: str) -> SessionSandbox:
    """Open the sandbox of a session of this name."""
    folder = os.path.join(base, "state", name)
    os.makedirs(folder)
    return SessionSandbox(
        SandboxOptions(network=network),
        folder=folder,
        home=os.path.expanduser("~"),
        state_dir=f"{base}/state",
        environ=os.environ,
        roots=[f"{base}/project"],
    )


async def fastest_tenths(base: str) -> tuple[float, ...] | None:
    """Return the mean milliseconds of the fastest tenth: without, with the sandbox, with its proxy.

    None where no sandbox works, two figures where the sandbox takes no hosts.
    """
    root, session = os.path.join(base, "project"), os.path.join(base, "state", "session")
    os.makedirs(root)
    home = os.path.expanduser("~")
    sandbox, proxied = open_sandbox(base, "session"), open_sandbox(base, "proxied", "example.com")
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

    def confinement_of(kind: str) -> Confinement | None:
        if kind == "plain":
            return None
        if kind == "confined":
            return sandbox.confine([root], root, ())
        return proxied.confine(
            [root], root, (), proxy_socket=proxied.open_proxy("s", refuse, print)
        )

    async def run_ms(kind: str) -> float:
        began = time.perf_counter()
        confinement = confinement_of(kind)
        ended: CommandExit = await spawner.run(
            CommandSpec(":", root, environ, confinement),
            sink=NullSink(),
            timeout_s=60,
            output_bytes_max=1,
        )
        assert ended.code == 0
        return (time.perf_counter() - began) * 1000

    kinds = ("plain", "confined", "proxied") if proxied.entries else ("plain", "confined")
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(RUNS):
        for kind in kinds:
            took[kind].append(await run_ms(kind))
    await spawner.drain()
    await proxied.close()
    return tuple(sum(sorted(one)[: RUNS // 10]) / (RUNS // 10) for one in took.values())


def main() -> int:
    """Print one line; return 1 if a command costs more than the limit."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
        found = asyncio.run(fastest_tenths(base))
    if found is None:
        print("sandbox: none works here")
        return 1
    plain, inside, *more = found
    hosts = f"; {more[0]:.1f} ms where sandbox.network names hosts" if more else ""
    cost = f"+ {inside - plain:.1f} (<= {LIMIT_MS:g})"
    print(f"sandbox: {plain:.1f} ms a command without, {inside:.1f} ms with, {cost}{hosts}")
    return 1 if inside - plain > LIMIT_MS else 0


if __name__ == "__main__":
    sys.exit(main())
