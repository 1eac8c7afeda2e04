"""Background tasks of all sessions, as text or JSON: running ones from the spools, ended ones from the logs."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import msgspec

from longrein.events import Entry, TaskEnded, TaskStarted, UsageError
from longrein.frontends import text_format
from longrein.frontends.text_format import escape, escape_line
from longrein.store import SessionHistory
from longrein.workspace import SPOOL, SpooledTask, read_output, spooled_tasks

TAIL_LINES = 20
"""Default number of lines of a task's output."""
TAIL_BYTES = 256 * 1024
"""Bytes read from the end of an output for its last lines."""
SESSION_CHARS = 8
"""Characters of a session id in the table; a unique beginning is accepted everywhere."""

Read = Callable[[int, int], tuple[int, bytes]]
"""(offset, size) -> (actual offset, bytes); b"" at the end."""


class TaskRow(msgspec.Struct, frozen=True):
    """One task of one session."""

    session: str
    """UUID."""
    folder: str
    """Folder of the session."""
    open: bool
    """Whether a process has the session open."""
    supervised: bool
    """Whether its supervisor runs."""
    task: SpooledTask


# --- Finding tasks ---------------------------------------------------------------------------------------------------


def tasks_in_log(past: SessionHistory) -> dict[str, tuple[Entry, TaskEnded | None]]:
    """Tasks of a session and its subagents by id: the entry of the `TaskStarted`, and the end."""
    found: dict[str, tuple[Entry, TaskEnded | None]] = {}
    for entry in own_entries(past, "TaskStarted", "TaskEnded"):
        event = entry.event
        if isinstance(event, TaskStarted):
            found[event.task] = (entry, None)
        elif isinstance(event, TaskEnded) and event.task in found:
            found[event.task] = (found[event.task][0], event)
    for child in children(past):
        if (below := past.child(child)) is not None:
            found |= tasks_in_log(below)
    return found


def own_entries(past: SessionHistory, *kinds: str) -> list[Entry]:
    """Entries of these kinds in order, without those that a fork shares with its original."""
    first = next((entry.seq for entry in past.of_kind("Opened")), 1)
    found: list[Entry] = []
    for entry in past.of_kind(*kinds):
        if entry.seq < first:
            break
        found.append(entry)
    return found[::-1]


def children(past: SessionHistory) -> list[str]:
    """Session ids of the subagents that a session started."""
    names = [entry.event.child for entry in own_entries(past, "ChildStarted") if hasattr(entry.event, "child")]
    return list(dict.fromkeys(names))


def spooled_from_log(entry: Entry, ended: TaskEnded | None) -> SpooledTask:
    """A task that is no longer in the spool, from the log."""
    started = entry.event
    assert isinstance(started, TaskStarted)
    state = ended.state if ended else started.state
    task = SpooledTask(started.task, started.command, started.cwd, 0, entry.at, started.policy, "", state=state)
    if ended is None:
        return task
    return msgspec.structs.replace(
        task,
        size_bytes=ended.size_bytes,
        elided_bytes=ended.elided_bytes,
        code=ended.code,
        cause=ended.cause,
        elapsed_s=ended.elapsed_ms / 1000,
    )


def find_task(rows: Sequence[TaskRow], wanted: str) -> TaskRow:
    """The task named `b3`, or `SESSION/b3` with the beginning of a session id. Raises `UsageError`."""
    session, slash, name = wanted.rpartition("/")
    found = [row for row in rows if row.task.task == name and row.session.startswith(session.lower())]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{len(found)} sessions have a task {name}: {', '.join(_name(row) for row in found)}")
    where = f"session {session} has" if slash else "there is"
    raise UsageError(f"{where} no task {name!r} that runs; `longrein tasks` lists them")


# --- Output ----------------------------------------------------------------------------------------------------------


