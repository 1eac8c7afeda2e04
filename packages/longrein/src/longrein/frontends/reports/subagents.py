"""The tree of subagents of a stored session, as text or JSON. The session may be open in another
process.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from longrein.agent import SubagentView
from longrein.app.task_output import own_entries
from longrein.frontends.reports.task_lists import SESSION_CHARS
from longrein.steps import (
    CallStep,
    QuestionStep,
    RequestStep,
    SubagentStep,
    steps_of,
)
from longrein.steps.human_text import (
    activity_text,
    elapsed,
    escape_line,
    joined,
    json_page,
    usage,
)
from longrein.store import SessionHistory, SessionInfo
from longrein_context.events import Entry, SubagentEnded, SubagentStarted, UserSpoke
from longrein_context.events.escape import one_line

OVER = ("done", "failed", "limit", "interrupted")
CUT_OFF = "left"
"""State of a subagent that was cut off with its session; resuming the session continues it."""
_WORDS = {
    "limit": "limit reached",
    "asking": "asks the user",
    CUT_OFF: "cut off; goes on with `longrein -r`",
}
_KINDS = (
    "UserSpoke",
    "Asked",
    "Replied",
    "AskFailed",
    "ChildEnded",
    "HookAnswered",
    "PermissionAsked",
    "PermissionAnswered",
    "ToolEnded",
)


class SessionSubagents(Struct, frozen=True):
    """The subagents of one session."""

    info: SessionInfo
    agents: list[SubagentView]


def tree(
    past: SessionHistory,
    now_us: int,
    *,
    open: bool,  # noqa: A002
    above: str = "",
    depth: int = 1,
) -> list[SubagentView]:
    """Subagents in order of their start, each followed by its own. `open`: whether the session
    is open.
    """
    last: dict[str, SubagentStep] = {}
    ends: dict[str, SubagentEnded] = {}
    for step in steps_of(own_entries(past, "ChildStarted", "ChildEnded")):
        if not isinstance(step, SubagentStep):
            continue
        if step.ended is not None:
            ends[step.session] = step.ended
        else:
            last[step.session] = step
            ends.pop(step.session, None)
    views: list[SubagentView] = []
    for subagent, step in last.items():
        label = f"{above}.{step.label}" if above else step.label
        its, end = past.child(subagent), ends.get(subagent)
        figures = _ended(end) if end else _working(step.at, its, now_us, open=open)
        started = step.started or SubagentStarted(subagent, "")
        view = SubagentView(
            label,
            subagent,
            started.kind,
            started.description,
            model=started.model,
            depth=depth,
            **figures,
        )
        views.append(view)
        if its:
            views += tree(its, now_us, open=open and not end, above=label, depth=depth + 1)
    return views


def unfinished(views: Sequence[SubagentView]) -> list[SubagentView]:
    """Subagents that have not ended."""
    return [view for view in views if view.state not in OVER]


def _ended(end: SubagentEnded) -> dict[str, Any]:
    """State and figures of an ended subagent."""
    return {
        "state": end.status,
        "elapsed_s": end.elapsed_ms / 1000,
        "steps": end.steps,
        "tokens": end.usage.total_tokens,
        "cost_usd": end.cost_usd,
        "last": escape_line((end.message or end.report).strip().partition("\n")[0][:500]),
    }


def _working(
    at: int,
    past: SessionHistory | None,
    now_us: int,
    *,
    open: bool,  # noqa: A002
) -> dict[str, Any]:
    """State and figures of an unfinished subagent, from its own log since its newest task, which
    began at `at`.
    """
    entries = _of_task(own_entries(past, *_KINDS)) if past else []
    steps = tokens = 0
    usd = 0.0
    last, asking = "", dict[str, str]()
    for step in steps_of(entries):
        usd += step.usd
        match step:
            case RequestStep(reply=reply) if reply:
                tokens += reply.usage.total_tokens
            case RequestStep(failure=None, purpose="turn"):
                steps += 1
            case QuestionStep(answer=None, id=call):
                asking[call] = activity_text(step)
                continue
            case QuestionStep(id=call) | CallStep(phase="ended", id=call):
                asking.pop(call, None)
        last = activity_text(step) or last
    until = now_us if open else max((own.at for own in entries), default=at)
    state = "running" if steps else "queued"
    if asking:
        state = "asking"
    return {
        "state": state if open else CUT_OFF,
        "elapsed_s": max(0, until - at) / 1e6,
        "steps": steps,
        "tokens": tokens,
        "cost_usd": usd,
        "last": next(iter(asking.values()), last),
    }


def _of_task(entries: list[Entry]) -> list[Entry]:
    """Entries since the newest task, found by order and not by time, as clocks can be changed."""
    given = [
        n
        for n, own in enumerate(entries)
        if isinstance(own.event, UserSpoke) and own.event.origin == "prompt"
    ]
    return entries[given[-1] :] if given else entries


def as_json(every: Sequence[SessionSubagents]) -> bytes:
    """A JSON array with one object per session."""
    return json_page(
        [
            {"session": its.info.session, "open": its.info.open, "agents": its.agents}
            for its in every
        ]
    )


def as_text(every: Sequence[SessionSubagents]) -> bytes:
    """Sessions, each followed by one line per subagent."""
    lines = [line for its in every for line in (_head(its.info), *map(_line, its.agents))]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _head(info: SessionInfo) -> str:
    title = escape_line(one_line(info.title)[:60])
    return (
        f"{info.session[:SESSION_CHARS]}  {escape_line(info.cwd)}  {'(open) ' * info.open}{title}"
    ).rstrip()


def _line(view: SubagentView) -> str:
    cells = (
        f"{escape_line(view.label)} {escape_line(view.kind)}",
        _WORDS.get(view.state, escape_line(view.state)),
        joined(elapsed(view.elapsed_s), usage(view.steps, view.tokens, view.cost_usd)),
        joined(escape_line(view.description), view.last, by=" · "),
    )
    return "  " * view.depth + joined(*cells, by="  ")
