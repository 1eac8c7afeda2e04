"""What works beside the conversation, as `system` lines: background tasks, and subagents as tasks of their own."""

from longrein.events import ChildEnded, ChildStarted, Entry, Replied, TaskEnded, TaskStarted, ToolCall, Usage, unwrapped
from longrein.frontends.headless.lines import Line
from longrein.frontends.headless.tally import Tally

SUMMARY_CHARS_MAX = 500
STATUSES = {"done": "completed", "killed": "stopped", "interrupted": "stopped"}
"""States of tasks and subagents as the stream spells them; all others failed."""


def beside(entry: Entry, tally: Tally) -> list[Line]:
    """What the line of an entry holds; `tally` is that of the entries before it."""
    match entry.event:
        case TaskStarted() as task:
            return [] if task.task in tally.tasks else [_task_started(task, tally)]
        case TaskEnded() as task:
            return [_task_ended(task)]
        case ChildStarted() as started:
            return [_child_started(entry.seq, started, tally)]
        case ChildEnded() as ended:
            return [_child_ended(ended, tally)]
        case _:
            return []


def progressed(tally: Tally, entry: Entry) -> Line:
    """How far a subagent is with its reply `entry`, which is not in its `tally` yet."""
    reply, child = entry.event, tally.child
    assert isinstance(reply, Replied)
    assert child is not None
    calls = [unwrapped(part) for part in reply.parts if isinstance(part, ToolCall)]
    usage = tally.usage + reply.usage
    last: Line = {"last_tool_name": calls[-1].name} if calls else {}
    elapsed_ms = (entry.at - tally.first_at) // 1000 if tally.first_at else 0
    return {
        "subtype": "task_progress",
        "task_id": child.label,
        "description": child.started.description,
        "usage": _usage(usage, tally.acts + len(calls), elapsed_ms),
        **last,
    }


def _task_started(task: TaskStarted, tally: Tally) -> Line:
    call: Line = {"tool_use_id": tally.named(task.call)} if task.call else {}
    return {
        "subtype": "task_started",
        "task_id": task.task,
        **call,
        "description": task.command,
        "task_type": "local_bash",
        "is_backgrounded": True,
    }


def _task_ended(task: TaskEnded) -> Line:
    code = "" if task.code is None else f", exit code {task.code}"
    cause = f", {task.cause}" if task.cause else ""
    return {
        "subtype": "task_notification",
        "task_id": task.task,
        "status": STATUSES.get(task.state, "failed"),
        "output_file": task.output,
        "summary": f"{task.state}{code}{cause}",
    }


def _child_started(seq: int, started: ChildStarted, tally: Tally) -> Line:
    child = tally.joined(seq, started)
    call: Line = {"tool_use_id": child.call} if child.call else {}
    return {
        "subtype": "task_started",
        "task_id": child.label,
        **call,
        "description": started.description,
        "task_type": "local_agent",
        "is_backgrounded": started.background,
        "spawn_depth": child.label.count(".") + 1,
    }


def _child_ended(ended: ChildEnded, tally: Tally) -> Line:
    child = tally.children.get(ended.child)
    call: Line = {"tool_use_id": child.call} if child and child.call else {}
    return {
        "subtype": "task_notification",
        "task_id": child.label if child else ended.child,
        **call,
        "status": STATUSES.get(ended.status, "failed"),
        "output_file": "",
        "summary": (ended.message or ended.report)[:SUMMARY_CHARS_MAX],
        "usage": _usage(ended.usage, ended.steps, ended.elapsed_ms),
    }


def _usage(usage: Usage, acts: int, elapsed_ms: int) -> Line:
    return {
        "total_tokens": usage.context_tokens + usage.output_tokens,
        "tool_uses": acts,
        "duration_ms": elapsed_ms,
    }
