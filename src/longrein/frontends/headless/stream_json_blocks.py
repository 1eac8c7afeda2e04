"""The shapes of single stream-json lines: ids, content blocks, usage. Pure."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID, uuid5

import msgspec

from longrein.events import (
    AnyPart,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    entry_uuid,
    unwrapped,
)

Line = dict[str, Any]
"""One line before it is encoded."""

STOPS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}
"""Our stop reasons as the stream spells them; an interrupted reply has none."""

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
"""Failure kinds as the stream spells them; all others are `unknown`."""

_encoder = msgspec.json.Encoder()


_SEPARATORS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
"""JSON may hold them bare, but many readers of lines break a line there."""


def encode(line: Line) -> bytes:
    """One line with its newline: UTF-8 whatever the locale, and no other line break in it."""
    try:
        data = _encoder.encode(line)
    except UnicodeEncodeError:  # a lone surrogate in a path or an argument
        return json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
    if b"\xe2\x80" in data or b"\xc2\x85" in data:
        for bare, escaped in _SEPARATORS:
            data = data.replace(bare, escaped)
    return data + b"\n"


def tail(session: str, key: int | str) -> Line:
    """The end of every line: its id and the session. `key` is a seq, or a name where no entry stands behind it."""
    uuid = entry_uuid(session, key) if isinstance(key, int) else str(uuid5(_namespace(session), key))
    return {"uuid": uuid, "session_id": session}


@lru_cache(maxsize=8)
def _namespace(session: str) -> UUID:
    return UUID(session)


def message_id(session: str, asked: int) -> str:
    """Id of the reply to request `asked`, the same while it streams and when it is whole."""
    return f"msg_{uuid5(_namespace(session), f'message.{asked}').hex}"


def usage_line(usage: Usage) -> Line:
    """Usage as the stream spells it."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
    }


def tool_input(call: ToolCall) -> Line:
    """Arguments of a call; what was received stands for them when it is no JSON object."""
    return {"received": call.received} if call.arguments is None else call.arguments


def reply_blocks(parts: Sequence[AnyPart], qualify: Callable[[str], str] = str) -> list[Line]:
    """Content of an assistant message; `named` says how calls are called."""
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
                    {"type": "tool_use", "id": qualify(call.id), "name": call.name, "input": tool_input(call)}
                )
            case Image() | Document() | ToolResult():
                blocks.append({"type": "text", "text": part_text(part)})
    return blocks


def part_text(part: AnyPart) -> str:
    """`part` as plain text: pictures are named, long text gives its two ends."""
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


def result_content(parts: Sequence[AnyPart]) -> str:
    """Content of a `tool_result` block."""
    return "\n".join(map(part_text, parts))
