"""Input of hooks and effect of their answers, at each point of a session."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from longrein.agent.hooks import SessionHooks
from longrein.agent.messages import UserMessage
from longrein.agent.moves import STOP_BLOCKS_MAX
from longrein.agent.session import Session
from longrein.permissions import HookAnswer
from longrein.permissions.hook_protocol import merge_answers
from longrein.tools import EDITORS, Outcome, Tool
from longrein_context import State
from longrein_context.events import (
    AnyEvent,
    HookAnswered,
    PermissionAnswered,
    Text,
    ToolCall,
    ToolResult,
    TurnEnded,
    text_of,
)

TEXT_CHARS_MAX = 1_000
"""Length of a description in what hooks are told."""


# --- Start of a session ---------------------------------------------------------------------------


async def begin_hooks(session: Session) -> None:
    """Run the hooks of a session's start, once; what they say is told with the first request."""
    hooks = session.part(SessionHooks)
    if hooks.began:
        return
    hooks.began = True
    if session.deps.parent_policy is not None:
        if hooks.source == "startup":
            _, entries = await hooks.ask(
                "SubagentStart", hooks.payload("SubagentStart"), subjects=(session.state.kind,)
            )
            session.append(*entries)
        return
    await _session_start(session, hooks.source)


async def _session_start(session: Session, source: str) -> None:
    hooks = session.part(SessionHooks)
    told = hooks.payload("SessionStart", source=source, model=session.deps.model.name)
    _, entries = await hooks.ask("SessionStart", told, subjects=(source,))
    session.append(*entries)


# --- Prompts --------------------------------------------------------------------------------------


async def refuse_prompt(
    session: Session, message: UserMessage
) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """Ask the hooks about a prompt: (entries instead of it, entries after it). One of the lists is
    empty.

    An interrupt while they work withdraws the prompt.
    """
    hooks = session.part(SessionHooks)
    entries: list[HookAnswered] = []
    refused = "interrupted while a hook looked at the prompt; it was not sent"

    async def ask() -> None:
        nonlocal refused, entries
        told = hooks.payload("UserPromptSubmit", prompt=text_of(message.parts))
        answer, entries = await hooks.ask("UserPromptSubmit", told)
        refused = answer.reason if answer.decision in ("block", "stop") else ""

    await session.perform(ask())
    if not refused:
        return [], list(entries)
    session.interrupting = False
    silent = [msgspec.structs.replace(one, decision="block", context="") for one in entries]
    notice = f"the prompt was not sent: {refused}"
    if session.state.turn_open:  # a steering message: the turn goes on without it
        session.notice(notice)
        return [*silent], []
    return [*silent, TurnEnded("blocked", notice)], []


# --- Calls ----------------------------------------------------------------------------------------


async def run_hooks(hooks: SessionHooks, event: str, calls: tuple[str, ...]) -> None:
    """Run the hooks of a move. What they are told of is on disk before, as before any act on the
    world.
    """
    session = hooks.session
    await session.commit(flush=True)
    match event:
        case "PreToolUse":
            await asyncio.gather(*(_before_call(session, call) for call in calls))
        case "PermissionRequest":
            await _before_question(session, calls[0])
        case "PostToolBatch":
            await _after_batch(session)
        case _:
            await _before_end(session)


def _told_call(hooks: SessionHooks, event: str, call: ToolCall, **more: Any) -> dict[str, Any]:
    return hooks.payload(event, tool_name=call.name, tool_input=call.arguments or {}, **more)


async def _ask_about(
    hooks: SessionHooks, event: str, told: Mapping[str, Any], call: ToolCall
) -> tuple[HookAnswer, list[HookAnswered]]:
    """Run the hooks of an event of a call: of a patch once for each file, with its `file_path`, so
    that a hook for `Edit` sees every file.
    """
    from longrein.agent.current_rules import current_rules
    from longrein.agent.permission_check import matches_condition, tool_names

    session, given = hooks.session, told["tool_input"]
    tool = session.deps.tools[call.name]
    paths = [path for path, _ in tool.paths(given)] if call.name == EDITORS[1] else []
    inputs = [{**given, "file_path": path} for path in paths] or [given]
    asked = [
        hooks.ask(
            event,
            {**told, "tool_input": one},
            subjects=tool_names(tool),
            call=call.id,
            condition=lambda rule: matches_condition(current_rules(session), tool, call, rule),
        )
        for one in inputs
    ]
    found = await asyncio.gather(*asked)
    answers = [answer for answer, _ in found]
    answer = merge_answers(answers)
    if answer.decision == "allow" and not all(one.decision == "allow" for one in answers):
        answer = msgspec.structs.replace(answer, decision="none")  # it is about some files only
    if paths and answer.updated_input is not None:
        answer.updated_input.pop("file_path", None)
    return answer, [entry for _, entries in found for entry in entries]


