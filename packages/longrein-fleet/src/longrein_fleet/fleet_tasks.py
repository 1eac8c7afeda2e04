"""The file of tasks: JSON lines, read and checked as a whole. Pure."""

import re
from typing import Annotated

import msgspec

PROMPT_BYTES_MAX = 100_000
"""Largest prompt; the system allows 128 KiB for one argument of a program."""
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
"""Ids of tasks and names of fleets, which are names of folders too."""
ID_FORM = "letters, digits and . _ - (at most 100, a letter or digit first)"

_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Amount = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]


class TaskLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one attempt; None for no limit."""

    turns: _Count | None = None
    """Requests to the model."""
    usd: _Amount | None = None
    """Money of the session."""
    seconds: _Amount | None = None
    """Time of the agent, without setup and check."""
    check_seconds: _Amount | None = None
    """Time of `check` or `tests`; None for half an hour."""


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task of a fleet."""

    id: str
    prompt: str
    folder: str
    """A git repository or a plain folder; relative to the file of tasks."""
    base: str = ""
    """Revision to start from; '' for HEAD."""
    model: str = ""
    """`PROVIDER/MODEL`; '' for the model of the settings."""
    limits: TaskLimits = TaskLimits()
    setup: str = ""
    """Shell command before the agent, in the copy of the folder."""
    check: str = ""
    """Shell command after the agent; the task is done if its exit code is 0."""
    image: str = ""
    """What the commands of the task see, and may change, in place of this machine's files: a folder
    or tar file with a root file system, relative to the file of tasks, or the name of an image of
    podman or docker.
    """
    tests: str = ""
    """Folder with a `test.sh` that runs after the agent and writes a reward, as Harbor's tasks have
    it; the task is done if the reward is 1. Relative to the file of tasks.
    """


class Problem(msgspec.Struct, frozen=True):
    """Something wrong in a line of the file."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


def read_tasks(data: bytes, *, has_cap: bool) -> tuple[dict[int, Task], list[Problem]]:
    """Read tasks by line number, and every problem that the text itself has.

    `has_cap`: the fleet has a money limit, so each task needs one.
    """
    tasks = dict[int, Task]()
    problems = list[Problem]()
    first = dict[str, int]()
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            task = msgspec.json.decode(line, type=Task)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problems.append(Problem(number, f"no task can be read: {error}"))
            continue
        found = task_problems(task, has_cap=has_cap)
        if task.id in first:
            found.append(f"the id {task.id!r} is that of line {first[task.id]} too: rename one")
        first.setdefault(task.id, number)
        problems += [Problem(number, text) for text in found]
        tasks[number] = task
    if not tasks and not problems:
        problems.append(Problem(0, "the file holds no task: write a JSON object in each line"))
    return tasks, problems


def task_problems(task: Task, *, has_cap: bool) -> list[str]:
    """Return what is wrong with a task, without a look at the disk."""
    found = []
    if not ID.match(task.id):
        found.append(f"the id {task.id!r} is no name: use {ID_FORM}")
    if not task.prompt.strip():
        found.append("the prompt is empty: say what is to be done")
    if len(task.prompt.encode("utf-8", "replace")) > PROMPT_BYTES_MAX:
        found.append(
            f"the prompt is longer than {PROMPT_BYTES_MAX:,} bytes: name a file of the folder in it"
        )
    if task.check and task.tests:
        found.append("check and tests are both given: leave one out")
    if not task.folder:
        found.append("folder is empty: name a repository or a folder")
    for field in ("prompt", "folder", "base", "model", "setup", "check", "image", "tests"):
        if "\0" in getattr(task, field):
            found.append(f"{field} holds a NUL character: remove it")
    if task.base.startswith("-"):
        found.append(f"base {task.base!r} is no revision")
    if task.image.startswith("-"):
        found.append(f"image {task.image!r} is no file, folder or name of an image")
    if has_cap and task.limits.usd is None:
        found.append(
            "limits.usd is missing: with --max-budget-usd each task reserves its own limit"
        )
    return found
