"""The tree of subagents of a stored session, as text or JSON. The session may be open in another
process.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from longrein.agent import SubagentView
from longrein.events import (
    Asked,
    ChildEnded,
    ChildStarted,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    ToolEnded,
    UserSpoke,
    usd_of,
)
from longrein.events.escape import one_line
from longrein.frontends.human_text import (
    activity_text,
    elapsed,
    escape_line,
    joined,
    json_page,
    usage,
)
from longrein.frontends.reports.task_lists import SESSION_CHARS, own_entries
from longrein.store import SessionHistory, SessionInfo

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
    first: dict[str, int] = {}
    last: dict[str, Entry] = {}
    ends: dict[str, ChildEnded] = {}
    for entry in own_entries(past, "ChildStarted", "ChildEnded"):
        match entry.event:
            case ChildStarted(child=child, again=again):
                first.setdefault(child, again or entry.seq)
                last[child] = entry
                ends.pop(child, None)
            case ChildEnded(child=child) as ended:
                ends[child] = ended
            case _:
                pass
    views: list[SubagentView] = []
    for child, entry in last.items():
        label = f"{above}.a{first[child]}" if above else f"a{first[child]}"
        its, end = past.child(child), ends.get(child)
        figures = _ended(end) if end else _working(entry, its, now_us, open=open)
        started = entry.event
        assert isinstance(started, ChildStarted)
        view = SubagentView(
            label,
            child,
            started.kind,
            started.description,
            model=started.model,
            depth=depth,
            **figures,
        )
        views += [
            view,
            *(
                tree(its, now_us, open=open and not end, above=label, depth=depth + 1)
                if its
                else []
            ),
        ]
    return views


def unfinished(views: Sequence[SubagentView]) -> list[SubagentView]:
    """Subagents that have not ended."""
    return [view for view in views if view.state not in OVER]


def _ended(end: ChildEnded) -> dict[str, Any]:
    """State and figures of an ended subagent."""
    return {
        "state": end.status,
        "elapsed_s": end.elapsed_ms / 1000,
        "steps": end.steps,
        "tokens": end.usage.context_tokens + end.usage.output_tokens,
        "cost_usd": end.cost_usd,
        "last": escape_line((end.message or end.report).strip().partition("\n")[0][:500]),
    }


def _working(
    entry: Entry,
    past: SessionHistory | None,
    now_us: int,
    *,
    open: bool,  # noqa: A002
) -> dict[str, Any]:
    """State and figures of an unfinished subagent, from its own log since its newest task."""
    entries = _of_task(own_entries(past, *_KINDS)) if past else []
    steps = tokens = 0
    usd = 0.0
    last, asking = "", dict[str, str]()
    for own in entries:
        usd += usd_of(own.event)
        match own.event:
            case Asked(purpose="turn"):
                steps += 1
            case Replied(usage=used):
                tokens += used.context_tokens + used.output_tokens
            case PermissionAsked(call=call):
                asking[call] = activity_text(own.event)
                continue
            case PermissionAnswered(call=call) | ToolEnded(call=call):
                asking.pop(call, None)
            case _:
                pass
        last = activity_text(own.event) or last
    until = now_us if open else max((own.at for own in entries), default=entry.at)
    return {
        "state": CUT_OFF if not open else "asking" if asking else "running" if steps else "queued",
        "elapsed_s": max(0, until - entry.at) / 1e6,
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
