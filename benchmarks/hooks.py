"""Cost of a hook beside its own time: `python -m benchmarks.hooks`.

The same command runs as a hook of a session and, in turn, by itself with the same input. The difference of the fastest
tenth is printed: other work on the machine delays the rest.
"""

import asyncio
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE

import msgspec

from longrein.agent.hooks import CommandHandler, HookTable
from longrein.permissions import Hook
from longrein.testing.harness import memory_dependencies, open_test_session
from longrein.testing.scripted_model import ScriptedModel
from longrein.testing.store import MemoryDisk
from longrein.workspace import SupervisedSpawner, SupervisionOptions, open_workspace

RUNS = 200
LIMIT_MS = 5.0
"""Reach of the measure."""
COMMAND = "cat > /dev/null"


async def fastest_tenths(base: str) -> tuple[float, float]:
    """Return the mean milliseconds of the fastest tenth: the command by itself, and as a hook."""
    environ = {"PATH": os.environ["PATH"], "HOME": base}
    spawner = SupervisedSpawner(
        f"{base}/tasks", SupervisionOptions(), wall_us=lambda: 0, notice=print, environ=environ, roots=[base]
    )
    disk = MemoryDisk()
    model = ScriptedModel()
    deps = memory_dependencies(model, disk, workspace=open_workspace((base,), spawner=spawner, environment=environ))
    deps.hooks = HookTable([CommandHandler(Hook("PreToolUse", COMMAND, "settings.json", "Bash"))])
    session = open_test_session(model, disk=disk, deps=deps)
    told = session.hooks.payload("PreToolUse", tool_name="Bash", tool_input={"command": "make test"}, tool_use_id="c1")

    async def as_hook() -> None:
        answer, entries = await session.hooks.ask("PreToolUse", told, subjects=("Bash",), call="c1")
        assert (answer.decision, answer.problem) == ("none", "")
        session.append(*entries)

    async def by_itself() -> None:
        process = await asyncio.create_subprocess_exec(
            spawner.shell, "-c", COMMAND, cwd=base, env=environ, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        await process.communicate(msgspec.json.encode(told))

    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        for which, work in enumerate((by_itself, as_hook)):
            began = time.perf_counter()
            await work()
            took[which].append((time.perf_counter() - began) * 1000)
    await session.close()
    plain, hooked = (sum(sorted(one)[: RUNS // 10]) / (RUNS // 10) for one in took)
    return plain, hooked


def main() -> int:
    """Print the figures; 1 when the measure is missed."""
    with tempfile.TemporaryDirectory() as base:
        plain, hooked = asyncio.run(fastest_tenths(base))
    cost = hooked - plain
    print(f"hook: {hooked:.2f} ms, the command by itself {plain:.2f} ms: {cost:+.2f} ms (at most {LIMIT_MS:g})")
    return int(cost > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
