"""Live status of subagents: task, time, cost and latest action of each."""

from collections.abc import Mapping

from longrein.agent.messages import SubagentView
from longrein.agent.ports import below
from longrein.agent.session import Session
from longrein.agent.subagents.report import STATUS
from longrein.agent.subagents.tree import ActiveSubagent
from longrein.context import State, SubagentState
from longrein.events import (
    Entry,
    Replied,
    Text,
    ToolCall,
    ToolEnded,
    UserSpoke,
    text_of,
    unwrapped,
)

LINE_CHARS_MAX = 120
"""Characters of the latest action."""


def subagent_views(session: Session, working: Mapping[str, ActiveSubagent], depth: int = 1) -> list[SubagentView]:
    """Return the subagents of `session` in order of their start, each followed by its own."""
    found: list[SubagentView] = []
    for child, now in session.state.children.items():
        one = working.get(child)
        label = below(session.state.label, f"a{now.seq}")
        found.append(_over(label, now, depth) if one is None else _at_work(label, now, one, depth))
        if one is not None:
            found += subagent_views(one.session, working, depth + 1)
    return found


def _over(label: str, now: SubagentState, depth: int) -> SubagentView:
    started, ended = now.started, now.ended
    if ended is None:
        return SubagentView(label, started.child, started.kind, started.description, "queued", depth=depth)
    return SubagentView(
        label,
        started.child,
        started.kind,
        started.description,
        ended.status,
        ended.elapsed_ms / 1000,
        ended.steps,
        ended.usage.context_tokens + ended.usage.output_tokens,
        ended.cost_usd,
        _line(ended.message or ended.report),
        started.model,
        depth,
    )


def _at_work(label: str, now: SubagentState, one: ActiveSubagent, depth: int) -> SubagentView:
    state, began = one.session.state, one.session.state.began
    used = state.usage.context_tokens + state.usage.output_tokens
    before = began.usage.context_tokens + began.usage.output_tokens
    return SubagentView(
        label,
        now.started.child,
        now.started.kind,
        now.started.description,
        _state_of(one, state),
        one.session.elapsed.task_s,
        state.asks - began.asks,
        used - before,
        max(0.0, state.spent_usd - began.usd),
        _last(one, state),
        now.started.model,
        depth,
    )


def _state_of(one: ActiveSubagent, state: State) -> str:
    if not one.begun:
        return "queued"
    if one.done:
        return STATUS.get(one.policy.reason, "failed")
    return "asking" if state.asking else "running"


def _last(one: ActiveSubagent, state: State) -> str:
    """Return the question it asks, else its latest action."""
    asked = next((call.asked for call in state.calls.values() if call.asked is not None and call.answer is None), None)
    if asked is not None:
        return f"asks for {asked.name}"
    return _line(act_of(one.policy.last)) if one.policy.last is not None else ""


def act_of(entry: Entry) -> str:
    """Describe an entry as an action; '' for entries that are not shown."""
    match entry.event:
        case Replied(parts=parts):
            calls = [unwrapped(part) for part in parts if isinstance(part, ToolCall)]
            return call_line(calls[-1]) if calls else text_of(tuple(p for p in parts if isinstance(p, Text)))
        case ToolEnded(name=name, status=status):
            return f"{name}: {status}"
        case UserSpoke(parts=parts):
            return text_of(parts)
        case _:
            return ""


def call_line(call: ToolCall) -> str:
    """Describe a call in a line: its name and its first text argument."""
    first = next((value for value in (call.arguments or {}).values() if isinstance(value, str)), "")
    return f"{call.name} {first}"


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LINE_CHARS_MAX else line[: LINE_CHARS_MAX - 1] + "…"
