"""Cost of a hook beside its own time, without and in the sandbox: `python -m lab.hooks`.

The same command runs as a hook of a session and, in turn, by itself with the same input; for a hook
in the sandbox also by itself in the sandbox. The difference of the fastest tenth is printed: other
work on the machine delays the rest.
"""

import asyncio
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Sequence

import msgspec

from longrein.agent.hooks import CommandHandler, HookTable, SessionHooks
from longrein.permissions import Hook
from longrein.settings_schema import SandboxOptions
from longrein.testing.harness import memory_dependencies, open_test_session
from longrein.testing.scripted_model import ScriptedModel
from longrein.testing.store import MemoryDisk
from longrein.workspace import Confinement, SupervisedSpawner, SupervisionOptions, open_workspace
from longrein.workspace.sandbox import SessionSandbox
from longrein.workspace.supervisor.shell_lines import FILTER

RUNS = 200
LIMIT_MS = 5.0
"""Reach of the measure."""
COMMAND = "cat > /dev/null"


async def fastest_tenths(base: str, mode: str) -> tuple[float, float]:
    """Return the mean milliseconds of the fastest tenth: the command by itself, and as a hook.

    `mode`: that of the sandbox.
    """
    environ, project = {"PATH": os.environ["PATH"], "HOME": f"{base}/home"}, f"{base}/project"
    for name in ("project", "home", "state/session"):
        os.makedirs(f"{base}/{name}")
    spawner = SupervisedSpawner(
        f"{base}/tasks",
        SupervisionOptions(),
        wall_us=lambda: 0,
        notice=print,
        environ=environ,
        roots=[base],
    )
    disk = MemoryDisk()
    model = ScriptedModel()
    deps = memory_dependencies(
        model, disk, workspace=open_workspace((project,), spawner=spawner, environment=environ)
    )
    sandbox = SessionSandbox(
        SandboxOptions(mode),
        folder=f"{base}/state/session",
        home=f"{base}/home",
        state_dir=f"{base}/state",
        environ=environ,
        roots=[f"{base}/project"],
    )
    deps.sandbox = sandbox
    table = HookTable([CommandHandler(Hook("PreToolUse", COMMAND, "settings.json", "Bash"))])
    deps.parts[SessionHooks] = lambda: SessionHooks(table)
    session = open_test_session(model, disk=disk, deps=deps)
    hooks = session.part(SessionHooks)
    told = hooks.payload(
        "PreToolUse", tool_name="Bash", tool_input={"command": "make test"}, tool_use_id="c1"
    )

    async def as_hook() -> None:
        answer, entries = await session.part(SessionHooks).ask(
            "PreToolUse", told, subjects=("Bash",), call="c1"
        )
        assert (answer.decision, answer.problem) == ("none", ""), answer.problem
        session.append(*entries)

    words, filter_bytes = around(sandbox.confine((project,), project, ()))

    async def by_itself() -> None:
        with tempfile.TemporaryFile() as file:
            file.write(filter_bytes)
            file.seek(0)
            before = [str(file.fileno()) if word == FILTER else word for word in words]
            process = await asyncio.create_subprocess_exec(
                *(*before, spawner.shell, "-c", COMMAND),
                cwd=project,
                env=environ,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                pass_fds=[file.fileno()],
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


def around(confinement: Confinement | None) -> tuple[Sequence[str], bytes]:
    """Return the words in front of a command in the sandbox, and its filter of system calls."""
    if confinement is None or not confinement.filter or FILTER not in confinement.words:
        return (), b""
    with open(confinement.filter, "rb") as file:
        return confinement.words, file.read()


def main() -> int:
    """Print the figures; 1 when the measure is missed."""
    missed = 0
    for mode, where in (("off", "hook"), ("auto", "hook in the sandbox")):
        with tempfile.TemporaryDirectory() as base:
            plain, hooked = asyncio.run(fastest_tenths(base, mode))
        cost = hooked - plain
        print(
            f"{where}: {hooked:.2f} ms, the command by itself {plain:.2f} ms: {cost:+.2f} ms (at "
            f"most {LIMIT_MS:g})"
        )
        missed += cost > LIMIT_MS
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
