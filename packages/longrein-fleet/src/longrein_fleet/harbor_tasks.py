"""Harbor tasks as tasks of a fleet: read by the package `harbor` itself, in its own Python."""

import os
import shutil

import msgspec

from longrein.app.run_context import RunContext
from longrein.workspace import CollectingSink, CommandSpec, Spawner
from longrein_context.events import UsageError
from longrein_fleet import harbor_reader
from longrein_fleet.fleet_tasks import Problem, Task, TaskLimits, task_problems

READ_S = 600.0
"""Time limit of reading a folder of tasks."""
READ_BYTES_MAX = 1 << 28
AGENT_CLASS = "longrein_fleet.harbor:LongreinAgent"


class _Read(msgspec.Struct, frozen=True):
    """A task as `harbor_reader` prints it."""

    id: str
    prompt: str = ""
    folder: str = ""
    tests: str = ""
    limits: TaskLimits = TaskLimits()
    container: str = ""
    problems: tuple[str, ...] = ()


async def read_harbor_tasks(
    run_context: RunContext, spawner: Spawner, folder: str, cap_usd: float | None
) -> tuple[list[Task], list[Problem]]:
    """Return the tasks of a folder, and everything that is wrong with them.

    Harbor tasks have no money limit of their own, so that each gets an equal share of `cap_usd`.
    Raises `UsageError` if Harbor is missing or cannot read them.
    """
    read = await _read(run_context, spawner, folder)
    share_usd = cap_usd / len(read) if cap_usd and read else None
    tasks = list[Task]()
    problems = list[Problem]()
    for one in read:
        limits = msgspec.structs.replace(one.limits, usd=share_usd)
        task = Task(one.id, one.prompt, one.folder, limits=limits, tests=one.tests)
        found = list(one.problems) or task_problems(task, has_cap=False)
        if one.container:
            found.append(_needs_container(folder, one.container))
        problems += [Problem(0, f"{one.id}: {text}") for text in found]
        tasks.append(task)
    if not read:
        problems.append(Problem(0, f"there is no Harbor task in it: no {folder}/*/task.toml"))
    return tasks, problems


def _needs_container(folder: str, container: str) -> str:
    return (
        f"it needs a container ({container}): `harbor run -p {folder} -a {AGENT_CLASS}` runs it "
        "with longrein"
    )


async def _read(run_context: RunContext, spawner: Spawner, folder: str) -> tuple[_Read, ...]:
    python = harbor_python(run_context)
    if not python:
        raise UsageError(
            f"{folder} is a folder, and folders of tasks are read by Harbor, which is missing: "
            "install it (`uv tool install harbor`, Python 3.12) so that the command harbor is "
            "found, or name a file of JSON lines"
        )
    words = (python, "-I", "-W", "ignore", harbor_reader.__file__, os.path.abspath(folder))
    sink = CollectingSink()
    spec = CommandSpec(words, os.path.abspath(folder), run_context.environ)
    await spawner.run(spec, sink=sink, timeout_s=READ_S, output_bytes_max=READ_BYTES_MAX)
    output = sink.data.decode("utf-8", "replace")
    line = output.rpartition(f"{harbor_reader.MARK}[")[2].partition("\n")[0]
    try:
        return msgspec.json.decode(f"[{line}", type=tuple[_Read, ...])
    except msgspec.DecodeError:
        last = output.strip().rpartition("\n")[2][:300]
        raise UsageError(
            f"Harbor cannot read the tasks in {folder} ({last}): install a current one, "
            "`uv tool upgrade harbor`"
        ) from None


def harbor_python(run_context: RunContext) -> str:
    """Return the Python beside the command `harbor`; '' if there is none."""
    command = shutil.which("harbor", path=run_context.environ.get("PATH", ""))
    if command is None:
        return ""
    python = os.path.join(os.path.dirname(os.path.realpath(command)), "python")
    return python if os.access(python, os.X_OK) else ""
