"""Read the spool from any process: which tasks run, how others ended, and their output.

The supervisor writes the spool; `supervisor.spool_writer` describes the files. Reading looks at
files only.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from stat import S_IRUSR, S_ISFIFO
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec

from longrein.atomic_file import replace_file
from longrein.workspace.supervisor.channel import RECORD
from longrein.workspace.supervisor.process_tree import (
    LINUX,
    children_of,
    owner_process,
    process,
)
from longrein.workspace.workspace_port import SpooledTask

SPOOL = "tasks"
"""Folder of the spool in a session's folder."""
DEPTH_MAX = 6
"""Generations of processes that are searched for one that waits for input."""
HEAD_OFFSET = -1
"""Stands for the file of the first half, where offsets name the others."""
ENDINGS = ("out", "whole", "whole.new", "end.new", "end")
"""Suffixes of a task's files, beside its record and its newest half."""
EARLY_PREFIX = "early"
"""Prefix of output that belongs to no task yet; the pid of a longrein follows."""
COPY_BYTES = 1 << 20
NO_SUPERVISOR = "its supervisor ended without telling how it went"
UNREADABLE = "its end was written and cannot be read"
RECORD_BYTES_MAX = 4 << 20
"""Largest record: a command line as JSON, and little more."""
_TASK_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class _Record(TypedDict):
    """Record that the supervisor writes when it keeps a task."""

    command: str
    cwd: str
    pid: _Count
    start: _Count
    mark: str
    owner: str
    policy: str
    started_at: _Count
    began_s: _Seconds
    stdin_inode: NotRequired[_Count]


class _End(TypedDict):
    """Record that the supervisor writes when a task is over."""

    state: Literal["done", "failed", "timed_out", "killed", "lost"]
    code: int | None
    cause: str
    elapsed_s: _Seconds
    size_bytes: _Count
    elided_bytes: _Count
    lost: str


class _Owner(TypedDict):
    """Record of a supervisor."""

    pid: _Count
    start: _Count


def spooled_tasks(session_folder: str) -> list[SpooledTask]:
    """Return all tasks of a session's spool, oldest first.

    A task without an end whose supervisor is dead is `lost`. A task with an unreadable record is
    left out; see `unreadable_tasks`.
    """
    folder = os.path.join(session_folder, SPOOL)
    found = [read_task(folder, task) for task in task_ids(folder)]
    return sorted(
        (one for one in found if one is not None), key=lambda one: (one.started_at, one.task)
    )


def unreadable_tasks(session_folder: str) -> list[str]:
    """Return the paths of records that cannot be read: damaged, or of another version."""
    folder = os.path.join(session_folder, SPOOL)
    return [
        os.path.join(folder, f"{task}.json")
        for task in task_ids(folder)
        if not record_of(folder, task)
    ]


def is_supervised(session_folder: str) -> bool:
    """Tell whether a session has a live supervisor."""
    owner = _json(os.path.join(session_folder, SPOOL, f"{RECORD}.json"), _Owner)
    return bool(owner) and process(owner["pid"], owner["start"]) is not None


def task_ids(folder: str) -> list[str]:
    """Return the ids of all tasks with a record in this spool."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    tasks = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(task for task in tasks if usable_id(task))


def usable_id(task: str) -> bool:
    """Tell whether a task may have this id: it names files, and `v1` and the like are reserved."""
    supervisor = task.startswith("v") and task[1:].isdecimal()
    return (
        bool(task) and _TASK_CHARS.issuperset(task) and not task.startswith(".") and not supervisor
    )


def record_of(folder: str, task: str) -> dict[str, Any]:
    """Return the record of a task; empty when it is missing or unreadable."""
    return _json(os.path.join(folder, f"{task}.json"), _Record)


def read_task(
    folder: str, task: str, record: Mapping[str, Any] | None = None
) -> SpooledTask | None:
    """Read a task as it is now; None for one that is not in this spool. `record` saves reading
    it.
    """
    record = record_of(folder, task) if record is None else record
    if not record:
        return None
    spooled = SpooledTask(
        task,
        record["command"],
        record["cwd"],
        record["pid"],
        record["started_at"],
        record["policy"],
        os.path.join(folder, f"{task}.out"),
    )
    end = _json(os.path.join(folder, f"{task}.end"), _End)
    if not end and has_end(folder, task):
        end = lost_end(folder, task, UNREADABLE)
    spooled = with_end(
        spooled, end or lost_end(folder, task, NO_SUPERVISOR), _last_written(folder, task)
    )
    if end or not owner_lives(record):
        return spooled
    return msgspec.structs.replace(
        spooled,
        state="running",
        cause="",
        elapsed_s=max(0.0, time.monotonic() - record["began_s"]),
        reads_input=waits_for_input(record["pid"], record.get("stdin_inode", 0)),
    )


def with_end(spooled: SpooledTask, end: Mapping[str, Any], written_at: int = 0) -> SpooledTask:
    """Return the task with the fields of its end."""
    fields = {name: end[name] for name in _End.__annotations__}
    return msgspec.structs.replace(spooled, written_at=written_at, **fields)


def has_end(folder: str, task: str) -> bool:
    """Tell whether the task's end was written."""
    return os.path.exists(os.path.join(folder, f"{task}.end"))


