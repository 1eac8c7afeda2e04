"""Parts of stream-json lines: ids, content blocks, usage, encoding. Pure."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID, uuid5

import msgspec

from longrein_context.events import (
    AnyPart,
    Document,
    Image,
    Replied,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    entry_uuid,
    unwrapped,
)

Line = dict[str, Any]
"""Output line before it is encoded."""

STOPS = {
    "end": "end_turn",
    "calls": "tool_use",
    "calls_in_text": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
}
"""Stop reason -> spelling in the stream; an interrupted reply has none."""

ERRORS = {
    "rate": "rate_limit",
    "overload": "server_error",
    "server": "server_error",
    "auth": "authentication_failed",
    "billing": "billing_error",
    "overflow": "invalid_request",
    "refused": "invalid_request",
    "invalid": "invalid_request",
}
"""Kind of failure -> spelling in the stream; others are `unknown`."""

_encoder = msgspec.json.Encoder()


_SEPARATORS = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)
"""Line separators that JSON allows unescaped, but at which many readers break lines."""


def encode(line: Line) -> bytes:
    """A line with its newline, in UTF-8, without other line breaks."""
    try:
        data = _encoder.encode(line)
    except UnicodeEncodeError:  # a lone surrogate in a path or an argument
        return json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
    if b"\xe2\x80" in data or b"\xc2\x85" in data:
        for bare, escaped in _SEPARATORS:
            data = data.replace(bare, escaped)
    return data + b"\n"


def tail(session: str, key: int | str) -> Line:
    """Last fields of a line: its id and the session. `key` is a seq, or a name for a line
    without an entry.
    """
    uuid = (
        entry_uuid(session, key) if isinstance(key, int) else str(uuid5(_namespace(session), key))
    )
    return {"uuid": uuid, "session_id": session}


@lru_cache(maxsize=8)
def _namespace(session: str) -> UUID:
    return UUID(session)


def assistant_message(
    session: str, asked: int, model: str, content: list[Line], reply: Replied | None = None
) -> Line:
    """A message of the Messages API; without `reply` one that has not ended.

    Its id is the same for the partial messages of request `asked` and for the whole message.
    """
    return {
        "id": f"msg_{uuid5(_namespace(session), f'message.{asked}').hex}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": STOPS.get(reply.stop) if reply else None,
        "stop_sequence": None,
        "usage": usage_line(reply.usage if reply else Usage()),
    }


def usage_line(usage: Usage) -> Line:
    """Usage in the spelling of the stream."""
    searches = (
        {"server_tool_use": {"web_search_requests": usage.web_searches}}
        if usage.web_searches
        else {}
    )
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        **searches,
    }


def tool_input(call: ToolCall) -> Line:
    """Arguments of a call; the received text when it is no JSON object."""
    return {"received": call.received} if call.arguments is None else call.arguments


def reply_blocks(parts: Sequence[AnyPart], qualify: Callable[[str], str] = str) -> list[Line]:
    """Content of an assistant message; `qualify` maps call ids to those of the output."""
    blocks: list[Line] = []
    for part in parts:
        match part:
            case Text(text):
                blocks.append({"type": "text", "text": text})
            case Thinking(text):
                blocks.append({"type": "thinking", "thinking": text, "signature": ""})
            case ToolCall():
                call = unwrapped(part)
                blocks.append(
                    {
                        "type": "tool_use",
                        "id": qualify(call.id),
                        "name": call.name,
                        "input": tool_input(call),
                    }
                )
            case Image() | Document() | ToolResult():
                blocks.append({"type": "text", "text": part_text(part)})
    return blocks


def part_text(part: AnyPart) -> str:
    """`part` as plain text: a picture by name and size, a long text by its two ends."""
    match part:
        case Text(text) | Thinking(text):
            return text
        case Image():
            size = f", {part.width}x{part.height}" if part.width else ""
            return f"[image {part.media}{size}, {part.size_bytes} bytes]"
        case Document():
            kept = f"[{part.name or part.media}: {part.size_bytes} bytes in all]"
            return "\n".join(filter(None, (part.head, kept, part.tail)))
        case ToolResult():
            return "\n".join(map(part_text, part.parts))
        case ToolCall():
            return part.name