async def _before_call(session: Session, call_id: str) -> None:
    """Run the `PreToolUse` hooks of one call."""
    hooks = session.part(SessionHooks)
    call = session.original_call(session.state.calls[call_id].call)
    told = _told_call(hooks, "PreToolUse", call, tool_use_id=call.id)
    answer, entries = await _ask_about(hooks, "PreToolUse", told, call)
    if answer.updated_input is not None:
        session.approvals.hook_inputs[call.id] = answer.updated_input
    hooks.seen[call.id] = answer
    session.append(*entries)


async def _before_question(session: Session, call_id: str) -> None:
    """Run the `PermissionRequest` hooks of a call that is about to be asked about."""
    from longrein.agent.permission_check import judge_calls

    hooks = session.part(SessionHooks)
    call = session.original_call(session.state.calls[call_id].call)
    question = judge_calls(session)[call_id].question
    if question is None:
        return
    rules = [{"toolName": rule.partition("(")[0],
        "ruleContent": rule.partition("(")[2].removesuffix(")")}
             for rule in question.suggestion.splitlines()]  # fmt: skip
    suggested = (
        [{"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}]
        if rules
        else []
    )
    told = _told_call(hooks, "PermissionRequest", call, permission_suggestions=suggested)
    answer, entries = await _ask_about(hooks, "PermissionRequest", told, call)
    hooks.questions[call_id] = None
    if answer.updated_input is not None:
        session.approvals.hook_inputs[call_id] = answer.updated_input
    seen = hooks.seen.get(call_id)
    if answer.decision == "allow" and (seen is None or seen.decision in ("none", "allow")):
        hooks.seen[call_id] = answer
    session.append(*entries)
    if answer.decision == "deny":
        session.append(question, PermissionAnswered(call_id, "deny", "hook", message=answer.reason))


async def after_call(
    session: Session,
    call: ToolCall,
    arguments: Mapping[str, Any],
    outcome: Outcome,
    elapsed_ms: int,
) -> tuple[Outcome, list[HookAnswered]]:
    """Run the hooks of a call that has ended; return the outcome, perhaps with other output, and
    the entries.

    Interrupted, the hooks count as unanswered.
    """
    from longrein.agent.permission_check import tool_names

    hooks, tool = session.part(SessionHooks), session.deps.tools[call.name]
    event = "PostToolUse" if outcome.status == "ok" else "PostToolUseFailure"
    if not hooks.concern(event, tool_names(tool)):
        return outcome, []
    text = text_of(outcome.parts)
    told = _told_call(hooks, event, call, tool_use_id=call.id, duration_ms=elapsed_ms)
    told["tool_input"] = arguments
    if event == "PostToolUse":
        told["tool_response"] = _response(tool, arguments, text)
    else:
        told |= {"error": text, "is_interrupt": outcome.status == "interrupted"}
    try:
        answer, entries = await _ask_about(hooks, event, told, call)
    except asyncio.CancelledError:
        if not session.stops(call.id):
            raise
        return outcome, []
    if answer.updated_output is not None and event == "PostToolUse":
        outcome = msgspec.structs.replace(
            outcome, parts=(Text(_output_text(answer.updated_output)),), raw=b""
        )
    return outcome, entries


def _response(tool: Tool, arguments: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Build `tool_response` in the shape that hooks of other agents expect."""
    if tool.traits.kind == "shell":
        return {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
    path = arguments.get("file_path")
    told = {"filePath": path, "success": True} if isinstance(path, str) else {}
    return {**told, "type": "text", "content": text}


def _output_text(output: Any) -> str:
    """Return the text of an output that a hook has put in place of the tool's."""
    if isinstance(output, str):
        return output
    if isinstance(output, dict) and isinstance(output.get("stdout"), str):
        return str(output["stdout"]) + str(output.get("stderr") or "")
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        return str(output["content"])
    return msgspec.json.encode(output, enc_hook=str).decode()


async def _after_batch(session: Session) -> None:
    """Run the `PostToolBatch` hooks after the calls of one step."""
    calls = [
        {
            "tool_name": call.name,
            "tool_input": call.arguments or {},
            "tool_use_id": call.id,
            "tool_response": {"content": text_of(result.parts)},
        }
        for call, result in _last_batch(session.state)
    ]
    hooks = session.part(SessionHooks)
    told = hooks.payload("PostToolBatch", tool_calls=calls)
    _, entries = await hooks.ask("PostToolBatch", told)
    session.append(*(entries or [HookAnswered("", "PostToolBatch", "none")]))


def _last_batch(state: State) -> list[tuple[ToolCall, ToolResult]]:
    """Return the calls of the last reply, with their results."""
    results: dict[str, ToolResult] = {}
    found: list[tuple[ToolCall, ToolResult]] = []
    for item in reversed(state.items):
        if isinstance(item.part, ToolResult):
            if found:
                break
            results[item.part.call] = item.part
        elif isinstance(item.part, ToolCall) and item.part.id in results:
            found.append((item.part, results[item.part.id]))
    return found[::-1]


# --- The end of a turn ----------------------------------------------------------------------------


async def _before_end(session: Session) -> None:
    """Run the hooks of a turn's end: one that blocks lets the agent go on."""
    hooks, state = session.part(SessionHooks), session.state
    is_subagent = session.deps.parent_policy is not None
    event, subjects = ("SubagentStop", (state.kind,)) if is_subagent else ("Stop", ())
    told = hooks.payload(
        event,
        stop_hook_active=state.stop_blocks > 0,
        last_assistant_message=_last_text(state),
        background_tasks=_tasks(state),
        session_crons=[],
    )
    if is_subagent:
        told["agent_transcript_path"] = hooks.transcript_path
    _, entries = await hooks.ask(event, told, subjects=subjects)
    session.append(*(entries or [HookAnswered("", event, "none")]))
    if session.state.stop_blocks == STOP_BLOCKS_MAX:
        session.notice(
            f"a {event} hook has refused {STOP_BLOCKS_MAX} times in a row to end the turn; it is "
            "not asked again"
        )


def _last_text(state: State) -> str:
    """Return the text of the last reply."""
    for item in reversed(state.items):
        if item.kind == "text" and isinstance(item.part, Text):
            return item.part.text
        if item.kind == "user":
            break
    return ""


def _tasks(state: State) -> list[dict[str, str]]:
    """Describe what runs in the background."""
    shells = [
        {
            "id": name,
            "type": "shell",
            "status": task.started.state,
            "description": task.started.command[:TEXT_CHARS_MAX],
            "command": task.started.command[:TEXT_CHARS_MAX],
        }
        for name, task in state.tasks.items()
        if task.ended is None
    ]
    agents = [
        {
            "id": f"a{child.seq}",
            "type": "subagent",
            "status": "running",
            "description": child.started.description[:TEXT_CHARS_MAX],
            "agent_type": child.started.kind,
        }
        for child in state.children.values()
        if child.ended is None
    ]
    return [*shells, *agents]


# --- Compaction -----------------------------------------------------------------------------------


async def refuse_compaction(session: Session, reason: str, focus: str) -> bool:
    """Ask the hooks about a summary; True when one refuses it."""
    hooks, trigger = session.part(SessionHooks), "manual" if reason == "request" else "auto"
    told = hooks.payload("PreCompact", trigger=trigger, custom_instructions=focus)
    answer, entries = await hooks.ask("PreCompact", told, subjects=(trigger,))
    session.append(*entries)
    if answer.decision not in ("block", "stop"):
        return False
    session.notice(f"a PreCompact hook refused the compaction: {answer.reason}")
    return True


async def after_compaction(session: Session, reason: str, summary: str) -> None:
    """Tell the hooks of a summary that has taken its place."""
    hooks, trigger = session.part(SessionHooks), "manual" if reason == "request" else "auto"
    told = hooks.payload("PostCompact", trigger=trigger, compact_summary=summary)
    _, entries = await hooks.ask("PostCompact", told, subjects=(trigger,))
    session.append(*entries)
    if session.deps.parent_policy is None:
        await _session_start(session, "compact")
