"""The tree of subagents of a stored session, as text or JSON. The session may be open in another process."""

from collections.abc import Sequence

import msgspec

from longrein.agent import SubagentView
from longrein.events import (
    Asked,
    AskFailed,
    ChildEnded,
    ChildStarted,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    ToolEnded,
    UserSpoke,
)
from longrein.frontends import text_format
from longrein.frontends.reports.tasks import SESSION_CHARS, own_entries
from longrein.frontends.text_format import activity_text, escape_line
from longrein.store import SessionHistory, SessionInfo

OVER = ("done", "failed", "limit", "interrupted")
CUT_OFF = "left"
"""State of a subagent that was cut off with its session; resuming the session continues it."""
_WORDS = {"limit": "limit reached", "asking": "asks the user", CUT_OFF: "cut off; goes on with `longrein -r`"}
_KINDS = ("UserSpoke", "Asked", "Replied", "AskFailed", "PermissionAsked", "PermissionAnswered", "ToolEnded")


class SessionSubagents(msgspec.Struct, frozen=True):
    """The subagents of one session."""

    info: SessionInfo
    agents: list[SubagentView]


def tree(past: SessionHistory, now_us: int, *, open: bool, above: str = "", depth: int = 1) -> list[SubagentView]:  # noqa: A002
    """Subagents in order of their start, each followed by its own. `open`: whether the session is open."""
    first: dict[str, int] = {}
    last: dict[str, Entry] = {}
    ends: dict[str, ChildEnded] = {}
    for entry in own_entries(past, "ChildStarted", "ChildEnded"):
        match entry.event:
            case ChildStarted(child=child):
                first.setdefault(child, entry.event.again or entry.seq)
                last[child] = entry
                ends.pop(child, None)
            case ChildEnded(child=child):
                ends[child] = entry.event
            case _:
                pass
    views: list[SubagentView] = []
    for child, entry in last.items():
        label = f"{above}.a{first[child]}" if above else f"a{first[child]}"
        its = past.child(child)
        end = ends.get(child)
        view = _over(entry, end) if end else _working(entry, its, now_us, open=open)
        views.append(msgspec.structs.replace(view, label=label, depth=depth))
        views += tree(its, now_us, open=open and end is None, above=label, depth=depth + 1) if its else []
    return views


def unfinished(views: Sequence[SubagentView]) -> list[SubagentView]:
    """Subagents that have not ended."""
    return [view for view in views if view.state not in OVER]


def _view(entry: Entry, state: str) -> SubagentView:
    started = entry.event
    assert isinstance(started, ChildStarted)
    return SubagentView("", started.child, started.kind, started.description, state, model=started.model)


def _over(entry: Entry, end: ChildEnded) -> SubagentView:
    first = (end.message or end.report).strip().partition("\n")[0]
    return msgspec.structs.replace(
        _view(entry, end.status),
        elapsed_s=end.elapsed_ms / 1000,
        steps=end.steps,
        tokens=end.usage.context_tokens + end.usage.output_tokens,
        cost_usd=end.cost_usd,
        last=escape_line(first[:500]),
    )


def _working(entry: Entry, past: SessionHistory | None, now_us: int, *, open: bool) -> SubagentView:  # noqa: A002
    """View of an unfinished subagent from its own log, since its newest task."""
    entries = _of_task(own_entries(past, *_KINDS)) if past else []
    steps = tokens = 0
    usd = 0.0
    last, asking = "", dict[str, str]()
    for one in entries:
        if not isinstance(one.event, PermissionAsked):
            last = activity_text(one.event) or last
        match one.event:
            case Asked(purpose="turn"):
                steps += 1
            case Replied(usage=usage, cost_usd=cost):
                tokens, usd = tokens + usage.context_tokens + usage.output_tokens, usd + cost
            case AskFailed(assumed_usd=assumed):
                usd += assumed
            case PermissionAsked(call=call):
                asking[call] = activity_text(one.event)
            case PermissionAnswered(call=call) | ToolEnded(call=call):
                asking.pop(call, None)
            case _:
                pass
    last = next(iter(asking.values()), last)
    state = CUT_OFF if not open else "asking" if asking else "running" if steps else "queued"
    until = now_us if open else max((one.at for one in entries), default=entry.at)
    return msgspec.structs.replace(
        _view(entry, state),
        elapsed_s=max(0, until - entry.at) / 1e6,
        steps=steps,
        tokens=tokens,
        cost_usd=usd,
        last=last,
    )


def _of_task(entries: list[Entry]) -> list[Entry]:
    """Entries since the newest task, found by order and not by time, as clocks can be changed."""
    given = [n for n, one in enumerate(entries) if isinstance(one.event, UserSpoke) and one.event.origin == "prompt"]
    return entries[given[-1] :] if given else entries


def as_json(every: Sequence[SessionSubagents]) -> bytes:
    """One JSON array with one object per session."""
    found = [{"session": one.info.session, "open": one.info.open, "agents": one.agents} for one in every]
    return msgspec.json.format(msgspec.json.encode(found)) + b"\n"


def as_text(every: Sequence[SessionSubagents]) -> bytes:
    """Sessions, each followed by one line per subagent."""
    return "".join(_session(one) for one in every).encode("utf-8", "replace")


def _session(one: SessionSubagents) -> str:
    title = escape_line(" ".join(one.info.title.split())[:60])
    head = f"{one.info.session[:SESSION_CHARS]}  {escape_line(one.info.cwd)}  {'(open) ' * one.info.open}{title}"
    return "\n".join([head.rstrip(), *map(_line, one.agents)]) + "\n"


def _line(view: SubagentView) -> str:
    facts = [
        text_format.elapsed(view.elapsed_s),
        text_format.counted(view.steps, "step") if view.steps else "",
        f"{text_format.tokens(view.tokens)} tokens" if view.tokens else "",
        text_format.money(view.cost_usd) if view.cost_usd else "",
    ]
    told = ", ".join(filter(None, facts))
    doing = " · ".join(filter(None, (escape_line(view.description), view.last)))
    state = _WORDS.get(view.state, escape_line(view.state))
    name = f"{escape_line(view.label)} {escape_line(view.kind)}"
    return "  " * view.depth + "  ".join(filter(None, (name, state, told, doing)))