def last_lines(read: Read, size_bytes: int, lines: int) -> str:
    """The last `lines` of an output of `size_bytes` that may still grow."""
    at = start = max(0, size_bytes - TAIL_BYTES)
    kept = b""
    while True:
        begin, data = read(at, TAIL_BYTES)
        if not data:
            break
        kept = kept + data if begin == at else data
        at = begin + len(data)
        kept = kept[-TAIL_BYTES:]
    whole = kept.partition(b"\n")[2] if start else kept
    return _last((whole,), lines)


def output_tail(past: SessionHistory, folder: str, task: str, lines: int = TAIL_LINES) -> str:
    """Last `lines` of the output of a task of the session stored in `folder`; '' without output."""
    spooled = next((one for one in spooled_tasks(folder) if one.task == task), None)
    if spooled is not None:
        spool = os.path.join(folder, SPOOL)
        return last_lines(lambda at, size: read_output(spool, task, at, size), spooled.size_bytes, lines)
    _, ended = tasks_in_log(past).get(task, (None, None))
    return _last(past.pieces(ended.output), lines) if ended and ended.output else ""


def _last(pieces: Sequence[bytes] | Iterator[bytes], lines: int) -> str:
    kept: deque[bytes] = deque(maxlen=lines)
    held = b""
    for piece in pieces:
        *whole, held = (held + piece).split(b"\n")
        kept.extend(whole)
        held = held[-TAIL_BYTES:]
    if held:
        kept.append(held)
    return b"\n".join(kept).decode("utf-8", "replace")


# --- Pages -----------------------------------------------------------------------------------------------------------


def as_json(rows: Sequence[TaskRow]) -> bytes:
    """One JSON array with one object per task."""
    flat = [
        {**msgspec.to_builtins(row.task), "session": row.session, "folder": row.folder, "open": row.open}
        | {"supervised": row.supervised}
        for row in rows
    ]
    return msgspec.json.format(msgspec.json.encode(flat)) + b"\n"


def as_table(rows: Sequence[TaskRow]) -> bytes:
    """Table with one line per task."""
    if not rows:
        return b"no background tasks\n"
    table = [("task", "state", "time", "output", "looked after by", "command"), *map(_cells, rows)]
    widths = [max(len(cells[column]) for cells in table) for column in range(5)]
    lines = ["  ".join((*map(str.ljust, cells, widths), cells[5])).rstrip() for cells in table]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def as_page(row: TaskRow, tail: str) -> bytes:
    """One task and the end of its output."""
    task = row.task
    facts = [
        ("command", escape_line(task.command)),
        ("folder", escape_line(task.cwd)),
        ("state", _state(task)),
        ("time", text_format.elapsed(task.elapsed_s)),
        ("output", text_format.size(task.size_bytes) + (f", {escape_line(task.path)}" if task.path else "")),
        ("looked after by", _keeper(row)),
    ]
    head = [f"{name:<16} {value}" for name, value in facts if value]
    shown = escape(tail).splitlines()
    return ("\n".join([*head, *([""] if shown else []), *shown]) + "\n").encode("utf-8", "replace")


def _cells(row: TaskRow) -> tuple[str, ...]:
    task = row.task
    first, newline, _ = task.command.strip().partition("\n")
    command = escape_line(first) + (" …" if newline else "")
    return (
        _name(row),
        _state(task),
        text_format.elapsed(task.elapsed_s),
        text_format.size(task.size_bytes),
        _keeper(row),
        command,
    )


def _name(row: TaskRow) -> str:
    return f"{row.session[:SESSION_CHARS]}/{escape_line(row.task.task)}"


def _state(task: SpooledTask) -> str:
    cause = escape_line(task.cause) if task.cause and task.state not in ("done", "failed") else ""
    facts = [f"exit code {task.code}" if task.code else "", cause, "waits for input" if task.reads_input else ""]
    told = ", ".join(filter(None, facts))
    return task.state.replace("_", " ") + (f" ({told})" if told else "")


def _keeper(row: TaskRow) -> str:
    """The process that reads the output of an unfinished task."""
    if row.task.state not in ("running", "queued"):
        return ""
    if not row.supervised:
        return "nobody" if row.task.state == "running" else ""
    return "longrein" if row.open else "its supervisor"
