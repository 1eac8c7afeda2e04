"""Live status of subagents: task, time, cost and latest action of each."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from longrein.agent.messages import SubagentView
from longrein.agent.ports import below
from longrein.agent.subagents.subagent_report import STATUS
from longrein.agent.subagents.tree import ActiveSubagent
from longrein.context import State, SubagentState, external_event, is_repeated, task_usd
from longrein.events import (
    Reminded,
    Replied,
    Text,
    ToolCall,
    ToolEnded,
    UserSpoke,
    text_of,
    unwrapped,
)
from longrein.events.escape import one_line, shortened

PROGRESS_MAX = 5
"""Subagents whose progress is told at once."""
LINE_CHARS_MAX = 120
"""Characters of the latest action."""


def subagent_views(
    state: State, working: Mapping[str, ActiveSubagent], depth: int = 1
) -> list[SubagentView]:
    """Return the subagents of a session in order of their start, each followed by its own."""
    found: list[SubagentView] = []
    for child, now in state.children.items():
        one, started = working.get(child), now.started
        label = below(state.label, f"a{now.seq}")
        view = SubagentView(label, child, started.kind, started.description, "queued", depth=depth)
        if one is not None:
            states = {name: each.session.state for name, each in working.items()}
            found.append(_at_work(view, one, states))
            found += subagent_views(one.session.state, working, depth + 1)
        else:
            found.append(_over(view, now))
    return found


def progress_events(
    state: State, views: Sequence[SubagentView], redact: Callable[[str], str]
) -> list[Reminded]:
    """Return how far the subagents in the background are, at the first request of a turn; [] at any
    other.

    The model is told of the first `PROGRESS_MAX` in one line each, and only of what changed since
    it was told last.
    """
    if state.steps:
        return []
    working = [
        view for view in views if view.depth == 1 and view.state in ("queued", "running", "asking")
    ]
    found: list[Reminded] = []
    for view in working[:PROGRESS_MAX]:
        text = f"{view.state}, {view.steps} requests so far" + (
            f": {view.last}" if view.last else ""
        )
        found += external_event("subagent_progress", f"{view.label} ({view.kind})", redact(text))
    return [event for event in found if not is_repeated(state, event)]


def _over(view: SubagentView, now: SubagentState) -> SubagentView:
    ended = now.ended
    if ended is None:
        return view
    return msgspec.structs.replace(
        view,
        state=ended.status,
        elapsed_s=ended.elapsed_ms / 1000,
        steps=ended.steps,
        tokens=ended.usage.context_tokens + ended.usage.output_tokens,
        cost_usd=ended.cost_usd,
        last=_line(ended.message or ended.report),
        model=now.started.model,
    )


def _at_work(view: SubagentView, one: ActiveSubagent, states: Mapping[str, State]) -> SubagentView:
    state, began = one.session.state, one.session.state.began
    used = state.usage.context_tokens + state.usage.output_tokens
    before = began.usage.context_tokens + began.usage.output_tokens
    status = "queued"
    if one.begun and one.done:
        status = STATUS.get(one.policy.reason, "failed")
    elif one.begun:
        status = "asking" if state.asking else "running"
    return msgspec.structs.replace(
        view,
        state=status,
        elapsed_s=one.session.elapsed.task_s,
        steps=state.asks - began.asks,
        tokens=used - before,
        cost_usd=task_usd(state, states),
        last=_latest(one),
        model=one.started.model,
    )


def _latest(one: ActiveSubagent) -> str:
    """Return the question that the subagent asks, else its latest action."""
    for call in one.session.state.calls.values():
        if call.asked is not None and call.answer is None:
            return f"asks for {call.asked.name}"
    match one.policy.last.event if one.policy.last is not None else None:
        case Replied(parts=parts):
            calls = [unwrapped(part) for part in parts if isinstance(part, ToolCall)]
            if not calls:
                return _line(text_of(tuple(part for part in parts if isinstance(part, Text))))
            arguments = calls[-1].arguments or {}
            return _line(
                f"{calls[-1].name} "
                f"{next((v for v in arguments.values() if isinstance(v, str)), '')}"
            )
        case ToolEnded(name=name, status=status):
            return f"{name}: {status}"
        case UserSpoke(parts=parts):
            return _line(text_of(parts))
        case _:
            return ""


def _line(text: str) -> str:
    return shortened(one_line(text), LINE_CHARS_MAX)
