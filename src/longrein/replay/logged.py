"""Our own logs as recorded sessions: what was said and done, without what was decided about the context."""

from collections.abc import Iterable

from longrein.context import arguments_text, estimate_text
from longrein.events import (
    AnyEvent,
    AnyPart,
    Asked,
    Entry,
    PrefixSet,
    Reminded,
    Replied,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    UserSpoke,
    text_of,
)
from longrein.replay.recorded import Item, Kind, Recording, count_tokens


def of_entries(name: str, entries: Iterable[Entry]) -> Recording:
    """The recording in a log. Requests that failed are not counted; results are taken whole."""
    items: list[Item] = []
    request, system, summaries = 0, 0, set[int]()
    for entry in entries:
        event = entry.event
        if isinstance(event, PrefixSet):
            tools = sum(estimate_text(t.name + t.description + str(t.schema)) for t in event.tools)
            system = estimate_text(event.system) + tools
        if isinstance(event, Asked) and event.purpose == "summary":
            summaries.add(entry.seq)
        if isinstance(event, Replied) and event.asked in summaries:
            continue
        output = isinstance(event, Replied)
        for kind, tool, text, call in _told(event):
            items.append(Item(request, output, kind, tool, text, count_tokens(kind, text), call, entry.at))
        request += output
    last = max((item.request for item in items if item.output), default=-1)
    kept = [item for item in items if item.request <= last]
    kept.sort(key=lambda item: (item.request, item.output))
    return Recording(name, system, tuple(kept), last + 1)


def _told(event: AnyEvent) -> list[tuple[Kind, str, str, str]]:
    """(kind, name, text, call id) of what an event brings into the conversation."""
    match event:
        case UserSpoke(parts=parts):
            return [("user", "", text_of(parts), "")]
        case Reminded(text=text) if text:
            return [("user", "reminder", text, "")]
        case ToolEnded(call=call, name=name, parts=parts):
            return [("tool_result", name, text_of(parts), call)]
        case Replied(parts=parts):
            return [told for part in parts if (told := _of_part(part)) is not None]
        case _:
            return []


def _of_part(part: AnyPart) -> tuple[Kind, str, str, str] | None:
    match part:
        case Text(text):
            return "assistant_text", "", text, ""
        case Thinking(text):
            return "assistant_text", "thinking", text, ""
        case ToolCall(id=call, name=name):
            return "tool_call", name, arguments_text(part), call
        case _:
            return None
