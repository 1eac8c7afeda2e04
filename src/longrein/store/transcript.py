"""The conversation of a log as plain chat turns, `{"role", "content"}`, for tools that know nothing of longrein."""

from collections.abc import Iterable, Iterator
from typing import Any

from longrein.events import (
    AnyPart,
    Document,
    Entry,
    Image,
    Interrupted,
    Replied,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    ToolResult,
    UserSpoke,
    text_of,
)

Turn = dict[str, Any]
"""`role` is `user` or `assistant`; `content` a text or a list of content blocks."""


def chat_lines(entries: Iterable[Entry]) -> Iterator[Turn]:
    """Chat turns in the order they happened. Results stand in one turn after their calls, in the order of the calls.

    Everything that was said is there, also what was later cleared, summarised or rewound; reminders of the harness are
    nobody's words and stay in the log.
    """
    order: list[str] = []
    results: dict[str, Turn] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, ToolEnded):
            results[event.call] = _result(event.call, event.status, event.parts)
            continue
        turn = _turn(entry)
        if turn is None:
            continue
        if results:
            yield _results(order, results)
            results = {}
        if isinstance(event, Replied):
            order = [part.id for part in event.parts if isinstance(part, ToolCall)]
        yield turn
    if results:
        yield _results(order, results)


def _turn(entry: Entry) -> Turn | None:
    match entry.event:
        case UserSpoke() as event:
            return {"role": "user", "content": _content(event.parts)}
        case Interrupted() as event:
            return {"role": "user", "content": event.text}
        case Replied() as event:
            return {"role": "assistant", "content": [_block(part) for part in event.parts]}
        case _:
            return None


def _results(order: list[str], results: dict[str, Turn]) -> Turn:
    named = [results[call] for call in order if call in results]
    others = [result for call, result in results.items() if call not in order]
    return {"role": "user", "content": named + others}


def _result(call: str, status: str, parts: tuple[AnyPart, ...]) -> Turn:
    failed = {} if status == "ok" else {"is_error": True}
    return {"type": "tool_result", "tool_use_id": call, "content": _content(parts), **failed}


def _content(parts: tuple[AnyPart, ...]) -> str | list[Turn]:
    if all(isinstance(part, Text) for part in parts):
        return text_of(parts)
    return [_block(part) for part in parts]


def _block(part: AnyPart) -> Turn:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Thinking():
            return {"type": "thinking", "thinking": part.text}
        case ToolCall():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments or {}}
        case ToolResult():
            return _result(part.call, part.status, part.parts)
        case Image():
            return {"type": "text", "text": f"[image {part.media}, {part.size_bytes} bytes, blob {part.blob}]"}
        case Document():
            note = f"[{part.media}, {part.size_bytes} bytes, blob {part.blob}]"
            return {"type": "text", "text": "\n".join(filter(None, (text_of((part,)), note)))}
