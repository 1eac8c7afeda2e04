"""Originals by their handle, page by page: what the caller's loop gives the model back on a recall."""

import re
from collections.abc import Sequence

from longrein.events import (
    AnyPart,
    Entry,
    Reminded,
    Replied,
    Summarized,
    Text,
    ToolCall,
    ToolEnded,
    ToolError,
    UserSpoke,
    parse_handle,
    text_of,
)

PAGE_CHARS_MAX = 16_000
"""Text of one page."""
_RANGE = re.compile(r"\s*(?:(\d{1,9})?\s*(-)?\s*(\d{1,9})?)\s*\Z")


def original(entries: Sequence[Entry], handle: str) -> str:
    """The whole text that `handle` names. Raises `ToolError` for a handle that names nothing."""
    wanted = parse_handle(handle)
    if wanted is None or wanted.child:
        raise ToolError(
            f"[bad-handle] {handle[:40]!r} is no handle of this conversation; handles look like r12 or r12.2."
        )
    if wanted.seq > len(entries):
        raise ToolError(
            f"[unknown-handle] There is no entry {handle}; take the handle from a marker, do not guess one."
        )
    parts = _parts(entries[wanted.seq - 1])
    if not parts or wanted.part > len(parts):
        raise ToolError(f"[unknown-handle] {handle} holds no text; take the handle from a marker, do not guess one.")
    chosen = parts[wanted.part - 1 : wanted.part] if wanted.part else parts
    return "\n".join(map(_shown, chosen))


def _parts(entry: Entry) -> Sequence[AnyPart]:
    match entry.event:
        case UserSpoke(parts=parts) | Replied(parts=parts) | ToolEnded(parts=parts):
            return parts
        case Summarized(text=text) | Reminded(text=text) if text:
            return (Text(text),)
        case _:
            return ()


def _shown(part: AnyPart) -> str:
    if isinstance(part, ToolCall):
        return f"{part.name} {part.received or part.arguments}"
    return text_of((part,)) or f"({type(part).__name__.lower()}; it stands in the caller's list)"


def page(text: str, handle: str, lines: str) -> str:
    """One page of `text` under a line that says what it is of what, and how to get the next.

    `lines`: `100-200`, `100-`, `100` or '' for all, 1-based and inclusive. A line longer than a page is cut. Raises
    `ToolError` for any other range.
    """
    every = text.split("\n")
    first, last = _range(lines, len(every))
    chosen: list[str] = []
    size = 0
    for line in every[first - 1 : last]:
        size += len(line) + 1
        if chosen and size > PAGE_CHARS_MAX:
            break
        chosen.append(line[:PAGE_CHARS_MAX])
    end = first + len(chosen) - 1
    following = f'; next: lines="{end + 1}-"' if end < len(every) else ""
    return f"[{handle}: lines {first}-{end} of {len(every)}{following}]\n" + "\n".join(chosen)


def _range(lines: str, total: int) -> tuple[int, int]:
    match = _RANGE.match(lines)
    if match is None:
        raise ToolError(f'[bad-range] lines must look like "100-200" or "100-", not {lines[:40]!r}.')
    first = int(match[1] or 1)
    last = int(match[3]) if match[3] else (total if match[2] or not match[1] else first)
    if first < 1 or last < first or first > total:
        raise ToolError(f"[bad-range] there are lines 1 to {total}; {lines[:40]!r} is none of them.")
    return first, min(last, total)