def owner_lives(record: Mapping[str, Any]) -> bool:
    """Tell whether the supervisor that kept a task is alive."""
    return owner_process(str(record.get("owner", ""))) is not None


def lost_end(folder: str, task: str, cause: str) -> dict[str, Any]:
    """Build the end of a task whose outcome is unknown."""
    size, elided = _sizes(folder, task)
    sizes = {"size_bytes": size, "elided_bytes": elided, "lost": ""}
    return {"state": "lost", "code": None, "cause": cause, "elapsed_s": 0.0, "ended_at": 0, **sizes}


def write_lost(folder: str, task: str, cause: str) -> None:
    """Write that a task is lost, unless it has an end. Raises OSError."""
    from longrein.workspace.supervisor.spool_writer import write_end

    if not has_end(folder, task):
        write_end(folder, task, lost_end(folder, task, cause))


def mark_lost_tasks(session_folder: str) -> list[str]:
    """Mark a session's tasks as lost whose supervisor is dead. Their processes must be gone."""
    folder = os.path.join(session_folder, SPOOL)
    lost = [
        task
        for task in task_ids(folder)
        if not has_end(folder, task) and not owner_lives(record_of(folder, task))
    ]
    for task in lost:
        try:
            write_lost(folder, task, NO_SUPERVISOR)
        except OSError:
            return []  # the next reader comes to the same result
    return lost


# --- Output ---------------------------------------------------------------------------------------


def extent(folder: str, task: str) -> tuple[int, list[tuple[int, int]]]:
    """Return (size of the first file, [(offset, size) of each file of the newest half])."""
    found = (
        (offset, _file_size(_piece(folder, task, offset))) for offset in _offsets(folder, task)
    )
    return _file_size(_piece(folder, task, HEAD_OFFSET)), [
        (offset, size) for offset, size in found if size
    ]


def _offsets(folder: str, task: str) -> list[int]:
    try:
        return sorted(
            int(name)
            for name in os.listdir(os.path.join(folder, f"{task}.more"))
            if name.isdecimal()
        )
    except OSError:
        return []


def _piece(folder: str, task: str, offset: int) -> str:
    return os.path.join(folder, f"{task}.out" if offset == HEAD_OFFSET else f"{task}.more/{offset}")


def _file_size(path: str) -> int:
    with suppress(OSError):  # the supervisor drops the oldest piece at any moment
        return os.path.getsize(path)
    return 0


def _sizes(folder: str, task: str) -> tuple[int, int]:
    """Return (bytes printed, bytes of them that were not kept), as far as the files tell."""
    head, pieces = extent(folder, task)
    size = sum(pieces[-1]) if pieces else head
    return size, size - head - sum(length for _, length in pieces)


def read_output(folder: str, task: str, start: int, size_bytes: int) -> tuple[int, bytes]:
    """Read output from byte `start` on: (offset where it begins, bytes); b"" at the end."""
    head, pieces = extent(folder, task)
    for offset, size in ((HEAD_OFFSET, head), *pieces):
        at = max(0, offset)
        if start < at + size:
            begin = max(start, at)
            with suppress(OSError), open(_piece(folder, task, offset), "rb") as file:
                if data := os.pread(file.fileno(), size_bytes, begin - at):
                    return begin, data
    return max(start, _sizes(folder, task)[0]), b""


def make_whole(folder: str, task: str, gap: str) -> str:
    """Write all kept output to one file and return its path; '' when there is none.

    `gap` is inserted where bytes are missing, with `{}` for their number. Repeated calls give the
    same. Raises OSError.
    """
    head, pieces = extent(folder, task)
    if not pieces:
        return os.path.join(folder, f"{task}.out") if head else ""
    whole = os.path.join(folder, f"{task}.whole")
    if os.path.exists(whole):
        return whole
    spans = ((HEAD_OFFSET, head), *pieces)
    replace_file(whole, _kept_output(folder, task, spans, gap), durable=False)
    return whole


