"""Entries as stream-json lines: a function of an entry and the run state before it."""

import os
from typing import assert_never

from longrein.app import AppSession
from longrein.frontends.headless.run_state import RunState
from longrein.frontends.headless.slash_commands import COMMANDS
from longrein.frontends.headless.stream_json_blocks import (
    ERRORS,
    Line,
    assistant_message,
    part_text,
    reply_blocks,
    tail,
)
from longrein.steps import (
    BreakStep,
    CallStep,
    CompactionStep,
    FileStep,
    NoticeStep,
    PromptStep,
    QuestionStep,
    RequestStep,
    SettingStep,
    Step,
    StreamStep,
    SubagentStep,
    TaskStep,
    TextStep,
    ThinkingStep,
    TurnEndStep,
)
from longrein_context.events import (
    AskFailed,
    HookAnswered,
    Replied,
    Text,
    ToolCall,
    ToolEnded,
    Usage,
    UserSpoke,
    unwrapped,
)

SUMMARY_CHARS_MAX = 500
STATUSES = {"done": "completed", "killed": "stopped", "interrupted": "stopped"}
"""State of a task or subagent -> status in the stream; other states are `failed`."""


def _background(step: TaskStep | SubagentStep, run_state: RunState) -> Line | None:
    """Fields of the line of a step about background work; None without one."""
    match step:
        case TaskStep(ended=task) if task:
            code = "" if task.code is None else f", exit code {task.code}"
            cause = f", {task.cause}" if task.cause else ""
            return _ended(task.task, "", task.state, task.output, f"{task.state}{code}{cause}")
        case TaskStep(started=task) if task and task.task not in run_state.tasks:
            call = run_state.qualified_id(task.call)
            return _started(task.task, call, task.command, "local_bash", background=True)
        case SubagentStep(ended=report) if report:
            subagent = run_state.subagent_of(step)
            summary = (report.message or report.report)[:SUMMARY_CHARS_MAX]
            line = _ended(subagent.label, subagent.call, report.status, "", summary)
            return line | {"usage": _usage(report.usage, report.steps, report.elapsed_ms)}
        case SubagentStep(started=start) if start:
            subagent = run_state.subagent_of(step)
            line = _started(
                subagent.label,
                subagent.call,
                start.description,
                "local_agent",
                background=start.background,
            )
            return line | {"spawn_depth": subagent.label.count(".") + 1}
        case _:
            return None


def _started(task: str, call: str, description: str, kind: str, *, background: bool) -> Line:
    return {
        "subtype": "task_started",
        "task_id": task,
        **({"tool_use_id": call} if call else {}),
        "description": description,
        "task_type": kind,
        "is_backgrounded": background,
    }


def _ended(task: str, call: str, state: str, output: str, summary: str) -> Line:
    return {
        "subtype": "task_notification",
        "task_id": task,
        **({"tool_use_id": call} if call else {}),
        "status": STATUSES.get(state, "failed"),
        "output_file": output,
        "summary": summary,
    }


def _progress(run_state: RunState, at: int, reply: Replied) -> Line:
    """Fields of the progress line of a subagent's reply, which is not in `run_state` yet."""
    subagent = run_state.subagent
    assert subagent is not None
    calls = [unwrapped(part) for part in reply.parts if isinstance(part, ToolCall)]
    elapsed_ms = (at - run_state.first_at) // 1000 if run_state.first_at else 0
    return {
        "subtype": "task_progress",
        "task_id": subagent.label,
        "description": subagent.started.description,
        "usage": _usage(
            run_state.usage + reply.usage, run_state.call_count + len(calls), elapsed_ms
        ),
        **({"last_tool_name": calls[-1].name} if calls else {}),
    }


def _usage(usage: Usage, calls: int, elapsed_ms: int) -> Line:
    return {"total_tokens": usage.total_tokens, "tool_uses": calls, "duration_ms": elapsed_ms}


NOTIFICATIONS = ("bg_done", "bg_lost", "bg_stalled", "subagent_done", "subagent_failed")


def draw(step: Step, run_state: RunState) -> list[Line]:
    """Lines of a step of the log; most steps give one line or none."""
    fields: Line | None = None
    match step:
        case RequestStep(reply=reply, purpose="turn") if reply:
            return _replied(step, reply, run_state)
        case CallStep(ended=end) if end:
            return _tool_ended(step, end, run_state)
        case NoticeStep(kind="reminder" | "interrupt", text=text) if text:
            line = _user(run_state, {"type": "text", "text": text}) | {"isSynthetic": True}
            if step.reminder and step.reminder.kind in NOTIFICATIONS:
                line["origin"] = {"kind": "task-notification"}
            return [line | run_state.tail(step.seq)]
        case TurnEndStep(reason="error") if run_state.failure:
            return [_failure(*run_state.failure, run_state)]
        case TaskStep() | SubagentStep():
            fields = _background(step, run_state)
        case RequestStep() | CompactionStep() | SettingStep():
            fields = _system_fields(step, run_state) if run_state.root is None else None
        case PromptStep() | TextStep() | ThinkingStep() | StreamStep() | CallStep():
            pass
        case QuestionStep() | FileStep() | NoticeStep() | BreakStep() | TurnEndStep():
            pass
        case _:
            assert_never(step)
    return [_system(step, run_state, fields)] if fields else []


