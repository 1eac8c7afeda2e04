"""ATIF 1.8: a session as an agent trajectory, one JSON document.

The whole session is one trajectory. A compaction is a system step with the text that replaced the
span. Subagents are embedded trajectories, which the observation of the call that started them
names. What a fork shares with its parent is marked as copied and left out of the totals.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from longrein import __version__
from longrein.extensions.transcripts.export_steps import (
    ConversationPart,
    ExportedConversation,
    ExportedMessage,
    ExportedReply,
    Note,
    shown_text,
)
from longrein_context.events import Text, Thinking, ToolSpec, Usage, counts_of, text_of, unwrapped

VERSION = "ATIF-v1.8"
Json = dict[str, Any]


def as_atif(conversation: ExportedConversation) -> bytes:
    """Return the trajectory as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(_trajectory(conversation)), indent=2) + b"\n"


def _trajectory(told: ExportedConversation, root: str = "") -> Json:
    steps = list(_system(told))
    for step in told.steps:
        steps.append({"timestamp": _time(step.at), **_step(step, told)})
        if step.seq <= told.copied:
            steps[-1]["is_copied_context"] = True
    for number, made in enumerate(steps, 1):
        made["step_id"] = number
    made_trajectory: Json = {
        "schema_version": VERSION,
        "session_id": root or told.session,
        "trajectory_id": told.session,
        "agent": _agent(told),
        "steps": steps or [{"step_id": 1, "source": "system", "message": "(nothing was said)"}],
        "final_metrics": _final_metrics(told, len(steps)),
    }
    if told.subagents:
        made_trajectory["subagent_trajectories"] = [
            _trajectory(one, root or told.session) for one in told.subagents
        ]
    return made_trajectory


def _agent(told: ExportedConversation) -> Json:
    agent: Json = {"name": "longrein", "version": __version__}
    if told.kind:
        agent["extra"] = {"subagent_type": told.kind, "label": told.label}
    if told.prefix is not None:
        agent["model_name"] = told.prefix.model
        agent["tool_definitions"] = [_definition(tool) for tool in told.prefix.callable_tools]
    return agent


def _definition(tool: ToolSpec) -> Json:
    described = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": described}


def _system(told: ExportedConversation) -> Iterator[Json]:
    """Return the step of the system prompt, with the static context."""
    if told.prefix is not None:
        text = "\n\n".join(filter(None, (told.prefix.system, *told.prefix.context)))
        yield {"source": "system", "message": text}


def _step(step: ConversationPart, told: ExportedConversation) -> Json:
    match step:
        case ExportedMessage():
            return {"source": "user", "message": shown_text(step.parts)}
        case Note():
            return {
                "source": "system",
                "message": step.text,
                "extra": {"kind": step.kind, "entry": step.seq},
            }
        case ExportedReply():
            return _reply(step, told)


def _reply(reply: ExportedReply, told: ExportedConversation) -> Json:
    event = reply.event
    made: Json = {
        "source": "agent",
        "message": text_of(tuple(part for part in event.parts if isinstance(part, Text))),
        "llm_call_count": 1,
        "metrics": _metrics(counts_of(event.usage), event.cost_usd),
        "extra": {"entry": reply.seq, "stop": event.stop, "purpose": reply.purpose},
    }
    if model := event.model or (told.prefix.model if told.prefix else ""):
        made["model_name"] = model
    if thinking := text_of(tuple(part for part in event.parts if isinstance(part, Thinking))):
        made["reasoning_content"] = thinking
    if reply.calls:
        made["tool_calls"] = [_call(call) for call in map(unwrapped, reply.calls)]
        made["observation"] = {"results": list(_results(reply, told))}
    return made


def _call(call: Any) -> Json:
    made: Json = {
        "tool_call_id": call.id,
        "function_name": call.name,
        "arguments": call.arguments or {},
    }
    if call.arguments is None:
        made["extra"] = {"received": call.received}
    return made


def _results(reply: ExportedReply, told: ExportedConversation) -> Iterator[Json]:
    embedded = {one.session for one in told.subagents}
    for call in reply.calls:
        made: Json = {"source_call_id": call.id}
        result = reply.results.get(call.id)
        if result is not None:
            made["content"] = shown_text(result.parts)
            made["extra"] = {"status": result.status, "elapsed_ms": result.elapsed_ms}
        subagents = [
            subagent for subagent in reply.children.get(call.id, ()) if subagent in embedded
        ]
        if subagents:
            made["subagent_trajectory_ref"] = [
                {"trajectory_id": subagent} for subagent in subagents
            ]
        if len(made) > 1:
            yield made


def _metrics(usage: Usage, cost_usd: float) -> Json:
    return {
        "prompt_tokens": usage.context_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cache_read_tokens,
        "cost_usd": max(0.0, cost_usd),
        "extra": {
            "cache_write_tokens": usage.cache_write_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        },
    }


def _final_metrics(told: ExportedConversation, steps: int) -> Json:
    usage, nested = told.usage, list(_below(told))
    return {
        "total_prompt_tokens": usage.context_tokens,
        "total_completion_tokens": usage.output_tokens,
        "total_cached_tokens": usage.cache_read_tokens,
        "total_cost_usd": told.cost_usd,
        "total_steps": max(1, steps),
        "extra": {"cost_usd_with_subagents": told.cost_usd + sum(one.cost_usd for one in nested)},
    }


def _below(told: ExportedConversation) -> Iterator[ExportedConversation]:
    for one in told.subagents:
        yield one
        yield from _below(one)


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat()