def _kept_output(
    folder: str, task: str, spans: Sequence[tuple[int, int]], gap: str
) -> Iterator[bytes]:
    at = 0
    for offset, size in spans:
        if offset > at:
            yield gap.replace("{}", f"{offset - at:,}").encode()
        try:
            with open(_piece(folder, task, offset), "rb") as file:
                while data := file.read(COPY_BYTES):
                    yield data
        except FileNotFoundError:
            pass  # nothing was kept of the first half
        at = max(0, offset) + size


def remove_task(folder: str, task: str) -> None:
    """Remove a task's files, its record first: what a crash leaves belongs to no task and is
    swept.
    """
    names = [f"{task}.json", *(f"{task}.more/{offset}" for offset in _offsets(folder, task))]
    for name in (*names, *(f"{task}.{end}" for end in ENDINGS)):
        with suppress(OSError):
            os.unlink(os.path.join(folder, name))
    with suppress(OSError):
        os.rmdir(os.path.join(folder, f"{task}.more"))


def sweep_spool(folder: str) -> None:
    """Remove files of a crash that belong to no task. No task may be kept at this moment."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    left = (
        name.rpartition(".")[0]
        for name in names
        if name.endswith((".out", ".more", ".end", ".whole"))
    )
    for task in sorted(set(left)):
        if usable_id(task) and f"{task}.json" not in names and not _early_of_the_living(task):
            remove_task(folder, task)


def _early_of_the_living(name: str) -> bool:
    """Tell whether the file is foreground output of a live longrein."""
    begin, _, pid = name.partition("-")
    return (
        begin == EARLY_PREFIX
        and (number := pid.partition("-")[0]).isdecimal()
        and process(int(number)) is not None
    )


def _last_written(folder: str, task: str) -> int:
    """Time of the last output, microseconds UTC; 0 for none."""
    with suppress(OSError):
        return (
            os.stat(
                _piece(folder, task, max(_offsets(folder, task), default=HEAD_OFFSET))
            ).st_mtime_ns
            // 1000
        )
    return 0


def _json(path: str, kind: Any) -> dict[str, Any]:
    """Decode a file; empty when it is missing or of another kind, so that one bad file hides no
    other.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            found: dict[str, Any] = msgspec.json.decode(file.read(RECORD_BYTES_MAX), type=kind)
    except (OSError, ValueError, RecursionError):
        return {}
    return found


# --- Waiting for input ----------------------------------------------------------------------------


def waits_for_input(pid: int, inode: int) -> bool:
    """Tell whether a process below `pid` reads the pipe `inode` as standard input, as far as is
    known.
    """
    return bool(inode) and any(_is_reading(one, inode) for one in _with_descendants(pid))


def _with_descendants(pid: int) -> Iterator[int]:
    generation = [pid] if LINUX else []  # elsewhere there is no /proc to look at
    for _ in range(DEPTH_MAX):
        yield from generation
        generation = [child for one in generation for child in children_of(one)]


def _is_reading(pid: int, inode: int) -> bool:
    try:
        with open(f"/proc/{pid}/wchan", "rb") as file:
            where = file.read()
        return b"pipe_read" in where and os.stat(f"/proc/{pid}/fd/0").st_ino == inode
    except OSError:
        return False


def waits_for_keys(pid: int) -> tuple[str, bytes]:
    """Return the program below `pid` that waits for keys of a terminal, and how often all its
    processes have run, which is the same again while none runs; ("", b"") for none.

    Editors such as vim take the keys from their standard error once standard input has ended.
    Of a command that is a pipe open for writing alone, so no key can ever come.
    """
    name, runs = "", b""
    for one in _with_descendants(pid):
        with suppress(OSError), open(f"/proc/{one}/status", "rb") as file:
            status = file.read()
            runs += b"".join(status.partition(b"\nvoluntary_ctxt_switches")[1:])
            if _polls_error_pipe(one):
                name = os.fsdecode(status.partition(b"\n")[0].removeprefix(b"Name:").strip())
    return (name, runs) if name else ("", b"")


def _polls_error_pipe(pid: int) -> bool:
    """Tell whether a process without children waits, and its standard input is its standard
    error, a pipe that it can only write. Raises OSError when it is gone.
    """
    keys, errors = f"/proc/{pid}/fd/0", f"/proc/{pid}/fd/2"
    if os.lstat(keys).st_mode & S_IRUSR or not S_ISFIFO(os.stat(keys).st_mode):
        return False
    with open(f"/proc/{pid}/wchan", "rb") as file:
        is_polling = b"poll" in file.read()
    return is_polling and os.path.samefile(keys, errors) and not children_of(pid)