def _system_fields(
    step: RequestStep | CompactionStep | SettingStep, run_state: RunState
) -> Line | None:
    """Fields of the `system` line of a step; None without one."""
    match step:
        case RequestStep(purpose="summary", reply=None, failure=None, asked=asked) if asked:
            is_ahead = asked.reason == "ahead"  # it does not delay the turn
            return None if is_ahead else {"subtype": "status", "status": "compacting"}
        case RequestStep(purpose="summary"):
            return {"subtype": "status", "status": None}
        case CompactionStep(cause="cleared", reason="micro_compact" | "rent" | "cold"):
            return None  # does not delay the turn
        case CompactionStep(cause="cleared" | "summarised", reason=reason):
            before = run_state.reply.usage if run_state.reply else Usage()
            trigger = "manual" if reason == "request" else "auto"
            return {
                "subtype": "compact_boundary",
                "compact_metadata": {"trigger": trigger, "pre_tokens": before.total_tokens},
            }
        case SettingStep(name="mode", value=mode):
            return {"subtype": "status", "status": None, "permissionMode": mode}
        case _:
            return None


def draw_init(opened: AppSession, start: int) -> Line:
    """The first line of a run that begins after entry `start`."""
    context = opened.app.context
    state = opened.session.state
    skills = opened.find_skills()
    servers = [
        {"name": name, "status": status.replace("connecting", "pending")}
        for name, status in opened.connections()
    ]
    line: Line = {
        "type": "system",
        "subtype": "init",
        "cwd": state.cwd.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "tools": list(opened.tool_names),
        "mcp_servers": servers,
        "model": opened.model,
        "permissionMode": state.mode,
        "slash_commands": [*COMMANDS, *(one.name for one in skills if one.for_user)],
        "agents": [kind.name for kind in opened.subagent_types],
        "skills": [one.name for one in skills if one.kind == "skill"],
        "plugins": [
            {"name": os.path.basename(path.rstrip("/")), "path": path}
            for path in context.options.plugin_dirs
        ],
        "left_out": list(context.trusted.left_out),
        "output_style": "default",
        "apiKeySource": opened.key_source,
        "claude_code_version": opened.app.version,
        "longrein_version": opened.app.version,
        "sandbox": opened.sandbox,
    }
    return line | tail(opened.session.id, f"init.{start}")


def draw_hook(step: Step, hook: HookAnswered, run_state: RunState) -> list[Line]:
    """The run of a hook: its start and its end, both known when it has ended."""
    output = "\n".join(filter(None, (hook.text, hook.context, hook.message)))
    names: Line = {
        "hook_id": f"{run_state.label}h{step.seq}",
        "hook_name": hook.hook,
        "hook_event": hook.event,
    }
    outcome = {
        "output": output,
        "stdout": hook.context,
        "stderr": hook.text,
        "decision": hook.decision,
    }
    ended = {
        "subtype": "hook_response",
        **names,
        **outcome,
        "outcome": "error" if hook.failed else "success",
    }
    return [
        _system(step, run_state, {"subtype": "hook_started", **names}, key=f"hook.{step.seq}"),
        _system(step, run_state, ended),
    ]


def draw_replay(step: Step, said: UserSpoke, run_state: RunState) -> list[Line]:
    """A message of the user as it was taken; its id can be given to `rewind_files` and
    `--resume-session-at`.
    """
    message = {
        "role": "user",
        "content": [{"type": "text", "text": part_text(part)} for part in said.parts],
    }
    line = {"type": "user", "message": message, "parent_tool_use_id": None, "isReplay": True}
    return [line | run_state.tail(step.seq)]


def _system(step: Step, run_state: RunState, fields: Line, key: str = "") -> Line:
    return {"type": "system", **fields, **run_state.tail(key or step.seq)}


def _user(run_state: RunState, block: Line) -> Line:
    message = {"role": "user", "content": [block]}
    return {"type": "user", "message": message, "parent_tool_use_id": run_state.parent}


def _replied(step: Step, reply: Replied, run_state: RunState) -> list[Line]:
    is_cut = reply.stop == "interrupted"
    parts = [part for part in reply.parts if isinstance(part, Text) or not is_cut]
    blocks = reply_blocks(parts, run_state.qualified_id)
    line: Line = {
        "type": "assistant",
        "message": assistant_message(
            run_state.session, reply.asked, reply.model or run_state.model, blocks, reply
        ),
        "parent_tool_use_id": run_state.parent,
    }
    if reply.stop == "length":
        line["error"] = "max_output_tokens"
    lines = [line | run_state.tail(step.seq)]
    if run_state.subagent:
        fields = _progress(run_state, step.at, reply)
        lines.append(_system(step, run_state, fields, key=f"progress.{step.seq}"))
    return lines


def _failure(seq: int, failed: AskFailed, run_state: RunState) -> Line:
    """The failed request that ended the turn, as a synthetic message."""
    content: list[Line] = [{"type": "text", "text": failed.message or failed.kind}]
    line: Line = {
        "type": "assistant",
        "message": assistant_message(run_state.session, failed.asked, "<synthetic>", content),
        "parent_tool_use_id": run_state.parent,
        "error": ERRORS.get(failed.kind, "unknown"),
    }
    return line | run_state.tail(seq)


def _tool_ended(step: CallStep, end: ToolEnded, run_state: RunState) -> list[Line]:
    block: Line = {
        "type": "tool_result",
        "tool_use_id": run_state.qualified_id(end.call),
        "content": "\n".join(map(part_text, end.parts)),
    }
    if end.status != "ok":
        block["is_error"] = True
    outcome = {"tool_use_result": {"status": end.status, "elapsed_ms": end.elapsed_ms}}
    lines = [_user(run_state, block) | outcome | run_state.tail(step.seq)]
    if end.status == "denied":
        question = step.asked
        fields: Line = {
            "subtype": "permission_denied",
            "tool_name": end.name,
            "tool_use_id": run_state.qualified_id(end.call),
            "decision_reason": question.reason if question else "",
            "message": question.shown if question else "",
        }
        lines.insert(0, _system(step, run_state, fields, key=f"denied.{step.seq}"))
    return lines
