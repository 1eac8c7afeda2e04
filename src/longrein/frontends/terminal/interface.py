"""What the terminal is told by the hall, and what it gives back when it is left."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from longrein.context import LineReason, Report
from longrein.tools import GoalPort


class FilesFound(msgspec.Struct, frozen=True):
    """Files for what was typed after `@`."""

    paths: Sequence[str]
    """Relative to the folder, the best first."""
    note: str = ""
    """Why others are missing; '' when none is."""


CompleteFiles = Callable[[str], Awaitable[FilesFound]]
"""What was typed after `@` -> the files that it may mean."""

TaskTail = Callable[[str, int], Awaitable[str]]
"""Task id and how many lines -> the end of its output. Raises our own errors."""


async def _no_tail(_task: str, _lines: int) -> str:
    return ""


class SessionRow(msgspec.Struct, frozen=True):
    """One stored session, for `/resume`."""

    id: str
    """Its UUID."""
    title: str
    """What it is about; text of the user's."""
    when: str = ""
    """Last use, for people."""


class TerminalFacts(msgspec.Struct, frozen=True):
    """What stands on the screen and is not in the log, and what commands need from outside the session."""

    model: str
    """`provider/model` at the start; later ones come from the log."""
    cwd: str
    """Folder, for the greeting."""
    version: str
    """Version of longrein."""
    notices: tuple[str, ...] = ()
    """What happened before anybody listened, a line each."""
    colour: bool = True
    """False for NO_COLOR."""
    window_tokens: Callable[[], int] = lambda: 0
    """What the view may fill with the current model; 0 when unknown."""
    context_report: Callable[[], Report | None] = lambda: None
    """What fills the context, for `/context`."""
    reasons: Callable[[str], Sequence[LineReason]] = lambda _handle: ()
    """Why each line of the item with this handle is shown, for `/context rN`."""
    analysis: Callable[[], Sequence[str]] = tuple
    """What a compaction would do now, a line each, for `/compact --dry-run`."""
    sessions: Callable[[], Awaitable[Sequence[SessionRow]]] | None = None
    """Sessions of this folder, newest first."""
    models: Callable[[], Sequence[str]] = tuple
    """Models that can be chosen, as `provider/model`."""
    file_text: Callable[[str], str | None] | None = None
    """The text of a file as it is now, for the diff of a `Write`; None when there is none."""
    wall_us: Callable[[], int] = lambda: 0
    """The time now, microseconds UTC, for how long tasks run."""
    task_tail: TaskTail = _no_tail
    """The last lines of a task's output, for `/tasks ID`."""
    goals: GoalPort | None = None
    """The project's goals, for `/goals`."""
    leave_policy: str = "ask"
    """What becomes of running tasks when the user leaves: `ask`, `stop` or `keep`."""
    choosing: bool = False
    """Whether the user came to choose one of `sessions`."""


class Outcome(msgspec.Struct, frozen=True):
    """Why the terminal was left. The session is closed."""

    kind: Literal["exit", "switch", "new"]
    """`switch`: open `session` next; `new`: open a new one."""
    session: str = ""
    """Id, for `switch`."""
    code: int = 0
    """Exit code, for `exit`."""
    tasks: Literal["", "stop", "keep"] = ""
    """What becomes of tasks that still run, where somebody said it; '' for each task's own policy."""
