"""Export of a log as JSONL, and the plain chat transcript for other tools."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import msgspec

from longrein.store.database import entry_seq
from longrein.store.disk_errors import store_failure
from longrein.store.reader import Reader, entry_of, stored_body
from longrein.store.session_folder import make_folder, new_file
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyPart,
    Document,
    Entry,
    Image,
    Interrupted,
    Opened,
    Replied,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    ToolResult,
    UserSpoke,
    encode_entry,
    text_of,
)


def export_jsonl(reader: Reader, out: BinaryIO) -> int:
    """Write every entry as one line of JSONL (`events.encode_entry`); return their number.

    Older events are lifted to the current schema, events of a newer longrein are copied as they
    are. Raises `StoreDamaged` at an unreadable entry, OSError.
    """
    written = 0
    for row in reader.rows():
        key, at, version, _, _ = row
        if version < SCHEMA_VERSION:
            entry = entry_of(reader.folders, row)
            if isinstance(entry.event, Opened):
                opened = msgspec.structs.replace(entry.event, version=SCHEMA_VERSION)
                entry = msgspec.structs.replace(entry, event=opened)
            line = encode_entry(entry)
        else:
            line = b'{"seq":%d,"at":%d,"event":%s}' % (
                entry_seq(key),
                at,
                stored_body(reader.folders, row),
            )
        out.write(line + b"\n")
        written += 1
    return written


def write_transcript(folder: str, entries: Iterable[Entry]) -> str:
    """Write the conversation to `transcript_<seconds>.jsonl` in `folder`, one `{"role", "content"}`
    a line; return the path.

    The name is the time of the last entry, with a number if the name is taken: no file is
    overwritten. Mode 0600. Raises `StoreFull`, `SessionError`.
    """
    kept = list(entries)
    stem = os.path.join(folder, f"transcript_{kept[-1].at // 1_000_000 if kept else 0}")
    try:
        make_folder(folder)
        path, descriptor = _new_unused_file(stem)
        with os.fdopen(descriptor, "wb") as file:
            for line in chat_turns(kept):
                file.write(msgspec.json.encode(line) + b"\n")
    except OSError as error:
        raise store_failure(error, folder) from None
    return path


def _new_unused_file(stem: str) -> tuple[str, int]:
    number, path = 1, f"{stem}.jsonl"
    while True:
        try:
            return path, new_file(path)
        except FileExistsError:
            number, path = number + 1, f"{stem}-{number + 1}.jsonl"


# --- Chat turns -----------------------------------------------------------------------------------
#
# The conversation of a log as `{"role", "content"}`, for tools that know nothing of longrein.


Turn = dict[str, Any]
"""A chat turn: `role` is `user` or `assistant`, `content` a text or a list of content blocks."""


def chat_turns(entries: Iterable[Entry]) -> Iterator[Turn]:
    """Convert entries to chat turns in the order they happened.

    The results of a reply's calls form one turn after it, in call order. Text that was later
    cleared, summarised or rewound is included; reminders are not.
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
            return {
                "type": "tool_use",
                "id": part.id,
                "name": part.name,
                "input": part.arguments or {},
            }
        case ToolResult():
            return _result(part.call, part.status, part.parts)
        case Image():
            return {
                "type": "text",
                "text": f"[image {part.media}, {part.size_bytes} bytes, blob {part.blob}]",
            }
        case Document():
            note = f"[{part.media}, {part.size_bytes} bytes, blob {part.blob}]"
            return {"type": "text", "text": "\n".join(filter(None, (text_of((part,)), note)))}
