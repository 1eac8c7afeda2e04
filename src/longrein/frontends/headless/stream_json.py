"""Entries as stream-json lines: a function of an entry and the run state before it."""

import os

from longrein.events import (
    Asked,
    AskFailed,
    ChildEnded,
    ChildStarted,
    Cleared,
    Entry,
    HookAnswered,
    Interrupted,
    ModeSet,
    Reminded,
    Replied,
    Summarized,
    TaskEnded,
    TaskStarted,
    Text,
    ToolCall,
    ToolEnded,
    TurnEnded,
    Usage,
    UserSpoke,
    unwrapped,
)
from longrein.frontends.headless.run_state import RunState, SessionFacts
from longrein.frontends.headless.stream_json_blocks import (
    ERRORS,
    Line,
    assistant_message,
    part_text,
    reply_blocks,
    tail,
)

SUMMARY_CHARS_MAX = 500
STATUSES = {"done": "completed", "killed": "stopped", "interrupted": "stopped"}
"""State of a task or subagent -> status in the stream; other states are `failed`."""


def background_lines(entry: Entry, run_state: RunState) -> list[Line]:
    """Fields of the line of an entry about background work."""
    match entry.event:
        case TaskStarted() as task if task.task not in run_state.tasks:
            call = run_state.qualified_id(task.call)
            return [_started(task.task, call, task.command, "local_bash", background=True)]
        case TaskEnded() as task:
            code = "" if task.code is None else f", exit code {task.code}"
            cause = f", {task.cause}" if task.cause else ""
            return [_ended(task.task, "", task.state, task.output, f"{task.state}{code}{cause}")]
        case ChildStarted(background=background) as started:
            child = run_state.subagent_started(entry.seq, started)
            line = _started(
                child.label, child.call, started.description, "local_agent", background=background
            )
            return [line | {"spawn_depth": child.label.count(".") + 1}]
        case ChildEnded() as ended:
            known = run_state.children.get(ended.child)
            label, call = (known.label, known.call) if known else (ended.child, "")
            line = _ended(
                label, call, ended.status, "", (ended.message or ended.report)[:SUMMARY_CHARS_MAX]
            )
            return [line | {"usage": _usage(ended.usage, ended.steps, ended.elapsed_ms)}]
        case _:
            return []


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


def progress_fields(run_state: RunState, entry: Entry) -> Line:
    """Fields of the progress line of a subagent's reply `entry`, which is not in `run_state`
    yet.
    """
    reply, child = entry.event, run_state.subagent
    assert isinstance(reply, Replied)
    assert child is not None
    calls = [unwrapped(part) for part in reply.parts if isinstance(part, ToolCall)]
    elapsed_ms = (entry.at - run_state.first_at) // 1000 if run_state.first_at else 0
    return {
        "subtype": "task_progress",
        "task_id": child.label,
        "description": child.started.description,
        "usage": _usage(
            run_state.usage + reply.usage, run_state.call_count + len(calls), elapsed_ms
        ),
        **({"last_tool_name": calls[-1].name} if calls else {}),
    }


def _usage(usage: Usage, calls: int, elapsed_ms: int) -> Line:
    total = usage.context_tokens + usage.output_tokens
    return {"total_tokens": total, "tool_uses": calls, "duration_ms": elapsed_ms}


NOTIFICATIONS = ("bg_done", "bg_lost", "bg_stalled", "subagent_done", "subagent_failed")


def draw(entry: Entry, run_state: RunState) -> list[Line]:
    """Lines of `entry`; most entries give one line or none."""
    match entry.event:
        case Replied() | ToolEnded() | Reminded() | Interrupted() | TurnEnded():
            return _conversation_lines(entry, run_state)
        case Asked() | AskFailed() | Cleared() | Summarized() | ModeSet():
            fields = _system_fields(entry, run_state) if run_state.root is None else None
            return [_system(entry, run_state, fields)] if fields else []
        case TaskStarted() | TaskEnded() | ChildStarted() | ChildEnded():
            return [
                _system(entry, run_state, fields) for fields in background_lines(entry, run_state)
            ]
        case _:
            return []


def _conversation_lines(entry: Entry, run_state: RunState) -> list[Line]:
    match entry.event:
        case Replied() as reply:
            return _replied(entry, reply, run_state)
        case ToolEnded() as end:
            return _tool_ended(entry, end, run_state)
        case Reminded(text=text) | Interrupted(text=text) if text:
            line = _user(run_state, {"type": "text", "text": text}) | {"isSynthetic": True}
            if isinstance(entry.event, Reminded) and entry.event.kind in NOTIFICATIONS:
                line["origin"] = {"kind": "task-notification"}
            return [line | run_state.tail(entry.seq)]
        case TurnEnded(reason="error") if run_state.failure:
            return [_failure(*run_state.failure, run_state)]
        case _:
            return []


