"""From what the spool tells of a task to the fact of its end, and to what a person is shown of it."""

from longrein.agent.tasks.slices import last_lines
from longrein.context import TaskNow
from longrein.events import TaskEnded
from longrein.tools import TaskView
from longrein.workspace import Spooled, Supervision

TAIL_LINES = 100
"""Of the tail that an end carries."""
UNKNOWN = "longrein ended before it was kept, or the folder of its output is gone"


def ended(found: Spooled, output: str, tail: str, note: str = "") -> TaskEnded:
    """The end of a task that the spool knows."""
    gone = not output and not note  # nothing to put away: what it printed is not there any more
    cause = "; ".join(filter(None, (found.cause, found.lost and f"output not kept whole: {found.lost}", note)))
    return TaskEnded(
        found.task,
        found.state,
        found.code,
        cause,
        output,
        round(found.elapsed_s * 1000),
        found.size_bytes,
        found.size_bytes if gone else found.elided_bytes,
        tail,
    )


def tail_of(supervision: Supervision, found: Spooled, tail_bytes: int) -> str:
    """The end of its output as safe text."""
    if not found.size_bytes or tail_bytes <= 0:
        return ""
    shown = last_lines(
        lambda start, size: supervision.read(found.task, start, size), found.size_bytes, TAIL_LINES, tail_bytes
    )
    return shown.text.rstrip("\n")


def view(now: TaskNow, found: Spooled | None, now_us: int) -> TaskView:
    """A task of this session: what the log says, and of a running one what the spool says now."""
    started, end = now.started, now.ended
    task, command, policy = started.task, started.command, started.policy
    if end is not None:
        return TaskView(
            task,
            end.state,
            command,
            policy=policy,
            elapsed_s=end.elapsed_ms / 1000,
            size_bytes=end.size_bytes,
            elided_bytes=end.elided_bytes,
            code=end.code,
            cause=end.cause,
            handle=f"r{now.ended_seq}" if now.ended_seq else "",
        )
    if started.state == "queued" or found is None:
        why = "waits for its turn" if started.state == "queued" else ""
        return TaskView(task, started.state, command, _seconds(now_us - now.at), cause=why, policy=policy)
    running = found.state == "running"
    printed = max(found.written_at, found.started_at)
    return TaskView(
        task,
        found.state,
        command,
        policy=policy,
        elapsed_s=found.elapsed_s,
        size_bytes=found.size_bytes,
        elided_bytes=found.elided_bytes,
        silent_s=min(_seconds(now_us - printed), found.elapsed_s) if running else 0.0,
        code=found.code,
        cause=found.cause,
        path=found.path,
    )


def _seconds(us: int) -> float:
    """A length of time; a clock that was set back makes it nothing, not less."""
    return max(0, us) / 1e6
