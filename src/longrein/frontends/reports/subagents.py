"""The tree of subagents of a session, folded from its database while others may write it; for people or programs."""

from collections.abc import Sequence

import msgspec

from longrein.agent import AgentView
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
from longrein.frontends import text_format as amounts
from longrein.frontends.reports.tasks import SESSION_CHARS, own_entries
from longrein.frontends.text_format import act_of, escape_line
from longrein.store import SessionHistory, SessionInfo

OVER = ("done", "failed", "limit", "interrupted")
LEFT = "left"
"""State of one that was cut with its longrein: it goes on when the session is resumed."""
_WORDS = {"limit": "limit reached", "asking": "asks the user", LEFT: "cut off; goes on with `longrein -r`"}
_KINDS = ("UserSpoke", "Asked", "Replied", "AskFailed", "PermissionAsked", "PermissionAnswered", "ToolEnded")


class OfSession(msgspec.Struct, frozen=True):
    """The subagents of one session."""

    info: SessionInfo
    agents: list[AgentView]


def tree(past: SessionHistory, now_us: int, *, open: bool, above: str = "", depth: int = 1) -> list[AgentView]:  # noqa: A002
    """Subagents in the order in which they were started, each followed by its own. `open`: whether they may work."""
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
    views: list[AgentView] = []
    for child, entry in last.items():
        label = f"{above}.a{first[child]}" if above else f"a{first[child]}"
        its = past.child(child)
        end = ends.get(child)
        view = _over(entry, end) if end else _working(entry, its, now_us, open=open)
        views.append(msgspec.structs.replace(view, label=label, depth=depth))
        views += tree(its, now_us, open=open and end is None, above=label, depth=depth + 1) if its else []
    return views


def at_work(views: Sequence[AgentView]) -> list[AgentView]:
    """Those that are not over."""
    return [view for view in views if view.state not in OVER]


def _view(entry: Entry, state: str) -> AgentView:
    started = entry.event
    assert isinstance(started, ChildStarted)
    return AgentView("", started.child, started.kind, started.description, state, model=started.model)


def _over(entry: Entry, end: ChildEnded) -> AgentView:
    first = (end.message or end.report).strip().partition("\n")[0]
    return msgspec.structs.replace(
        _view(entry, end.status),
        elapsed_s=end.elapsed_ms / 1000,
        steps=end.steps,
        tokens=end.usage.context_tokens + end.usage.output_tokens,
        cost_usd=end.cost_usd,
        last=escape_line(first[:500]),
    )


def _working(entry: Entry, past: SessionHistory | None, now_us: int, *, open: bool) -> AgentView:  # noqa: A002
    """One that is not over, from its own log; of one that was asked again what came since."""
    entries = _of_task(own_entries(past, *_KINDS)) if past else []
    steps = tokens = 0
    usd = 0.0
    last, asking = "", dict[str, str]()
    for one in entries:
        if not isinstance(one.event, PermissionAsked):
            last = act_of(one.event) or last
        match one.event:
            case Asked(purpose="turn"):
                steps += 1
            case Replied(usage=usage, cost_usd=cost):
                tokens, usd = tokens + usage.context_tokens + usage.output_tokens, usd + cost
            case AskFailed(assumed_usd=assumed):
                usd += assumed
            case PermissionAsked(call=call):
                asking[call] = act_of(one.event)
            case PermissionAnswered(call=call) | ToolEnded(call=call):
                asking.pop(call, None)
            case _:
                pass
    last = next(iter(asking.values()), last)
    state = LEFT if not open else "asking" if asking else "running" if steps else "queued"
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
    """Those since it was given its present task, by their order: clocks are set."""
    given = [n for n, one in enumerate(entries) if isinstance(one.event, UserSpoke) and one.event.origin == "prompt"]
    return entries[given[-1] :] if given else entries


def as_json(every: Sequence[OfSession]) -> bytes:
    """One JSON array, an object a session."""
    found = [{"session": one.info.session, "open": one.info.open, "agents": one.agents} for one in every]
    return msgspec.json.format(msgspec.json.encode(found)) + b"\n"


def as_text(every: Sequence[OfSession]) -> bytes:
    """Under each session its subagents, a line each."""
    return "".join(_session(one) for one in every).encode("utf-8", "replace")


def _session(one: OfSession) -> str:
    title = escape_line(" ".join(one.info.title.split())[:60])
    head = f"{one.info.session[:SESSION_CHARS]}  {escape_line(one.info.cwd)}  {'(open) ' * one.info.open}{title}"
    return "\n".join([head.rstrip(), *map(_line, one.agents)]) + "\n"


def _line(view: AgentView) -> str:
    facts = [
        amounts.elapsed(view.elapsed_s),
        amounts.counted(view.steps, "step") if view.steps else "",
        f"{amounts.tokens(view.tokens)} tokens" if view.tokens else "",
        amounts.money(view.cost_usd) if view.cost_usd else "",
    ]
    told = ", ".join(filter(None, facts))
    doing = " · ".join(filter(None, (escape_line(view.description), view.last)))
    state = _WORDS.get(view.state, escape_line(view.state))
    name = f"{escape_line(view.label)} {escape_line(view.kind)}"
    return "  " * view.depth + "  ".join(filter(None, (name, state, told, doing)))
