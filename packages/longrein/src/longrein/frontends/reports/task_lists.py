"""Background tasks of all sessions, as text or JSON: running ones from the spools, ended ones
from the logs.
"""

from collections.abc import Sequence

from msgspec import Struct, structs, to_builtins

from longrein.frontends.reports.session_lists import table
from longrein.steps.human_text import (
    elapsed,
    escape,
    escape_line,
    first_line,
    joined,
    json_page,
    size,
)
from longrein.workspace import SpooledTask
from longrein_context.events import Entry, TaskEnded, TaskStarted, UsageError

SESSION_CHARS = 8
"""Characters of a session id in the table; a unique beginning is accepted everywhere."""


class TaskRow(Struct, frozen=True):
    """A task of one session."""

    session: str
    folder: str
    open: bool
    supervised: bool
    task: SpooledTask


def spooled_from_log(entry: Entry, ended: TaskEnded | None) -> SpooledTask:
    """A task that is no longer in the spool, from the log."""
    started = entry.event
    assert isinstance(started, TaskStarted)
    task = SpooledTask(
        started.task,
        started.command,
        started.cwd,
        0,
        entry.at,
        started.policy,
        "",
        state=started.state,
    )
    if ended is None:
        return task
    return structs.replace(
        task,
        state=ended.state,
        size_bytes=ended.size_bytes,
        elided_bytes=ended.elided_bytes,
        code=ended.code,
        cause=ended.cause,
        elapsed_s=ended.elapsed_ms / 1000,
    )


def find_task(rows: Sequence[TaskRow], wanted: str) -> TaskRow:
    """The task named `b3`, or `SESSION/b3` with the beginning of a session id. Raises
    `UsageError`.
    """
    session, slash, name = wanted.rpartition("/")
    found = [
        row for row in rows if row.task.task == name and row.session.startswith(session.lower())
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"{len(found)} sessions have a task {name}: {', '.join(_name(row) for row in found)}"
        )
    where = f"session {session} has" if slash else "there is"
    raise UsageError(f"{where} no task {name!r} that runs; `longrein tasks` lists them")


TABLE_COLUMNS = ("task", "state", "time", "output", "looked after by", "command")
PAGE_COLUMNS = ("command", "folder", "state", "time", "output", "looked after by")


def as_json(rows: Sequence[TaskRow]) -> bytes:
    """A JSON array with one object per task."""
    names = ("session", "folder", "open", "supervised")
    return json_page(
        [{**to_builtins(row.task), **{name: getattr(row, name) for name in names}} for row in rows]
    )


def as_table(rows: Sequence[TaskRow]) -> bytes:
    """Table with one line per task."""
    if not rows:
        return b"no background tasks\n"
    cells = [_cells(row) | {"command": first_line(row.task.command)} for row in rows]
    return table([TABLE_COLUMNS, *([cell[name] for name in TABLE_COLUMNS] for cell in cells)])


def as_page(row: TaskRow, tail: str) -> bytes:
    """A task and the end of its output."""
    cells = _cells(row)
    if row.task.path:
        cells["output"] += f", {escape_line(row.task.path)}"
    head = [f"{name:<16} {cells[name]}" for name in PAGE_COLUMNS if cells[name]]
    shown = escape(tail).splitlines()
    return ("\n".join([*head, *([""] if shown else []), *shown]) + "\n").encode("utf-8", "replace")


def _cells(row: TaskRow) -> dict[str, str]:
    """Escaped texts of a task by column, for the table and the page."""
    task = row.task
    return {
        "task": _name(row),
        "state": _state(task),
        "time": elapsed(task.elapsed_s),
        "output": size(task.size_bytes),
        "looked after by": _keeper(row),
        "folder": escape_line(task.cwd),
        "command": escape_line(task.command),
    }


def _name(row: TaskRow) -> str:
    return f"{row.session[:SESSION_CHARS]}/{escape_line(row.task.task)}"


def _state(task: SpooledTask) -> str:
    cause = escape_line(task.cause) if task.state not in ("done", "failed") else ""
    details = joined(
        f"exit code {task.code}" if task.code else "", cause, "waits for input" * task.reads_input
    )
    return task.state.replace("_", " ") + (f" ({details})" if details else "")


def _keeper(row: TaskRow) -> str:
    """The process that reads the output of an unfinished task."""
    match row.task.state, row.supervised:
        case "running", False:
            return "nobody"
        case "running" | "queued", True:
            return "longrein" if row.open else "its supervisor"
        case _:
            return ""