def _system_fields(entry: Entry, run_state: RunState) -> Line | None:
    """Fields of the `system` line of an entry; None without one."""
    match entry.event:
        case (
            Asked(purpose="summary", reason="ahead")
            | Cleared(reason="micro_compact" | "rent" | "cold")
        ):
            return None  # does not delay the turn
        case Asked(purpose="summary"):
            return {"subtype": "status", "status": "compacting"}
        case AskFailed(asked=asked) if run_state.purpose(asked) == "summary":
            return {"subtype": "status", "status": None}
        case Cleared(reason=reason) | Summarized(reason=reason):
            before = run_state.reply.usage if run_state.reply else Usage()
            tokens = before.context_tokens + before.output_tokens
            trigger = "manual" if reason == "request" else "auto"
            return {
                "subtype": "compact_boundary",
                "compact_metadata": {"trigger": trigger, "pre_tokens": tokens},
            }
        case ModeSet(mode=mode):
            return {"subtype": "status", "status": None, "permissionMode": mode}
        case _:
            return None


def draw_init(facts: SessionFacts, start: int) -> Line:
    """The first line of a run that begins after entry `start`."""
    line: Line = {
        "type": "system",
        "subtype": "init",
        "cwd": facts.cwd.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "tools": list(facts.tools),
        "mcp_servers": [{"name": name, "status": status} for name, status in facts.mcp_servers],
        "model": facts.model,
        "permissionMode": facts.mode,
        "slash_commands": list(facts.slash_commands),
        "agents": list(facts.agents),
        "skills": list(facts.skills),
        "plugins": [
            {"name": os.path.basename(path.rstrip("/")), "path": path} for path in facts.plugins
        ],
        "left_out": list(facts.left_out),
        "output_style": "default",
        "apiKeySource": facts.api_key_source,
        "claude_code_version": facts.version,
        "longrein_version": facts.version,
        "sandbox": facts.sandbox,
    }
    return line | tail(facts.session, f"init.{start}")


def draw_hook(entry: Entry, hook: HookAnswered, run_state: RunState) -> list[Line]:
    """The run of a hook: its start and its end, both known when it has ended."""
    output = "\n".join(filter(None, (hook.text, hook.context, hook.message)))
    names: Line = {
        "hook_id": f"{run_state.label}h{entry.seq}",
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
        _system(entry, run_state, {"subtype": "hook_started", **names}, key=f"hook.{entry.seq}"),
        _system(entry, run_state, ended),
    ]


def draw_replay(entry: Entry, run_state: RunState) -> list[Line]:
    """A message of the user as it was taken; its id can be given to `rewind_files` and
    `--resume-session-at`.
    """
    assert isinstance(entry.event, UserSpoke)
    message = {
        "role": "user",
        "content": [{"type": "text", "text": part_text(part)} for part in entry.event.parts],
    }
    line = {"type": "user", "message": message, "parent_tool_use_id": None, "isReplay": True}
    return [line | run_state.tail(entry.seq)]


def _system(entry: Entry, run_state: RunState, fields: Line, key: str = "") -> Line:
    return {"type": "system", **fields, **run_state.tail(key or entry.seq)}


def _user(run_state: RunState, block: Line) -> Line:
    message = {"role": "user", "content": [block]}
    return {"type": "user", "message": message, "parent_tool_use_id": run_state.parent}


def _replied(entry: Entry, reply: Replied, run_state: RunState) -> list[Line]:
    if run_state.purpose(reply.asked) == "summary":
        return (
            []
            if run_state.root
            else [_system(entry, run_state, {"subtype": "status", "status": None})]
        )
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
    lines = [line | run_state.tail(entry.seq)]
    if run_state.subagent:
        lines.append(
            _system(
                entry, run_state, progress_fields(run_state, entry), key=f"progress.{entry.seq}"
            )
        )
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


def _tool_ended(entry: Entry, end: ToolEnded, run_state: RunState) -> list[Line]:
    block: Line = {
        "type": "tool_result",
        "tool_use_id": run_state.qualified_id(end.call),
        "content": "\n".join(map(part_text, end.parts)),
    }
    if end.status != "ok":
        block["is_error"] = True
    outcome = {"tool_use_result": {"status": end.status, "elapsed_ms": end.elapsed_ms}}
    lines = [_user(run_state, block) | outcome | run_state.tail(entry.seq)]
    if end.status == "denied":
        question = run_state.questions.get(end.call)
        fields: Line = {
            "subtype": "permission_denied",
            "tool_name": end.name,
            "tool_use_id": run_state.qualified_id(end.call),
            "decision_reason": question.reason if question else "",
            "message": question.shown if question else "",
        }
        lines.insert(0, _system(entry, run_state, fields, key=f"denied.{entry.seq}"))
    return lines
